// See rank/gpu/cuda_ranks.h.
#include "execute/rank/gpu/cuda_ranks.h"

#include <fmt/format.h>

#include "execute/rank/gpu/cuda_gpu.h"
#include "execute/transport/nccl/connect.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

class CudaRanks final : public RankMaker {
 public:
  CudaRanks(GpuMaker::Parts parts, std::unique_ptr<nccl::Connector> connector)
      : connector_(std::move(connector)), maker_(std::move(parts)) {}
  void check(const std::vector<Timeline>& timelines, const plan::RankGrid& grid, std::span<const int> ranks) override {
    maker_.check(timelines, grid, ranks);
  }
  std::unique_ptr<AnyRank> make(Run& run, int rank, bool reports_loss) override {
    return maker_.make(run, rank, reports_loss);
  }
  std::int64_t memory_of_a_rank() const override { return maker_.memory_of_a_rank(); }

 private:
  const std::unique_ptr<nccl::Connector> connector_;
  GpuMaker maker_;
};

}  // namespace

std::unique_ptr<RankMaker> make_cuda_ranks(const CudaRanksOptions& options) {
  GpuMaker::Parts parts;
  parts.gpu = [device = options.device](int rank) { return make_cuda_gpu(device(rank)); };
  parts.devices = options.devices;
  parts.device = options.device;
  parts.options = options.rank;
  std::unique_ptr<nccl::Connector> connector;
  if (!options.alone) {
    std::string reason;
    std::optional<nccl::Api> api = nccl::load(reason);
    if (!api)
      throw InputError(
          Diagnostic{"--ranks nccl", 0, 0, "", reason, "install NCCL, or name the library in REHEARSE_NCCL_LIBRARY"});
    connector = std::make_unique<nccl::Connector>(std::move(*api));
    parts.connect = [c = connector.get()](Run& run, int rank) { return c->connect(run, rank); };
  }
  return std::make_unique<CudaRanks>(std::move(parts), std::move(connector));
}

std::string nccl_found(std::string& reason) {
  const std::optional<nccl::Api> api = nccl::load(reason);
  return api ? fmt::format("NCCL {} ({})", nccl::version_text(api->version), api->file) : "";
}

}  // namespace rehearse::execute
