// See search.h.
#include "sim/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <queue>
#include <set>

#include "sim/base/document.h"
#include "sim/base/in_parallel.h"
#include "sim/base/interrupt.h"
#include "sim/lower/lower.h"
#include "sim/run/device_kinds.h"
#include "sim/run/energy.h"
#include "sim/run/fit.h"
#include "sim/run/prepared.h"
#include "sim/search/layer_floor.h"
#include "sim/search/least_step.h"
#include "sim/search/machines.h"

namespace rehearse::search {
namespace {

// Simulated at a time, whatever the threads: what is simulated does not depend on them.
constexpr std::size_t kAtOnce = 8;

using Clock = std::chrono::steady_clock;

// The scenario with some plan, to know its model, batch and cluster: its own if that can be, else the first of some
// usual splits that can.
plan::Scenario any_plan(const Request& request) {
  const auto read = [&](const std::vector<std::string>& assignments) {
    return plan::read_scenario(request.file, assignments, request.run.data_root);
  };
  try {
    return read(request.assignments);
  } catch (const InputError& error) {
    InputError fewest = error;  // problems
    // Whatever is free is set, lest it be of the scenario's own plan: chunks of stages that are no more, and the like.
    const std::vector<std::string> usual = {"plan.micro_batch=1", "plan.context=1", "plan.expert=1",
                                            "plan.sequence_parallel=false", "plan.layers_per_stage=auto"};
    for (const auto& [schedule, chunks] : {std::pair{"1f1b", 1}, {"interleaved", 2}})
      for (const int zero : {0, 1})
        for (const int tensor : {1, 2, 4, 8, 16})
          for (const int pipeline : {1, 2, 4, 8, 16, 32, 64}) {
            std::vector<std::string> all = usual;
            all.push_back(fmt::format("plan.schedule={}", schedule));
            all.push_back(fmt::format("plan.chunks={}", chunks));
            all.push_back(fmt::format("plan.tensor={}", tensor));
            all.push_back(fmt::format("plan.pipeline={}", pipeline));
            all.push_back(fmt::format("plan.zero={}", zero));
            all.insert(all.end(), request.assignments.begin(), request.assignments.end());
            try {
              return read(all);
            } catch (const InputError& other) {
              if (other.diagnostics().size() < fewest.diagnostics().size()) fewest = other;
            }
          }
    throw InputError(fewest);
  }
}

class Search {
 public:
  explicit Search(const Request& request)
      : request_(request), options_(options_of(request)), machines_(options_), began_(Clock::now()) {
    const plan::Scenario scenario = any_plan(request);
    refuse_what_varies(scenario);
    const auto machine = machines_.of(scenario);
    for (int kind = 0; kind < machine->kinds() && request.objective == Objective::energy; ++kind)
      if (const cost::Device& device = machine->costs_of(kind).device(); !device.power.known())
        throw InputError(Diagnostic{"--objective", 0, 0, "", fmt::format("{} says nothing of its power", device.file),
                                    "step_time, cost or memory"});
    out_.room_bytes = most_room(*machine, scenario);
    out_.space = space_of(scenario, request.assignments, request.ranges, least_memory(*machine));
    for (Choice& choice : choices(out_.space, scenario)) out_.plans.emplace_back().choice = std::move(choice);
  }

  Outcome run() && {
    try {
      settle();
      refine();
      if (request_.shared.part > 0) return std::move(out_);
      answer();
      if (request_.worth && !out_.best.empty()) value_keys();
      if (request_.front && !out_.best.empty()) draw_front();
    } catch (const Interrupted& end) {
      if (shared()) throw;
      leave_at(end);
    }
    count();
    return std::move(out_);
  }

 private:
  // By bound, then in the space's order.
  using Queue =
      std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>, std::greater<>>;

  static run::Options options_of(const Request& request) {
    run::Options options = request.run;
    options.record = options.what_if = false;
    options.samples = 0;
    options.threads = 1;
    options.progress = nullptr;
    options.phase = nullptr;
    options.check = false;
    return options;
  }

