// What a GPU rank makes of its events: times since the run began. The device's clock is laid on the host's by two
// moments at which both are known, before the first step and after the last; in between it is taken to run evenly, and
// how far it was off by the end is kept (DeviceUse::clock_drift_ps).
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "execute/rank/gpu/gpu_rank.h"

namespace rehearse::execute {
namespace {

constexpr double kPsPerSecond = 1e12;
std::int64_t ps(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * kPsPerSecond));
}

}  // namespace

double GpuRank::host_s() const {
  return std::chrono::duration<double>(Clock::now() - run_.began).count();
}

// The moment of an event is known to half the time between recording it and seeing it; the best of a few is taken.
double GpuRank::anchor(Gpu::Event& event) {
  constexpr int kTries = 5;
  double best = std::numeric_limits<double>::max(), at = 0;
  for (int i = 0; i < kTries; ++i) {
    const Gpu::Event candidate = gpu_->make_event(true);
    const double before = host_s();
    gpu_->record(candidate, compute().stream);
    while (!gpu_->done(candidate))
      if (run_.world.stop().requested()) throw Stopped(std::vector<int>());
    const double after = host_s();
    if (after - before >= best) continue;
    best = after - before;
    at = (before + after) / 2;
    event = candidate;
  }
  return at;
}

// What happened two steps ago was over when this step was issued, so its events lie before all of this one's.
void GpuRank::keep_profile(std::int64_t step, StepStaging& staging) {
  StepProfile p;
  p.step = step;
  p.begin_s = step == 0 ? 0 : ends_s_[static_cast<std::size_t>(step - 1)];
  p.end_s = ends_s_[static_cast<std::size_t>(step)];
  const bool early = step < kAhead;
  const Gpu::Event reference = early ? base_ : step_ends_[static_cast<std::size_t>(step - kAhead) % step_ends_.size()];
  const double reference_s = early ? 0 : ends_s_[static_cast<std::size_t>(step - kAhead)];
  for (std::size_t i = 0; i < timeline_.instances.size(); ++i) {
    const auto& [begin, end] = staging.op_events[i];
    if (begin < 0)
      p.spans.push_back(staging.host_spans[i]);
    else
      p.spans.push_back(
          {reference_s + gpu_->elapsed_s(reference, begin), reference_s + gpu_->elapsed_s(reference, end)});
  }
  account(run_.program, timeline_, compute_stream_, p);
  profiles_.push_back(std::move(p));
}

void GpuRank::finish() {
  Gpu::Event last = -1;
  const double host_end = anchor(last);
  const Gpu::Event end = step_ends_[(ends_s_.size() - 1) % step_ends_.size()];
  const double device_end = ends_s_.back() + gpu_->elapsed_s(end, last), host_spent = host_end - base_host_s_;
  use_.clock_drift_ps = ps(host_spent - device_end);
  const double pace = device_end > 0 ? host_spent / device_end : 1;
  const auto on_host = [&](double device_s) { return ps(base_host_s_ + device_s * pace); };

  for (const StepProfile& p : profiles_) {
    const auto step = static_cast<std::int32_t>(p.step);
    for (std::size_t n = 0; n < timeline_.instances.size(); ++n) {
      const Instance& i = timeline_.instances[n];
      const std::int64_t begin = on_host(p.spans[n].begin_s), length = on_host(p.spans[n].end_s) - begin;
      if (run_.options.record) records_.push_back({rank_, step, i.slot, i.body, i.op, begin, length, 0});
      if (!layout_.others(i).empty()) starts_.push_back({step, static_cast<std::int32_t>(n), begin});
    }
    for (const ProfiledWait& w : p.waits)
      waits_.push_back({step, w.instance, on_host(w.span.begin_s), on_host(w.span.end_s)});
  }
  std::sort(records_.begin(), records_.end(), [](const auto& a, const auto& b) { return a.start_ps < b.start_ps; });
  for (std::size_t s = 0; s < ends_s_.size(); ++s) {
    const auto own = std::find_if(profiles_.begin(), profiles_.end(),
                                  [&](const auto& p) { return p.step == static_cast<std::int64_t>(s); });
    const StepProfile& p = own != profiles_.end() ? *own : profiles_.back();
    shares_.push_back(scaled(p, (ends_s_[s] - (s == 0 ? 0 : ends_s_[s - 1])) * pace));
  }
  const Gpu::Memory memory = gpu_->memory();
  use_.total_bytes = memory.total_bytes;
  use_.beside_bytes =
      (memory.total_bytes - memory.free_bytes) / options_.ranks_on_device - timeline_.memory.arena_bytes;
}

}  // namespace rehearse::execute
