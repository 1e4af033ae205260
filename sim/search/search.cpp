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
#include "sim/search/least_energy.h"
#include "sim/search/least_step.h"
#include "sim/search/machines.h"

namespace rehearse::search {
namespace {

// Simulated at a time, whatever the threads: what is simulated does not depend on them.
constexpr std::size_t kAtOnce = 8;

using Clock = std::chrono::steady_clock;

// Of a limit of time, before the answers.
constexpr double kSearching = 0.75;

class Search {
 public:
  explicit Search(const Request& request)
      : request_(request), options_(options_of(request)), machines_(options_), began_(Clock::now()) {
    const plan::Scenario scenario = any_scenario(request);
    refuse_what_varies(scenario, request.objective);
    const auto machine = machines_.of(scenario);
    for (int kind = 0; kind < machine->kinds() && request.objective == Objective::energy; ++kind)
      if (const cost::Device& device = machine->costs_of(kind).device(); !device.power.known())
        throw InputError(Diagnostic{"--objective", 0, 0, "", fmt::format("{} says nothing of its power", device.file),
                                    "step_time, cost or memory"});
    out_.room_bytes = most_room(*machine, scenario);
    out_.space = space_of(scenario, request.assignments, request.ranges, least_memory(*machine));
    for (Choice& choice : choices(out_.space, scenario)) {
      out_.plans.emplace_back().choice = std::move(choice);
      out_.plans.back().status = Status::unsettled;
    }
  }