  void refuse_what_varies(const plan::Scenario& scenario) const {
    const auto refuse = [&](const char* path, const char* message, const char* hint) {
      throw plan::located(InputError(Diagnostic{"", 0, 0, path, message, hint}), scenario);
    };
    if (scenario.plan.served() && request_.objective == Objective::energy)
      refuse("plan.servers", "the energy of parameter servers' devices is not counted yet", "another --objective");
    if (scenario.reinforcement.given)
      refuse("reinforcement", "a search is of plans of training alone",
             "--set reinforcement=null, or sweep with `rehearse simulate`");
    if (!scenario.jobs.empty())
      refuse("cluster.jobs", "a search is of one job's plans", "leave the jobs out, or sweep with `rehearse simulate`");
    // Ranks that are slow throughout leave every step alike; none is faster than without.
    plan::Noise others = scenario.noise;
    if (std::all_of(others.slow_ranks.begin(), others.slow_ranks.end(),
                    [](const plan::SlowRanks& slow) { return slow.factor >= 1; }))
      others.slow_ranks.clear();
    if (others.any())
      refuse("noise", "plans are compared without noise, but for slow_ranks with factors of 1 and more",
             "--set noise={}, then `rehearse simulate --samples` of one");
  }

  plan::Scenario read(const Plan& plan) const {
    std::vector<std::string> all = request_.assignments;
    const std::vector<std::string> chosen = out_.space.assignments(plan.choice);
    all.insert(all.end(), chosen.begin(), chosen.end());
    return plan::read_scenario(request_.file, all, request_.run.data_root, plan::Purpose::simulate, &files_);
  }

  void settle() {
    std::atomic<std::size_t> done = 0;
    std::vector<std::size_t> own(out_.plans.size());
    std::iota(own.begin(), own.end(), std::size_t{0});
    if (shared()) {
      const std::vector<int> shares =
          shares_by_family(out_.space, out_.plans, request_.shared.parts, &is_separate_from_layers);
      std::erase_if(own, [&](std::size_t i) { return shares[i] != request_.shared.part; });
    }
    in_parallel(request_.threads, own.size(), [&](std::size_t i) {
      check_interrupt();
      settle(own[i]);
      tell("settling plans", static_cast<double>(++done) / static_cast<double>(own.size()));
    });
    exchange(own);
  }

  bool shared() const { return request_.shared.parts > 1; }

  // All processes know what each has found of its own plans.
  void exchange(const std::vector<std::size_t>& own) {
    if (!shared()) return;
    Findings findings;
    for (const std::size_t i : own) findings.add(i, out_.plans[i], reason_of_[i]);
    const std::vector<std::string> all = request_.shared.trade(findings.text(out_of_time()));
    for (std::size_t part = 0; part < all.size(); ++part) {
      const bool late = take_findings(all[part], out_.plans, [&](const std::string& reason) {
        if (static_cast<int>(part) == request_.shared.part) return;
        ++reasons_[reason];
      });
      if (part == 0) late_ = late;
    }
  }

  void settle(std::size_t i) {
    Plan& plan = out_.plans[i];
    try {
      const plan::Scenario scenario = read(plan);
      const auto machine = machines_.of(scenario);
      plan.gpus = scenario.cluster.gpus + scenario.plan.own_servers();
      plan.complexity = complexity(scenario.plan);
      const PlanFloor floor =
          plan_floor(*layers_of(plan, scenario, *machine), scenario, *machine, machines_.collectives_of(*machine));
      const std::int64_t bytes = floor.bytes + reserve_of(scenario, *machine);
      const bool fits = bytes <= most_room(*machine, scenario);
      give_bounds(plan, scenario, *machine, fits ? Status::floored : Status::too_large, floor.step, bytes);
    } catch (const InputError& error) {
      forbid(i, error);
    }
  }

  void forbid(std::size_t i, const InputError& error) {
    out_.plans[i].status = Status::forbidden;
    const Diagnostic& first = error.diagnostics().front();
    std::string reason = first.path.empty() ? first.message : first.path + ": " + first.message;
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    const std::lock_guard lock(mutex_);
    ++reasons_[reason];
    reason_of_[i] = std::move(reason);
  }

