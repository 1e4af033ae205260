// rehearse plan: the best plans of a space, proven (sim/search/search.h): a table or JSON; with -o a scenario and a
// result of each.
#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/execute_mpi.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "cli/plan_search.h"
#include "cli/refuse.h"
#include "cli/shell_word.h"
#include "cli/sweep_axes.h"
#include "execute/placement/placement.h"
#include "reports/estimate.h"
#include "reports/limits.h"
#include "reports/search.h"
#include "reports/search_file.h"
#include "sim/base/in_parallel.h"
#include "sim/base/interrupt.h"
#include "sim/base/text_check.h"
#include "sim/plan/table_shards.h"
#include "sim/result/output_file.h"
#include "sim/search/search.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLongest{24};  // that another process is waited for

bool is_root(const PlanArguments& a) {
  return a.session == nullptr || a.session->rank() == 0;
}

constexpr const char* kObjectives[] = {"step_time", "cost", "memory", "energy"};

search::Objective objective_named(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kObjectives); ++i)
    if (name == kObjectives[i]) return static_cast<search::Objective>(i);
  return search::Objective::step_time;
}

// "200": plans simulated; "90s", "5min": time.
void read_budget(const std::string& text, search::Request& request) {
  if (text.empty()) return;
  std::int64_t plans = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), plans);
  if (error == std::errc() && end == text.data() + text.size() && plans > 0) {
    request.most_simulated = plans;
    return;
  }
  const auto time = parse_time(text);
  if (!time || *time <= Time())
    refuse("--budget",
           fmt::format("expected a number of plans such as 200, or a time such as 90s, found {}", detail::shown(text)));
  request.most_time = std::chrono::duration<double>(time->seconds());
}

}  // namespace

search::Request request_of(const PlanArguments& a, const std::string& root) {
  search::Request request;
  request.file = a.request.file;
  request.assignments = a.request.assignments;
  for (reports::SweepAxis& axis : read_axes(a.ranges, "--range"))
    request.ranges.push_back({std::move(axis.key), std::move(axis.values)});
  request.objective = objective_named(a.objective);
  request.top = static_cast<std::size_t>(a.top);
  request.worth = a.worth;
  request.front = a.front;
  const int parts = a.session != nullptr ? a.session->ranks() : 1;
  request.threads = a.threads > 0 ? a.threads : std::max(1, hardware_threads() / parts);
  if (parts > 1)
    request.shared = {a.session->rank(), parts,
                      [session = a.session](std::string bytes) { return session->trade(std::move(bytes), kLongest); }};
  request.run = options_of(a.request, root);
  request.run.record = a.output_given;
  read_budget(a.budget, request);
  return request;
}

