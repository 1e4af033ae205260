// Which parameter server has which parameters: in the model's order each parameter, whole, goes to the server that has
// fewest elements so far, of several the first.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::account {

struct ServerParameter {
  program::BufferId value = -1, gradient = -1;  // of the worker's role
  std::int64_t elements = 0;
  int server = 0;
  std::int64_t first = 0;  // where it begins among the server's
};

// Of a worker's role, those that are trained.
std::vector<ServerParameter> server_parameters(const program::Role& role, int servers);
// Elements of each server.
std::vector<std::int64_t> server_elements(const std::vector<ServerParameter>& parameters, int servers);

}  // namespace rehearse::account
