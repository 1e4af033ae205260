// See jobs.h.
#include "sim/run/jobs.h"

#include <algorithm>

#include "sim/base/check.h"
#include "sim/base/in_parallel.h"
#include "sim/engine/wide.h"
#include "sim/run/device_kinds.h"

namespace rehearse::run {

namespace {

// Of a job's steps those that are counted: from the second on, begun when all jobs had started. The scenario's own job
// goes on from a standstill once it has done its steps (engine.h); the step after is no more than a first one.
std::vector<std::size_t> counted_steps(const std::vector<Time>& ends, Time last_start, std::size_t standstill) {
  std::vector<std::size_t> counted;
  for (std::size_t i = 1; i < ends.size(); ++i)
    if (ends[i - 1] >= last_start && i != standstill) counted.push_back(i);
  return counted;
}

std::vector<std::int64_t> lengths(const std::vector<Time>& ends, const std::vector<std::size_t>& steps) {
  std::vector<std::int64_t> list;
  for (const std::size_t i : steps) list.push_back((ends[i] - ends[i - 1]).ps());
  return list;
}

engine::Int128 sum(const std::vector<std::int64_t>& values) {
  engine::Int128 total = 0;
  for (const std::int64_t value : values) total += value;
  return total;
}

}  // namespace

std::vector<result::JobResult> compare_jobs(const Prepared& prepared, const plan::Scenario& scenario,
                                            const engine::Options& options, const engine::Outcome& outcome, int threads,
                                            SharedProgress& progress) {
  if (scenario.jobs.empty()) return {};
  Time last_start;
  for (const plan::JobBeside& job : scenario.jobs) last_start = std::max(last_start, job.start);
  std::vector<result::JobResult> results(scenario.jobs.size() + 1);
  in_parallel(threads, results.size(), [&](std::size_t j) {
    result::JobResult& out = results[j];
    out.name = j == 0 ? scenario.name : scenario.jobs[j - 1].name;
    out.gpus = j == 0 ? scenario.cluster.gpus : scenario.jobs[j - 1].scenario.cluster.gpus;
    out.start_ps = j == 0 ? 0 : scenario.jobs[j - 1].start.ps();
    const std::vector<Time>& ends = outcome.job_step_ends[j];
    const auto steps = counted_steps(ends, last_start, j == 0 ? static_cast<std::size_t>(options.steps) : SIZE_MAX);
    REHEARSE_CHECK(!steps.empty(), "no step of job {} is counted", j);
    engine::Options alone = options;
    alone.progress = progress.one();
    const std::vector<std::int64_t> beside = lengths(ends, steps);
    const auto by_itself = lengths(prepared.alone(j, static_cast<int>(ends.size()), alone), steps);
    const auto count = static_cast<std::int64_t>(steps.size());
    out.steps = count;
    out.step_ps = static_cast<std::int64_t>(sum(beside) / count);
    out.least_ps = *std::min_element(beside.begin(), beside.end());
    out.most_ps = *std::max_element(beside.begin(), beside.end());
    out.alone_ps = static_cast<std::int64_t>(sum(by_itself) / count);
    if (sum(by_itself) > 0) out.slowdown = static_cast<double>(sum(beside)) / static_cast<double>(sum(by_itself));
    const Prepared& job = prepared.job(j);
    const Room room = least_room(job.machine(), job.scenario(),
                                 stages_of(job.machine(), job.scenario(), job.program(), job.arenas()));
    out.peak_bytes = room.peak;
    out.memory_capacity = room.capacity;
    if (alone.progress) alone.progress(1);
  });
  return results;
}

}  // namespace rehearse::run