namespace {

reports::SweepRow row_of(const search::Outcome& found, std::size_t plan, result::Result& r, const std::string& file,
                         search::Objective objective) {
  r.scenario_file = file;
  r.limited_by = reports::limited_by(r);
  reports::SweepRow row;
  const search::Choice& choice = found.plans[plan].choice;
  for (std::size_t k = 0; k < choice.size(); ++k) row.values.push_back(found.space.keys[k].values[choice[k]]);
  reports::fill(row, r);
  const auto samples = static_cast<double>(row.batch.global());
  if (objective == search::Objective::energy) row.sought = reports::joules_text(r.energy.joules() / samples);
  if (objective == search::Objective::cost)
    row.sought = fmt::format("{:.4g} GPU-h", search::objective_of(objective, Time::from_ps(r.step_time_ps), r.ranks,
                                                                  row.batch.global(), 0, 0));
  return row;
}

reports::KeyChange change_of(const search::Outcome& found, const search::Worth& worth) {
  const search::SpaceKey& key = found.space.keys[worth.key];
  const search::Plan& plan = found.plans[worth.plan];
  return {key.key, key.values[worth.value], plan.status == search::Status::simulated ? plan.step.ps() : 0};
}

// Of the plan to take: the simplest that is as good as the best.
reports::Advice advice_of(const search::Request& request, const search::Outcome& found) {
  const search::Objective objective = request.objective;
  reports::Advice advice;
  if (found.best.empty() || objective == search::Objective::memory) return advice;
  const search::Plan& plan = found.plans[found.simplest.value_or(found.best.front())];
  advice.known = true;
  advice.kind = plan.complexity;
  advice.tables_apart = plan::shards_tables(search::any_scenario(request));
  advice.gpus = plan.gpus;
  advice.peak_bytes = plan.least_bytes;
  advice.capacity_bytes = found.room_bytes;
  advice.objective = plan.objective;
  advice.proven = found.proven;
  advice.all_read = std::none_of(found.plans.begin(), found.plans.end(),
                                 [](const search::Plan& p) { return p.status == search::Status::unsettled; });
  if (objective == search::Objective::cost) advice.verb = "costs", advice.more = "more";
  if (objective == search::Objective::energy) advice.verb = "needs", advice.more = "more energy";
  for (const search::KindEvidence& kind : found.kinds) {
    if (kind.kind >= plan.complexity) break;
    advice.simpler.push_back({kind.kind, kind.plans, kind.too_large,
                              kind.smallest ? found.plans[*kind.smallest].least_bytes : 0,
                              kind.best ? found.plans[*kind.best].objective : 0});
  }
  return advice;
}

reports::SearchReport report_of(const PlanArguments& a, const search::Request& request, search::Outcome& found,
                                double wall_s, const std::string& root) {
  reports::SearchReport r;
  r.objective = a.objective;
  const std::string file = shown_path(a.request.file, root);
  for (const search::SpaceKey& key : found.space.keys) r.keys.push_back({key.key, key.values});
  for (std::size_t i = 0; i < found.best.size(); ++i) {
    r.best.push_back(row_of(found, found.best[i], found.answers[i], file, request.objective));
    if (a.output_given) r.best.back().directory = fmt::format("plan-{}", i + 1);
    r.joules.push_back(found.plans[found.best[i]].joules);
  }
  r.scenario = found.answers.empty() ? file : found.answers.front().scenario_name;
  if (found.simplest) {
    r.simplest = row_of(found, *found.simplest, *found.simplest_answer, file, request.objective);
    r.simple_kind = search::complexity_name(found.plans[*found.simplest].complexity);
    r.best_kind = search::complexity_name(found.plans[found.best.front()].complexity);
  }
  r.advice = advice_of(request, found);
  for (std::size_t i = 0; i < found.front.size(); ++i)
    r.front.push_back(row_of(found, found.front[i], found.front_answers[i], file, request.objective));
  for (const search::Worth& worth : found.worth) r.changes.push_back(change_of(found, worth));
  const search::Counts& c = found.counts;
  r.choices = c.choices, r.forbidden = c.forbidden, r.too_large = c.too_large, r.bounded = c.bounded;
  r.simulated = c.simulated, r.open = c.open;
  r.proven = found.proven, r.by_time = found.limited_by_time, r.open_from = found.open_from;
  r.reasons = found.reasons;
  if (found.smallest) {
    r.smallest = found.space.assignments(found.plans[*found.smallest].choice);
    r.smallest_bytes = found.plans[*found.smallest].least_bytes;
    r.capacity_bytes = found.room_bytes;
    r.gpus = found.plans[*found.smallest].gpus;
  }
  r.wall_s = wall_s;
  r.price = a.price.of(search::any_scenario(request).cluster.topology, root);
  if (!a.tokens.empty()) r.tokens = *reports::parse_model_size(a.tokens);
  return r;
}

// Of every plan that was settled and that no rule forbids.
std::vector<reports::SearchPoint> points_of(const search::Outcome& found) {
  std::vector<reports::SearchPoint> points;
  for (const search::Plan& plan : found.plans) {
    if (plan.status == search::Status::forbidden || plan.status == search::Status::unsettled) continue;
    const bool simulated = plan.status == search::Status::simulated, fits = plan.status != search::Status::too_large;
    const Time step = simulated ? plan.step : plan.least;
    points.push_back({simulated ? 2 : fits ? 1 : 0, step.ps(), plan.least_bytes, plan.choice});
  }
  return points;
}

// plan-1.yaml, plan-1/, ..., plans.json and search.json.
void write_plans(const PlanArguments& a, const search::Request& request, const search::Outcome& found,
                 const reports::SearchReport& report) {
  fs::create_directories(a.output);
  for (std::size_t i = 0; i < found.best.size(); ++i) {
    std::vector<std::string> all = request.assignments;
    for (std::string& chosen : found.space.assignments(found.plans[found.best[i]].choice))
      all.push_back(std::move(chosen));
    const std::string name = fmt::format("plan-{}", i + 1), path = (fs::path(a.output) / name).string();
    result::write_output(path + ".yaml",
                         plan::scenario_text(a.request.file, all, fmt::format("Plan {} of `rehearse plan`.", i + 1)));
    result::write_directory(found.answers[i], path);
  }
  result::write_output((fs::path(a.output) / "plans.json").string(), reports::search_json(report));
  result::write_output((fs::path(a.output) / reports::kSearchFile).string(), reports::search_file_json(report));
}

// Of a space without a plan: a range that leaves none, and the values that would.
std::string nearest_space(const search::Request& request, const search::Outcome& found) {
  const plan::Scenario scenario = search::any_scenario(request);
  for (std::size_t r = 0; r < request.ranges.size(); ++r) {
    std::vector<search::SpaceKey> others = request.ranges;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(r));
    const search::Space space = search::space_of(scenario, request.assignments, others, Bytes(found.room_bytes));
    const std::vector<search::Choice> choices = search::choices(space, scenario);
    if (choices.empty()) continue;
    const std::string& key = request.ranges[r].key;
    std::vector<std::string> values;
    for (std::size_t k = 0; k < space.keys.size(); ++k)
      for (std::size_t v = 0; v < space.keys[k].values.size(); ++v)
        if (space.keys[k].key == key &&
            std::any_of(choices.begin(), choices.end(), [&](const search::Choice& c) { return c[k] == v; }))
          values.push_back(space.keys[k].values[v]);
    return values.empty() ? fmt::format("without --range {} there are plans", key)
                          : fmt::format("there are plans with --range {}={}", key, fmt::join(values, ","));
  }
  return "sizes that divide the GPUs and the batch, stages that have layers";
}

