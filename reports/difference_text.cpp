// The comparison for a terminal: what was compared, the step times and what explains their difference, the account that
// adds up, then classes, transfers, phases, memory and loss. Times of the account are of one rank's step, the others
// sums over the recorded ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/batch.h"
#include "reports/difference.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

constexpr std::size_t kMostKeys = 12, kMostDetails = 8, kMostTransfers = 12, kMostStages = 12, kMostWays = 6;

using Rows = std::vector<std::vector<std::string>>;

std::string plain_time(std::int64_t ps) {
  return ps < 0 ? "-" + format_time(Time::from_ps(-ps)) : format_time(Time::from_ps(ps));
}

std::string signed_time(std::int64_t ps) {
  return ps > 0 ? "+" + plain_time(ps) : plain_time(ps);
}

std::string relative_change(double share) {
  if (!std::isfinite(share)) return "new";
  return std::abs(share) >= 10 ? fmt::format("x{:.3g}", share + 1) : fmt::format("{:+.1f}%", share * 100);
}

std::string change(std::int64_t a, std::int64_t b) {
  return relative_change(relative(static_cast<double>(a), static_cast<double>(b)));
}

std::string with_spaces(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

constexpr const char* kRest = "reported less recorded step";

std::string shown(std::int64_t hidden, std::string_view what) {
  return hidden > 0 ? fmt::format("  and {} more {}\n", hidden, what) : "";
}

std::string heading(const Difference& d) {
  const bool by_source = d.labels[kFirst] != "A";
  std::string out;
  for (const std::size_t side : {kFirst, kSecond}) {
    const result::Result& r = d.results[side]->result;
    const std::string source = by_source ? "" : r.source + ", ";
    out += clip(left(d.labels[side], 11) + (r.scenario_name.empty() ? "(no name)" : r.scenario_name), kWidth) + '\n';
    out += wrap(fmt::format("{}{} rank{}, {}", source, grouped(static_cast<double>(r.ranks)), r.ranks == 1 ? "" : "s",
                            d.results[side]->directory),
                11);
    if (const std::string batch = batch_text(r); !batch.empty()) out += wrap("batch: " + batch, 11);
  }
  return out + '\n';
}

std::string keys(const Difference& d) {
  if (d.keys.empty()) return "";
  Rows rows = {{"Keys that differ", d.labels[kFirst], d.labels[kSecond]}};
  // The plan's keys say most about why the programs differ.
  std::vector<KeyDifference> sorted = d.keys;
  std::stable_partition(sorted.begin(), sorted.end(), [](const auto& k) { return k.key.starts_with("plan."); });
  for (std::size_t i = 0; i < std::min(sorted.size(), kMostKeys); ++i)
    rows.push_back({"  " + sorted[i].key, clip(sorted[i].values[kFirst], 22), clip(sorted[i].values[kSecond], 22)});
  return align(rows) +
         shown(static_cast<std::int64_t>(sorted.size()) - static_cast<std::int64_t>(rows.size()) + 1, "keys") + '\n';
}

std::string ways(const Difference& d) {
  if (d.ways.empty()) return "";
  Rows rows = {{"Collectives that go another way", d.labels[kFirst], d.labels[kSecond]}};
  for (std::size_t i = 0; i < std::min(d.ways.size(), kMostWays); ++i)
    rows.push_back(
        {"  " + clip(d.ways[i].key, 34), clip(d.ways[i].values[kFirst], 20), clip(d.ways[i].values[kSecond], 20)});
  return align(rows) +
         shown(static_cast<std::int64_t>(d.ways.size()) - static_cast<std::int64_t>(rows.size()) + 1, "collectives") +
         '\n';
}

std::string matching(const Difference& d) {
  const auto n = [](std::int64_t count) { return grouped(static_cast<double>(count)); };
  if (d.matched + d.alone[kFirst] + d.alone[kSecond] == 0) return wrap("No ops were recorded.") + '\n';
  if (d.same_program()) return wrap(fmt::format("The same program: all {} recorded ops match.", n(d.matched))) + '\n';
  std::string out = fmt::format("Another program: {} ops match", n(d.matched));
  if (d.other_shape > 0) out += fmt::format(" ({} of them with another shape)", n(d.other_shape));
  out += fmt::format(", {} are only in {}, {} only in {}. What follows compares sums, not op by op.",
                     n(d.alone[kFirst]), d.labels[kFirst], n(d.alone[kSecond]), d.labels[kSecond]);
  return wrap(out) + '\n';
}

std::string targets(const Difference& d) {
  if (!d.targets[kFirst].known) return "";
  Rows rows = {{fmt::format("Time to a loss of {:.4g}", d.targets[kFirst].loss), d.labels[kFirst], d.labels[kSecond]},
               {"  step"},
               {"  time"}};
  for (const result::LossTarget& t : d.targets) {
    rows[1].push_back(t.step >= 0 ? grouped(static_cast<double>(t.step)) : "not reached");
    rows[2].push_back(t.step >= 0 ? format_time(Time::from_ps(t.ps)) : "-");
  }
  return align(rows) + wrap(fmt::format("The mean of {} steps counts.", d.targets[kFirst].window), 2) + '\n';
}

std::string ratio(const Difference& d) {
  if (d.ratio.pairs == 0) return "";
  return wrap(fmt::format("Over {} pairs of samples {} / {} is {:.4g} in the mean; 95% lie from {:.4g} to {:.4g}.",
                          grouped(static_cast<double>(d.ratio.pairs)), d.labels[kSecond], d.labels[kFirst],
                          d.ratio.mean, d.ratio.p2_5, d.ratio.p97_5)) +
         '\n';
}

std::string account(const Difference& d) {
  const std::int64_t step = d.results[kFirst]->result.step_time_ps;
  const auto of_step = [&](std::int64_t ps) {
    return step > 0 ? fmt::format("{:+.2f}%", static_cast<double>(ps) / static_cast<double>(step) * 100) : "";
  };
  Rows rows = {{"The step, mean over recorded ranks", d.labels[kFirst], d.labels[kSecond], "difference", "of step"}};
  const auto add = [&](const std::string& name, const Pair<std::int64_t>& ps) {
    const std::int64_t difference = ps[kSecond] - ps[kFirst];
    rows.push_back(
        {name, plain_time(ps[kFirst]), plain_time(ps[kSecond]), signed_time(difference), of_step(difference)});
  };
  for (const AccountLine& line : d.account)
    if (line.ps != Pair<std::int64_t>{})
      add("  " + (line.line == kNotRecorded ? kRest : with_spaces(line.line)), line.ps);
  add("step", {step, d.results[kSecond]->result.step_time_ps});
  return align(rows) + '\n';
}

std::string contributions(const Difference& d) {
  const auto step = static_cast<double>(d.results[kFirst]->result.step_time_ps);
  Rows rows = {{"Largest contributions", d.labels[kFirst], d.labels[kSecond], "of step"}};
  for (const AccountLine& line : d.details) {
    if (line.difference() == 0 || rows.size() > kMostDetails || step == 0) break;
    std::string name = line.line == kNotRecorded ? kRest : line.detail;
    if (line.line == "bubble" || line.line == "straggler" || line.line.starts_with("exposed"))
      name = line.line.substr(0, line.line.find('_')) + ": " + name;
    rows.push_back({"  " + name, plain_time(line.ps[kFirst]), plain_time(line.ps[kSecond]),
                    fmt::format("{:+.2f}%", static_cast<double>(line.difference()) / step * 100)});
  }
  return rows.size() == 1 ? "" : align(rows) + '\n';
}

std::string group_table(const Difference& d, const std::string& title, std::vector<OpGroup> groups, std::size_t most) {
  if (groups.empty()) return "";
  const std::size_t all = groups.size();
  if (all > most) {
    std::stable_sort(groups.begin(), groups.end(), [](const OpGroup& a, const OpGroup& b) {
      return std::max(a.ps[0], a.ps[1]) > std::max(b.ps[0], b.ps[1]);
    });
    groups.resize(most);
  }
  Rows rows = {{title, "count", d.labels[kFirst], d.labels[kSecond], "change"}};
  for (const OpGroup& g : groups) {
    const std::string count = grouped(static_cast<double>(g.count[kFirst]));
    rows.push_back({"  " + g.name,
                    g.count[kFirst] == g.count[kSecond]
                        ? count
                        : fmt::format("{} | {}", count, grouped(static_cast<double>(g.count[kSecond]))),
                    plain_time(g.ps[kFirst]), plain_time(g.ps[kSecond]), change(g.ps[kFirst], g.ps[kSecond])});
  }
  return align(rows) + shown(static_cast<std::int64_t>(all - groups.size()), "kinds") + '\n';
}

std::string memory(const Difference& d) {
  const auto &a = d.results[kFirst]->result.stages, &b = d.results[kSecond]->result.stages;
  const std::size_t stages = std::max(a.size(), b.size());
  Rows rows = {{"Peak memory a rank", d.labels[kFirst], d.labels[kSecond], "change"}};
  const auto peak = [](const auto& list, std::size_t i) { return i < list.size() ? list[i].peak : -1; };
  std::size_t listed = 0;
  for (std::size_t i = 0; i < stages && listed < kMostStages; ++listed) {
    std::size_t end = i + 1;
    while (end < stages && peak(a, end) == peak(a, i) && peak(b, end) == peak(b, i)) ++end;
    const auto text = [](std::int64_t bytes) { return bytes < 0 ? std::string("-") : format_bytes(Bytes(bytes)); };
    const bool both = peak(a, i) >= 0 && peak(b, i) >= 0;
    rows.push_back({end - i == 1 ? fmt::format("  stage {}", i) : fmt::format("  stages {}-{}", i, end - 1),
                    text(peak(a, i)), text(peak(b, i)), both ? change(peak(a, i), peak(b, i)) : ""});
    i = end;
  }
  return stages == 0 ? "" : align(rows) + '\n';
}

std::string loss(const Difference& d) {
  const auto &a = d.results[kFirst]->result.loss, &b = d.results[kSecond]->result.loss;
  std::string out;
  for (const std::size_t side : {kFirst, kSecond}) {
    const auto& losses = d.results[side]->result.loss;
    if (!losses.empty())
      out += wrap(fmt::format("Loss, {}: {:.4f} at first, {:.4f} at step {}", d.labels[side], losses.front(),
                              losses.back(), losses.size()));
  }
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(relative(a[i], b[i])));
  if (!a.empty() && !b.empty()) out += wrap(fmt::format("Losses of the same step differ by {:.2g} at most.", worst));
  return out;
}

}  // namespace

std::string difference_table(const Difference& d) {
  const std::int64_t a = d.results[kFirst]->result.step_time_ps, b = d.results[kSecond]->result.step_time_ps;
  std::string out = heading(d) + ratio(d) + targets(d) + keys(d) + ways(d) + matching(d);
  out += wrap(d.sentence);
  if (!d.drift_sentence.empty()) out += wrap(d.drift_sentence);
  for (const std::string& one : d.learning_rate) out += wrap(one);
  out += '\n';
  out += account(d) + contributions(d);
  out += group_table(d, "Kernels, all recorded ranks", d.classes, 20);
  out += group_table(d, "Transfers, with waiting for peers", d.collectives, kMostTransfers);
  out += group_table(d, "Kernels by phase", d.phases, 10);
  out += memory(d) + loss(d);
  if (d.labels[kFirst] == "simulated")
    out += wrap(fmt::format("Prediction error of the step: {}",
                            relative_change(relative(static_cast<double>(b), static_cast<double>(a)))));
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace rehearse::reports
