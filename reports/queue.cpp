// See queue.h.
#include "reports/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using result::QueueChoice;
using result::QueueResult;
using QueueJson = nlohmann::ordered_json;

constexpr double kQueueHour = 3600;

std::string lasts(double seconds) {
  constexpr double kLongest = 9e6;  // that Time holds, some 106 days
  if (seconds > kLongest) return grouped(seconds / 86400) + " days";
  return format_time(Time::from_seconds(seconds));
}

// Of some jobs: what each waited, and from coming to ending.
struct Waits {
  std::int64_t jobs = 0;
  double mean_wait = 0, worst_wait = 0, mean_turnaround = 0, first_start = 0, last_end = 0;
};

template <class Wanted>
Waits waits_of(const QueueResult& r, const Wanted& wanted) {
  Waits w;
  for (std::size_t j = 0; j < r.runs.size(); ++j) {
    if (!wanted(j)) continue;
    const result::QueuedRun& one = r.runs[j];
    const double wait = one.start_s - one.arrive_s;
    w.first_start = w.jobs == 0 ? one.start_s : std::min(w.first_start, one.start_s);
    w.last_end = std::max(w.last_end, one.end_s);
    w.mean_wait += wait;
    w.worst_wait = std::max(w.worst_wait, wait);
    w.mean_turnaround += one.end_s - one.arrive_s;
    ++w.jobs;
  }
  if (w.jobs > 0) w.mean_wait /= static_cast<double>(w.jobs), w.mean_turnaround /= static_cast<double>(w.jobs);
  return w;
}

std::vector<std::pair<std::string, double>> shares_of(const QueueResult& r) {
  const result::QueueShares& s = r.gpu_s;
  const double all = r.all_gpu_s();
  const auto share = [&](double gpu_s) { return all > 0 ? gpu_s / all : 0; };
  return {{"busy", share(s.busy)},
          {"switching", share(s.switching)},
          {"fragmented", share(s.fragmented)},
          {"too_few", share(s.too_few)},
          {"idle", share(s.idle)}};
}

std::string meaning_of(const std::string& share) {
  if (share == "fragmented") return "enough are free for the next job, but not together";
  if (share == "too_few") return "fewer are free than the next job needs";
  if (share == "idle") return "nothing waits";
  if (share == "switching") return "states of jobs are copied between turns";
  return "a job's";
}

std::string entries_table(const QueueResult& r, std::size_t width) {
  std::vector<std::vector<std::string>> rows{{"jobs", "number", "GPUs", "step", "each works", "mean wait", "all done"}};
  for (std::size_t e = 0; e < r.groups.size(); ++e) {
    const result::QueueGroup& entry = r.groups[e];
    const Waits w = waits_of(r, [&](std::size_t j) { return r.group_of[j] == e; });
    rows.push_back({entry.name, grouped(static_cast<double>(w.jobs)), grouped(static_cast<double>(entry.gpus)),
                    r.groups[e].step_s > 0 ? lasts(r.groups[e].step_s) : "-",
                    lasts(r.groups[e].work_s) + (entry.grows ? " and up" : ""), lasts(w.mean_wait), lasts(w.last_end)});
  }
  std::string text = align(rows, 0, width);
  for (const result::QueueGroup& entry : r.groups)
    if (!entry.batch.empty()) text += wrap(fmt::format("{}: batch: {}", entry.name, entry.batch), 0, width);
  return text;
}

QueueJson waits_json(const Waits& w) {
  return {{"jobs", w.jobs},
          {"mean_wait_s", w.mean_wait},
          {"longest_wait_s", w.worst_wait},
          {"mean_turnaround_s", w.mean_turnaround},
          {"first_start_s", w.first_start},
          {"last_end_s", w.last_end}};
}

bool any(std::size_t) {
  return true;
}

QueueJson summary_json(const QueueResult& r) {
  QueueJson json{{"makespan_s", r.makespan_s}, {"utilisation", r.utilisation()}};
  for (const auto& [name, share] : shares_of(r)) json["shares"][name] = share;
  json["waits"] = waits_json(waits_of(r, any));
  json["gpu_hours"] = r.all_gpu_s() / kQueueHour;
  if (r.price_per_gpu_hour > 0) json["dollars"] = r.all_gpu_s() / kQueueHour * r.price_per_gpu_hour;
  return json;
}

double longest_step(const QueueResult& r) {
  double longest = 0;
  for (const result::QueueGroup& group : r.groups) longest = std::max(longest, group.step_s);
  return longest;
}

const QueueChoice* best_of(const std::vector<QueueChoice>& choices) {
  const QueueChoice* best = nullptr;
  for (const QueueChoice& choice : choices)
    if (choice.problem.empty() && (best == nullptr || choice.result.makespan_s < best->result.makespan_s))
      best = &choice;
  return best;
}

}  // namespace

