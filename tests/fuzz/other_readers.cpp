// Published measurements, lists of plans, training data, and what launchers put into the environment.
#include <map>
#include <sstream>

#include "cli/validate_collectives.h"
#include "execute/data.h"
#include "execute/processes/launch_environment.h"
#include "reports/ledgers/ledger.h"
#include "reports/ledgers/local_ledger.h"
#include "sim/model/model.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/small_plans.h"

namespace rehearse::fuzz {
namespace {

void read_published(const std::string& bytes) {
  (void)reports::read_measurements("input.csv", bytes);
}

void read_published_collectives(const std::string& bytes) {
  (void)cli::collective_ledger("input.csv", bytes, "");
}

void read_local_plans(const std::string& bytes) {
  (void)reports::read_local_plans(put_file("input.yaml", bytes));
}

// A variable a line, NAME=VALUE.
void read_environment(const std::string& bytes) {
  std::map<std::string, std::string> variables;
  std::istringstream in(bytes);
  for (std::string line; std::getline(in, line);)
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      variables[line.substr(0, equals)] = line.substr(equals + 1);
  const execute::Launch launch = execute::read_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
  if (launch.rank < 0 || launch.rank >= launch.ranks) fail("a rank that is none");
  execute::check_ranks(launch, 8);
}

// As text and as uint16 tokens; a sequence of it is loaded.
void read_data(const std::string& bytes) {
  static const model::Model model =
      plan::read_scenario(put_file("scenario.yaml", small_scenario("dgx-a100", 2)), {}, REHEARSE_SOURCE_DIR).model;
  constexpr std::int64_t kLength = 8;
  for (const char* name : {"input.txt", "input.bin"}) {
    const auto data = execute::open_data(model, kLength, 1, put_file(name, bytes));
    std::vector<std::int32_t> tokens(kLength * 2);
    const std::vector<std::int64_t> numbers = {0, data->examples() * 3 + 1};
    data->load(program::InputKind::targets, numbers, static_cast<std::int64_t>(tokens.size()), tokens.data());
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= model.vocab) fail("a token outside the vocabulary");
  }
}

}  // namespace

void add_other_readers(std::vector<Reader>& list) {
  list.push_back({.name = "published", .read = read_published, .seeds = {"scenarios/published/measurements.csv"}});
  list.push_back({.name = "published-collectives", .read = read_published_collectives, .runs = 200});
  list.push_back({.name = "local-plans",
                  .read = read_local_plans,
                  .seeds = {"scenarios/local/plans.yaml", "scenarios/gpu/plans.yaml"},
                  .runs = 200});
  list.push_back({.name = "environment", .read = read_environment});
  list.push_back({.name = "data", .read = read_data});
}

}  // namespace rehearse::fuzz
