// See difference.h.
#include "reports/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "reports/answers.h"
#include "reports/epoch.h"
#include "reports/op_class.h"
#include "reports/text.h"
#include "sim/base/quantile.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using result::OpRow;
using result::OpText;
using result::StoredResult;

// The order of the account's lines: kernels as a step runs them, then what they wait for, as breakdown_s has it.
constexpr std::string_view kOrder[] = {"gemm",           "attention",      "norm",
                                       "activation",     "elementwise",    "cross-entropy",
                                       "embedding",      "convolution",    "pooling",
                                       "optimizer",      "copies",         "input",
                                       "other kernels",  "exposed_tensor", "exposed_context",
                                       "exposed_expert", "exposed_data",   "exposed_pipeline",
                                       "exposed_input",  "straggler",      "bubble",
                                       "host",           "other",          kNotRecorded};

std::size_t place_of(std::string_view line) {
  return static_cast<std::size_t>(std::find(std::begin(kOrder), std::end(kOrder), line) - std::begin(kOrder));
}

std::vector<KeyDifference> differing_keys(const result::Result& a, const result::Result& b) {
  std::set<std::string> names;
  for (const auto* r : {&a, &b})
    for (const auto& [key, value] : r->scenario) names.insert(key);
  std::vector<KeyDifference> keys;
  for (const std::string& name : names) {
    const auto value = [&](const result::Result& r) {
      const auto found = r.scenario.find(name);
      return found == r.scenario.end() ? std::string("-") : found->second;
    };
    if (value(a) != value(b)) keys.push_back({name, {value(a), value(b)}});
  }
  return keys;
}

// "data all_reduce of 33.6 MB, 4 ranks" -> "ring ll128", of several "ring ll128, tree simple".
std::map<std::string, std::string> ways_by_call(const result::Result& r) {
  std::map<std::string, std::set<std::string>> ways;
  for (const result::CollectiveUse& c : r.collectives)
    ways[fmt::format("{} {} of {}, {} ranks", c.group, c.kind, format_bytes(Bytes(c.bytes)), c.ranks)].insert(
        way_of(c));
  std::map<std::string, std::string> joined;
  for (const auto& [call, names] : ways)
    for (const std::string& name : names) joined[call] += (joined[call].empty() ? "" : ", ") + name;
  return joined;
}

std::vector<KeyDifference> differing_ways(const result::Result& a, const result::Result& b) {
  const std::map<std::string, std::string> first = ways_by_call(a), second = ways_by_call(b);
  std::vector<KeyDifference> ways;
  for (const auto& [call, way] : first)
    if (const auto other = second.find(call); other != second.end() && other->second != way)
      ways.push_back({call, {way, other->second}});
  return ways;
}

Difference::Ratio ratio_of_samples(const result::Result& first, const result::Result& second) {
  const std::vector<std::int64_t>&a = first.samples.of_samples_ps, &b = second.samples.of_samples_ps;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] > 0) ratios.push_back(static_cast<double>(b[i]) / static_cast<double>(a[i]));
  if (ratios.empty()) return {};
  Difference::Ratio out;
  out.pairs = static_cast<std::int64_t>(ratios.size());
  const auto n = static_cast<double>(ratios.size());
  out.mean = std::accumulate(ratios.begin(), ratios.end(), 0.0) / n;
  std::sort(ratios.begin(), ratios.end());
  out.p2_5 = quantile_of_sorted(ratios, 0.025), out.p50 = quantile_of_sorted(ratios, 0.5),
  out.p97_5 = quantile_of_sorted(ratios, 0.975);
  return out;
}

std::string identity(const StoredResult& stored, const OpRow& row) {
  const OpText& op = stored.text_of(row);
  return fmt::format("{}/{}/{}/{}", row.rank, row.slot, op.body, op.op);
}

void join(Difference& d) {
  const StoredResult &a = *d.results[kFirst], &b = *d.results[kSecond];
  std::unordered_map<std::string, const OpRow*> of_second;
  of_second.reserve(b.ops.size());
  for (const OpRow& row : b.ops) of_second.emplace(identity(b, row), &row);
  for (const OpRow& row : a.ops) {
    JoinedOp& joined = d.ops.emplace_back();
    joined.rows[kFirst] = &row;
    const auto found = of_second.find(identity(a, row));
    if (found == of_second.end()) {
      ++d.alone[kFirst];
      continue;
    }
    joined.rows[kSecond] = found->second;
    of_second.erase(found);
    ++d.matched;
    const OpText &one = a.text_of(row), &other = b.text_of(*joined.rows[kSecond]);
    if (one.kind != other.kind || one.shape != other.shape) ++d.other_shape;
  }
  for (const OpRow& row : b.ops)
    if (of_second.contains(identity(b, row))) d.ops.push_back({{nullptr, &row}});
  d.alone[kSecond] = static_cast<std::int64_t>(of_second.size());
}

