// NCCL_ALGO and NCCL_PROTO, as NCCL 2.24 and later read them ("allreduce:tree,nvls;allgather:ring"; before, and without
// a collective's name, one list for all of them), and the scenario's pinned collectives. Source: the section
// Environment Variables of NCCL's user guide; the names of algorithms and collectives are those of
// src/device/../init.cc's ncclAlgoStr, ncclFuncStr and ncclProtoStr, compared without case.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "launch/fields.h"
#include "sim/base/document.h"
#include "sim/base/text_check.h"

namespace rehearse::launch {
namespace {

using Words = std::vector<std::pair<std::string_view, std::string_view>>;  // ours, NCCL's in lower case

const Words kNcclCollectives = {{"all_reduce", "allreduce"},
                                {"all_gather", "allgather"},
                                {"reduce_scatter", "reducescatter"},
                                {"broadcast", "broadcast"}};
const Words kNcclAlgorithms = {{"ring", "ring"},
                               {"tree", "tree"},
                               {"nvls", "nvls"},
                               {"nvls_tree", "nvlstree"},
                               {"pat", "pat"},
                               {"collnet_direct", "collnetdirect"},
                               {"collnet_chain", "collnetchain"}};
const Words kNcclProtocols = {{"ll", "ll"}, {"ll128", "ll128"}, {"simple", "simple"}};

std::string_view theirs_of(const Words& words, std::string_view ours) {
  for (const auto& [our, their] : words)
    if (our == ours) return their;
  return {};
}
std::string_view ours_of(const Words& words, std::string_view theirs) {
  for (const auto& [our, their] : words)
    if (their == theirs) return our;
  return {};
}

std::vector<std::string> parts(const std::string& text, char at) {
  std::vector<std::string> list(1);
  for (const char c : text) {
    if (c == at)
      list.emplace_back();
    else if (c != ' ')
      list.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return list;
}

// Of each collective that is named, the words; the key "" is of all others.
using Choices = std::map<std::string, std::vector<std::string>>;

std::optional<Choices> choices(Taken& taken, const char* variable, const Words& words) {
  const Setting* setting = taken.find(variable);
  const auto text = taken.text(variable);
  if (!text || text->empty()) return std::nullopt;
  Choices all;
  for (const std::string& entry : parts(*text, ';')) {
    const std::size_t colon = entry.find(':');
    const std::string collective = colon == std::string::npos ? "" : entry.substr(0, colon);
    if (!collective.empty() && ours_of(kNcclCollectives, collective).empty()) {
      taken.ignore(fmt::format("{} of {}, which no key pins", variable, one_line(collective)));
      continue;
    }
    for (const std::string& word : parts(entry.substr(colon == std::string::npos ? 0 : colon + 1), ',')) {
      if (word.starts_with('^')) {
        taken.ignore(fmt::format("{}: {} excludes, and a key can only choose", variable, one_line(word)));
        return std::nullopt;
      }
      const std::string_view ours = ours_of(words, word);
      if (ours.empty()) {
        taken.error(*setting, fmt::format("{} is none that can be pinned", detail::shown(word)),
                    "as in allreduce:tree or Ring,Tree");
        return std::nullopt;
      }
      all[collective].emplace_back(ours);
    }
  }
  return all.empty() ? std::nullopt : std::optional(all);
}

const std::vector<std::string>* chosen(const std::optional<Choices>& all, const std::string& collective) {
  if (!all) return nullptr;
  const auto own = all->find(collective);
  if (own != all->end()) return &own->second;
  const auto general = all->find("");
  return general == all->end() ? nullptr : &general->second;
}

// PAT is of gathers and scatters, trees and CollNet's chains of reductions alone: what NCCL itself passes over.
bool offered(std::string_view collective, std::string_view algorithm) {
  if (collective == "all_reduce") return algorithm != "pat";
  if (collective == "broadcast") return algorithm == "ring";
  return algorithm == "ring" || algorithm == "nvls" || algorithm == "pat" || algorithm == "collnet_direct";
}

// What the scenario says, else a topology's own file; those of names have no word of it.
bool gpudirect_of(const plan::ClusterRequest& cluster) {
  for (auto one = cluster.overrides.rbegin(); one != cluster.overrides.rend(); ++one)
    if (one->first == "gpudirect") return one->second != "false";
  if (!names_file(cluster.topology)) return true;
  try {
    Diagnostics unheard;  // the topology's own reader reports them
    const Document document = Document::from_file(cluster.topology, unheard);
    return document.root().kind() != Node::Kind::mapping || document.root().boolean("gpudirect", true);
  } catch (const InputError&) {
    return true;
  }
}

}  // namespace

bool names_file(std::string_view topology) {
  return topology.find('/') != std::string_view::npos || topology.ends_with(".yaml") || topology.ends_with(".yml");
}

std::vector<std::string> nccl_variables(Said& said) {
  std::map<std::string, std::vector<std::string>> algorithms, protocols;
  const auto add = [](std::vector<std::string>& list, std::string_view word) {
    if (!word.empty() && std::find(list.begin(), list.end(), word) == list.end()) list.emplace_back(word);
  };
  for (const plan::PinnedCollective& pin : said.scenario().cluster.collectives) {
    const std::string_view kind = theirs_of(kNcclCollectives, pin.kind);
    const std::string_view algorithm = theirs_of(kNcclAlgorithms, pin.algorithm);
    if (kind.empty() || (algorithm.empty() && pin.algorithm != "auto")) {
      said.left_out("cluster.collectives", fmt::format("{} {} is no choice of NCCL's", pin.kind, pin.algorithm));
      continue;
    }
    add(algorithms[std::string(kind)], algorithm);
    add(protocols[std::string(kind)], theirs_of(kNcclProtocols, pin.protocol));
  }
  // --deterministic-mode takes one word for all collectives (megatron/training/arguments.py, all_reduce_choices).
  if (said.scenario().training.deterministic && said.scenario().framework.deterministic_rings && !algorithms.empty()) {
    const auto all_are = [&](const char* word) {
      return algorithms.size() == 3 && std::all_of(algorithms.begin(), algorithms.end(), [&](const auto& kind) {
               return kind.second == std::vector<std::string>{word};
             });
    };
    if (!all_are("ring") && !all_are("tree"))
      said.left_out("cluster.collectives", "deterministic algorithms there take one word for all collectives: Ring");
    algorithms = {{"", {all_are("tree") ? "Tree" : "Ring"}}};
  }
  std::vector<std::string> lines;
  if (!gpudirect_of(said.scenario().cluster)) lines.emplace_back("NCCL_NET_GDR_LEVEL=LOC");
  for (const auto& [variable, all] : {std::pair{"NCCL_ALGO", algorithms}, {"NCCL_PROTO", protocols}}) {
    std::string text;
    for (const auto& [kind, words] : all) {
      if (words.empty()) continue;
      text += (text.empty() ? "" : ";") + kind + (kind.empty() ? "" : ":");
      for (std::size_t i = 0; i < words.size(); ++i) text += (i > 0 ? "," : "") + words[i];
    }
    if (!text.empty()) lines.push_back(fmt::format("{}='{}'", variable, text));
  }
  return lines;
}

// NCCL_NET_GDR_LEVEL: how far a GPU and a NIC may be apart for direct transfers (NCCL user guide, environment
// variables). A name of topoPathTypeStr, from near to far, or a number from before there were names, of which NCCL
// takes any and those above the last as the last (ncclGetLevel, src/graph/paths.cc). A NIC is at PIX at the nearest, so
// that nearer levels mean never.
void take_gpudirect(Taken& taken) {
  if (!taken.has("NCCL_NET_GDR_LEVEL")) return;
  const Setting* setting = taken.find("NCCL_NET_GDR_LEVEL");
  const std::optional<std::string> text = taken.text("NCCL_NET_GDR_LEVEL");
  if (!text) return;
  constexpr std::array<std::string_view, 10> kLevels = {"LOC", "NVL", "NVB", "C2C", "PIX",
                                                        "PXB", "P2C", "PXN", "PHB", "SYS"};
  constexpr std::ptrdiff_t kNearestNic = 4;
  const bool number = !text->empty() && text->find_first_not_of("0123456789") == std::string::npos;
  const auto level = std::find(kLevels.begin(), kLevels.end(), *text);
  if (!number && level == kLevels.end())
    return taken.error(*setting, fmt::format("{} is no distance of NCCL's", detail::shown(*text)),
                       "LOC, PIX, PXB, PHB or SYS");
  const bool never = number ? text->find_first_not_of('0') == std::string::npos : level - kLevels.begin() < kNearestNic;
  if (never) return taken.put("cluster.gpudirect", "false", setting);
  taken.assume("GPUs and NICs are near enough for NCCL_NET_GDR_LEVEL=" + *text);
}

std::optional<std::string> pinned_collectives(Taken& taken) {
  take_gpudirect(taken);
  const auto algorithms = choices(taken, "NCCL_ALGO", kNcclAlgorithms);
  const auto protocols = choices(taken, "NCCL_PROTO", kNcclProtocols);
  std::string out;
  for (const auto& [ours, theirs] : kNcclCollectives) {
    const auto* some = chosen(algorithms, std::string(theirs));
    const auto* speak = chosen(protocols, std::string(theirs));
    if (some == nullptr && speak == nullptr) continue;
    static const std::vector<std::string> kAny = {"auto"};
    for (const std::string& algorithm : some == nullptr ? kAny : *some) {
      if (algorithm != "auto" && !offered(ours, algorithm)) continue;
      for (const std::string& protocol : speak == nullptr ? kAny : *speak)
        out += fmt::format("{}{{kind: {}, algorithm: {}, protocol: {}}}", out.empty() ? "" : ", ", ours, algorithm,
                           protocol);
    }
  }
  if (out.empty()) return std::nullopt;
  const Setting* setting = taken.has("NCCL_ALGO") ? taken.find("NCCL_ALGO") : taken.find("NCCL_PROTO");
  taken.put("cluster.collectives", "[" + out + "]", setting);
  return out;
}

}  // namespace rehearse::launch
