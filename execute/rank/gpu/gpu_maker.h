// Makes the ranks of a run on GPUs: a device for each, transfers between them, and says before whether their arenas
// fit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "execute/rank/gpu/gpu.h"
#include "execute/rank/gpu/gpu_rank.h"
#include "execute/rank/rank.h"
#include "execute/transport/queued_transfers.h"

namespace rehearse::execute {

// The devices of this machine, as they are before a run.
struct DeviceMemory {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::int64_t free_bytes = 0, total_bytes = 0;
};

class GpuMaker final : public RankMaker {
 public:
  struct Parts {
    std::function<std::unique_ptr<Gpu>(int rank)> gpu;
    // Called in every rank's thread at once; null: a rank alone.
    std::function<std::unique_ptr<QueuedTransfers>(Run& run, int rank)> connect;
    std::vector<DeviceMemory> devices;    // of this machine; empty: nothing is known of them
    std::function<int(int rank)> device;  // of a rank of this machine, in `devices`
    GpuOptions options;
  };
  explicit GpuMaker(Parts parts) : parts_(std::move(parts)) {}

  void check(const std::vector<Timeline>& timelines, const plan::RankGrid& grid, std::span<const int> ranks) override;
  std::unique_ptr<Rank> make(Run& run, int rank, bool reports_loss) override;
  std::int64_t memory_of_a_rank() const override { return memory_of_a_rank_; }

 private:
  Parts parts_;
  std::int64_t memory_of_a_rank_ = 0;
};

}  // namespace rehearse::execute
