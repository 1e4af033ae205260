// See metrics_file.h.
#include "cli/metrics_file.h"

#include <utility>

#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

constexpr std::chrono::seconds kBetweenWrites{1};

}  // namespace

MetricsFile::MetricsFile(std::string path, std::string scenario, int steps, std::int64_t ranks, double examples,
                         double tokens)
    : path_(std::move(path)), examples_a_step_(examples), tokens_a_step_(tokens) {
  progress_.scenario = std::move(scenario);
  progress_.steps = steps;
  progress_.ranks = ranks;
}

void MetricsFile::step(int step, const execute::StepLoss& loss) {
  if (path_.empty()) return;
  const Clock::time_point now = Clock::now();
  if (timed_) ++steps_since_;
  if (!std::exchange(timed_, true)) since_ = now;
  const bool last = step + 1 == progress_.steps;
  if (now - written_ < kBetweenWrites && !last) return;
  progress_.step = step + 1;
  progress_.loss = loss.loss;
  progress_.loss_parts.clear();
  for (std::size_t part = 0; part < loss.parts.size(); ++part)
    progress_.loss_parts.emplace_back(execute::loss_part_name(part), loss.parts[part]);
  progress_.step_s = steps_since_ > 0 ? std::chrono::duration<double>(now - since_).count() / steps_since_ : 0;
  progress_.examples_per_s = progress_.step_s > 0 ? examples_a_step_ / progress_.step_s : 0;
  progress_.tokens_per_s = progress_.step_s > 0 ? tokens_a_step_ / progress_.step_s : 0;
  result::write_output(path_, reports::prometheus_text(progress_));
  written_ = since_ = now, steps_since_ = 0;
}

void MetricsFile::ended(const result::ParameterServers& servers) {
  if (path_.empty() || !servers.known) return;
  progress_.staleness = servers.staleness;
  result::write_output(path_, reports::prometheus_text(progress_));
}

}  // namespace rehearse::cli