std::string queue_text(const QueueResult& r, std::size_t width) {
  const Waits all = waits_of(r, any);
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Machine", fmt::format("{} GPUs in {} hosts of {}", grouped(static_cast<double>(r.gpus())),
                              grouped(static_cast<double>(r.hosts)), r.topology)},
      {"Policy", r.policy_text},
      {"All done after", lasts(r.makespan_s)},
      {"Utilisation", percent(r.utilisation())},
      {"A job waits", fmt::format("{} on average, {} at most", lasts(all.mean_wait), lasts(all.worst_wait))},
      {"And takes", fmt::format("{} on average, from coming to ending", lasts(all.mean_turnaround))},
      {"GPU-hours", grouped(r.all_gpu_s() / kQueueHour)}};
  if (r.price_per_gpu_hour > 0)
    rows.push_back({"Cost", fmt::format("${}", grouped(r.all_gpu_s() / kQueueHour * r.price_per_gpu_hour))});
  std::string text = wrap(fmt::format("{}: {} jobs", r.name, grouped(static_cast<double>(r.runs.size()))), 0, width) +
                     labelled(rows) + "\nWhere the GPUs' time goes\n";
  for (const auto& [name, share] : shares_of(r))
    if (share > 0)
      text += fmt::format("  {}{}  {}\n", left(spaced(name), 12), right(percent(share), 6), meaning_of(name));
  return text + "\n" + entries_table(r, width);
}

std::string queue_json(const QueueResult& r) {
  QueueJson json{{"schema", "rehearse.queue/1"},
                 {"name", r.name},
                 {"topology", r.topology},
                 {"hosts", r.hosts},
                 {"gpus", r.gpus()},
                 {"policy", r.policy}};
  json.update(summary_json(r));
  json["entries"] = QueueJson::array();
  for (std::size_t e = 0; e < r.groups.size(); ++e) {
    QueueJson entry{{"name", r.groups[e].name}, {"gpus", r.groups[e].gpus}, {"work_s", r.groups[e].work_s}};
    if (r.groups[e].step_s > 0) entry["step_time_s"] = r.groups[e].step_s;
    if (!r.groups[e].batch.empty()) entry["batch"] = r.groups[e].batch;
    if (r.groups[e].copy_s > 0) entry["copy_s"] = r.groups[e].copy_s;
    entry.update(waits_json(waits_of(r, [&](std::size_t j) { return r.group_of[j] == e; })));
    json["entries"].push_back(std::move(entry));
  }
  json["jobs"] = QueueJson::array();
  for (std::size_t j = 0; j < r.runs.size(); ++j) {
    const result::QueuedRun& one = r.runs[j];
    json["jobs"].push_back({{"entry", r.group_of[j]},
                            {"gpus", r.groups[r.group_of[j]].gpus},
                            {"arrive_s", one.arrive_s},
                            {"start_s", one.start_s},
                            {"end_s", one.end_s}});
  }
  return json.dump(2) + "\n";
}

std::string queue_choices_text(const std::vector<QueueChoice>& choices, std::size_t width) {
  std::vector<std::vector<std::string>> rows{
      {"GPUs a job", "step", "jobs at once", "all done", "utilisation", "mean wait", "GPU-hours"}};
  std::string problems;
  for (const QueueChoice& c : choices) {
    if (!c.problem.empty()) {
      problems += wrap(fmt::format("{} GPUs: {}", c.gpus, c.problem), 0, width);
      continue;
    }
    const QueueResult& r = c.result;
    const double step = longest_step(r);
    const std::int64_t at_once = c.gpus <= r.devices ? r.hosts * (r.devices / c.gpus) : r.hosts / (c.gpus / r.devices);
    rows.push_back({grouped(static_cast<double>(c.gpus)), lasts(step), grouped(static_cast<double>(at_once)),
                    lasts(r.makespan_s), percent(r.utilisation()), lasts(waits_of(r, any).mean_wait),
                    grouped(r.all_gpu_s() / kQueueHour)});
  }
  std::string text = rows.size() > 1 ? align(rows, 0, width) : "";
  if (const QueueChoice* best = best_of(choices))
    text += "\n" + wrap(fmt::format("All are done first with {} GPUs a job: after {}.",
                                    grouped(static_cast<double>(best->gpus)), lasts(best->result.makespan_s)),
                        0, width);
  return text + problems;
}

std::string queue_choices_json(const std::vector<QueueChoice>& choices) {
  QueueJson json{{"schema", "rehearse.queue_choice/1"}};
  const QueueChoice* best = best_of(choices);
  json["best_gpus"] = best != nullptr ? QueueJson(best->gpus) : QueueJson();
  json["choices"] = QueueJson::array();
  for (const QueueChoice& c : choices) {
    QueueJson one{{"gpus", c.gpus}};
    if (c.problem.empty()) {
      one["step_time_s"] = longest_step(c.result);
      one.update(summary_json(c.result));
    } else {
      one["problem"] = c.problem;
    }
    json["choices"].push_back(std::move(one));
  }
  return json.dump(2) + "\n";
}

}  // namespace rehearse::reports
