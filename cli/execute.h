// What rehearse execute is asked for. Internal to the command.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/shrink.h"
#include "execute/performer.h"
#include "execute/placement/placement.h"
#include "sim/account/server_events.h"

namespace rehearse::cli {

struct ExecuteArguments {
  std::string scenario, output, data, metrics, routing, elastic;  // elastic: a range of ranks
  std::string order_file;  // servers.csv of a run or a simulation, which parameter servers are to do
  execute::PlacementRequest placement;
  execute::CheckpointOptions checkpoint;
  std::shared_ptr<execute::RankMaker> maker;  // of this process's ranks; null: on the CPU
  std::vector<std::string> assignments;
  std::function<void()> poll;  // besides looking for interrupts
  int steps = 20, log_every = 0;
  double epochs = 0;
  std::optional<double> until_loss;
  ShrinkRequest miniature;
  bool shrink = false;
  bool as_simulated = false;  // parameter servers do what they do in the simulation
  std::shared_ptr<const std::vector<account::ServerEvent>> order;  // with it: what that is
  bool baseline = false, json = false, output_given = false, tensorboard = false;
  std::string not_of_miniature;  // an option that is given and that a miniature has no use for
};

}  // namespace rehearse::cli