  // Those of the plans that differ from this one in such keys alone.
  std::shared_ptr<const std::vector<LayerFloor>> layers_of(const Plan& plan, const plan::Scenario& scenario,
                                                           const run::Machine& machine) {
    std::string key = scenario.framework.name;
    for (std::size_t k = 0; k < out_.space.keys.size(); ++k)
      if (!is_separate_from_layers(out_.space.keys[k].key)) key += " " + out_.space.keys[k].values[plan.choice[k]];
    std::shared_ptr<Family> family;
    {
      const std::lock_guard lock(families_mutex_);
      auto& known = families_[key];
      if (!known) known = std::make_shared<Family>();
      family = known;
    }
    const std::lock_guard lock(family->mutex);
    if (!family->layers)
      family->layers = std::make_shared<const std::vector<LayerFloor>>(layer_floors(scenario, machine));
    return family->layers;
  }

  // The plan lowered.
  void bound(Plan& plan) {
    const plan::Scenario said = read(plan);
    const auto machine = machines_.of(said);
    const std::optional<run::ChosenLayers> chosen = run::choose_layers(said, *machine);
    const plan::Scenario& scenario = chosen ? chosen->scenario : said;
    const lower::DistinctStages stages = lower::lower_distinct(scenario, !uneven(*machine->cluster));
    const LeastMemory memory = least_memory(stages, scenario, *machine);
    const Time step =
        memory.fits ? least_step(stages, scenario.grid(), *machine, !scenario.data.takes_time()) : plan.least;
    give_bounds(plan, scenario, *machine, memory.fits ? Status::bounded : Status::too_large, std::max(step, plan.least),
                memory.bytes);
  }

  void give_bounds(Plan& plan, const plan::Scenario& scenario, const run::Machine& machine, Status status, Time step,
                   std::int64_t bytes) const {
    plan.least = step;
    plan.least_bytes = bytes;
    plan.status = status;
    plan.objective = objective_of(request_.objective, step, plan.gpus, scenario.training.global_batch, bytes,
                                  step.seconds() * idle_watts(machine) * static_cast<double>(plan.gpus));
  }

  bool open(std::size_t plan) const {
    return out_.plans[plan].status == Status::floored || out_.plans[plan].status == Status::bounded;
  }

  void refine() {
    Queue queue;
    for (std::size_t i = 0; i < out_.plans.size(); ++i)
      if (open(i)) queue.emplace(out_.plans[i].objective, i);
    while (!queue.empty() && !settled(queue.top().second) && !limit_reached()) {
      std::vector<std::size_t> batch;
      std::size_t to_simulate = 0;
      while (batch.size() < kAtOnce && !queue.empty() && !settled(queue.top().second)) {
        if (out_.plans[queue.top().second].status == Status::bounded && ++to_simulate > left_to_simulate()) break;
        batch.push_back(queue.top().second);
        queue.pop();
      }
      std::vector<std::size_t> own;
      for (std::size_t i = 0; i < batch.size(); ++i)
        if (static_cast<int>(i) % request_.shared.parts == request_.shared.part) own.push_back(batch[i]);
      in_parallel(request_.threads, own.size(), [&](std::size_t i) {
        check_interrupt();
        settle_further(own[i]);
      });
      exchange(own);
      for (const std::size_t i : batch) {
        const Plan& plan = out_.plans[i];
        if (open(i)) {
          ++out_.counts.lowered;
          queue.emplace(plan.objective, i);
        }
        if (plan.status == Status::simulated) ++out_.counts.simulated;
        note_best(i);
      }
      tell(fmt::format("{} plans simulated", out_.counts.simulated), 0);
    }
    out_.proven = queue.empty() || settled(queue.top().second);
  }

  // Plans that may still be among the best, and how good they can be at most.
  void count_open() {
    out_.counts.open = 0;
    out_.open_from = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < out_.plans.size(); ++i) {
      if (!open(i) || settled(i)) continue;
      ++out_.counts.open;
      out_.open_from = std::min(out_.open_from, out_.plans[i].objective);
    }
    if (out_.counts.open == 0) out_.proven = true, out_.open_from = 0;
  }

