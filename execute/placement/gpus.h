// GPUs for the ranks of a run: whether there are any, which rank is on which, and what it takes if ranks share one.
#pragma once

#include <memory>
#include <optional>

#include "execute/placement/devices.h"
#include "execute/placement/shared_device.h"
#include "execute/processes/world.h"
#include "execute/rank/rank.h"
#include "sim/plan/scenario.h"

namespace rehearse::execute {

struct PlacementRequest;

// Why a plan has no kernels on GPUs yet, and what can be performed instead.
struct NotOnGpus {
  const char* why;
  const char* instead;
};
std::optional<NotOnGpus> not_on_gpus(const plan::Scenario& scenario);

// This machine's GPUs if ranks are to be on them. Throws InputError for what cannot be.
std::optional<Devices> choose_gpus(const PlacementRequest& request, const plan::Scenario& scenario);

// The maker for the rank of this process; sets the environment where ranks share a GPU.
std::unique_ptr<RankMaker> make_gpu_ranks(const PlacementRequest& request, const plan::Scenario& scenario,
                                          const Devices& gpus, World& world);

// For ranks whose processes are to be started here.
class GpusToStart {
 public:
  GpusToStart(const PlacementRequest& request, const Devices& gpus, int ranks);

  RankMaker& maker() { return *maker_; }  // for checks before the start
  // Where ranks share a GPU: starts MPS if it can, and tells the user. Lasts as long as this object.
  void prepare_sharing();
  Variables variables(int rank) const;  // of the rank's environment

 private:
  const PlacementRequest& request_;
  int gpus_, ranks_;
  std::unique_ptr<RankMaker> maker_;
  std::optional<Mps> mps_;
};

}  // namespace rehearse::execute
