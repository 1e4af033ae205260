// The scenario that an import makes: keys in the order of the table, a section each.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <vector>

#include "launch/fields.h"
#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/base/edit_distance.h"

namespace rehearse::launch {
namespace {

constexpr const char* kUsualCluster = "dgx-h100";

// In single quotes of YAML.
std::string yaml_quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2) text.insert(at, 1, '\'');
  return "'" + text + "'";
}

bool of_model(const std::string& key) {
  return key.starts_with("model.");
}

// Whether `key` is `name` but for a slip or two of the hand, or its first words: "tensor-model-parallel". Short words
// that differ are other words.
bool slip_of(std::string_view key, std::string_view name) {
  if (name.size() > key.size() && name.starts_with(key) && (name[key.size()] == '-' || name[key.size()] == '_'))
    return std::count_if(key.begin(), key.end(), [](char c) { return c == '-' || c == '_'; }) >= 1;
  constexpr std::size_t kLong = 8, kShort = 4;
  const std::size_t letters = name.size() - (name.rfind('.') + 1);  // of the last part
  const std::size_t most = letters >= kLong ? 2 : letters >= kShort ? 1 : 0;
  const std::size_t distance = edit_distance(key, name);
  return distance > 0 && distance <= most;
}

// Why the topology refuses cluster.gpudirect: false (sim/cluster/topology.cpp); "": it takes it, or cannot be read,
// which others report.
std::string refusal_of_gpudirect(const std::string& topology, const std::string& data_root) {
  const bool file = names_file(topology);
  if (!file && data_root.empty()) return "";
  try {
    Diagnostics unheard;
    const Document document =
        Document::from_file(file ? topology : fmt::format("{}/topologies/{}.yaml", data_root, topology), unheard);
    const Node root = document.root();
    if (root.kind() != Node::Kind::mapping) return "";
    if (root.get("kind").as_text().value_or("") == "composed" && root.has("pcie")) return "";
    return fmt::format("the nodes of {} have no PCIe links by which devices and NICs reach their host", topology);
  } catch (const InputError&) {
    return "";
  }
}

}  // namespace

std::string preset_text(const ImportHints& hints, const char* key) {
  const std::string model = hints.model.empty() ? kUsualModel : hints.model;
  const bool file = names_file(model);
  if (!file && hints.data_root.empty()) return "";
  try {
    Diagnostics unheard;
    const Document document =
        Document::from_file(file ? model : fmt::format("{}/scenarios/models/{}.yaml", hints.data_root, model), unheard);
    const Node root = document.root();
    return root.kind() == Node::Kind::mapping ? root.get(key).as_text().value_or("") : "";
  } catch (const InputError&) {
    return "";  // whoever reads the scenario tells
  }
}

void Taken::know_preset(const ImportHints& hints) {
  if (hints.model.empty()) return;
  preset_experts_ = !preset_text(hints, "experts").empty(),
  preset_latents_ = !preset_text(hints, "kv_lora_rank").empty();
}

void Taken::drop_gpudirect_where_refused(const std::string& topology, const std::string& data_root) {
  const std::string key = "cluster.gpudirect", value = value_of(key);
  if (value.empty()) return;
  const std::string why = refusal_of_gpudirect(topology, data_root);
  if (why.empty()) return;
  ignore(one_line(fmt::format("NCCL_NET_GDR_LEVEL: {}", why)));
  std::erase_if(report_.used, [&](const std::string& line) { return line.ends_with(": " + key + " " + value); });
  keys_.erase(key), places_.erase(key);
}

const Setting* Taken::slip_for(std::string_view key) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(), [&](const Setting& one) {
    return !asked_.contains(one.key) && slip_of(one.key, key);
  });
  return found == settings_.end() ? nullptr : &*found;
}

