// Transfers that all begin at once on an idle cluster: each after its start-up, their bytes sharing links by the
// network's solver (network.h). For what moves outside a Program's step.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"

namespace rehearse::engine {

struct FlowsRun {
  Time end;                              // of the last
  std::vector<Time> ends;                // of each transfer
  std::vector<std::int64_t> link_bytes;  // by resource of the cluster
};

FlowsRun run_flows(const std::vector<collective::TransferPlan>& transfers, const cluster::Cluster& cluster);

}  // namespace rehearse::engine
