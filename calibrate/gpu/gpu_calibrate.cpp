#include "calibrate/gpu/gpu_calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "calibrate/gpu/kernels_to_time.h"
#include "calibrate/gpu/walked_kernels.h"
#include "calibrate/made.h"
#include "calibrate/statistics.h"
#include "execute/placement/gpus.h"
#include "sim/cost/flash_model.h"
#include "sim/cost/kernel_shape.h"
#include "sim/lower/lower.h"
#include "sim/program/describe.h"
#include "sim/program/work.h"

namespace rehearse::calibrate::gpu {
namespace {

constexpr std::size_t kMostSustained = 8;  // products of the long run: their operands are in memory together
// Shares of the budget's end that are kept free for what comes after the scenarios' kernels.
constexpr double kWalks = 0.35, kKernels = 0.55, kKernelsAfterWalks = 0.75, kTransfers = 0.7, kInterference = 0.1;
constexpr int kFewestSteps = 5, kMostSteps = 40;  // of a walk
constexpr int kHeldSms[] = {4, 8, 16, 24, 32};
constexpr double kTakenShares[] = {0.1, 0.25, 0.5};  // of the copy's bandwidth

// Why a rank of the scenario cannot be performed without the others; empty: it can.
std::string why_not_alone(const plan::Scenario& scenario) {
  const plan::Plan& plan = scenario.plan;
  if (const auto reason = execute::not_on_gpus(scenario)) return reason->why;
  if (scenario.model.family == model::Family::moe) return "a rank alone gets no rows of experts";
  if (plan.context > 1 && plan.context_kind != plan::ContextKind::all_to_all)
    return "a rank alone gets no keys of other tokens";
  return "";
}

class Calibrating {
 public:
  Calibrating(Bench& bench, const GpuRequest& request)
      : bench_(bench), request_(request), began_(bench.now()), kernels_(request.scenarios, request.grid) {
    count_scenarios();
  }

  GpuOutcome run() {
    GpuCalibration& c = outcome_.calibration;
    c.facts = bench_.facts();
    c.made = provenance(request_.command, request_.budget_s);
    note_state("before");
    begin("measuring copies and launches");
    measure_copies();
    c.measured.launch = bench_.launches();
    begin("walking the scenarios' steps");
    measure_walks(began_ + kWalks * request_.budget_s);
    const bool sustained = walked_.empty() && request_.sustained_s > 0 && request_.budget_s >= 3 * request_.sustained_s;
    begin("measuring the scenarios' kernels");
    measure_kernels(0, of_scenarios_, began_ + (walked_.empty() ? kKernels : kKernelsAfterWalks) * request_.budget_s);
    note_state("after_bursts");
    if (sustained) {
      begin("a long run of products");
      measure_sustained();
      note_state("after_long_run");
    }
    if (c.facts.devices > 1) {
      begin("measuring NCCL");
      c.transfers = bench_.transfers(bench_.now() + kTransfers * left());
    }
    begin("measuring interference");
    measure_interference(bench_.now() + std::min(left(), kInterference * request_.budget_s));
    begin("measuring neighbours, held-out shapes and a grid");
    measure_kernels(done_, kernels_.kernels().size(), end());
    record_walked_alone();
    note_state("end");
    c.reserve_bytes = bench_.reserve();
    tell_shortfalls();
    c.made.wall_s = bench_.now() - began_;
    return std::move(outcome_);
  }

 private:
  double end() const { return began_ + request_.budget_s; }
  double left() { return std::max(0.0, end() - bench_.now()); }
  void begin(const std::string& what) {
    what_ = what;
    poll();
  }
  void poll() {
    if (request_.progress) request_.progress(what_, std::min(1.0, (bench_.now() - began_) / request_.budget_s));
  }
  void note_state(const std::string& when) { outcome_.calibration.states.emplace_back(when, bench_.state()); }

  void count_scenarios() {
    for (const Kernel& k : kernels_.kernels()) {
      if (k.weight <= 0) break;  // those of the scenarios come first
      ++of_scenarios_;
      all_weight_ += k.weight;
    }
  }

  void measure_copies() {
    GpuCalibration& c = outcome_.calibration;
    for (const char* direction : {"on_device", "to_device", "from_device", "to_peer"}) {
      for (const std::int64_t bytes : {std::int64_t{4} << 10, std::int64_t{1} << 20, request_.largest_copy}) {
        poll();
        const double seconds = bench_.copy(direction, bytes);
        if (seconds <= 0) break;
        c.measured.copies.push_back({direction, bytes, seconds});
        if (std::string_view(direction) == "on_device")
          c.copy_bandwidth = std::max(c.copy_bandwidth, 2 * static_cast<double>(bytes) / seconds);
      }
    }
  }

