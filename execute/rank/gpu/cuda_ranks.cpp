// See cuda_ranks.h.
#include "execute/rank/gpu/cuda_ranks.h"

#include "execute/rank/gpu/cuda_gpu.h"

namespace rehearse::execute {
namespace {

class CudaRanks final : public RankMaker {
 public:
  CudaRanks(GpuMaker::Parts parts, std::unique_ptr<NcclConnector> connector)
      : connector_(std::move(connector)), maker_(std::move(parts)) {}
  void check(const std::vector<Timeline>& timelines, const plan::RankGrid& grid, std::span<const int> ranks) override {
    maker_.check(timelines, grid, ranks);
  }
  std::unique_ptr<Rank> make(Run& run, int rank, bool reports_loss) override {
    return maker_.make(run, rank, reports_loss);
  }
  std::int64_t memory_of_a_rank() const override { return maker_.memory_of_a_rank(); }

 private:
  const std::unique_ptr<NcclConnector> connector_;
  GpuMaker maker_;
};

}  // namespace

std::function<std::unique_ptr<QueuedTransfers>(Run& run, int rank)> connect_over(NcclConnector& connector) {
  return [&connector](Run& run, int rank) {
    const NcclRun of{run.program,         run.grid,
                     run.options.timeout, run.world.stop(),
                     run.world.root(),    [&run](std::string bytes) {
                       return run.world.from_root(std::move(bytes)); }};
    return connector.connect(of, rank);
  };
}

std::unique_ptr<RankMaker> make_cuda_ranks(const CudaRanksOptions& options) {
  GpuMaker::Parts parts;
  parts.gpu = [device = options.device](int rank) { return make_cuda_gpu(device(rank)); };
  parts.devices = options.devices;
  parts.device = options.device;
  parts.options = options.rank;
  std::unique_ptr<NcclConnector> connector;
  if (!options.alone) {
    connector = load_nccl();
    parts.connect = connect_over(*connector);
  }
  return std::make_unique<CudaRanks>(std::move(parts), std::move(connector));
}

}  // namespace rehearse::execute
