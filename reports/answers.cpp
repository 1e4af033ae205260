// See answers.h. Shares of links are of their capacity; changes are of the step reported.
#include "reports/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "reports/limits.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using result::LinkUse;
using result::NoiseCause;
using result::Result;

struct LeverName {
  std::string_view what, name;
  bool rate;
};
constexpr std::array<LeverName, 6> kLevers = {{{"compute", "compute rate", true},
                                               {"memory_bandwidth", "memory bandwidth", true},
                                               {"nvlink", "links inside a node", true},
                                               {"nic", "NICs and network", true},
                                               {"latency", "transfers' latency", false},
                                               {"launch", "host launch cost", false}}};
constexpr std::size_t kTerminalLinks = 6, kTerminalCollectives = 4;

LeverName lever(const std::string& what) {
  for (const LeverName& known : kLevers)
    if (known.what == what) return known;
  return {what, what, true};
}

std::string time_text(std::int64_t ps) {
  return format_time(Time::from_ps(ps));
}

// "+12.3%", "-45.0%", "0.0%".
std::string signed_change(double change) {
  const std::string text = percent(change);
  return change > 0 && text != "0.0%" ? "+" + text : text == "-0.0%" ? "0.0%" : text;
}

double change_of(std::int64_t ps, std::int64_t to) {
  return to > 0 ? static_cast<double>(ps - to) / static_cast<double>(to) : 0;
}

// " costs 1.2 s a step, 18.0% more than without it"
std::string costs(const Result& r, const NoiseCause& cause, std::string_view verb, std::string_view it) {
  const std::int64_t cost = r.step_time_ps - cause.without_ps;
  if (cost == 0) return fmt::format(" {} nothing in this step: others are in its way more.", verb);
  const bool gain = cost < 0;
  return fmt::format(" {} {} a step, {} {} than without {}.", gain ? verb == "cost" ? "gain" : "gains" : verb,
                     time_text(gain ? -cost : cost), percent(std::abs(change_of(r.step_time_ps, cause.without_ps))),
                     gain ? "less" : "more", it);
}

std::string sentence_of(const Result& r, const NoiseCause& cause) {
  if (cause.what == "slow_rank")
    return fmt::format("Rank {} is slow (its kernels take {:.4g} times as long): that", cause.rank, cause.factor) +
           costs(r, cause, "costs", "it");
  if (cause.what == "slow_ranks")
    return fmt::format("The {} slow ranks together", cause.count) + costs(r, cause, "cost", "them");
  if (cause.what == "links")
    return fmt::format("Slow links '{}' ({})", cause.resources, cause.count) + costs(r, cause, "cost", "them");
  if (cause.what == "rank_step")
    return "That ranks are slow or fast for a step, each by its own factor," + costs(r, cause, "costs", "it");
  if (cause.what == "machine")
    return "The scatter of this machine's times, as its calibration measured it," + costs(r, cause, "costs", "it");
  return fmt::format("Jitter of {}", cause.what) + costs(r, cause, "costs", "it");
}

std::string alike(const LinkUse& link) {
  return link.alike > 1 ? grouped(static_cast<double>(link.alike)) : "1";
}

double user_share(const LinkUse& link, std::size_t user) {
  return link.bytes > 0 ? static_cast<double>(link.users[user].bytes) / static_cast<double>(link.bytes) : 0;
}

std::string part(std::string_view title, const std::string& body) {
  return body.empty() ? "" : fmt::format("{}\n{}\n", title, body);
}

// Of a user of another job, "NAME: data all_reduce 50%", the name clipped.
std::string short_user(const std::string& user) {
  constexpr std::size_t kName = 12;
  const std::size_t end = user.rfind(": ");
  return end == std::string::npos ? user : clip(user.substr(0, end), kName) + user.substr(end);
}

std::string links_text(const Result& r) {
  if (r.links.busiest.empty()) return "";
  Rows rows = link_rows(r, kTerminalLinks);
  for (std::vector<std::string>& row : rows) row.back() = short_user(row.back());
  std::string out = align(rows, 2);
  return part("Busiest links (share of their capacity)", out + wrap(link_sentence(r, r.links.busiest.front()), 2));
}

std::string what_if_text(const Result& r) {
  std::string out = align(what_if_rows(r), 2);
  for (const std::string& sentence : what_if_sentences(r)) out += wrap(sentence, 2);
  return out;
}

// Without the columns that 80 characters have no room for.
std::string jobs_text(const Result& r) {
  constexpr std::size_t kName = 30, kColumns = 6;
  Rows rows = job_rows(r);
  for (std::vector<std::string>& row : rows) {
    row.resize(kColumns);
    row[0] = clip(row[0], kName);
  }
  return align(rows, 2);
}

std::string noise_text(const Result& r) {
  std::string out;
  for (const std::string& sentence : noise_sentences(r)) out += wrap(sentence, 2);
  return out;
}

