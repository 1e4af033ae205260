// See compare_trace.h. The kernels of the trace's last marked step that has some (of all where it marks none), call by
// call: what each is says calibrate/trace/trace_operators.h; operators that a program's op is the sum of are put
// together. A step's kernels are those that the host issued between its marks; how long it took the device says: hosts
// run ahead.
#include "cli/compare_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "calibrate/trace/chakra_trace.h"
#include "calibrate/trace/kineto_trace.h"
#include "calibrate/trace/trace_operators.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/refuse.h"
#include "reports/trace_match.h"
#include "sim/program/op.h"
#include "sim/result/output_file.h"
#include "sim/result/read_directory.h"

namespace rehearse::cli {
namespace {

namespace trace = calibrate::trace;
using reports::MeasuredCall;

constexpr int kGpusOfNode = 8;  // to tell collectives of one node, which only their cost depends on

std::int64_t ps_of(double us) {
  constexpr double kMost = 1e12;  // of a file that lies about when it was
  return std::llround(std::clamp(us, -kMost, kMost) * 1e6);
}

// What a part is a part of; "": a product of two tensors.
const std::map<std::string, std::string>& wholes() {
  static const std::map<std::string, std::string> all = {{"silu", "swiglu_forward"},
                                                         {"silu_backward", "swiglu_backward"},
                                                         {"log_softmax", "cross_entropy_forward"},
                                                         {"nll_loss", "cross_entropy_forward"},
                                                         {"log_softmax_backward", "cross_entropy_backward"},
                                                         {"nll_loss_backward", "cross_entropy_backward"}};
  return all;
}

// A call, and of a gated activation's parts their elements, else 0.
struct StepCall {
  MeasuredCall call;
  std::int64_t elements = 0;
};

void describe(const trace::Found& found, StepCall& step) {
  MeasuredCall& call = step.call;
  if (!found.shape) {
    call.why = found.why;
    return;
  }
  if (const auto* p = std::get_if<trace::ProductShape>(&*found.shape)) {
    call.kind = "gemm", call.key = reports::product_key(p->key.m, p->key.n, p->key.k);
  } else if (const auto* a = std::get_if<trace::AttentionShape>(&*found.shape)) {
    call.kind = a->backward ? "flash_attention_backward" : "flash_attention_forward";
    call.key = reports::attention_key(a->batch, a->heads, a->seq, a->head_dim);
  } else if (const auto* m = std::get_if<trace::MemoryShape>(&*found.shape)) {
    call.kind = m->kind, call.key = reports::bytes_key(m->bytes);
  } else if (const auto* c = std::get_if<trace::CollectiveShape>(&*found.shape)) {
    program::Collective collective;
    collective.kind = c->kind;
    call.kind = program::kind_name(program::OpShape(collective));
    call.key = reports::collective_key(c->bytes, c->ranks);
  } else if (const auto* part = std::get_if<trace::PartShape>(&*found.shape)) {
    const auto whole = wholes().find(part->name);
    call.kind = whole == wholes().end() ? "multiply" : whole->second;
    if (call.kind == "multiply" || part->name.starts_with("silu")) step.elements = part->rows * part->cols;
  }
}

void describe_collective(const trace::Collective& c, int world, StepCall& step) {
  step.call.op = c.name;
  if (c.name == "send" || c.name == "recv") {
    step.call.kind = c.name == "send" ? "send" : "receive";
    return;
  }
  if (c.size > 0) return describe(trace::of_collective(c, kGpusOfNode, world), step);
  // Of a group whose size is not known the kind alone is.
  trace::Collective two = c;
  two.size = 2, two.ranks = {0, 1};
  describe(trace::of_collective(two, kGpusOfNode, world), step);
  step.call.key.clear();
}

// A kernel of NCCL with which nobody recorded what it was for: its name tells the kind.
void describe_nccl_kernel(StepCall& step) {
  trace::Collective c;
  c.name = trace::collective_of_kernel(step.call.kernel), c.dtype = "Byte", c.in = c.out = 2;
  if (!c.name.empty()) return describe_collective(c, 0, step);
  step.call.why = "a collective or messages that were not recorded";
}

// The products of tensors that a gated activation's silu, and twice its backward, come with. A model that computes
// silu(gate(x)) * up(x) has another matrix product between silu and product, and between products and silu's backward.
void take_products(std::vector<StepCall>& calls) {
  constexpr std::size_t kBackward = 2;
  const auto join = [&](std::size_t whole, std::size_t part) {
    calls[whole].call.op += " + " + calls[part].call.op;
    calls[whole].call.kernels += calls[part].call.kernels;
    calls[whole].call.duration_ps += calls[part].call.duration_ps;
    calls[part].call.kernels = 0;
  };
  struct Silu {
    std::size_t call = 0;
    int products = 0;  // matrix products since
  };
  std::map<std::int64_t, Silu> open;                         // by elements: a silu without its product
  std::map<std::int64_t, std::vector<std::size_t>> waiting;  // products that no silu has taken
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::int64_t n = calls[i].elements;
    if (calls[i].call.kind == "gemm") {
      for (auto& [elements, silu] : open) ++silu.products;
      std::erase_if(open, [](const auto& silu) { return silu.second.products > 1; });
    }
    if (n == 0) continue;
    if (calls[i].call.kind == "multiply") {
      const auto silu = open.find(n);
      if (silu == open.end()) {
        waiting[n].push_back(i);
      } else {
        join(silu->second.call, i);
        open.erase(silu);
      }
    } else if (calls[i].call.kind == "swiglu_forward") {
      open[n] = {i, 0};
    } else {
      open.erase(n);
      std::vector<std::size_t>& products = waiting[n];
      for (std::size_t taken = 0; taken < kBackward && !products.empty(); ++taken) {
        join(i, products.back());
        products.pop_back();
      }
    }
  }
  std::erase_if(calls, [](const StepCall& c) { return c.call.kernels == 0; });
}

// Neighbours that are parts of one op become one call; a product of two tensors that no gated activation comes with is
// no op that is known.
std::vector<MeasuredCall> put_together(std::vector<StepCall> calls) {
  take_products(calls);
  std::set<std::string> parts;
  for (const auto& [part, whole] : wholes()) parts.insert(whole);
  std::vector<MeasuredCall> whole;
  for (auto& [call, elements] : calls) {
    if (call.kind == "multiply") call.kind.clear(), call.why = "a product of two tensors, which no op of a program is";
    const bool goes_on = !whole.empty() && parts.contains(call.kind) && whole.back().kind == call.kind &&
                         elements == 0 && whole.back().key.empty() && whole.back().stream == call.stream &&
                         whole.back().op != call.op;
    if (!goes_on) {
      whole.push_back(std::move(call));
      continue;
    }
    whole.back().op += " + " + call.op;
    whole.back().kernels += call.kernels;
    whole.back().duration_ps += call.duration_ps;
  }
  return whole;
}

// Which marked step the host issued each kernel in; -1: before, between or after them.
std::vector<int> steps_of(const trace::Trace& t) {
  std::vector<int> of(t.kernels.size(), -1);
  for (std::size_t k = 0; k < of.size(); ++k) {
    const double at = t.kernels[k].issued;
    const auto after = std::upper_bound(t.steps.begin(), t.steps.end(), at,
                                        [](double value, const trace::Step& step) { return value < step.ts; });
    if (after == t.steps.begin()) continue;
    const auto step = std::prev(after);
    if (at < step->ts + step->dur) of[k] = static_cast<int>(step - t.steps.begin());
  }
  return of;
}

// How long a step took, in us. The host's mark is that where the host waits for the device in each step; without, the
// host runs ahead, and a step takes from where the device ended the one before to where it ended this one.
double length_of(const trace::Trace& t, const std::vector<int>& of, int step) {
  double first = 1e300, end = -1e300, before = -1e300;
  for (std::size_t k = 0; k < of.size(); ++k) {
    const double ends = t.kernels[k].ts + t.kernels[k].dur;
    if (of[k] == step) first = std::min(first, t.kernels[k].ts), end = std::max(end, ends);
    if (step > 0 && of[k] == step - 1) before = std::max(before, ends);
  }
  const double marked = t.steps[static_cast<std::size_t>(step)].dur;
  return before > -1e300 ? end - before : std::max(marked, end - first);
}

// Files of several ranks that were joined have each step once a rank, or kernels of several devices in it.
void check_of_one_rank(const trace::Trace& t, const std::vector<int>& of, int chosen) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(Diagnostic{t.file, 0, 0, "", what, "the trace of one rank, as torch.profiler writes it"});
  };
  std::set<std::string> names;
  for (const trace::Step& step : t.steps)
    if (!names.insert(step.name).second) refuse(fmt::format("has {} more than once", step.name));
  std::set<int> devices;
  for (std::size_t k = 0; k < of.size(); ++k)
    if (t.steps.empty() || of[k] == chosen) devices.insert(t.kernels[k].device);
  if (devices.size() > 1) refuse(fmt::format("has kernels of {} devices in one step", devices.size()));
}