  Outcome run() && {
    try {
      settle_and_refine();
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

  plan::Scenario read(const Plan& plan) const {
    std::vector<std::string> all = request_.assignments;
    const std::vector<std::string> chosen = out_.space.assignments(plan.choice);
    all.insert(all.end(), chosen.begin(), chosen.end());
    return plan::read_scenario(request_.file, all, request_.run.data_root, plan::Purpose::simulate, &files_);
  }

  // In turn, where there is only so much time.
  void settle_and_refine() {
    std::vector<std::size_t> own = plans_to_settle();
    bool all = false;
    while (!all) {
      settle(own);
      all = std::none_of(out_.plans.begin(), out_.plans.end(),
                         [](const Plan& plan) { return plan.status == Status::unsettled; });
      refine();
      out_.proven &= all;
      if (!all && limit_reached()) return;
    }
  }

  // Of this process. With a limit of time from all over the space: steps near the golden section of their number,
  // without a common divisor, come to each once.
  std::vector<std::size_t> plans_to_settle() const {
    const std::size_t n = out_.plans.size();
    std::vector<std::size_t> own(n);
    std::iota(own.begin(), own.end(), std::size_t{0});
    if (request_.most_time) {
      constexpr double kGolden = 0.6180339887498949;
      auto step = static_cast<std::size_t>(kGolden * static_cast<double>(n)) | 1U;
      while (std::gcd(step, n) > 1) step += 2;
      for (std::size_t i = 0; i < n; ++i) own[i] = i * step % n;
    }
    if (!shared()) return own;
    const std::vector<int> shares =
        shares_by_family(out_.space, out_.plans, request_.shared.parts, &is_separate_from_layers);
    std::erase_if(own, [&](std::size_t i) { return shares[i] != request_.shared.part; });
    return own;
  }

  // As many of them as there is time for.
  void settle(std::vector<std::size_t>& own) {
    const auto now = Clock::now();
    constexpr auto kLeast = std::chrono::milliseconds(50);
    const auto end = request_.most_time ? after(searching()) : now;
    const auto until = std::min(end, now + std::max<Clock::duration>((end - now) / 2, kLeast));
    std::atomic<std::size_t> done = 0;
    in_parallel(request_.threads, own.size(), [&](std::size_t i) {
      check_interrupt();
      if (request_.most_time && Clock::now() >= until) return;
      within_time(searching(), [&] { settle(own[i]); });
      tell("settling plans", static_cast<double>(++done) / static_cast<double>(own.size()));
    });
    std::vector<std::size_t> settled;
    for (const std::size_t i : own)
      if (out_.plans[i].status != Status::unsettled) settled.push_back(i);
    std::erase_if(own, [&](std::size_t i) { return out_.plans[i].status != Status::unsettled; });
    exchange(settled);
  }

  template <class Work>
  void within_time(double share, const Work& work) const {
    if (!request_.most_time) return work();
    const TimeLimit limit(after(share));
    try {
      work();
    } catch (const OutOfTime&) {
      // The plan is as it was.
    }
  }
  // Of the limit of time, where there is one.
  Clock::time_point after(double share) const {
    return began_ + std::chrono::duration_cast<Clock::duration>(*request_.most_time * share);
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
      const PlanFloor floor = plan_floor(*layers_of(plan, scenario, *machine), scenario, *machine,
                                         machines_.collectives_of(*machine), passes_held_);
      const std::int64_t bytes = with_reserve(floor.bytes, scenario, *machine);
      const bool fits = bytes <= most_room(*machine, scenario);
      give_bounds(plan, scenario, *machine, fits ? Status::floored : Status::too_large, floor.step, bytes,
                  floor.kernels);
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
                memory.bytes, objective_is_energy() ? kernel_joules(stages, scenario, *machine) : run::KernelJoules());
  }

  void give_bounds(Plan& plan, const plan::Scenario& scenario, const run::Machine& machine, Status status, Time step,
                   std::int64_t bytes, const run::KernelJoules& kernels) const {
    plan.least = step, plan.least_bytes = bytes, plan.status = status;
    const double joules = objective_is_energy() ? least_energy(machine, step, plan.gpus, kernels) : 0;
    // Of packed documents the layers' floor knows more of energy than the plan lowered does.
    plan.objective = std::max(plan.objective, objective_of(request_.objective, step, plan.gpus,
                                                           scenario.training.global_batch, bytes, joules));
  }

  bool objective_is_energy() const { return request_.objective == Objective::energy; }
  static bool known(const Plan& plan) { return plan.status != Status::forbidden && plan.status != Status::unsettled; }
  bool open(std::size_t plan) const {
    return out_.plans[plan].status == Status::floored || out_.plans[plan].status == Status::bounded;
  }

  // Whether a plan may still be among the best there; what no longer may is taken out before it.
  bool has_open(Queue& queue) const {
    while (!queue.empty() && !open(queue.top().second)) queue.pop();
    return !queue.empty() && !settled(queue.top().second);
  }

  std::vector<std::size_t> next_batch(Queue& queue) const {
    std::vector<std::size_t> batch;
    std::size_t to_simulate = 0;
    while (batch.size() < kAtOnce && has_open(queue)) {
      const std::size_t i = queue.top().second;
      if (out_.plans[i].status == Status::bounded && ++to_simulate > left_to_simulate()) break;
      batch.push_back(i);
      queue.pop();
    }
    return batch;
  }

  // By turns, where there is only so much time: what the proof needs next, and the most promising of what is lowered,
  // so that there is an answer however many plans have lower bounds.
  void refine() {
    Queue queue, lowered;
    const auto add = [&](std::size_t i) {
      queue.emplace(out_.plans[i].objective, i);
      if (out_.plans[i].status == Status::bounded) lowered.emplace(out_.plans[i].objective, i);
    };
    for (std::size_t i = 0; i < out_.plans.size(); ++i)
      if (open(i)) add(i);
    for (bool ahead = false; has_open(queue) && !limit_reached(); ahead = !ahead) {
      const std::vector<std::size_t> batch =
          next_batch(ahead && request_.most_time && has_open(lowered) ? lowered : queue);
      std::vector<std::size_t> own;
      for (std::size_t i = 0; i < batch.size(); ++i)
        if (static_cast<int>(i) % request_.shared.parts == request_.shared.part) own.push_back(batch[i]);
      std::vector<Status> before;
      for (const std::size_t i : batch) before.push_back(out_.plans[i].status);
      in_parallel(request_.threads, own.size(), [&](std::size_t i) {
        check_interrupt();
        within_time(searching(), [&] { settle_further(own[i]); });
      });
      exchange(own);
      for (std::size_t b = 0; b < batch.size(); ++b) {
        const std::size_t i = batch[b];
        const Plan& plan = out_.plans[i];
        if (open(i) && plan.status != before[b]) ++out_.counts.lowered;
        if (open(i)) add(i);
        if (plan.status == Status::simulated) ++out_.counts.simulated;
        note_best(i);
      }
      tell(fmt::format("{} plans simulated", out_.counts.simulated), 0);
    }
    out_.proven = !has_open(queue);
  }

  // Plans that may still be among the best, and how good they can be at most.
  void count_open() {
    out_.counts.open = 0;
    out_.open_from = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < out_.plans.size(); ++i) {
      if (out_.plans[i].status != Status::unsettled && (!open(i) || settled(i))) continue;
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

  // Of the first of them, and of the others as there is time: others are left out of `plans` too.
  std::vector<result::Result> answers_of(std::vector<std::size_t>& plans, bool record) {
    std::vector<std::optional<result::Result>> made(plans.size());
    in_parallel(request_.threads, plans.size(), [&](std::size_t i) {
      if (i == 0)
        made[i] = answer_of(plans[i], record);
      else if (!at_end())
        within_time(1, [&] { made[i] = answer_of(plans[i], record); });
    });
    std::vector<result::Result> answers;
    std::vector<std::size_t> answered;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (!made[i]) continue;
      answered.push_back(plans[i]);
      answers.push_back(std::move(*made[i]));
    }
    plans = std::move(answered);
    return answers;
  }

  void answer() {
    tell("answering", 0);
    out_.answers = answers_of(out_.best, request_.run.record);
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
        if (plan.complexity != kind || !known(plan)) continue;
        ++evidence.plans;
        if (plan.status != Status::too_large) plans.push_back(i);
      }
      evidence.best = best_of(plans, most, INT64_MAX);
      weigh_memory(evidence);
      if (!out_.simplest && evidence.best && out_.plans[*evidence.best].objective <= alike)
        out_.simplest = evidence.best;
      out_.kinds.push_back(evidence);
    }
    if (out_.simplest) within_time(1, [&] { out_.simplest_answer = answer_of(*out_.simplest, request_.run.record); });
    if (!out_.simplest_answer) out_.simplest.reset();
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
      if (at_end()) continue;
      within_time(1, [&] { settle_further(i); });
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
    out_.front_answers = answers_of(out_.front, false);
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
      if (plan.choice[key] != value || !known(plan)) continue;
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
        const auto plan = with_value(k, static_cast<std::uint16_t>(v));
        if (at_end()) return;  // what was not looked at is not said to be too large
        if (plan) out_.worth.push_back({k, v, *plan});
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

