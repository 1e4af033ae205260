// See connect.h.
#include "execute/transport/nccl/connect.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "execute/transport/nccl/nccl_api.h"
#include "execute/transport/nccl/nccl_transfers.h"
#include "execute/transport/nccl/splits.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

class Connector final : public NcclConnector {
 public:
  explicit Connector(nccl::Api api) : api_(std::move(api)) {}

  std::unique_ptr<QueuedTransfers> connect(const NcclRun& run, int rank) override {
    std::call_once(once_, [&] {
      splits_ = std::make_unique<nccl::Splits>(run.program, run.grid);
      std::string bytes(sizeof id_, '\0');
      if (run.root) {
        REHEARSE_NCCL(api_, get_unique_id(&id_));
        std::memcpy(bytes.data(), &id_, sizeof id_);
      }
      bytes = run.broadcast(std::move(bytes));
      REHEARSE_CHECK(bytes.size() == sizeof id_, "an id of {} bytes", bytes.size());
      std::memcpy(&id_, bytes.data(), sizeof id_);
    });
    return nccl::make_nccl_transfers(api_, *splits_, {rank, run.grid.ranks(), id_, run.timeout}, run.stop);
  }

 private:
  const nccl::Api api_;
  std::once_flag once_;
  std::unique_ptr<nccl::Splits> splits_;
  ncclUniqueId id_{};
};

}  // namespace

std::unique_ptr<NcclConnector> load_nccl() {
  std::string reason;
  std::optional<nccl::Api> api = nccl::load(reason);
  if (!api)
    throw InputError(
        Diagnostic{"--ranks nccl", 0, 0, "", reason, "install NCCL, or name the library in REHEARSE_NCCL_LIBRARY"});
  return make_nccl_connector(std::move(*api));
}

std::unique_ptr<NcclConnector> make_nccl_connector(nccl::Api api) {
  return std::make_unique<Connector>(std::move(api));
}

}  // namespace rehearse::execute
