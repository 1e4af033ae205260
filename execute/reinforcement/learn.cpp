// The conductor of a run; see learn.h. Ranks of all phases stand while one of them is at work.
#include "execute/reinforcement/learn.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "execute/reinforcement/generation.h"
#include "execute/reinforcement/learning_checkpoints.h"
#include "execute/reinforcement/policy.h"
#include "execute/reinforcement/values.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

constexpr std::size_t kWarmUp = 2;  // steps

// Phases that are named in failures too: several perform the same Program.
constexpr const char *kActorScoring = "actor scoring", *kReferenceScoring = "reference scoring",
                     *kRewardScoring = "reward scoring", *kCriticScoring = "critic scoring",
                     *kActorTraining = "actor training", *kCriticTraining = "critic training";

std::int64_t memory_here() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// A run of a phase, and what its ranks' steps were in each step of the training.
struct Phase {
  PhaseRun* run = nullptr;
  int first_rank = 0;                        // of the whole
  std::vector<std::vector<Shares>> by_step;  // and rank
};

std::int64_t generating_ranks(const plan::Scenario& s) {
  return s.reinforcement.colocated() ? s.cluster.gpus : s.reinforcement.generation.gpus;
}

std::int64_t longest_sequence(const LearningPlan& plan) {
  return plan.scenario->reinforcement.prompt_tokens +
         *std::max_element(plan.response_lengths.begin(), plan.response_lengths.end());
}

// Before any of it is taken.
void check_memory(const LearningPlan& plan) {
  const plan::Reinforcement& r = plan.scenario->reinforcement;
  const std::int64_t replicas = generating_ranks(*plan.scenario) / r.generation.tensor;
  const std::int64_t critics = r.has_critic() ? 1 : 0,
                     scoring = 1 + (r.reference ? 1 : 0) + (r.reward != "rule" ? 1 : 0) + critics;
  const std::int64_t ranks = planned_bytes(plan.scoring) * scoring + planned_bytes(plan.update) * (1 + critics) +
                             replicas * (planned_bytes(plan.prefill) + planned_bytes(plan.decode));
  const std::int64_t caches =
      replicas *
      KeyValueCache::bytes(*plan.decode.scenario, plan.decode.scenario->plan.micro_batch, longest_sequence(plan));
  if (ranks + caches > memory_here())
    throw DoesNotFit(
        fmt::format("does not fit in memory: the phases' ranks need {} and caches of keys and values {} "
                    "of this machine's {}",
                    format_bytes(Bytes(ranks)), format_bytes(Bytes(caches)), format_bytes(Bytes(memory_here()))));
}

