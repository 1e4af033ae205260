// See reinforcement.h.
#include "sim/run/reinforcement/reinforcement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "sim/base/diagnostics.h"
#include "sim/engine/flows.h"
#include "sim/lower/stage.h"
#include "sim/run/describe_scenario.h"
#include "sim/run/fit.h"
#include "sim/run/prepared.h"
#include "sim/run/reinforcement/forward_pass.h"
#include "sim/run/reinforcement/generation.h"
#include "sim/run/reinforcement/packing.h"
#include "sim/run/reinforcement/phases.h"
#include "sim/run/reinforcement/weight_movement.h"

namespace rehearse::run {
namespace {

using result::Share;

double& share_of(StepCost& cost, Share share) {
  return cost.shares[static_cast<std::size_t>(share)];
}

// A phase of the step on the devices that train or on those that generate.
struct Part {
  std::string name;
  StepCost cost = {};  // mean over its devices
  double idle_s = 0;   // of them, in the mean, with nothing to do in it
  double low = 1, high = 1;
  std::array<double, 4> coverage = {};
  std::int64_t peak = 0;
  std::int64_t parameters = 0;  // of the model that it is of, where that is one that lies there in other phases, too
};

// Bytes of a rank of the stage that has most.
struct Kept {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0, peak = 0;
  std::int64_t all() const { return parameters + gradients + optimizer; }
};

Kept kept_of(const std::vector<result::StageMemory>& stages) {
  Kept k;
  for (const result::StageMemory& s : stages) {
    k.parameters = std::max(k.parameters, s.parameters), k.gradients = std::max(k.gradients, s.gradients);
    k.optimizer = std::max(k.optimizer, s.optimizer), k.peak = std::max(k.peak, s.peak);
  }
  return k;
}

// Of a pass: without what only training keeps.
std::int64_t pass_peak(const std::vector<result::StageMemory>& stages) {
  std::int64_t peak = 0;
  for (const result::StageMemory& s : stages)
    peak = std::max(peak, s.parameters + s.activations + s.workspace + s.communication + s.framework);
  return peak;
}

class Step {
 public:
  Step(const plan::Scenario& scenario, const std::vector<std::string>& assignments, const Options& options)
      : s_(scenario),
        r_(scenario.reinforcement),
        assignments_(assignments),
        options_(options),
        lengths_(response_lengths(r_, r_.longest_response(s_.training.seq_len), s_.training.seed)) {
    for (const std::int64_t length : lengths_) tokens_ += static_cast<double>(r_.prompt_tokens + length);
  }

  result::Result run() {
    const auto began = std::chrono::steady_clock::now();
    refuse_others();
    generate();
    score("actor", "");
    if (r_.reference) score("reference", "");
    if (r_.reward != "rule") score("reward", r_.reward == "same" ? "" : r_.reward);
    const std::string critic = r_.critic == "same" ? "" : r_.critic;
    if (r_.has_critic()) score("critic", critic);
    result::Result out = train("actor", "", options_);
    actor_ = kept_of(out.stages);
    if (r_.has_critic()) {
      Options plain = options_;
      plain.record = false, plain.progress = nullptr, plain.phase = nullptr;
      const result::Result trained = train("critic", critic, plain);
      critic_ = kept_of(trained.stages);
      // What its plan keeps on the host lies there beside the actor's.
      out.host_bytes += trained.host_bytes;
      out.host_capacity = std::max(out.host_capacity, trained.host_capacity);
    }
    move_weights();
    copy_states(out);
    compose(out);
    out.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return out;
  }

 private:
  void refuse_others() const {
    if (options_.samples > 0 || options_.what_if)
      throw InputError(Diagnostic{"", 0, 0, "reinforcement",
                                  "samples and what-ifs of steps of reinforcement learning are not simulated yet",
                                  "leave --samples and --what-if out"});
  }
  void say(const std::string& what) const {
    if (options_.phase) options_.phase("simulating " + what + " of");
  }