// A plan that cannot be has a reason; a space of such plans has theirs.
void refuse_empty(const PlanArguments& a, const search::Request& request, const search::Outcome& found) {
  if (found.counts.forbidden < found.counts.choices) return;
  std::vector<Diagnostic> why;
  for (const auto& [text, times] : found.reasons) {
    const std::string& reason = text;
    const bool ranged = std::any_of(request.ranges.begin(), request.ranges.end(), [&](const search::SpaceKey& range) {
      return reason.starts_with(range.key + ": ");
    });
    why.push_back({ranged ? "--range" : a.request.file, 0, 0, "", fmt::format("{} ({} plans)", reason, times), ""});
  }
  if (why.empty())
    why.push_back(
        {a.request.file, 0, 0, "", "no combination of the keys' values can be a plan", nearest_space(request, found)});
  throw InputError(std::move(why));
}

// What a search that a signal has ended knows: its best plan, as one would simulate it, and what the others could be.
std::string reached_text(const PlanArguments& a, const search::Request& request, const search::Outcome& found) {
  const search::Plan& best = found.plans[found.best.front()];
  std::vector<std::string> all = request.assignments;
  for (std::string& chosen : found.space.assignments(best.choice)) all.push_back(std::move(chosen));
  std::string text = fmt::format(
      "rehearse: the search was left after {} simulated plans. The best of them: step {}, {} of memory\n"
      "  rehearse simulate {}",
      found.counts.simulated, format_time(best.step), format_bytes(Bytes(best.least_bytes)), shell_word(a.scenario));
  for (const std::string& one : all) text += " --set " + shell_word(one);
  for (const std::string& file : a.request.calibrations) text += " --calibration " + shell_word(file);
  if (found.proven || found.open_from >= best.objective)
    return text + "\nNo other plan of the space is better: proven.";
  if (found.open_from == 0) return text + fmt::format("\n{} plans are open.", found.counts.open);
  return text + fmt::format("\n{} plans are open; none of them can be better than {}.", found.counts.open,
                            reports::objective_text(a.objective, found.open_from));
}