class Learner {
 public:
  Learner(const LearningPlan& plan, const LearningOptions& options)
      : scenario_(*plan.scenario),
        r_(scenario_.reinforcement),
        options_(options),
        lengths_(plan.response_lengths),
        scored_(plan.scoring.scenario->training.seq_len, plan.scoring.scenario->training.global_batch),
        trained_(plan.update.scenario->training.seq_len, plan.update.scenario->training.global_batch),
        actor_(plan.scoring, scored_, false),
        reference_(plan.scoring, scored_, true),
        reward_(plan.scoring, scored_, HeadedScoring::Of::reward),
        critic_(plan.scoring, scored_, HeadedScoring::Of::critic),
        updates_(plan.update, trained_, r_),
        value_updates_(plan.update, trained_, r_) {
    const auto training = static_cast<int>(scenario_.cluster.gpus);
    generating_ = static_cast<int>(generating_ranks(scenario_));
    Options own;
    own.steps = options.steps, own.checkpoint = options.checkpoint;
    if (options.checkpoint.any()) checkpoints_.emplace(scenario_, own);
    history_.parts.resize(kHistories);
    if (checkpoints_) history_ = checkpoints_->history(), first_step_ = checkpoints_->first_step();
    own.checkpoint = {}, own.timeout = options.timeout, own.poll = options.poll;
    const int threads = threads_per_rank(scenario_, training);
    const auto make = [&](const char* name, const PhasePlan& phase, Data& data, AskedSteps& steps, int total,
                          bool losses) {
      return std::make_unique<PhaseRun>(name, phase, data, steps, threads, total, losses, own,
                                        losses ? first_step_ * updates_a_step() : 0);
    };
    actor_run_ = make(kActorScoring, plan.scoring, scored_, actor_, options.steps, false);
    if (r_.reference) reference_run_ = make(kReferenceScoring, plan.scoring, scored_, reference_, options.steps, false);
    if (r_.reward != "rule") reward_run_ = make(kRewardScoring, plan.scoring, scored_, reward_, options.steps, false);
    if (r_.has_critic()) critic_run_ = make(kCriticScoring, plan.scoring, scored_, critic_, options.steps, false);
    own.before_op = options.before_op;
    const auto updates = static_cast<int>(options.steps * updates_a_step());
    update_run_ = make(kActorTraining, plan.update, trained_, updates_, updates, true);
    if (r_.has_critic()) value_run_ = make(kCriticTraining, plan.update, trained_, value_updates_, updates, true);
    own.before_op = nullptr, own.poll = nullptr;  // these are of threads of their own
    for (int k = 0; k < generating_ / r_.generation.tensor; ++k) {
      if (options.before_generating_op)
        own.before_op = [&options, k](int rank, std::int64_t step, const program::Op& op) {
          options.before_generating_op(k, rank, step, op);
        };
      replicas_.push_back(std::make_unique<Replica>(plan.prefill, plan.decode, threads_per_rank(scenario_, generating_),
                                                    own, longest_sequence(plan)));
    }
    for (PhaseRun* run : {actor_run_.get(), reference_run_.get(), reward_run_.get(), critic_run_.get(),
                          update_run_.get(), value_run_.get()})
      if (run != nullptr) phases_.push_back({run, 0, {}});
    int first = r_.colocated() ? 0 : training;
    for (const auto& replica : replicas_) {
      for (PhaseRun* run : replica->runs()) phases_.push_back({run, first, {}});
      first += static_cast<int>(r_.generation.tensor);
    }
  }

  LearningOutcome run() {
    for (const Phase& phase : phases_) phase.run->start();
    LearningOutcome out;
    out.first_step = first_step_;
    if (first_step_ > 0) {
      checkpoints_->restore(saved_models());
      move_weights();
    }
    const Clock::time_point began = Clock::now();
    for (auto step = static_cast<int>(first_step_); step < options_.steps; ++step) {
      out.steps.push_back(one_step(step));
      for (Phase& phase : phases_) phase.by_step.push_back(phase.run->take_shares());
      keep(out.steps.back());
      if (options_.on_step) options_.on_step(step, out.steps.back());
    }
    if (options_.keep_parameters) out.parameters = update_run_->parameters();
    if (options_.keep_parameters && value_run_) out.critic = value_run_->parameters();
    for (const Phase& phase : phases_) phase.run->finish();
    if (checkpoints_) checkpoints_->keep_last();
    out.result.wall_s = std::chrono::duration<double>(Clock::now() - began).count();
    describe(out);
    return out;
  }

 private:
  std::int64_t updates_a_step() const { return r_.epochs * r_.sequences() / scenario_.training.global_batch; }

  SavedModels saved_models() const { return {update_run_.get(), reference_run_.get(), value_run_.get()}; }