  // Of each `sequences` of the step's on end: rows for them in the mean, whole micro-batches of all replicas.
  std::vector<std::string> rows_of(std::int64_t sequences, std::int64_t micro_batch) const {
    const std::int64_t groups = r_.sequences() / sequences, seq = s_.training.seq_len;
    PackedRows all{sequences * groups, 0};
    if (r_.packing) all = packed(sequences);
    const std::int64_t whole = whole_rows(s_, (all.rows + groups - 1) / groups, micro_batch);
    std::vector<std::string> list{fmt::format("training.global_batch={}", whole)};
    if (!r_.packing) return list;
    // Attention of documents of unlike lengths costs what equal ones of the mean weighed by length do.
    const double of_rows = static_cast<double>(all.rows) * static_cast<double>(seq);
    const std::int64_t document = packed_document_length(all.squares / of_rows, seq);
    if (document < seq) {
      list.emplace_back("training.documents=fixed");
      list.push_back(fmt::format("training.document_length={}", document));
    }
    return list;
  }

  PackedRows packed(std::int64_t sequences) const {
    PackedRows all;
    for (auto first = lengths_.begin(); first != lengths_.end(); first += sequences) {
      std::vector<std::int64_t> whole(first, first + sequences);
      for (std::int64_t& length : whole) length += r_.prompt_tokens;
      const PackedRows group = pack_sequences(whole, s_.training.seq_len);
      all.rows += group.rows, all.squares += group.squares;
    }
    return all;
  }

  plan::Scenario read(std::vector<std::string> more, const std::string& model, const char* key) const {
    if (model.empty()) return with_assignments(s_, assignments_, std::move(more), options_);
    more.insert(more.begin(), "model=" + model);
    try {
      return with_assignments(s_, assignments_, std::move(more), options_);
    } catch (const InputError& error) {
      const Diagnostic& d = error.diagnostics().front();
      throw InputError(Diagnostic{"", 0, 0, fmt::format("reinforcement.{}", key),
                                  fmt::format("{} cannot be: {}", model, d.message), d.hint});
    }
  }

  void generate() {
    say("generation");
    generation_ = simulate_generation(s_, assignments_, lengths_, options_);
    Part part{"generation"};
    const double slowest = generation_.slowest().seconds(), mean = generation_.mean_seconds();
    for (const ReplicaRun& replica : generation_.replicas) {
      part.cost.add(replica.prefill, 1 / static_cast<double>(generation_.replicas.size()));
      part.cost.add(replica.decode, 1 / static_cast<double>(generation_.replicas.size()));
    }
    part.idle_s = std::max(0.0, slowest - mean);  // where all are alike the mean is rounded
    part.cost.seconds = slowest;
    share_of(part.cost, Share::straggler) += part.idle_s;
    part.low = generation_.low, part.high = generation_.high, part.coverage = generation_.coverage;
    generating_.push_back(std::move(part));
  }

  void score(const std::string& name, const std::string& model) {
    say(name + "'s scoring");
    const std::int64_t micro_batch = r_.scoring_micro_batch > 0 ? r_.scoring_micro_batch : s_.plan.micro_batch;
    std::vector<std::string> more = rows_of(r_.sequences(), micro_batch);
    more.push_back(fmt::format("plan.micro_batch={}", micro_batch));
    const ForwardPass pass = forward_pass(read(std::move(more), model, name.c_str()), 0, 1, options_);
    const std::int64_t parameters = kept_of(pass.stages).parameters;
    training_.push_back(
        {name + " scoring", pass.cost, 0, pass.low, pass.high, pass.coverage, pass_peak(pass.stages), parameters});
    if (name == "reference" || name == "reward") frozen_ += parameters;
  }

  result::Result train(const std::string& name, const std::string& model, const Options& options) {
    const plan::Scenario update = read(rows_of(s_.training.global_batch, s_.plan.micro_batch), model, name.c_str());
    result::Result r = simulate_scenario(update, options);
    const double step = Time::from_ps(r.step_time_ps).seconds();
    Part part{name + " training"};
    part.cost.seconds = step;
    for (std::size_t i = 0; i < part.cost.shares.size(); ++i)
      part.cost.shares[i] = Time::from_ps(r.breakdown_ps[i]).seconds();
    StepCost all;
    all.add(part.cost, static_cast<double>(updates()));
    part.cost = all;
    if (step > 0) part.low = r.interval_low_s / step, part.high = r.interval_high_s / step;
    part.coverage = r.coverage;
    for (const result::StageMemory& stage : r.stages) part.peak = std::max(part.peak, stage.peak);
    model_flops_ += static_cast<double>(updates()) * r.model_flops;
    hardware_flops_ += static_cast<double>(updates()) * r.hardware_flops;
    training_.push_back(std::move(part));
    return r;
  }

