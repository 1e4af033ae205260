#include "calibrate/trace/trace_samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/diagnostics.h"

namespace rehearse::calibrate::trace {
namespace {

using Interval = std::pair<double, double>;

// Collectives' kernels of each device, as disjoint intervals by start.
std::map<int, std::vector<Interval>> communication(const Trace& trace) {
  std::map<int, std::vector<Interval>> all;
  for (const Kernel& k : trace.kernels) {
    if (k.collective < 0 && !is_nccl_kernel(trace.names[static_cast<std::size_t>(k.name)])) continue;
    std::vector<Interval>& list = all[k.device];
    if (!list.empty() && k.ts <= list.back().second) {
      list.back().second = std::max(list.back().second, k.ts + k.dur);
    } else {
      list.emplace_back(k.ts, k.ts + k.dur);
    }
  }
  return all;
}

bool beside_one(const Kernel& k, const std::map<int, std::vector<Interval>>& busy) {
  const auto list = busy.find(k.device);
  if (list == busy.end()) return false;
  const auto after = std::upper_bound(list->second.begin(), list->second.end(), Interval{k.ts + k.dur, -1e300});
  return after != list->second.begin() && std::prev(after)->second > k.ts;
}

void require_usable(const Trace& trace) {
  const auto refuse = [&](std::string message, std::string hint) {
    throw InputError(Diagnostic{trace.file, 0, 0, "", std::move(message), std::move(hint)});
  };
  constexpr const char* kActivities = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]";
  if (!trace.has_kernels())
    refuse("has no kernels: the profiler was not asked for what the GPU does",
           fmt::format("torch.profiler.profile({}, record_shapes=True)", kActivities));
  if (trace.operators.empty())
    refuse("has kernels, but none that is linked to an operator: the profiler was not asked for what the CPU does",
           fmt::format("torch.profiler.profile({}, record_shapes=True)", kActivities));
  if (std::none_of(trace.operators.begin(), trace.operators.end(), [](const Operator& op) { return op.shapes; }))
    refuse("has no operator with 'Input Dims': it was recorded without shapes, so nobody knows what was measured",
           "set record_shapes=True: torch.profiler.profile(..., record_shapes=True)");
}

// Where the steps that count begin, by the host's clock.
double first_counted(const Trace& trace, int skip) {
  if (skip == 0) return -1e300;
  if (static_cast<int>(trace.steps.size()) <= skip)
    throw InputError(Diagnostic{
        trace.file, 0, 0, "--skip-steps",
        trace.steps.empty() ? "the trace marks no steps"
                            : fmt::format("the trace has {} step{}, and all are to be skipped", trace.steps.size(),
                                          trace.steps.size() == 1 ? "" : "s"),
        trace.steps.empty() ? "call prof.step() after each of them, or leave the option out" : "name fewer"});
  return trace.steps[static_cast<std::size_t>(skip)].ts;
}

void tally(std::map<std::string, Tally>& by, const std::string& what, std::size_t kernels, double seconds,
           const std::string& example) {
  Tally& t = by[what];
  t.kernels += kernels;
  t.seconds += seconds;
  if (t.example.empty()) t.example = example;
}

}  // namespace

void add_samples(const Trace& trace, const SampleOptions& options, int file, SampleTable& table) {
  require_usable(trace);
  const double from = first_counted(trace, options.skip_steps);
  const auto busy = communication(trace);
  struct Measurement {
    double seconds = 0;
    bool beside = false;
    std::size_t kernels = 0;
    Found what;
  };
  // Kernels of one call and one shape are one measurement: a product's split and its sum, attention's three passes.
  std::map<std::pair<std::int32_t, bool>, Measurement> measurements;
  for (const Kernel& k : trace.kernels) {
    const std::string& name = trace.names[static_cast<std::size_t>(k.name)];
    const Call* call = k.call < 0 ? nullptr : &trace.calls[static_cast<std::size_t>(k.call)];
    if (k.issued < from) {
      ++table.skipped;
      continue;
    }
    const double seconds = k.dur * 1e-6;
    ++table.kernels;
    table.seconds += seconds;
    if (k.collective >= 0) {
      const Collective& c = trace.collectives[static_cast<std::size_t>(k.collective)];
      const Found f = of_collective(c, options.gpus_per_node, trace.world);
      tally(f.shape ? table.used : table.left_out, f.shape ? f.used_as : f.why, 1, seconds, c.name);
      if (f.shape) table.collectives[std::get<CollectiveShape>(*f.shape)][c.group][file].push_back(seconds);
      continue;
    }
    if (is_nccl_kernel(name)) {
      tally(table.left_out, "a collective whose bytes were not recorded", 1, seconds, name);
      continue;
    }
    if (const std::string why = k.copy ? why_no_kernel(name) : ""; !why.empty()) {
      tally(table.left_out, why, 1, seconds, name);
      continue;
    }
    if (call == nullptr) {
      tally(table.left_out, "linked to no operator", 1, seconds, name);
      continue;
    }
    const Operator& op = trace.operators[static_cast<std::size_t>(call->op)];
    // Two passes of a norm's backward are two ops of a program; of anything else, all kernels are one.
    const bool parts = op.name.ends_with("norm_backward");
    const bool weights = parts && is_weight_pass(name);
    Measurement& m = measurements[{k.call, weights}];
    if (m.kernels == 0) m.what = of_operator(op, name);
    m.seconds += seconds;
    m.beside = m.beside || beside_one(k, busy);
    ++m.kernels;
    const Found& f = m.what;
    tally(f.shape ? table.used : table.left_out, f.shape ? f.used_as : f.why, 1, seconds, op.name);
  }
  for (const auto& [key, m] : measurements) {
    if (!m.what.shape) continue;
    Samples& samples = table.shapes[*m.what.shape];
    (m.beside ? samples.beside : samples.alone).push_back(m.seconds);
    samples.kernels += m.kernels;
    const auto* product = std::get_if<ProductShape>(&*m.what.shape);
    if (product != nullptr && !product->layout) ++table.no_layout;
    if (m.what.causal_assumed) ++table.no_causal;
  }
}

}  // namespace rehearse::calibrate::trace
