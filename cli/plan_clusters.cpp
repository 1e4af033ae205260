// rehearse plan turned round: of several clusters, and of numbers of GPUs that nobody gave, those that train so many
// tokens in so many days.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/plan_search.h"
#include "cli/refuse.h"
#include "reports/cluster_choice.h"
#include "reports/estimate.h"
#include "sim/run/goodput.h"

namespace rehearse::cli {
namespace {

constexpr std::int64_t kMostGpus = 131072;  // that are tried
constexpr int kMostInVain = 3;              // numbers one after another that are no better, or that cannot be

// Parts of a node that divide it, then whole nodes: 1, 2, 3, 4, 6, 8, 12, ... of them.
std::vector<std::int64_t> numbers_to_try(std::int64_t node) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t part = 1; part < node; ++part)
    if (node % part == 0) numbers.push_back(part);
  for (std::int64_t nodes = 1; nodes * node <= kMostGpus; nodes *= 2) {
    if (nodes >= 2) numbers.push_back(nodes / 2 * 3 * node);
    numbers.push_back(nodes * node);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

reports::ClusterOption option_of(const PlanArguments& a, const std::string& cluster, std::int64_t gpus,
                                 const std::string& root) {
  reports::ClusterOption option;
  option.cluster = cluster;
  option.gpus = gpus;
  search::Request request = request_of(a, root);
  request.top = 1;
  request.assignments.push_back("cluster.topology=" + cluster);
  request.assignments.push_back(fmt::format("cluster.gpus={}", gpus));
  try {
    option.search = search_once(a, std::move(request), fmt::format("{}, {} GPUs: ", cluster, gpus), root);
  } catch (const InputError& error) {
    if (error.diagnostics().front().path == "cluster.topology") throw;  // no such cluster, whatever the number
    option.problem = error.diagnostics().front().message;
  }
  return option;
}

// The first number of GPUs that trains the tokens in time; else the fastest that was found, or the last that was tried.
// A plan's MFU is at most 1, so with fewer GPUs than MFU x GPUs x days / deadline of any plan none is in time: such
// numbers are passed over.
reports::ClusterOption fewest_in_time(const PlanArguments& a, const std::string& cluster, std::int64_t node,
                                      double tokens, const std::string& root) {
  reports::ClusterOption best;
  std::vector<std::int64_t> tried;
  double least_days = 0, needed = 1;
  int in_vain = 0;
  for (const std::int64_t gpus : numbers_to_try(node)) {
    if (static_cast<double>(gpus) < needed || in_vain >= kMostInVain) continue;
    reports::ClusterOption option = option_of(a, cluster, gpus, root);
    tried.push_back(gpus);
    const bool speed = option.can() && option.search.best[0].tokens_per_s > 0;
    const double days = speed ? reports::days_of(tokens, option.search.best[0].tokens_per_s) : 0;
    const bool better = speed && (least_days == 0 || days < least_days);
    if (speed) needed = std::max(needed, days * static_cast<double>(gpus) * option.search.best[0].mfu / a.days);
    if (better || !best.can()) best = std::move(option);
    if (better) least_days = days;
    in_vain = best.can() && !better ? in_vain + 1 : 0;
    if (better && days <= a.days) break;
  }
  best.tried = std::move(tried);
  return best;
}

// "aws-p5,dgx-a100"; the scenario's where none is given.
std::vector<std::string> clusters_of(const PlanArguments& a, const plan::Scenario& scenario) {
  if (a.clusters.empty()) return {scenario.cluster.topology};
  std::vector<std::string> names;
  std::stringstream list(a.clusters);
  for (std::string name; std::getline(list, name, ',');) {
    if (name.empty()) refuse("--clusters", "a name is empty", "--clusters aws-p5,dgx-a100");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace

int choose_cluster(const PlanArguments& a, const std::string& root) {
  reports::ClusterChoice choice;
  choice.days = a.days;
  if (!a.tokens.empty()) choice.tokens = *reports::parse_model_size(a.tokens);
  const plan::Scenario scenario = search::any_scenario(request_of(a, root));
  std::vector<std::int64_t> numbers = numbers_of_gpus(a.gpus);
  if (numbers.empty() && a.days == 0) numbers.push_back(scenario.cluster.gpus);
  for (const std::string& cluster : clusters_of(a, scenario)) {
    plan::Scenario there = scenario;
    there.cluster.topology = cluster;
    const std::int64_t node = run::devices_of_host(there, root);
    if (numbers.empty()) choice.options.push_back(fewest_in_time(a, cluster, node, choice.tokens, root));
    for (const std::int64_t gpus : numbers) choice.options.push_back(option_of(a, cluster, gpus, root));
  }
  if (!finish_shared(a)) return kDone;
  print(a.json ? reports::cluster_json(choice) : reports::cluster_text(choice, terminal_width()));
  const bool any = std::any_of(choice.options.begin(), choice.options.end(), [](const auto& o) { return o.can(); });
  return any ? kDone : kDoesNotFit;
}

}  // namespace rehearse::cli