  std::int64_t updates() const { return r_.epochs * r_.sequences() / s_.training.global_batch; }
  std::int64_t training_gpus() const { return s_.cluster.gpus; }
  std::int64_t generating_gpus() const { return r_.colocated() ? s_.cluster.gpus : r_.generation.gpus; }
  std::int64_t all_gpus() const { return s_.cluster.gpus + r_.generation.gpus; }

  void move_weights() {
    plan::Scenario all = s_;
    all.cluster.gpus = all_gpus();
    machine_ = std::make_unique<Machine>(all, options_);
    const std::int64_t bytes = program::size_of(lower::dtype_of(s_.training.precision));
    const auto flows = weight_flows(s_, *machine_->cluster, r_.colocated() ? 0 : static_cast<int>(s_.cluster.gpus),
                                    generating_gpus() / r_.generation.tensor, r_.generation.tensor, bytes);
    std::vector<collective::TransferPlan> plans;
    for (const WeightFlow& flow : flows) {
      plans.push_back(machine_->collectives.model().send(flow.from, flow.to, Bytes(flow.bytes)));
      moved_ += flow.bytes;
    }
    weights_s_ = engine::run_flows(plans, *machine_->cluster).end.seconds();
  }

  // To the host's memory, or from there, by a device while all of its node do the same.
  double copy_seconds(std::int64_t bytes) const {
    if (bytes <= 0) return 0;
    program::Role role;
    role.name = "copies";
    role.streams.push_back({"to_host", program::StreamKind::copy});
    for (const bool on_host : {false, true}) {
      program::Buffer b;
      b.name = on_host ? "on_host" : "state", b.dtype = program::DType::u8, b.shape = {bytes};
      b.cls = program::BufferClass::optimizer, b.lifetime = program::Lifetime::persistent, b.on_host = on_host;
      role.buffers.push_back(std::move(b));
    }
    program::Op op;
    op.name = "copy", op.dtype = program::DType::u8;
    op.shape = program::Elementwise{program::ElementwiseFn::copy, bytes};
    op.reads = {{0}}, op.writes = {{1}};
    return machine_->costs->kernel(role, op, {}).duration.seconds();
  }

  // Once a step out and back: the actor's parameters and optimizer where others take turns with it; the critic's; of
  // frozen models only back.
  void copy_states(result::Result& out) {
    if (!r_.offload) return;
    const bool turns = r_.colocated() || r_.has_critic();
    const std::int64_t away =
        (turns ? actor_.parameters + actor_.optimizer : 0) + critic_.parameters + critic_.optimizer;
    copies_s_ = 2 * copy_seconds(away) + copy_seconds(frozen_);
    if (away + frozen_ == 0) return;
    const int devices = std::min(machine_->cluster->devices_per_node(), static_cast<int>(s_.cluster.gpus));
    out.host_bytes += (away + frozen_) * devices;
    out.host_capacity = machine_->cluster->node_view(0).host.size.count();
  }

  // What lies on a device that trains besides what a phase itself needs.
  std::int64_t beside(std::int64_t own) const { return r_.offload ? 0 : actor_.all() + critic_.all() + frozen_ - own; }

  void set_peaks() {
    for (Part& part : training_) {
      if (part.name == "actor training")
        part.peak += beside(actor_.all());
      else if (part.name == "critic training")
        part.peak += beside(critic_.all());
      else
        part.peak += beside(part.name == "critic scoring"  ? critic_.parameters
                            : part.name == "actor scoring" ? actor_.parameters
                                                           : part.parameters);
    }
    const std::int64_t held = r_.colocated() ? beside(0) : 0;
    generating_.front().peak =
        generation_.weight_bytes + generation_.other_bytes + std::max<std::int64_t>(0, generation_.cache_bytes) + held;
  }