  // The answers' part of the time is for finding one where there is none.
  double searching() const { return out_.best.empty() ? 1 : kSearching; }
  bool out_of_time() const { return request_.most_time && Clock::now() >= after(searching()); }
  bool at_end() const { return request_.most_time && Clock::now() >= after(1); }

  void simulate(Plan& plan) {
    check_interrupt();
    const plan::Scenario scenario = read(plan);
    run::Options options = options_;
    options.machine = machines_.of(scenario);
    if (scenario.plan.served()) return simulate_served(plan, scenario, options);
    std::optional<program::Program> lowered;
    const std::int64_t room = most_room(*options.machine, scenario);
    if (!scenario.plan.layers_by_time && plan.least_bytes > room - room / 4) {  // else it fits, nearly always
      lowered = lower::lower(scenario);
      const std::int64_t bytes = fullest_placed(*lowered, scenario, *options.machine);
      if (bytes > room) {
        plan.least_bytes = bytes;
        plan.status = Status::too_large;
        return;
      }
    }
    const run::Prepared prepared(scenario, options, std::move(lowered));
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
      std::int64_t* const of[] = {&c.forbidden, &c.too_large, &c.bounded, &c.bounded, &c.simulated, &c.bounded};
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
  PassesHeld passes_held_;
  std::mutex families_mutex_;
  std::map<std::string, std::shared_ptr<Family>> families_;
};

}  // namespace

Outcome search(const Request& request) {
  return Search(request).run();
}

}  // namespace rehearse::search