// Memory so near to full that a real run may not fit; "" where there is room, or where the scenario says what is enough
// of it. What frameworks hold and waste is an estimate within a few percent of the device (sim/plan/framework), and 5%
// is what TensorFlow left to the system by default (gpu_device.cc, MinSystemMemory: the larger of 300 MiB and 5%).
std::string nearly_full(const Result& r) {
  constexpr double kLittle = 0.05;
  const result::StageMemory* worst = largest_stage(r);
  if (r.source == "measured" || !r.memory_fits || r.memory_headroom > 0 || worst == nullptr || on_cpu(r)) return "";
  if (r.memory_capacity <= 0) return "";
  const double left = static_cast<double>(r.memory_capacity - worst->peak) / static_cast<double>(r.memory_capacity);
  if (left >= kLittle) return "";
  return fmt::format(
      "Memory is nearly full: stage {} leaves {} of {} a GPU free, {}. What a framework holds and wastes beside "
      "tensors is estimated, so a real run may not fit; with cluster.headroom=5% such a plan counts as one that "
      "does not.",
      worst->stage, format_bytes(Bytes(r.memory_capacity - worst->peak)), format_bytes(Bytes(r.memory_capacity)),
      percent(left));
}

}  // namespace

std::string way_of(const result::CollectiveUse& use) {
  return use.algorithm + (use.protocol.empty() ? "" : " " + use.protocol) + (use.pinned ? " (pinned)" : "");
}

std::vector<Gain> gains(const Result& r) {
  std::vector<Gain> list;
  for (const result::WhatIf& w : r.what_if) {
    const LeverName known = lever(w.what);
    const std::int64_t step = known.rate ? w.doubled_ps : w.halved_ps;
    list.push_back({std::string(known.name), known.rate, step, -change_of(step, r.step_time_ps)});
  }
  std::stable_sort(list.begin(), list.end(), [](const Gain& a, const Gain& b) { return a.step_ps < b.step_ps; });
  return list;
}

Rows sample_rows(const Result& r) {
  if (r.samples.count == 0) return {};
  Rows rows = {{"", "p5", "p50", "p95"}};
  const auto add = [&](std::string name, const result::Quantiles& q) {
    rows.push_back({std::move(name), time_text(q.p5), time_text(q.p50), time_text(q.p95)});
  };
  add("step", r.samples.step_ps);
  for (std::size_t i = 0; i < result::kShares; ++i)
    if (r.samples.breakdown_ps[i].p95 > 0) add(spaced(result::kShareNames[i]), r.samples.breakdown_ps[i]);
  return rows;
}

std::vector<std::string> noise_sentences(const Result& r) {
  std::vector<std::string> list;
  if (!r.noise.known) return list;
  list.push_back(fmt::format("Without noise the step would take {}; noise makes it {} longer (seed {}, sample {}).",
                             time_text(r.noise.without_ps), percent(change_of(r.step_time_ps, r.noise.without_ps)),
                             r.noise.seed, r.noise.sample));
  for (const NoiseCause& cause : r.noise.causes) list.push_back(sentence_of(r, cause));
  return list;
}

Rows link_rows(const Result& r, std::size_t most) {
  if (r.links.busiest.empty()) return {};
  Rows rows = {{"link", "alike", "step", "peak", "bytes", "mostly"}};
  for (std::size_t i = 0; i < std::min(most, r.links.busiest.size()); ++i) {
    const LinkUse& link = r.links.busiest[i];
    const std::string mostly =
        link.users.empty() ? "" : fmt::format("{} {:.0f}%", link.users[0].name, 100 * user_share(link, 0));
    rows.push_back({link.name, alike(link), percent(result::utilisation(link, link.bytes, r.step_time_ps)),
                    percent(result::utilisation(link, link.window_bytes, link.window_ps)),
                    format_bytes(Bytes(link.bytes)), mostly});
  }
  return rows;
}

std::string link_sentence(const Result& r, const LinkUse& link) {
  const double busy = r.step_time_ps > 0 ? static_cast<double>(link.busy_ps) / static_cast<double>(r.step_time_ps) : 0;
  std::string out = fmt::format("{}: in use for {} of the {}, from {} to {}; most in the tenth from {}: {} of {}",
                                link.name, percent(busy), r.local_steps.known ? "round" : "step",
                                time_text(link.first_ps), time_text(link.last_ps), time_text(link.window_from_ps),
                                percent(result::utilisation(link, link.window_bytes, link.window_ps)),
                                format_bandwidth(Bandwidth(link.capacity)));
  for (std::size_t u = 0; u < link.users.size() && user_share(link, u) >= 0.0005; ++u)
    out += fmt::format("{} {} {}", u == 0 ? "; for" : ",", link.users[u].name, percent(user_share(link, u)));
  return out + ".";
}