  // Both ends hold their weights while these move.
  std::int64_t weights_peak() const {
    const std::int64_t receiver = generation_.weight_bytes;
    return r_.colocated() ? std::max(receiver + actor_.parameters, receiver + beside(0))
                          : std::max(receiver, actor_.parameters + beside(actor_.parameters));
  }

  void compose(result::Result& out) {
    set_peaks();
    Part weights{"weights"}, copies{"copies"};
    weights.cost.seconds = weights_s_, copies.cost.seconds = copies_s_;
    share_of(weights.cost, Share::other) = weights_s_, share_of(copies.cost, Share::other) = copies_s_;
    weights.peak = weights_peak();
    if (copies_s_ > 0) training_.push_back(copies);
    double train_s = 0, step_s = 0;
    const double generate_s = generating_.front().cost.seconds;
    for (const Part& part : training_) train_s += part.cost.seconds;
    const bool at_once = r_.asynchronous;
    step_s = weights_s_ + (at_once ? std::max(generate_s, train_s) : generate_s + train_s);
    StepCost mean;
    double idle = 0, low = 0, high = 0;
    const auto all = static_cast<double>(all_gpus());
    const auto add = [&](const Part& part, std::int64_t gpus) {
      mean.add(part.cost, static_cast<double>(gpus) / all);
      idle += part.idle_s * static_cast<double>(gpus) / all;
    };
    for (const Part& part : generating_) add(part, generating_gpus());
    for (const Part& part : training_) add(part, training_gpus());
    add(weights, all_gpus());
    // Apart: what the others' phases are longer by.
    const double apart = r_.colocated() ? 0
                                        : ((step_s - weights_s_ - generate_s) * static_cast<double>(generating_gpus()) +
                                           (step_s - weights_s_ - train_s) * static_cast<double>(training_gpus())) /
                                              all;
    share_of(mean, Share::bubble) += apart;
    idle += apart;
    for (const auto* side : {&generating_, &training_})
      for (const Part& part : *side) low += part.cost.seconds * part.low, high += part.cost.seconds * part.high;
    const double parts = generate_s + train_s;
    write(out, weights, step_s, mean, idle / step_s);
    out.interval_low_s = step_s * (low + weights_s_) / (parts + weights_s_);
    out.interval_high_s = step_s * (high + weights_s_) / (parts + weights_s_);
  }

  void write(result::Result& out, const Part& weights, double step_s, const StepCost& mean, double idle) {
    result::Reinforcement& f = out.reinforcement;
    f.known = true;
    f.algorithm = r_.algorithm == plan::Algorithm::ppo ? "ppo" : "grpo";
    f.colocated = r_.colocated(), f.asynchronous = r_.asynchronous;
    f.prompts = r_.prompts, f.samples = r_.samples, f.updates = updates();
    f.prompt_tokens = static_cast<double>(r_.prompt_tokens);
    f.response_tokens = tokens_ / static_cast<double>(r_.sequences()) - f.prompt_tokens;
    f.longest_response = *std::max_element(lengths_.begin(), lengths_.end());
    f.training_gpus = training_gpus(), f.generating_gpus = generating_gpus();
    f.replicas = static_cast<std::int64_t>(generation_.replicas.size());
    f.update_ps = out.step_time_ps, f.idle = idle, f.moved_bytes = moved_;
    const ReplicaRun& slowest = generation_.slowest();
    f.prefill_ps = Time::from_seconds(slowest.prefill.seconds).ps();
    f.decode_ps = Time::from_seconds(slowest.decode.seconds).ps();
    f.decode_steps = slowest.steps;
    std::int64_t most = 0;
    for (const ReplicaRun& replica : generation_.replicas) {
      f.sequences_at_once = std::max(f.sequences_at_once, replica.sequences_at_once);
      most = std::max(most, replica.most_cached);
    }
    f.most_cached_bytes = most * generation_.bytes_per_token;
    f.cache_bytes = generation_.cache_bytes, f.cache_bytes_per_token = generation_.bytes_per_token;
    f.generated_tokens_per_s = f.response_tokens * static_cast<double>(r_.sequences()) / slowest.seconds();
    const auto add = [&f](const Part& part, const char* devices) {
      const double idle_share = part.cost.seconds > 0 ? part.idle_s / part.cost.seconds : 0;
      f.phases.push_back({part.name, devices, Time::from_seconds(part.cost.seconds).ps(), idle_share, part.peak});
    };
    for (const Part& part : generating_) add(part, r_.colocated() ? "all" : "generating");
    for (const Part& part : training_) add(part, r_.colocated() ? "all" : "training");
    add(weights, "all");

    out.scenario["reinforcement.algorithm"] = f.algorithm;
    out.ranks = all_gpus();
    out.step_time_ps = Time::from_seconds(step_s).ps();
    std::int64_t left = out.step_time_ps;
    for (std::size_t i = 0; i < mean.shares.size(); ++i) {
      out.breakdown_ps[i] = Time::from_seconds(std::max(0.0, mean.shares[i])).ps();
      left -= out.breakdown_ps[i];
    }
    *std::max_element(out.breakdown_ps.begin(), out.breakdown_ps.end()) += left;
    out.tokens_per_s = tokens_ / step_s;
    out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(out.ranks);
    out.model_flops = model_flops_, out.hardware_flops = hardware_flops_;
    out.flop_formula += "; of training alone, over the whole step";
    add_coverage(out);
    // Of one update.
    out.links = {}, out.energy = {}, out.noise = {}, out.samples = {}, out.epoch = {};
    say_training_as_given(out);
    const std::int64_t room = out.memory_capacity - out.memory_headroom;
    for (const result::ReinforcementPhase& phase : f.phases)
      if (phase.peak_bytes > room) out.memory_fits = false;
    if (!out.host_fits()) out.memory_fits = false;
  }

