// See compare_trace.h. The kernels of the trace's last marked step (of all where it marks none), call by call: what
// each is says calibrate/trace/trace_operators.h; operators that a program's op is the sum of are put together.
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

// What a part is a part of; "": a product of two tensors, which goes with its neighbour.
const std::map<std::string, std::string>& wholes() {
  static const std::map<std::string, std::string> all = {{"silu", "swiglu_forward"},
                                                         {"silu_backward", "swiglu_backward"},
                                                         {"log_softmax", "cross_entropy_forward"},
                                                         {"nll_loss", "cross_entropy_forward"},
                                                         {"log_softmax_backward", "cross_entropy_backward"},
                                                         {"nll_loss_backward", "cross_entropy_backward"}};
  return all;
}

void describe(const trace::Found& found, MeasuredCall& call) {
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
  }
}

void describe_collective(const trace::Collective& c, int world, MeasuredCall& call) {
  call.op = c.name;
  if (c.name == "send" || c.name == "recv") {
    call.kind = c.name == "send" ? "send" : "receive";
    return;
  }
  if (c.size > 0) return describe(trace::of_collective(c, kGpusOfNode, world), call);
  // Of a group whose size is not known the kind alone is.
  trace::Collective two = c;
  two.size = 2, two.ranks = {0, 1};
  describe(trace::of_collective(two, kGpusOfNode, world), call);
  call.key.clear();
}

// Neighbours that are parts of one op become one call; a product of two tensors is part of the gated activation beside
// it, or else no op that is known.
std::vector<MeasuredCall> put_together(std::vector<MeasuredCall> calls) {
  std::set<std::string> parts;
  for (const auto& [part, whole] : wholes()) parts.insert(whole);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].kind != "multiply") continue;
    const auto gated = [&](std::size_t at) { return at < calls.size() && calls[at].kind.starts_with("swiglu"); };
    const std::size_t beside = i > 0 && gated(i - 1) ? i - 1 : i + 1;
    calls[i].kind = gated(beside) ? calls[beside].kind : "";
    if (calls[i].kind.empty()) calls[i].why = "a product of two tensors, which no op of a program is";
  }
  std::vector<MeasuredCall> whole;
  for (MeasuredCall& call : calls) {
    const bool goes_on = !whole.empty() && parts.contains(call.kind) && whole.back().kind == call.kind &&
                         whole.back().key.empty() && whole.back().stream == call.stream && whole.back().op != call.op;
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

reports::TraceStep step_of(const trace::Trace& t) {
  reports::TraceStep step;
  step.file = t.file;
  double from = -1e300, to = 1e300;
  if (!t.steps.empty()) {
    const trace::Step& last = t.steps.back();
    from = last.ts, to = last.ts + last.dur;
    step.name = last.name, step.duration_ps = ps_of(last.dur);
  }
  const double zero = t.kernels.empty() ? 0 : t.kernels.front().ts;
  std::map<std::pair<std::int32_t, bool>, std::size_t> of_call;
  std::vector<MeasuredCall> calls;
  for (const trace::Kernel& k : t.kernels) {
    const trace::Call* call = k.call < 0 ? nullptr : &t.calls[static_cast<std::size_t>(k.call)];
    const double at = call != nullptr ? call->ts : k.ts;
    if (at < from || at >= to) continue;
    MeasuredCall one;
    one.kernel = t.names[static_cast<std::size_t>(k.name)];
    one.stream = k.stream;
    one.start_ps = ps_of(k.ts - zero), one.duration_ps = ps_of(k.dur);
    if (k.collective >= 0) {
      describe_collective(t.collectives[static_cast<std::size_t>(k.collective)], t.world, one);
    } else if (call == nullptr) {
      one.why = "linked to no operator";
    } else {
      const trace::Operator& op = t.operators[static_cast<std::size_t>(call->op)];
      const bool weights = op.name.ends_with("norm_backward") && trace::is_weight_pass(one.kernel);
      const auto [known, fresh] = of_call.try_emplace({k.call, weights}, calls.size());
      if (!fresh) {
        ++calls[known->second].kernels;
        calls[known->second].duration_ps += one.duration_ps;
        continue;
      }
      one.op = op.name;
      describe(trace::of_operator(op, one.kernel), one);
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
  if (t.kernels.empty())
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
