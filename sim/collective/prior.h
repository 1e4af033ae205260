// The model of a collective before measurements correct it: NCCL's own (nccl_tuning.h), or for other transports a ring
// with a latency for each step (Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
// MPICH", 2005: ring all-reduce takes 2(n-1) alpha + 2(n-1)/n B beta).
#pragma once

#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/nccl_tuning.h"

namespace rehearse::collective {

struct Prior {
  bool nccl = false;
  bool torus =
      false;  // not NCCL, and goes along the dimensions of a torus where a group fills them (algorithms/torus.cpp)
  nccl::Machine machine;              // rates serve both models
  double hop_us = 0, net_hop_us = 0;  // ring: a step inside and between nodes
  double shared_gbps = 0;             // ring: one path that carries all members' bytes, 0: none

  nccl::Estimate collective(program::CollectiveKind kind, const nccl::Placement& place, double bytes) const;
  nccl::Estimate send(bool crosses_nodes, double bytes) const;
};

// Rates and latencies of the cluster's ports, for both models; the ring model is chosen. `kinds`: of the nodes whose
// devices are of one of these (Cluster::kind_of), the slowest of each number; empty: of all.
Prior prior_of(const cluster::Cluster& cluster, const std::vector<int>& kinds = {});

}  // namespace rehearse::collective