  // Where the update's simulation has packed rows and their documents.
  void say_training_as_given(result::Result& out) const {
    result::Result given;
    describe_scenario(s_, *machine_->cluster, machine_->costs->device(), given);
    const auto of_training = [](const auto& pair) { return pair.first.rfind("training.", 0) == 0; };
    std::erase_if(out.scenario, of_training);
    for (const auto& pair : given.scenario)
      if (of_training(pair)) out.scenario.insert(pair);
    out.learning_rate = given.learning_rate;
  }

  // By the time of the phases.
  void add_coverage(result::Result& out) const {
    out.coverage = {};
    double all = 0;
    for (const auto* side : {&generating_, &training_})
      for (const Part& part : *side) {
        if (std::accumulate(part.coverage.begin(), part.coverage.end(), 0.0) == 0) continue;
        all += part.cost.seconds;
        for (std::size_t i = 0; i < out.coverage.size(); ++i) out.coverage[i] += part.cost.seconds * part.coverage[i];
      }
    for (double& each : out.coverage) each = all > 0 ? each / all : 0;
  }

  const plan::Scenario& s_;
  const plan::Reinforcement& r_;
  const std::vector<std::string>& assignments_;
  const Options& options_;
  std::vector<std::int64_t> lengths_;
  double tokens_ = 0;  // of all sequences
  GenerationRun generation_;
  std::vector<Part> generating_, training_;
  Kept actor_, critic_;
  std::int64_t frozen_ = 0;  // parameters of reference and reward model
  std::unique_ptr<Machine> machine_;
  std::int64_t moved_ = 0;
  double weights_s_ = 0, copies_s_ = 0;
  double model_flops_ = 0, hardware_flops_ = 0;
};

}  // namespace

std::int64_t packed_document_length(double wanted, std::int64_t seq_len) {
  const auto mean = [seq_len](std::int64_t length) {
    const std::int64_t full = seq_len / length, rest = seq_len % length;
    return static_cast<double>(full * length * length + rest * rest) / static_cast<double>(seq_len);
  };
  // It grows with the length, by no more than 2 for a token more. The shortest that has no less than is wanted:
  std::int64_t low = 1, high = seq_len;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (mean(middle) < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low > 1 && wanted - mean(low - 1) < mean(low) - wanted ? low - 1 : low;
}

result::Result simulate_reinforcement(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                      const Options& options) {
  return Step(scenario, assignments, options).run();
}

}  // namespace rehearse::run