Rows what_if_rows(const Result& r) {
  if (r.what_if.empty()) return {};
  Rows rows = {{"", "halved", "step", "doubled", "step"}};
  for (const result::WhatIf& w : r.what_if)
    rows.push_back({std::string(lever(w.what).name), time_text(w.halved_ps),
                    signed_change(change_of(w.halved_ps, r.step_time_ps)), time_text(w.doubled_ps),
                    signed_change(change_of(w.doubled_ps, r.step_time_ps))});
  return rows;
}

std::vector<std::string> what_if_sentences(const Result& r) {
  std::vector<std::string> list;
  for (const result::WhatIf& w : r.what_if)
    if (!w.why.empty()) {
      std::string name(lever(w.what).name);
      name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
      list.push_back(fmt::format("{}: {}", name, w.why));
    }
  return list;
}

std::string collective_path_sentence(const Result& r) {
  for (const result::CollectiveUse& use : r.collectives) {
    if (use.path == "gpudirect") return "Between nodes bytes go straight from GPUs to NICs (GPUDirect).";
    if (use.path == "host_memory")
      return "Between nodes bytes go through the memory of the hosts, over PCIe links that GPUs and NICs share "
             "(cluster.gpudirect: false).";
  }
  return "";
}

Rows collective_rows(const Result& r, std::size_t most) {
  if (r.collectives.empty()) return {};
  Rows rows = {{"", "ranks", "bytes", "calls", "time", "algorithm", "channels", "known"}};
  for (std::size_t i = 0; i < std::min(most, r.collectives.size()); ++i) {
    const result::CollectiveUse& c = r.collectives[i];
    rows.push_back({clip(fmt::format("{} {}", c.group, c.kind), 24), grouped(static_cast<double>(c.ranks)),
                    format_bytes(Bytes(c.bytes)), grouped(static_cast<double>(c.count)),
                    c.mean_ps > 0 ? time_text(c.mean_ps) : "-", way_of(c),
                    c.channels > 0 ? fmt::format("{}", c.channels) : "-", c.coverage});
  }
  return rows;
}

Rows job_rows(const Result& r) {
  if (r.jobs.empty()) return {};
  Rows rows = {{"job", "GPUs", "step", "alone", "slowdown", "steps", "least", "most"}};
  for (const result::JobResult& job : r.jobs)
    rows.push_back({job.name, grouped(static_cast<double>(job.gpus)), time_text(job.step_ps), time_text(job.alone_ps),
                    fmt::format("{:.3f}", job.slowdown), grouped(static_cast<double>(job.steps)),
                    time_text(job.least_ps), time_text(job.most_ps)});
  return rows;
}

std::vector<std::string> warnings(const Result& r) {
  std::vector<std::string> found;
  if (result::mfu(r) > 1)
    found.push_back(
        fmt::format("MFU is above 100%: {} of the peak that the device's file gives for this precision. Either that "
                    "peak or the costs are wrong, or they are of different devices.",
                    percent(result::mfu(r))));
  for (std::size_t j = 1; j < r.jobs.size(); ++j)
    if (const result::JobResult& job = r.jobs[j]; job.peak_bytes > job.memory_capacity - r.memory_headroom)
      found.push_back(
          fmt::format("Job {} does not fit in memory: it needs {} of {} a GPU{}, and is simulated as if it did.",
                      job.name, format_bytes(Bytes(job.peak_bytes)),
                      format_bytes(Bytes(job.memory_capacity - r.memory_headroom)), headroom_words(r)));
  if (const std::string text = nearly_full(r); !text.empty()) found.push_back(text);
  return found;
}

std::string collectives_text(const Result& r) {
  constexpr std::size_t kTerminalColumns = 6;
  if (r.collectives.empty()) return "";
  Rows rows = collective_rows(r, kTerminalCollectives);
  for (std::vector<std::string>& row : rows) row.resize(kTerminalColumns);
  std::string out = align(rows, 2);
  if (r.collectives.size() > kTerminalCollectives)
    out += fmt::format("  and {} more in result.json\n", r.collectives.size() - kTerminalCollectives);
  if (const std::string path = collective_path_sentence(r); !path.empty()) out += wrap(path, 2);
  return part(r.local_steps.known ? "Collectives (calls of a round; mean time from when all had come)"
                                  : "Collectives (mean time from when all had come)",
              out);
}

std::string answers_text(const Result& r) {
  std::string out;
  if (r.samples.count > 0)
    out += part(fmt::format("Over {} samples of the noise (above: sample {}, the median step)",
                            grouped(static_cast<double>(r.samples.count)), r.samples.reported),
                align(sample_rows(r), 2) + wrap(fmt::format("least {}, most {}, mean {}", time_text(r.samples.least_ps),
                                                            time_text(r.samples.most_ps), time_text(r.samples.mean_ps)),
                                                2));
  out += part("What noise costs", noise_text(r));
  out += part("Jobs on the cluster (mean step alongside the others, and alone)", jobs_text(r));
  out += collectives_text(r);
  out += links_text(r);
  if (!r.what_if.empty()) out += part("What if (one at a time)", what_if_text(r));
  return out;
}

}  // namespace rehearse::reports