  // Keeps what has been simulated: the best of it, and how good the open plans may be. Nothing is simulated after a
  // signal.
  void leave_at(const Interrupted& end) {
    out_.best.clear();
    out_.answers.clear();
    out_.simplest.reset();
    out_.kinds.clear();
    out_.worth.clear();
    out_.front.clear();
    for (std::size_t i = 0; i < out_.plans.size(); ++i) note_best(i);
    if (out_.best.empty()) throw end;
    out_.interrupted = end.signal();
  }

  result::Result answer_of(std::size_t plan, bool record) {
    const plan::Scenario scenario = read(out_.plans[plan]);
    run::Options options = options_;
    options.machine = machines_.of(scenario);
    options.check = true;
    options.record = record;
    return run::simulate_scenario(scenario, options);
  }

  void answer() {
    out_.answers.resize(out_.best.size());
    tell("answering", 0);
    in_parallel(request_.threads, out_.best.size(),
                [&](std::size_t i) { out_.answers[i] = answer_of(out_.best[i], request_.run.record); });
    if (!out_.best.empty() && request_.objective != Objective::memory) simplify();
  }

  // What each simpler kind of plans has, and the best plan of the simplest kind that has one as good as the best. After
  // a limit only plans as good as the best are looked for.
  void simplify() {
    const Plan& winner = out_.plans[out_.best.front()];
    const double alike = winner.objective * kAlike;
    const double most = out_.proven ? std::numeric_limits<double>::infinity() : alike;
    for (int kind = 0; kind < complexity(read(winner).plan); ++kind) {
      KindEvidence evidence{kind, 0, 0, {}, {}};
      std::vector<std::size_t> plans;
      for (std::size_t i = 0; i < out_.plans.size(); ++i) {
        const Plan& plan = out_.plans[i];
        if (plan.complexity != kind || plan.status == Status::forbidden) continue;
        ++evidence.plans;
        if (plan.status != Status::too_large) plans.push_back(i);
      }
      evidence.best = best_of(plans, most, INT64_MAX);
      weigh_memory(evidence);
      if (!out_.simplest && evidence.best && out_.plans[*evidence.best].objective <= alike)
        out_.simplest = evidence.best;
      out_.kinds.push_back(evidence);
    }
    if (out_.simplest) out_.simplest_answer = answer_of(*out_.simplest, request_.run.record);
  }

  void weigh_memory(KindEvidence& evidence) const {
    for (std::size_t i = 0; i < out_.plans.size(); ++i) {
      const Plan& plan = out_.plans[i];
      if (plan.complexity != evidence.kind || plan.status != Status::too_large) continue;
      ++evidence.too_large;
      if (!evidence.smallest || plan.least_bytes < out_.plans[*evidence.smallest].least_bytes) evidence.smallest = i;
    }
  }

  // Of some plans, with an objective and memory of at most so much.
  std::optional<std::size_t> best_of(const std::vector<std::size_t>& plans, double most, std::int64_t most_bytes) {
    Queue queue;
    for (const std::size_t i : plans) queue.emplace(out_.plans[i].objective, i);
    while (!queue.empty() && queue.top().first <= most) {
      const std::size_t i = queue.top().second;
      queue.pop();
      if (out_.plans[i].least_bytes > most_bytes) continue;
      if (out_.plans[i].status == Status::simulated) return i;
      settle_further(i);
      if (open(i) || out_.plans[i].status == Status::simulated) queue.emplace(out_.plans[i].objective, i);
    }
    return std::nullopt;
  }