reports::TraceStep step_of(const trace::Trace& t) {
  reports::TraceStep step;
  step.file = t.file;
  const std::vector<int> of = steps_of(t);
  // A loop that ends while the profiler records leaves a mark behind its last step, with a copy to the host at most.
  int chosen = -1;
  for (std::size_t k = 0; k < of.size(); ++k)
    if (!t.kernels[k].copy) chosen = std::max(chosen, of[k]);
  check_of_one_rank(t, of, chosen);
  if (!t.steps.empty()) step.name = t.steps[chosen < 0 ? t.steps.size() - 1 : static_cast<std::size_t>(chosen)].name;
  if (chosen >= 0) step.duration_ps = ps_of(length_of(t, of, chosen));
  const double zero = t.kernels.empty() ? 0 : t.kernels.front().ts;
  std::map<std::pair<std::int32_t, bool>, std::size_t> of_call;
  std::vector<StepCall> calls;
  for (std::size_t i = 0; i < t.kernels.size(); ++i) {
    const trace::Kernel& k = t.kernels[i];
    if (!t.steps.empty() && (chosen < 0 || of[i] != chosen)) continue;
    const trace::Call* call = k.call < 0 ? nullptr : &t.calls[static_cast<std::size_t>(k.call)];
    StepCall one;
    one.call.kernel = t.names[static_cast<std::size_t>(k.name)];
    one.call.stream = k.stream;
    one.call.start_ps = ps_of(k.ts - zero), one.call.duration_ps = ps_of(k.dur);
    const std::string no_kernel = k.copy ? trace::why_no_kernel(one.call.kernel) : "";
    if (k.collective >= 0) {
      describe_collective(t.collectives[static_cast<std::size_t>(k.collective)], t.world, one);
    } else if (trace::is_nccl_kernel(one.call.kernel)) {
      describe_nccl_kernel(one);
    } else if (!no_kernel.empty()) {
      one.call.why = no_kernel;
    } else if (call == nullptr) {
      one.call.why = "linked to no operator";
    } else {
      const trace::Operator& op = t.operators[static_cast<std::size_t>(call->op)];
      const bool weights = op.name.ends_with("norm_backward") && trace::is_weight_pass(one.call.kernel);
      const auto [known, fresh] = of_call.try_emplace({k.call, weights}, calls.size());
      if (!fresh) {
        ++calls[known->second].call.kernels;
        calls[known->second].call.duration_ps += one.call.duration_ps;
        continue;
      }
      one.call.op = op.name;
      describe(trace::of_operator(op, one.call.kernel), one);
    }
    calls.push_back(std::move(one));
  }
  step.calls = put_together(std::move(calls));
  return step;
}