// Sums of durations by name; "" is left out. The second half of `name_of`'s pair sorts.
template <typename Name>
std::vector<OpGroup> grouped_by(const Difference& d, Name&& name_of) {
  std::map<std::pair<std::size_t, std::string>, OpGroup> groups;
  for (const std::size_t side : {kFirst, kSecond}) {
    const StoredResult& stored = *d.results[side];
    std::vector<OpGroup*> of_text;
    for (const OpText& op : stored.texts) {
      const auto [name, order] = name_of(op);
      OpGroup* group = nullptr;
      if (!name.empty()) {
        group = &groups[{order, std::string(name)}];
        group->name = name;
      }
      of_text.push_back(group);
    }
    for (const OpRow& row : stored.ops)
      if (OpGroup* group = of_text[row.text]; group != nullptr) {
        ++group->count[side];
        group->ps[side] += row.duration_ps;
      }
  }
  std::vector<OpGroup> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

void group(Difference& d) {
  using Named = std::pair<std::string, std::size_t>;
  d.classes = grouped_by(d, [](const OpText& op) -> Named {
    const std::string_view name = kernel_class(op.kind);
    return {std::string(name), place_of(name)};
  });
  d.collectives = grouped_by(d, [](const OpText& op) -> Named {
    if (!is_transfer(op)) return {};
    return {fmt::format("{} {} {}", op.kind, op.group.empty() ? op.stream : op.group, format_bytes(Bytes(op.bytes))),
            0};
  });
  constexpr std::string_view kPhases[] = {"forward", "recompute", "backward", "optimizer"};
  d.phases = grouped_by(d, [&](const OpText& op) -> Named {
    if (kernel_class(op.kind).empty()) return {};
    return {op.phase, static_cast<std::size_t>(std::find(std::begin(kPhases), std::end(kPhases), op.phase) -
                                               std::begin(kPhases))};
  });
}

void account(Difference& d) {
  std::map<std::pair<std::size_t, std::string>, AccountLine> lines;
  std::map<std::tuple<std::string, std::string, std::string>, AccountLine> details;
  for (const std::size_t side : {kFirst, kSecond})
    for (const AccountPart& part : step_account(*d.results[side]).parts) {
      AccountLine& line = lines[{place_of(part.line), part.line}];
      line.line = part.line;
      line.ps[side] += part.ps;
      AccountLine& detail = details[{part.line, part.detail, part.phase}];
      detail.line = part.line;
      detail.detail = part.detail.empty() ? part.line : part.detail;
      if (!part.phase.empty()) detail.detail = part.phase + " " + detail.detail;
      detail.ps[side] += part.ps;
    }
  for (auto& [key, line] : lines) d.account.push_back(std::move(line));
  for (auto& [key, detail] : details) d.details.push_back(std::move(detail));
  std::stable_sort(d.details.begin(), d.details.end(), [](const AccountLine& a, const AccountLine& b) {
    return std::abs(a.difference()) > std::abs(b.difference());
  });
}

std::string described(const AccountLine& line) {
  if (line.line == kNotRecorded) return "the reported step less the recorded one";
  if (line.detail.empty()) {
    std::string name = line.line;
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
  }
  if (line.line == "bubble") return "waiting, " + line.detail;
  if (line.line == "straggler") return "waiting for a slower rank, " + line.detail;
  return line.line.starts_with("exposed") ? "exposed " + line.detail : line.detail;
}

// The largest parts that go the way of the whole, until they make up most of it; then the largest against it.
std::string explained(const Difference& d) {
  constexpr double kMost = 0.75, kNotable = 0.2, kEnough = 0.5;
  constexpr std::size_t kParts = 3;
  const auto whole = static_cast<double>(d.step_difference_ps());
  const auto step = static_cast<double>(d.results[kFirst]->result.step_time_ps);
  // Single ops if a few of them say enough; else their classes.
  double by_details = 0;
  for (std::size_t i = 0; i < std::min(d.details.size(), kParts); ++i)
    by_details += static_cast<double>(d.details[i].difference());
  std::vector<AccountLine> parts = d.same_program() && by_details / whole >= kEnough ? d.details : d.account;
  std::stable_sort(parts.begin(), parts.end(), [](const AccountLine& a, const AccountLine& b) {
    return std::abs(a.difference()) > std::abs(b.difference());
  });
  std::string text, against;
  double sum = 0;
  std::size_t named = 0;
  for (const AccountLine& part : parts) {
    const auto difference = static_cast<double>(part.difference());
    const std::string item = fmt::format("{:+.1f}% {}", difference / step * 100, described(part));
    const bool along = difference * whole > 0;
    if (along && named < kParts && sum < kMost * std::abs(whole) && std::abs(difference) >= 0.02 * std::abs(whole)) {
      text += (named++ == 0 ? ": " : ", ") + item;
      sum += std::abs(difference);
    } else if (!along && against.empty() && std::abs(difference) > kNotable * std::abs(whole)) {
      against = "; against it " + item;
    }
  }
  return text + against;
}

std::string sentence(const Difference& d) {
  const auto step = static_cast<double>(d.results[kFirst]->result.step_time_ps);
  const double change = relative(step, static_cast<double>(d.results[kSecond]->result.step_time_ps));
  if (d.step_difference_ps() == 0) return "The step times are equal.";
  if (!std::isfinite(change)) return fmt::format("{} has no step time.", d.labels[kFirst]);
  std::string who = d.labels[kSecond];
  who[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(who[0])));
  if (change > 1)
    return fmt::format("{} takes {:.3g} times as long as {}{}.", who, change + 1, d.labels[kFirst], explained(d));
  const std::string much = fmt::format("{:.{}f}%", std::abs(change) * 100, std::abs(change) < 0.0005 ? 3 : 1);
  return change > 0 ? fmt::format("{} is {} slower than {}{}.", who, much, d.labels[kFirst], explained(d))
                    : fmt::format("{} takes {} less time than {}{}.", who, much, d.labels[kFirst], explained(d));
}

