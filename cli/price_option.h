// What a GPU-hour costs: --prices FILE, --price D, as several commands have them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "reports/prices.h"

namespace rehearse::cli {

struct PriceOption {
  std::string file;           // "": the shipped one, topologies/prices.csv
  std::optional<double> usd;  // instead of a file's; 0: what nobody is to be told the cost of

  void add_to(CLI::App& command);
  // Of a cluster as scenarios name it. Throws InputError for a file that cannot be read.
  reports::Price of(const std::string& topology, const std::string& root) const;
};

}  // namespace rehearse::cli