  // The scenarios in turn, of each the stages that have kernels not walked yet.
  void measure_walks(double deadline) {
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < request_.scenarios.size(); ++i)
      if (!request_.not_walked.contains(i)) list.push_back(i);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const plan::Scenario& scenario = request_.scenarios[list[i]];
      if (const std::string why = why_not_alone(scenario); !why.empty()) {
        if (not_walked_++ == 0) why_not_walked_ = why;
        continue;
      }
      const program::Program& program = programs_.emplace_back(lower::lower(scenario));
      for (std::size_t stage = 0; stage < program.roles.size(); ++stage) {
        const double left_here = deadline - bench_.now();
        if (left_here <= 0) return;
        if (!walked_.would_add(program.roles[stage])) continue;
        const double share = left_here / static_cast<double>(list.size() - i);
        const double steps = share / rough_step_seconds(program.roles[stage]);
        const Walk walk = bench_.walk(scenario, program, static_cast<int>(stage),
                                      std::clamp(static_cast<int>(std::min(steps, 1e6)), kFewestSteps, kMostSteps),
                                      [this] { poll(); });
        if (walk.ops.empty()) {
          if (not_walked_++ == 0) why_not_walked_ = bench_.problem();
          break;
        }
        walked_.add(walk);
        outcome_.calibration.walks.emplace_back(scenario.name, walk.conditions);
      }
    }
  }

  // Kernels that the budget had no burst for.
  void record_walked_alone() {
    for (std::size_t i = done_; i < of_scenarios_; ++i) {
      const Kernel& k = kernels_.kernels()[i];
      if (const Summary* times = walked_.find(k)) {
        measured_weight_ += k.weight;
        add_times(k, {}, *times);
      } else {
        ++not_measured_;
      }
    }
  }

  // In order until `deadline`; each gets an equal share of what is left, at most what the protocol asks for.
  void measure_kernels(std::size_t from, std::size_t to, double deadline) {
    const auto now = [this] {
      poll();
      return bench_.now();
    };
    for (std::size_t i = from; i < to; ++i) {
      const double left_here = deadline - now();
      if (left_here <= 0) {
        done_ = std::min(i, to);
        return;
      }
      const Kernel& k = kernels_.kernels()[i];
      const std::unique_ptr<Run> run = bench_.kernel(k);
      done_ = i + 1;
      if (run == nullptr) {
        if (refused_++ == 0) why_refused_ = bench_.problem();
        continue;
      }
      // The share counts from here: making the operands is not the kernel's time.
      const double share = std::max(left_here / static_cast<double>(to - i), 0.005);
      record(k, *run, time_burst(*run, request_.protocol, now, bench_.now() + share));
    }
  }

  void record(const Kernel& k, Run& run, const Samples& samples) {
    measured_weight_ += k.weight;
    if (!samples.complete) ++incomplete_;
    const auto* g = std::get_if<program::Gemm>(&k.op->shape);
    const bool product = g != nullptr && g->batch == 1;
    add_times(k, product ? run.choice() : Choice(), summarize(samples.seconds));
  }

  void add_times(const Kernel& k, const Choice& choice, const Summary& s) {
    const auto* g = std::get_if<program::Gemm>(&k.op->shape);
    if (g != nullptr && g->batch == 1) {
      add_product(k, choice, s);
    } else if (cost::is_flash(*k.op)) {
      add_flash(k, s);
    } else {
      add_shape(k, s);
    }
  }

  void add_product(const Kernel& k, const Choice& choice, const Summary& s) {
    cost::ProductPoint p;
    p.key = cost::product_key(*k.role, *k.op);
    p.algorithm = choice.algorithm.empty() ? walked_.algorithm(p.key) : choice.algorithm;
    p.tile = choice.tile, p.stages = choice.stages, p.split = choice.split, p.waves = choice.waves;
    p.first = choice.first, p.best = choice.best;
    p.seconds = s.p50_s, p.p10 = s.p10_s, p.p90 = s.p90_s, p.repetitions = s.repetitions;
    p.held_out = k.held_out;
    p.sustained = walked_.seconds(k);
    if (!k.held_out && k.weight > 0 && heavy_.size() < kMostSustained)
      heavy_.push_back({&k, outcome_.calibration.measured.products.size()});
    outcome_.calibration.measured.products.push_back(p);
  }