std::int64_t number_of(const result::Result& r, const char* key) {
  const auto found = r.scenario.find(key);
  return found == r.scenario.end() ? 1 : std::max(1L, std::atol(found->second.c_str()));
}

// The recorded rank that runs what the traced one does.
int rank_beside(const TraceComparison& c, const result::StoredResult& stored, int traced) {
  std::set<int> recorded;
  std::map<int, int> of_stage;
  for (const result::OpRow& row : stored.ops)
    if (recorded.insert(row.rank).second) of_stage.emplace(stored.text_of(row).stage, row.rank);
  if (recorded.empty()) refuse(c.directory, "has no ops: nothing was recorded", "rehearse simulate SCENARIO -o DIR");
  const std::string list = fmt::format("{}", fmt::join(recorded, ", "));
  if (c.rank) {
    if (!recorded.contains(*c.rank))
      refuse("--rank", fmt::format("rank {} is not recorded; those are {}", *c.rank, list));
    return *c.rank;
  }
  if (recorded.contains(traced) || recorded.size() == 1) return recorded.contains(traced) ? traced : *recorded.begin();
  const auto order = stored.result.scenario.find("plan.rank_order");
  const bool slowest = order == stored.result.scenario.end() || order->second.ends_with("pipeline");
  const std::int64_t of_a_stage = stored.result.ranks / number_of(stored.result, "plan.pipeline");
  const auto stage =
      traced < 0 || !slowest || of_a_stage < 1 ? of_stage.end() : of_stage.find(static_cast<int>(traced / of_a_stage));
  if (stage == of_stage.end())
    refuse("--rank", fmt::format("whose trace this is cannot be told; say beside which of ranks {} it is", list),
           fmt::format("--rank {}", *recorded.begin()));
  return stage->second;
}

}  // namespace

int compare_trace(const TraceComparison& c) {
  PhasedProgress line;
  const trace::Trace t = trace::is_chakra_trace(c.trace)
                             ? trace::read_chakra_trace(c.trace)
                             : trace::read_trace(c.trace, [&](double done) { line("reading " + c.trace, done); });
  line.clear();
  if (!t.has_kernels())
    refuse(c.trace, "has no kernels: the profiler was not asked for what the GPU does",
           "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True)");
  const result::StoredResult stored = result::read_directory(c.directory);
  reports::TraceStep step = step_of(t);
  if (step.calls.empty()) refuse(c.trace, fmt::format("has no kernels in its last step, {}", step.name));
  const reports::TraceMatch match = reports::match_trace(stored, rank_beside(c, stored, t.rank), std::move(step));
  const std::string json = reports::trace_match_json(match);
  if (!c.output.empty())
    result::write_files(c.output, {{"compare.csv", reports::trace_match_csv(match)}, {"compare.json", json}});
  print(c.json ? json : reports::trace_match_text(match));
  return kDone;
}

}  // namespace rehearse::cli