  // What `work` takes, in seconds.
  template <class Work>
  static double timed(const Work& work) {
    const Clock::time_point began = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - began).count();
  }

  LearningStep one_step(int step) {
    LearningStep done;
    Rollout& rollout = rollout_;
    rollout = new_rollout(scenario_, lengths_, step);
    done.generation_s = timed([&] { generate(rollout, step); });
    for (const auto& replica : replicas_)
      if (replica->prefill_s + replica->decode_s > done.prefill_s + done.decode_s)
        done.prefill_s = replica->prefill_s, done.decode_s = replica->decode_s;
    scored_.set(&rollout), trained_.set(&rollout);
    actor_.set(&rollout);
    if (r_.reference) reference_.set(&rollout);
    done.actor_scoring_s = timed([&] { actor_run_->step(); });
    if (r_.reference) done.reference_scoring_s = timed([&] { reference_run_->step(); });
    if (reward_run_) reward_.set(&rollout), done.reward_scoring_s = timed([&] { reward_run_->step(); });
    if (critic_run_) critic_.set(&rollout), done.critic_scoring_s = timed([&] { critic_run_->step(); });
    done.rewards_s = timed([&] {
      if (!reward_run_)
        for (Response& response : rollout.sequences)
          response.reward = rule_reward(response, r_.prompt_tokens, r_.rule_modulus);
      if (r_.has_critic())
        set_token_advantages(rollout, r_);
      else
        set_advantages(rollout, r_.samples);
    });
    const auto sequences = static_cast<double>(rollout.sequences.size());
    for (const Response& response : rollout.sequences) done.reward += response.reward / sequences;
    done.distance = mean_distance(rollout);
    std::vector<double> losses, value_losses;
    done.training_s = timed([&] { losses = updates_of(*update_run_); });
    if (value_run_) done.critic_training_s = timed([&] { value_losses = updates_of(*value_run_); });
    const auto mean = [](const std::vector<double>& of) {
      return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(std::max<std::size_t>(1, of.size()));
    };
    done.loss = mean(losses), done.value_loss = mean(value_losses);
    done.weights_s = timed([&] { move_weights(); });
    if (options_.on_rollout) options_.on_rollout(step, rollout, losses, value_losses);
    return done;
  }

  // A step's, and their losses.
  std::vector<double> updates_of(PhaseRun& run) const {
    std::vector<double> losses;
    for (std::int64_t u = 0; u < updates_a_step(); ++u) {
      run.step();
      losses.push_back(run.loss());
    }
    return losses;
  }

  void keep(const LearningStep& done) {
    history_.of_steps.push_back(done.loss);
    history_.parts[0].push_back(done.reward), history_.parts[1].push_back(done.distance);
    if (checkpoints_ && checkpoints_->due(static_cast<std::int64_t>(history_.of_steps.size())))
      checkpoints_->save(saved_models(), history_);
  }

  // Replicas in a thread each, while this one looks whether to go on.
  void generate(Rollout& rollout, int step) {
    std::vector<std::exception_ptr> errors(replicas_.size());
    std::atomic<std::size_t> ended = 0;
    std::atomic<int> first = -1;
    std::vector<std::thread> threads;
    const auto stop_all = [this] {
      for (const Phase& phase : phases_) phase.run->stop();
    };
    for (std::size_t k = 0; k < replicas_.size(); ++k)
      threads.emplace_back([&, k] {
        try {
          replicas_[k]->generate(rollout, sequences_of(k), step);
        } catch (...) {
          errors[k] = std::current_exception();
          int none = -1;
          if (first.compare_exchange_strong(none, static_cast<int>(k))) stop_all();
        }
        ++ended;
      });
    std::exception_ptr told;
    while (ended < replicas_.size()) {
      try {
        if (options_.poll && !told) options_.poll();
      } catch (...) {
        told = std::current_exception();
        stop_all();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    for (std::thread& thread : threads) thread.join();
    if (told) std::rethrow_exception(told);
    if (first < 0) return;
    try {
      std::rethrow_exception(errors[static_cast<std::size_t>(first.load())]);
    } catch (const RankFailure& failure) {
      throw RankFailure(
          fmt::format("replica {} of {} that generate: {}", first.load(), replicas_.size(), failure.what()),
          failure.left());
    }
  }

  std::vector<std::int64_t> sequences_of(std::size_t replica) const {
    const auto replicas = static_cast<std::int64_t>(replicas_.size()), k = static_cast<std::int64_t>(replica);
    std::vector<std::int64_t> own;
    for (std::int64_t i = k * r_.sequences() / replicas; i < (k + 1) * r_.sequences() / replicas; ++i) own.push_back(i);
    return own;
  }

  void move_weights() {
    const Parameters weights = update_run_->parameters();
    actor_run_->assign(weights);
    for (const auto& replica : replicas_)
      for (PhaseRun* run : replica->runs()) run->assign(weights);
    if (critic_run_) critic_run_->assign(value_run_->parameters());
  }

  // A step: a copy of each replica's weights, but for what its devices have as ranks that train.
  std::int64_t moved_bytes() const {
    std::int64_t bytes = 0;
    int device = 0;
    for (const auto& replica : replicas_)
      for (int rank = 0; rank < static_cast<int>(r_.generation.tensor); ++rank, ++device) {
        const PhaseRun& run = replica->decode_run();
        bytes += r_.colocated() ? run.missing_bytes(rank, *update_run_, device) : run.parameter_bytes(rank);
      }
    return bytes;
  }

  void describe(LearningOutcome& out) const {
    result::Result& r = out.result;
    r.source = "measured";
    r.scenario_name = scenario_.name, r.scenario_file = scenario_.file;
    r.ranks = scenario_.cluster.gpus + r_.generation.gpus;
    r.steps = static_cast<int>(options_.steps - first_step_);  // that were performed here
    r.loss = history_.of_steps;
    r.memory_capacity = memory_here() / r.ranks;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    r.peak_rss_bytes = usage.ru_maxrss * 1024;
    for (const Phase& phase : phases_) out.held_bytes += phase.run->held_bytes();
    for (const auto& replica : replicas_) out.cache_bytes += replica->cache().bytes();
    add_program(update_run_->program(), update_run_->scenario(), update_run_->grid(), false, r);
    const auto updates = static_cast<double>(updates_a_step() * (r_.has_critic() ? 2 : 1));  // the critic's too
    r.model_flops *= updates, r.hardware_flops *= updates;
    r.flop_formula += "; of training alone, over the whole step";
    r.arena_bytes = out.held_bytes, r.planned_bytes = 0;
    for (const Phase& phase : phases_) r.planned_bytes += phase.run->planned_bytes();
    add_step(out);
  }

  // The step of the median time after those that warm up stands for all.
  void add_step(LearningOutcome& out) const {
    result::Result& r = out.result;
    std::vector<std::pair<double, std::size_t>> times;
    for (std::size_t s = std::min(kWarmUp, out.steps.size() - 1); s < out.steps.size(); ++s)
      times.emplace_back(out.steps[s].seconds(), s);
    std::sort(times.begin(), times.end());
    const std::size_t chosen = times[(times.size() - 1) / 2].second;
    const LearningStep& step = out.steps[chosen];
    r.interval_low_s = times.front().first, r.interval_high_s = times.back().first;
    r.step_time_ps = Time::from_seconds(step.seconds()).ps();
    out.shares = shares(out.steps);
    add_breakdown(out.shares, chosen, r);

    const std::int64_t tokens = std::accumulate(lengths_.begin(), lengths_.end(), std::int64_t{0});
    r.tokens_per_s = static_cast<double>(tokens + r_.prompt_tokens * r_.sequences()) / step.seconds();
    r.tokens_per_s_per_gpu = r.tokens_per_s / static_cast<double>(r.ranks);
    result::Reinforcement& f = r.reinforcement;
    f.known = true;
    f.algorithm = r_.has_critic() ? "ppo" : "grpo";
    f.colocated = r_.colocated();
    f.prompts = r_.prompts, f.samples = r_.samples, f.updates = updates_a_step();
    f.prompt_tokens = static_cast<double>(r_.prompt_tokens);
    f.response_tokens = static_cast<double>(tokens) / static_cast<double>(r_.sequences());
    f.longest_response = *std::max_element(lengths_.begin(), lengths_.end());
    f.training_gpus = scenario_.cluster.gpus, f.generating_gpus = generating_;
    f.replicas = static_cast<std::int64_t>(replicas_.size());
    f.update_ps = Time::from_seconds(step.training_s).ps() / f.updates;
    f.prefill_ps = Time::from_seconds(step.prefill_s).ps(), f.decode_ps = Time::from_seconds(step.decode_s).ps();
    std::int64_t most_cached = 0;
    for (const auto& replica : replicas_) {
      f.decode_steps = std::max(f.decode_steps, replica->decode_steps);
      f.sequences_at_once = std::max(f.sequences_at_once, replica->sequences_at_once);
      most_cached = std::max(most_cached, replica->most_cached);
    }
    f.generated_tokens_per_s = step.generation_s > 0 ? static_cast<double>(tokens) / step.generation_s : 0;
    f.cache_bytes_per_token = replicas_.front()->cache().bytes_per_token();
    f.cache_bytes = replicas_.front()->cache().bytes() / r_.generation.tensor;
    f.most_cached_bytes = most_cached * f.cache_bytes_per_token;
    f.moved_bytes = moved_bytes();
    const auto add = [&f](const char* name, const char* devices, double seconds) {
      f.phases.push_back({name, devices, Time::from_seconds(seconds).ps(), 0, 0});
    };
    const char* const training = r_.colocated() ? "all" : "training";
    add("generation", r_.colocated() ? "all" : "generating", step.generation_s);
    add(kActorScoring, training, step.actor_scoring_s);
    if (r_.reference) add(kReferenceScoring, training, step.reference_scoring_s);
    if (reward_run_) add(kRewardScoring, training, step.reward_scoring_s);
    if (critic_run_) add(kCriticScoring, training, step.critic_scoring_s);
    add("rewards", training, step.rewards_s);
    add(kActorTraining, training, step.training_s);
    if (value_run_) add(kCriticTraining, training, step.critic_training_s);
    add("weights", "all", step.weights_s);
    f.rewards = history_.parts[0];
    if (r_.reference) f.distances = history_.parts[1];
  }

  // By rank and step: its accounts of the phases' steps; what is in none of them is `other`.
  StepShares shares(const std::vector<LearningStep>& steps) const {
    const auto ranks = static_cast<std::size_t>(scenario_.cluster.gpus + r_.generation.gpus);
    StepShares all(ranks, std::vector<Shares>(steps.size()));
    for (const Phase& phase : phases_) {
      for (std::size_t step = 0; step < steps.size(); ++step)
        for (std::size_t rank = 0; rank < phase.by_step[step].size(); ++rank) {
          Shares& sum = all[static_cast<std::size_t>(phase.first_rank) + rank][step];
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += phase.by_step[step][rank][i];
        }
    }
    for (std::vector<Shares>& rank : all)
      for (std::size_t step = 0; step < steps.size(); ++step) {
        std::int64_t left = Time::from_seconds(steps[step].seconds()).ps();
        for (const std::int64_t share : rank[step]) left -= share;
        if (left >= 0)
          rank[step][static_cast<std::size_t>(result::Share::other)] += left;
        else
          *std::max_element(rank[step].begin(), rank[step].end()) += left;
      }
    return all;
  }

  static void add_breakdown(const StepShares& shares, std::size_t step, result::Result& r) {
    std::int64_t left = r.step_time_ps;
    for (std::size_t i = 0; i < r.breakdown_ps.size(); ++i) {
      for (const std::vector<Shares>& rank : shares) r.breakdown_ps[i] += rank[step][i];
      left -= r.breakdown_ps[i] /= r.ranks;
    }
    *std::max_element(r.breakdown_ps.begin(), r.breakdown_ps.end()) += left;  // of rounding
  }

  const plan::Scenario& scenario_;
  const plan::Reinforcement& r_;
  const LearningOptions& options_;
  std::vector<std::int64_t> lengths_;
  std::optional<LearningCheckpoints> checkpoints_;
  TrainingLosses history_;  // of all steps done; parts: kHistories
  std::int64_t first_step_ = 0;
  int generating_ = 1;
  Rollout rollout_;  // of the step; outlives ranks that are at it when the run fails
  RolloutData scored_, trained_;
  ScoringSteps actor_, reference_;
  HeadedScoring reward_, critic_;
  UpdateSteps updates_;
  ValueUpdates value_updates_;
  std::unique_ptr<PhaseRun> actor_run_, reference_run_, update_run_;
  std::unique_ptr<PhaseRun> reward_run_, critic_run_, value_run_;  // of the critic what scores, and what is trained
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<Phase> phases_;
};

}  // namespace