// "This machine ran 1.18 times slower while measured than while calibrated. ..."
std::string drift_sentence(const Difference& d) {
  if (d.drift <= 0 || std::abs(d.drift - 1) < 0.02) return "";
  const auto when = [&](std::size_t side) {
    const std::string& source = d.results[side]->result.source;
    if (d.labels[kFirst] == "A") return "for " + d.labels[side];
    return source == "measured" ? std::string("while measured") : std::string("while calibrated");
  };
  const double without = d.step_change_without_drift();
  return fmt::format("The machine ran {:.2f} times {} {} than {}; without that {} takes {:.1f}% {} time than {}.",
                     d.drift > 1 ? d.drift : 1 / d.drift, d.drift > 1 ? "slower" : "faster", when(kSecond),
                     when(kFirst), d.labels[kSecond], std::abs(without) * 100, without > 0 ? "more" : "less",
                     d.labels[kFirst]);
}

}  // namespace

double Difference::step_change_without_drift() const {
  return relative(static_cast<double>(results[kFirst]->result.step_time_ps) * (drift > 0 ? drift : 1),
                  static_cast<double>(results[kSecond]->result.step_time_ps));
}

double relative(double first, double second) {
  if (first == 0) return second == 0 ? 0 : std::numeric_limits<double>::infinity();
  return second / first - 1;
}

Difference difference(const StoredResult& first, const StoredResult& second) {
  Difference d;
  d.results = {&first, &second};
  d.labels = {"A", "B"};
  if (first.result.source != second.result.source) d.labels = {first.result.source, second.result.source};
  d.keys = differing_keys(first.result, second.result);
  d.ways = differing_ways(first.result, second.result);
  d.ratio = ratio_of_samples(first.result, second.result);
  join(d);
  group(d);
  account(d);
  d.sentence = sentence(d);
  if (first.result.pace.known() && second.result.pace.known())
    d.drift = slowdown(second.result.pace, first.result.pace);
  d.drift_sentence = drift_sentence(d);
  d.learning_rate = learning_rate_sentences(first.result, second.result, d.labels[kFirst], d.labels[kSecond]);
  return d;
}

}  // namespace rehearse::reports