Imported Taken::finish(std::string format, const ImportHints& hints, std::string_view framework) {
  std::vector<std::string> missing;  // what was looked for and is not there
  std::copy_if(asked_.begin(), asked_.end(), std::back_inserter(missing),
               [&](const std::string& key) { return !holds(key); });
  for (const Setting& setting : settings_) {
    if (used_.contains(&setting)) continue;
    if (setting.line == 0) continue;
    // Without its value, which may be a token that is nobody's to read.
    const std::string name = name_of(setting);
    std::string text = fmt::format("{} (line {})", name.substr(0, name.find_first_of(" =")), setting.line);
    if (changes_step(setting)) {
      text =
          fmt::format("{}{} (line {})", name_of(setting),
                      setting.as.empty() && !setting.values.empty() ? " " + setting.values.front() : "", setting.line);
      report_.unmodelled.push_back(one_line(text));
      continue;
    }
    const auto meant =
        std::find_if(missing.begin(), missing.end(), [&](const std::string& key) { return slip_of(setting.key, key); });
    if (meant != missing.end() && !asked_.contains(setting.key))
      text += fmt::format("; did you mean {}{}?", prefix_, *meant);
    report_.ignored.push_back(one_line(text));
  }
  const bool shapes = given("model.layers") && given("model.hidden") && given("model.heads");
  std::string model = hints.model;
  if (model.empty() && !shapes && given("model")) model = value_of("model");
  if (model.empty() && !shapes) {
    model = kUsualModel;
    assume(fmt::format("the model {}, since no option that is known here names one (--model)", model));
  }
  if (!model.empty())
    for (auto key = keys_.begin(); key != keys_.end();) key = of_model(key->first) ? keys_.erase(key) : std::next(key);
  std::string cluster = hints.cluster;
  if (cluster.empty()) {
    cluster = kUsualCluster;
    assume(fmt::format("the topology {} (--cluster)", cluster));
  }
  drop_gpudirect_where_refused(cluster, hints.data_root);
  if (hints.gpus > 0) {
    keys_["cluster.gpus"] = fmt::format("{}", hints.gpus);
  } else if (!given("cluster.gpus")) {
    double ranks = 1;
    for (const char* key : {"plan.tensor", "plan.pipeline", "plan.context"}) {
      std::int64_t degree = 1;
      const std::string text = value_of(key);
      std::from_chars(text.data(), text.data() + text.size(), degree);
      ranks *= static_cast<double>(std::max<std::int64_t>(degree, 1));
    }
    keys_["cluster.gpus"] = fmt::format("{}", static_cast<std::int64_t>(std::min(ranks, 1e6)));
    assume(
        fmt::format("{} GPUs, one replica, since no option that is known here says how many nodes there are (--gpus)",
                    keys_["cluster.gpus"]));
  }
  assume(fmt::format("framework: {}", framework));
  problems_.throw_if_any();

  std::string out = fmt::format("# Made by rehearse import from a file of the format {}.\nrehearse: 1\n", format);
  if (!model.empty() && over_.empty()) out += fmt::format("model: {}\n", yaml_quoted(model));
  if (!model.empty() && !over_.empty()) {
    out += fmt::format("model:\n  preset: {}\n", yaml_quoted(model));
    for (const auto& [key, value] : over_) out += fmt::format("  {}: {}\n", key.substr(6), value);
  }
  if (model.empty()) {
    out += "model:\n";
    for (const plan::Key& key : plan::keys())
      if (const auto found = keys_.find(std::string(key.path)); found != keys_.end() && of_model(found->first))
        out += fmt::format("  {}: {}\n", key.path.substr(6),
                           key.type == plan::KeyType::text ? yaml_quoted(found->second) : found->second);
  }
  out += fmt::format("framework: {}\ncluster:\n  topology: {}\n", framework, yaml_quoted(cluster));
  for (const char* section : {"cluster", "plan", "training"}) {
    std::string body;
    for (const plan::Key& key : plan::keys())
      if (const auto found = keys_.find(std::string(key.path)); found != keys_.end() && key.section() == section)
        body += fmt::format("  {}: {}\n", key.leaf(), found->second);
    if (section != std::string_view("cluster") && !body.empty()) out += fmt::format("{}:\n", section);
    out += body;
  }
  Imported imported{std::move(format), std::move(out), report_, places_};
  return imported;
}

}  // namespace rehearse::launch