  void add_flash(const Kernel& k, const Summary& s) {
    const auto& a = std::get<program::Attention>(k.op->shape);
    cost::FlashPoint p;
    p.backward = a.part == program::AttentionPart::flash_backward;
    p.causal = a.causal;
    p.batch = a.micro_batch, p.seq = a.seq, p.heads = a.heads, p.kv_heads = a.kv_heads, p.head_dim = a.head_dim;
    const double walked = walked_.seconds(k);
    p.flops_per_second = cost::flash_flops(p) / (walked > 0 ? walked : s.p50_s);
    outcome_.calibration.flash.push_back(p);
  }

  void add_shape(const Kernel& k, const Summary& s) {
    const program::Work work = program::work_of(*k.role, *k.op);
    cost::ShapePoint p;
    p.kind = program::kind_name(k.op->shape), p.shape = program::shape_text(*k.role, *k.op);
    p.operands = cost::operand_types(*k.role, *k.op);
    p.dtype = k.op->dtype;
    p.flops = work.flops, p.bytes = static_cast<double>(work.bytes_read + work.bytes_written);
    p.seconds = s.p50_s, p.p10 = s.p10_s, p.p90 = s.p90_s, p.repetitions = s.repetitions;
    p.sustained = walked_.seconds(k);
    outcome_.calibration.measured.shapes.push_back(p);
    if (!cost::product_of(*k.role, *k.op))
      outcome_.calibration.memory.push_back({cost::memory_class(*k.op), p.bytes, p.seconds, p.sustained});
  }

  void measure_sustained() {
    std::vector<std::unique_ptr<Run>> runs;
    std::vector<Run*> pointers;
    std::vector<std::size_t> points;
    for (const Heavy& h : heavy_) {
      auto run = bench_.kernel(*h.kernel);
      if (run == nullptr) break;  // no memory for more at once
      pointers.push_back(run.get());
      points.push_back(h.point);
      runs.push_back(std::move(run));
    }
    const std::vector<double> medians = time_sustained(pointers, std::min(request_.sustained_s, left()), [this] {
      poll();
      return bench_.now();
    });
    for (std::size_t i = 0; i < medians.size(); ++i)
      outcome_.calibration.measured.products[points[i]].sustained = medians[i];
  }

  void measure_interference(double deadline) {
    const double copy = outcome_.calibration.copy_bandwidth;
    for (const Heavy& h : heavy_) {
      const auto add = [&](int sms, double rate) {
        if (bench_.now() >= deadline) return;
        poll();
        const double slowdown = bench_.beside(*h.kernel, sms, rate);
        if (slowdown > 0)
          outcome_.calibration.measured.interference.push_back(
              {cost::product_key(*h.kernel->role, *h.kernel->op), sms, rate, slowdown});
      };
      for (const int sms : kHeldSms)
        if (sms < outcome_.calibration.facts.sms) add(sms, 0);
      for (const double share : kTakenShares) add(0, share * copy);
    }
  }

  void tell_shortfalls() {
    outcome_.covered = all_weight_ > 0 ? std::min(1.0, measured_weight_ / all_weight_) : 1;
    auto& list = outcome_.shortfalls;
    if (not_measured_ > 0)
      list.push_back(fmt::format("{} of the scenarios' {} kernels did not fit into the budget and are interpolated",
                                 not_measured_, of_scenarios_));
    if (incomplete_ > 0)
      list.push_back(fmt::format("{} kernels were timed for less than {} ms or {} repetitions", incomplete_,
                                 request_.protocol.kernel_s * 1e3, request_.protocol.repetitions));
    if (not_walked_ > 0)
      list.push_back(fmt::format("{} scenarios could not be walked; the first: {}", not_walked_, why_not_walked_));
    if (refused_ > 0)
      list.push_back(fmt::format("{} kernels could not be measured; the first: {}", refused_, why_refused_));
  }

  struct Heavy {
    const Kernel* kernel;
    std::size_t point;  // in measured.products
  };
  Bench& bench_;
  const GpuRequest& request_;
  double began_;
  KernelsToTime kernels_;
  std::string what_;
  std::size_t of_scenarios_ = 0, done_ = 0;
  double all_weight_ = 0, measured_weight_ = 0;
  std::deque<program::Program> programs_;  // that were walked
  WalkedKernels walked_;
  int not_measured_ = 0, incomplete_ = 0, refused_ = 0, not_walked_ = 0;
  std::string why_refused_, why_not_walked_;
  std::vector<Heavy> heavy_;
  GpuOutcome outcome_;
};

}  // namespace

GpuOutcome calibrate_gpu(Bench& bench, const GpuRequest& request) {
  return Calibrating(bench, request).run();
}

}  // namespace rehearse::calibrate::gpu