  void draw_front() {
    constexpr std::size_t kMost = 8;
    out_.front = {out_.best.front()};
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < out_.plans.size(); ++i)
      if (open(i) || out_.plans[i].status == Status::simulated) all.push_back(i);
    while (out_.front.size() < kMost) {
      tell("looking for plans with less memory", static_cast<double>(out_.front.size()) / kMost);
      const auto less =
          static_cast<std::int64_t>(kLessMemory * static_cast<double>(out_.plans[out_.front.back()].least_bytes));
      const auto next = best_of(all, std::numeric_limits<double>::infinity(), less);
      if (!next) break;
      out_.front.push_back(*next);
    }
    out_.front_answers.resize(out_.front.size());
    in_parallel(request_.threads, out_.front.size(),
                [&](std::size_t i) { out_.front_answers[i] = answer_of(out_.front[i], false); });
  }

  void settle_further(std::size_t i) {
    Plan& plan = out_.plans[i];
    try {
      plan.status == Status::floored ? bound(plan) : simulate(plan);
    } catch (const InputError& error) {
      forbid(i, error);
    }
  }

  // The best plan that differs from the winner in this key's value, and in what follows it only if nothing else can be.
  std::optional<std::size_t> with_value(std::size_t key, std::uint16_t value) {
    const Choice& winner = out_.plans[out_.best.front()].choice;
    std::vector<std::size_t> exact, near;
    for (std::size_t i = 0; i < out_.plans.size(); ++i) {
      const Plan& plan = out_.plans[i];
      if (plan.choice[key] != value || plan.status == Status::forbidden) continue;
      bool same = true, follow = true;
      for (std::size_t k = 0; k < winner.size(); ++k) {
        if (k == key || plan.choice[k] == winner[k]) continue;
        same = false;
        follow &= follows(out_.space.keys[key].key, out_.space.keys[k].key);
      }
      if (same) exact.push_back(i);
      if (follow) near.push_back(i);
    }
    const std::vector<std::size_t>& among = exact.empty() ? near : exact;
    const auto found = best_of(among, std::numeric_limits<double>::infinity(), INT64_MAX);
    return found || among.empty() ? found : among.front();  // which does not fit
  }

  void value_keys() {
    const Choice winner = out_.plans[out_.best.front()].choice;
    for (std::size_t k = 0; k < winner.size(); ++k)
      for (std::size_t v = 0; v < out_.space.keys[k].values.size(); ++v) {
        if (v == winner[k]) continue;
        tell("changing keys of the best plan", static_cast<double>(k) / static_cast<double>(winner.size()));
        if (const auto plan = with_value(k, static_cast<std::uint16_t>(v))) out_.worth.push_back({k, v, *plan});
      }
  }

  // No better than the last that is answered.
  bool settled(std::size_t plan) const {
    return out_.best.size() == request_.top && out_.plans[plan].objective >= out_.plans[out_.best.back()].objective;
  }

  std::size_t left_to_simulate() const {
    if (request_.most_simulated == 0) return SIZE_MAX;
    return static_cast<std::size_t>(std::max<std::int64_t>(request_.most_simulated - out_.counts.simulated, 0));
  }

  bool limit_reached() {
    if (left_to_simulate() == 0) return true;
    out_.limited_by_time = shared() ? late_ : out_of_time();  // shared: as the first process says
    return out_.limited_by_time;
  }

  bool out_of_time() const { return request_.most_time && Clock::now() - began_ >= *request_.most_time; }

  void simulate(Plan& plan) {
    check_interrupt();
    const plan::Scenario scenario = read(plan);
    run::Options options = options_;
    options.machine = machines_.of(scenario);
    if (scenario.plan.served()) return simulate_served(plan, scenario, options);
    const run::Prepared prepared(scenario, options);
    const auto stages = run::stages_of(prepared.machine(), scenario, prepared.program(), prepared.arenas());
    plan.least_bytes = run::largest_peak(stages);
    const auto [on_host, room_there] = run::fullest_host(prepared.cluster(), prepared.grid(), stages);
    if (!run::least_room(prepared.machine(), scenario, stages).fits() || (room_there > 0 && on_host > room_there)) {
      plan.status = Status::too_large;
      return;
    }
    const engine::Outcome outcome = prepared.simulate(prepared.engine_options());
    plan.step = outcome.step_time;
    const result::Energy energy = run::energy_of(prepared, outcome);
    plan.joules = energy.known ? energy.joules() : 0;
    plan.status = Status::simulated;
    plan.objective = objective_of(request_.objective, plan.step, plan.gpus, scenario.training.global_batch,
                                  plan.least_bytes, plan.joules);
  }

