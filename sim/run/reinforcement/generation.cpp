// See generation.h.
#include "sim/run/reinforcement/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/base/diagnostics.h"
#include "sim/cost/cost.h"
#include "sim/lower/stage.h"
#include "sim/run/prepared.h"
#include "sim/run/reinforcement/forward_pass.h"
#include "sim/run/reinforcement/phases.h"

namespace rehearse::run {
namespace {

// What a device holds beside a cache and gradients, for either of two passes.
void add_memory(const ForwardPass& pass, GenerationRun& run) {
  for (const result::StageMemory& stage : pass.stages) {
    run.weight_bytes = std::max(run.weight_bytes, stage.parameters);
    run.other_bytes =
        std::max(run.other_bytes, stage.activations + stage.workspace + stage.communication + stage.framework);
  }
}

}  // namespace

const ReplicaRun& GenerationRun::slowest() const {
  return *std::max_element(replicas.begin(), replicas.end(),
                           [](const ReplicaRun& a, const ReplicaRun& b) { return a.seconds() < b.seconds(); });
}

double GenerationRun::mean_seconds() const {
  double sum = 0;
  for (const ReplicaRun& replica : replicas) sum += replica.seconds();
  return sum / static_cast<double>(replicas.size());
}

std::int64_t cache_bytes_per_token(const model::Model& m, std::int64_t tensor, std::int64_t element_bytes) {
  return m.layers * std::max<std::int64_t>(1, m.kv_heads / tensor) * (m.head_dim + m.value_dim()) * element_bytes;
}

GenerationRun simulate_generation(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                  const std::vector<std::int64_t>& responses, const Options& options) {
  const plan::Reinforcement& r = scenario.reinforcement;
  const plan::Generation& g = r.generation;
  const std::int64_t replicas = run::replicas(scenario);
  const std::int64_t longest_response = *std::max_element(responses.begin(), responses.end()),
                     longest = r.prompt_tokens + longest_response;
  GenerationRun run;
  run.bytes_per_token =
      cache_bytes_per_token(scenario.model, g.tensor, program::size_of(lower::dtype_of(scenario.training.precision)));

  const std::int64_t together = prefilled_at_once(scenario);
  plan::Scenario prefills = replica_scenario(scenario, assignments, 1, together, r.prompt_tokens, false, options);
  Options own = options;
  own.machine = std::make_shared<Machine>(prefills, options);
  const bool cpu = own.machine->costs->device().cpu;
  const std::int64_t beside = cpu ? replicas : 1;  // those of a host share its cores
  if (beside > 1) {
    prefills = replica_scenario(scenario, assignments, beside, together, r.prompt_tokens, false, options);
    own.machine = std::make_shared<Machine>(prefills, options);
  }
  // CPUs launch no graphs; and where the host waits for how many rows experts get, none can be.
  const bool graphs = !cpu && (scenario.model.experts == 0 || scenario.model.capacity_factor > 0);
  const ForwardPass prefill = forward_pass(prefills, 0, 2, own);
  add_memory(prefill, run);

  const std::int64_t most = decoded_at_once(scenario);
  const std::vector<std::int64_t> contexts = decode_contexts(scenario, longest_response, cpu);
  std::vector<DecodePoint> points;
  for (std::int64_t sequences = cpu ? most : 1;; sequences = std::min(2 * sequences, most)) {
    DecodePoint& point = points.emplace_back();
    point.sequences = sequences;
    const plan::Scenario decode = replica_scenario(scenario, assignments, beside, sequences, 1, graphs, options);
    for (const std::int64_t context : contexts) {
      const ForwardPass pass = forward_pass(decode, context, 2, own);
      point.context.push_back(static_cast<double>(context)), point.cost.push_back(pass.cost);
      add_memory(pass, run);
      run.low = pass.low, run.high = pass.high, run.coverage = pass.coverage;
      own.check = false;  // the same program but for its sizes
    }
    if (sequences == most) break;
  }

  // A host's memory is its ranks' together.
  const Bytes whole = own.machine->costs->device().memory;
  const Bytes memory =
      own.machine->costs->device().cpu ? Bytes(whole.count() / (scenario.cluster.gpus + g.gpus)) : whole;
  run.cache_bytes = g.memory.of(memory).count() - run.weight_bytes - run.other_bytes;
  const std::int64_t room = run.cache_bytes / run.bytes_per_token;
  if (run.cache_bytes < 0 || room < longest)
    throw InputError(Diagnostic{
        "", 0, 0, "reinforcement.generation",
        fmt::format("of {} a device weights take {} and activations and the framework {}, which leaves no room for the "
                    "keys and values of a sequence of {} tokens, {} each",
                    format_bytes(g.memory.of(memory)), format_bytes(Bytes(run.weight_bytes)),
                    format_bytes(Bytes(run.other_bytes)), longest, format_bytes(Bytes(run.bytes_per_token))),
        fmt::format("generation: {{tensor: {}}}, or more of its memory", 2 * g.tensor)});

  const DecodeCosts costs(std::move(points));
  StepCost one;
  one.add(prefill.cost, cpu ? 1 : 1 / static_cast<double>(together));
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    const auto at = [&](std::int64_t k) { return responses.begin() + k * r.sequences() / replicas; };
    ReplicaWork work;
    work.prompt_tokens = r.prompt_tokens;
    work.responses.assign(at(replica), at(replica + 1));
    work.most_sequences = most, work.cache_tokens = room;
    work.prefill_sequences = cpu ? together : 0;
    work.step_overhead_s = g.step_overhead.seconds();
    // Who asks for a step wakes who performs it, and is woken at its end.
    if (cpu) work.step_overhead_s += 2 * own.machine->costs->device().wake.seconds();
    run.replicas.push_back(run_replica(work, costs, one));
  }
  return run;
}

}  // namespace rehearse::run