// Runs `work`; where a signal ends it, says what the search would have needed to answer.
void leave_plainly(const std::function<void()>& work, const std::string& reached, bool root) {
  try {
    work();
  } catch (const Interrupted&) {
    if (root)
      note(fmt::format(
          "rehearse: the search was left{} and answers nothing; --budget 200 (plans) or --budget 90s ends one with the "
          "best that it has found, and says how much better the others could be",
          reached.empty() ? "" : " at: " + reached));
    throw;
  }
}

}  // namespace

reports::SearchReport search_once(const PlanArguments& a, search::Request request, const std::string& what,
                                  const std::string& root) {
  const auto began = std::chrono::steady_clock::now();
  search::Outcome found;
  std::string reached;
  leave_plainly(
      [&] {
        PhasedProgress line;
        request.progress = [&](std::string_view phase, double done) {
          reached = phase;
          if (a.session != nullptr && a.session->failed())
            throw std::runtime_error("another process has ended the search");
          if (is_root(a)) line(what + std::string(phase), done);
        };
        found = search::search(request);
      },
      reached, is_root(a));
  if (!is_root(a)) return {};
  if (found.interrupted != 0) {
    note(reached_text(a, request, found));
    throw Interrupted(found.interrupted);
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - began;
  refuse_empty(a, request, found);
  reports::SearchReport report = report_of(a, request, found, wall.count(), root);
  if (a.output_given) {
    report.points = points_of(found);
    write_plans(a, request, found, report);
  }
  return report;
}

bool finish_shared(const PlanArguments& a) {
  if (a.session != nullptr) a.session->gather("", kLongest);
  return is_root(a);
}

std::vector<std::int64_t> numbers_of_gpus(const std::string& text) {
  std::vector<std::int64_t> numbers;
  if (text.empty()) return numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 1 || (stop != end && *stop != ','))
      refuse("--gpus", fmt::format("expected numbers of GPUs such as 256,512, found {}", detail::shown(text)));
    numbers.push_back(number);
    if (stop == end) break;
    at = stop + 1;
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

namespace {

// Each key once: fixed to one value, or with a range.
void check_keys(const PlanArguments& a) {
  std::map<std::string, std::string> fixed;
  for (const std::string& assignment : a.request.assignments) {
    const std::string key = assignment.substr(0, assignment.find('='));
    const auto [at, added] = fixed.emplace(key, assignment);
    if (!added && at->second != assignment)
      refuse("--fix", fmt::format("{} and {} contradict each other", at->second, assignment),
             fmt::format("one of them, or --range {}=V,V", key));
  }
  refuse_fixed(a.ranges, "--range", a.request.assignments, "--fix");
}

void check_arguments(const PlanArguments& a) {
  check_keys(a);
  if (!a.tokens.empty() && !reports::parse_model_size(a.tokens))
    refuse("--tokens", fmt::format("expected a number such as 1.4T or 300B, found {}", detail::shown(a.tokens)));
  if (a.days > 0 && a.tokens.empty())
    refuse("--days", "is how long a run of some tokens may take", "--tokens 300B --days 30");
  const bool turned = !a.clusters.empty() || (a.days > 0 && a.gpus.empty());
  if (turned && (a.output_given || a.worth || a.front || a.weak))
    refuse(a.clusters.empty() ? "--days" : "--clusters",
           "the best plans of several are compared; -o, --worth, --front and --weak are of one cluster and number",
           "--gpus 512");
  if (a.days > 0 && a.gpus.empty() && a.session != nullptr && a.session->ranks() > 1)
    refuse("--days", "without --gpus each number depends on the one before, which several processes cannot share",
           "--gpus 256,512,1024, or one process");
  if (a.weak && a.gpus.find(',') == std::string::npos)
    refuse("--weak", "is how several numbers of GPUs are compared", "--gpus 256,512,1024");
  if (a.gpus.find(',') != std::string::npos && (a.worth || a.front))
    refuse("--gpus", "of several numbers of GPUs the best plans are compared; --worth and --front are of one number",
           "--gpus 512");
}

// The scenario's batch is that of the fewest GPUs.
std::string batch_of(const PlanArguments& a, std::int64_t gpus, std::int64_t fewest, const std::string& root) {
  const std::int64_t batch = search::batch_of(request_of(a, root));
  if (batch * gpus % fewest != 0)
    refuse("--weak", fmt::format("{} sequences on {} GPUs are no whole number on {}", batch, fewest, gpus),
           "multiples of the fewest GPUs");
  return fmt::format("training.global_batch={}", batch * gpus / fewest);
}

std::string folder_of(std::int64_t gpus) {
  return fmt::format("gpus-{}", gpus);
}

// Nothing is said not to fit while plans that may are open.
int exit_code(const std::vector<reports::SearchReport>& searches) {
  const auto any = [&](auto&& of) { return std::any_of(searches.begin(), searches.end(), of); };
  if (any([](const reports::SearchReport& r) { return !r.best.empty(); })) return kDone;
  return any([](const reports::SearchReport& r) { return r.open > 0; }) ? kFailed : kDoesNotFit;
}

// Of each number of GPUs the best plan; with -o what was found of each in a folder of its own, beside scaling.json.
int compare_numbers(const PlanArguments& all, const std::vector<std::int64_t>& numbers, const std::string& root) {
  if (all.output_given && is_root(all)) {
    check_output_directory(all.output, {reports::kScalingFile});
    for (const std::int64_t gpus : numbers)
      check_output_directory((fs::path(all.output) / folder_of(gpus)).string(), {"plans.json", reports::kSearchFile});
  }
  reports::ScalingReport report;
  report.days = all.days;
  for (const std::int64_t gpus : numbers) {
    PlanArguments a = all;
    a.output = (fs::path(all.output) / folder_of(gpus)).string();
    search::Request request = request_of(a, root);
    request.top = 1;
    request.assignments.push_back(fmt::format("cluster.gpus={}", gpus));
    if (a.weak) request.assignments.push_back(batch_of(a, gpus, numbers.front(), root));
    report.searches.push_back(search_once(a, std::move(request), fmt::format("{} GPUs: ", gpus), root));
    for (reports::SweepRow& row : report.searches.back().best)
      if (all.output_given) row.directory = folder_of(gpus) + "/" + row.directory;
  }
  if (!finish_shared(all)) return kDone;
  if (all.output_given)
    result::write_output((fs::path(all.output) / reports::kScalingFile).string(), reports::scaling_json(report));
  print(all.json ? reports::scaling_json(report) : reports::scaling_text(report, terminal_width()));
  return exit_code(report.searches);
}

// What a scenario's reader says of --set stands at the option by which this command assigns the key.
InputError blamed_on_options(const InputError& error, const PlanArguments& a) {
  std::vector<Diagnostic> problems = error.diagnostics();
  const auto begins = [](const std::string& text, const std::string& key) { return text.starts_with(key + "="); };
  const auto given = [&](const std::vector<std::string>& texts, const std::string& key) {
    return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return begins(text, key); });
  };
  for (Diagnostic& d : problems) {
    if (d.file != "--set") continue;
    const bool fixed = given(a.request.assignments, d.path);
    d.file = !fixed && given(a.ranges, d.path)                               ? "--range"
             : !fixed && d.path == "cluster.gpus" && !a.gpus.empty()         ? "--gpus"
             : !fixed && d.path == "training.global_batch" && a.weak         ? "--weak"
             : !fixed && d.path == "cluster.topology" && !a.clusters.empty() ? "--clusters"
                                                                             : "--fix";
  }
  return InputError(std::move(problems));
}