void check_learnable(const plan::Scenario& scenario, int steps) {
  const plan::Reinforcement& r = scenario.reinforcement;
  Diagnostics problems;
  const auto refuse = [&](bool wrong, const char* path, const std::string& message, const char* hint) {
    if (wrong) problems.add({"", 0, 0, path, message, hint});
  };
  constexpr const char* kSimulated = ": it is simulated only";
  refuse(
      r.critic != "same", "reinforcement.critic",
      fmt::format("a critic that is another model than the actor, '{}', is not performed yet{}", r.critic, kSimulated),
      "same");
  refuse(r.reward != "rule" && r.reward != "same", "reinforcement.reward",
         fmt::format("a reward model that is another model than the actor, '{}', is not performed yet{}", r.reward,
                     kSimulated),
         "rule, or same");
  refuse(r.packing, "reinforcement.packing", fmt::format("packed rows are not performed yet{}", kSimulated), "false");
  refuse(r.offload, "reinforcement.offload",
         "on this machine's CPUs the memory of devices is the host's, and nothing is copied between them", "false");
  refuse(r.asynchronous, "reinforcement.asynchronous",
         fmt::format("generation while others train is not performed yet{}", kSimulated), "false");
  refuse(r.generation.step_overhead > Time(), "reinforcement.generation.overhead",
         "what a host takes between decode steps is measured, not given, where these are performed", "0");
  refuse(scenario.places.contains("reinforcement.generation.memory"), "reinforcement.generation.memory",
         "a device's part of the memory is not kept to where ranks share this machine's: all phases lie there at once",
         "leave it out, and bound the cache by reinforcement.generation.sequences");
  refuse(r.samples < 2 && !r.has_critic(), "reinforcement.samples",
         "a single response to a prompt has no group that its advantage could be told by",
         "2 or more, or algorithm: ppo");
  refuse(r.rule_modulus > scenario.model.vocab, "reinforcement.rule_modulus",
         fmt::format("{} is more than the {} tokens of the vocabulary", r.rule_modulus, scenario.model.vocab),
         "at most model.vocab");
  refuse(
      scenario.model.capacity_factor > 0, "model.capacity_factor",
      "which tokens an expert has no room for depends on the others of their step, so that a token would not be scored "
      "as it was drawn",
      "0");
  refuse(scenario.model.experts > 0 && scenario.model.aux_loss > 0, "model.aux_loss",
         "the balance of experts would be that of rows with no tokens too", "0");
  refuse(scenario.model.routing == model::Routing::recorded, "model.routing",
         "a record is of the tokens of a text, and those of prompts and responses are drawn", "uniform");
  refuse(scenario.model.mtp_depth > 0, "model.mtp_depth",
         fmt::format("modules of multi-token prediction are not performed yet{}", kSimulated), "0");
  refuse(scenario.model.dropout > 0, "model.dropout",
         "probabilities of responses are those of the model that gave them, which drops nothing", "0");
  const std::int64_t ranks = scenario.cluster.gpus + r.generation.gpus;
  refuse(ranks > kMaxRanks, "cluster.gpus",
         fmt::format("{} ranks as threads of this machine; at most {} are performed", ranks, kMaxRanks),
         "rehearse simulate takes any number");
  refuse(steps < 1, "", fmt::format("{} steps; at least one", steps), "");
  problems.throw_if_any();
}