  // What the worker's program bounds holds of its iterations, so of a global batch of them; what servers add is
  // simulated alone.
  void simulate_served(Plan& plan, const plan::Scenario& scenario, const run::Options& options) {
    const result::Result r = run::simulate_scenario(scenario, options);
    plan.least_bytes = r.servers.own_devices > 0 ? r.servers.server_memory_bytes : 0;
    for (const result::StageMemory& stage : r.stages) plan.least_bytes = std::max(plan.least_bytes, stage.peak);
    plan.step = Time::from_ps(r.step_time_ps);
    plan.status = r.memory_fits ? Status::simulated : Status::too_large;
    if (plan.status == Status::simulated)
      plan.objective =
          objective_of(request_.objective, plan.step, plan.gpus, scenario.training.global_batch, plan.least_bytes, 0);
  }

  void note_best(std::size_t i) {
    if (out_.plans[i].status != Status::simulated) return;
    const auto better = [&](std::size_t a, std::size_t b) {
      return std::pair(out_.plans[a].objective, a) < std::pair(out_.plans[b].objective, b);
    };
    out_.best.insert(std::upper_bound(out_.best.begin(), out_.best.end(), i, better), i);
    if (out_.best.size() > request_.top) out_.best.pop_back();
  }

  void count() {
    Counts& c = out_.counts;
    if (!out_.proven) count_open();
    c.simulated = 0;
    c.choices = static_cast<std::int64_t>(out_.plans.size());
    for (std::size_t i = 0; i < out_.plans.size(); ++i) {
      const Plan& plan = out_.plans[i];
      std::int64_t* const of[] = {&c.forbidden, &c.too_large, &c.bounded, &c.bounded, &c.simulated};
      ++*of[static_cast<std::size_t>(plan.status)];
      if (plan.status == Status::too_large &&
          (!out_.smallest || plan.least_bytes < out_.plans[*out_.smallest].least_bytes))
        out_.smallest = i;
    }
    c.bounded -= c.open;
    for (const auto& [text, times] : reasons_) out_.reasons.emplace_back(text, times);
    std::stable_sort(out_.reasons.begin(), out_.reasons.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }

  void tell(std::string_view what, double done) {
    if (!request_.progress) return;
    const std::lock_guard lock(mutex_);
    request_.progress(what, done);
  }

  struct Family {
    std::mutex mutex;                                       // while its layers are lowered
    std::shared_ptr<const std::vector<LayerFloor>> layers;  // by kind of device
  };

  const Request& request_;
  const run::Options options_;
  mutable ParsedFiles files_;
  Machines machines_;
  const Clock::time_point began_;
  Outcome out_;
  std::mutex mutex_;  // of progress, reasons_ and reason_of_
  std::map<std::string, std::int64_t> reasons_;
  std::map<std::size_t, std::string> reason_of_;  // of forbidden plans
  bool late_ = false;                             // the first process has reached a limit of time
  std::mutex families_mutex_;
  std::map<std::string, std::shared_ptr<Family>> families_;
};

}  // namespace

plan::Scenario any_scenario(const Request& request) {
  return any_plan(request);
}

std::int64_t batch_of(const Request& request) {
  return any_plan(request).training.global_batch;
}

double objective_of(Objective objective, Time step, std::int64_t gpus, std::int64_t batch, std::int64_t bytes,
                    double joules) {
  constexpr double kSecondsAnHour = 3600;
  switch (objective) {
    case Objective::step_time:
      return step.seconds();
    case Objective::cost:
      return step.seconds() * static_cast<double>(gpus) / kSecondsAnHour / static_cast<double>(batch);
    case Objective::memory:
      return static_cast<double>(bytes);
    case Objective::energy:
      return joules / static_cast<double>(batch);
  }
  return std::numeric_limits<double>::infinity();
}

Outcome search(const Request& request) {
  return Search(request).run();
}

}  // namespace rehearse::search