int planned(PlanArguments a) {
  const std::string root = data_root();
  a.request.file = scenario_file(a.scenario, root);
  check_arguments(a);
  const std::vector<std::int64_t> numbers = numbers_of_gpus(a.gpus);
  if (a.session != nullptr) a.session->begin_work();
  if (!a.clusters.empty() || (a.days > 0 && numbers.empty())) return choose_cluster(a, root);
  if (numbers.size() > 1) return compare_numbers(a, numbers, root);
  if (!numbers.empty()) a.request.assignments.push_back(fmt::format("cluster.gpus={}", numbers.front()));
  const search::Request request = request_of(a, root);
  if (a.output_given && is_root(a)) check_output_directory(a.output, {"plans.json", reports::kSearchFile});
  const reports::SearchReport report = search_once(a, request, "", root);
  if (!finish_shared(a)) return kDone;
  print(a.json ? reports::search_json(report) : reports::search_text(report, terminal_width()));
  return exit_code({report});
}

}  // namespace

int plan_command(PlanArguments a) {
  try {
    return planned(a);
  } catch (const InputError& error) {
    throw blamed_on_options(error, a);
  }
}

void add_plan(CLI::App& app, Action& action) {
  auto a = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Find the best plans for a model on a cluster");
  command->add_option("SCENARIO", a->scenario, "A file, or a name of rehearse list scenarios")
      ->required()
      ->type_name("");
  command->add_option("--gpus", a->gpus, "How many; of several the best plan for each")->type_name("N,...");
  command->add_flag("--weak", a->weak, "The batch grows with several --gpus");
  command->add_option("--objective", a->objective, "What is to be least (default step_time)")
      ->check(one_of({"step_time", "cost", "memory", "energy"}))
      ->type_name("WHAT");
  command->add_option("--top", a->top, "Plans to answer (default 5)")->check(between(1, 1000))->type_name("K");
  command->add_option("--fix,--set", a->request.assignments, "Fix a key, as plan.tensor=8; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_option("--range", a->ranges, "Values that a key may have; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=V,V,...");
  command->add_option("--calibration", a->request.calibrations, "Add a calibration file; repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command->add_option("--budget", a->budget, "End after N plans simulated, or a time as 90s")->type_name("N");
  command->add_flag("--worth", a->worth, "Also what each key of the best plan is worth");
  command->add_flag("--front", a->front, "Also the fastest plans with less memory");
  command->add_option("--tokens", a->tokens, "Days and GPU-hours of a run, as 300B")->type_name("N");
  command->add_option("--days", a->days, "The fewest GPUs that train --tokens in so many")
      ->check(number_between(0.001, 1e5))
      ->type_name("D");
  command->add_option("--clusters", a->clusters, "The best plan on each; fewest GPUs, cheapest")->type_name("A,B,...");
  a->price.add_to(*command);
  command->add_option("--threads", a->threads, "Plans at once (cores)")->check(between(1, 4096))->type_name("N");
  CLI::Option* output =
      command->add_option("-o", a->output, "Write each plan as scenario and result there")->type_name("DIR");
  command->add_flag("--json", a->json, "Print JSON alone to standard output");
  command->footer(
      "Free unless fixed: tensor, pipeline, context, expert, expert_tensor, chunks,\n"
      "schedule, micro_batch, zero, recompute, sequence_parallel; offload_optimizer\n"
      "where memory is short; rank_order and layers_per_stage on unlike devices;\n"
      "any key with --range.\n"
      "Examples:\n"
      "  rehearse plan gpt3-175b-1024xa100\n"
      "  rehearse plan my.yaml --fix plan.tensor=8 --range plan.micro_batch=1,2,4\n"
      "  rehearse plan my.yaml --gpus 256,512,1024 --tokens 300B --days 30\n"
      "  rehearse plan my.yaml --clusters aws-p5,dgx-a100 --tokens 300B --days 30\n"
      "  mpirun -n 4 rehearse plan my.yaml ...   processes share the space\n"
      "Exit status: 0 done, 2 bad usage or input, 3 nothing fits in memory, 1 other.");
  command->callback([a, output, &action] {
    a->output_given = output->count() > 0;
    action = [a] {
      const auto work = [a] { return plan_command(*a); };
      constexpr std::chrono::seconds kToStart{60};
      return execute::launched_for_mpi() ? as_mpi_process(a->session, kToStart, work) : work();
    };
  });
}

}  // namespace rehearse::cli