LearningOutcome learn(const LearningPlan& plan, const LearningOptions& options) {
  check_learnable(*plan.scenario, options.steps);
  check_memory(plan);
  return Learner(plan, options).run();
}

std::string learning_table(const std::vector<LearningStep>& steps, std::int64_t first_step) {
  std::string out =
      "step,loss,reward,distance,end_s,step_s,generation_s,prefill_s,decode_s,actor_scoring_s,reference_scoring_s,"
      "rewards_s,training_s,weights_s,value_loss,reward_scoring_s,critic_scoring_s,critic_training_s\n";
  double end = 0;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const LearningStep& one = steps[s];
    end += one.seconds();
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{:.9f},{:.9f}", static_cast<std::size_t>(first_step) + s + 1,
                   one.loss, one.reward, one.distance, end, one.seconds());
    for (const double phase : {one.generation_s, one.prefill_s, one.decode_s, one.actor_scoring_s,
                               one.reference_scoring_s, one.rewards_s, one.training_s, one.weights_s})
      fmt::format_to(std::back_inserter(out), ",{:.9f}", phase);
    fmt::format_to(std::back_inserter(out), ",{},{:.9f},{:.9f},{:.9f}", one.value_loss, one.reward_scoring_s,
                   one.critic_scoring_s, one.critic_training_s);
    out += '\n';
  }
  return out;
}

}  // namespace rehearse::execute
