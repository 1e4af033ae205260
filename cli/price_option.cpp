// See price_option.h.
#include "cli/price_option.h"

#include "cli/commands.h"
#include "cli/paths.h"

namespace rehearse::cli {

void PriceOption::add_to(CLI::App& command) {
  command.add_option("--prices", file, "Of GPU-hours (default topologies/prices.csv)")->type_name("FILE");
  command.add_option("--price", usd, "Dollars a GPU-hour instead (0: no costs)")
      ->check(number_between(0, 1e6))
      ->type_name("D");
}

reports::Price PriceOption::of(const std::string& topology, const std::string& root) const {
  if (usd) return {*usd, "", ""};
  return reports::Prices::from_file(prices_file(file, root)).of(topology);
}

}  // namespace rehearse::cli
