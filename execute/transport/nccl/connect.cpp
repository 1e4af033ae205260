// See connect.h.
#include "execute/transport/nccl/connect.h"

#include <cstring>

#include "sim/base/check.h"

namespace rehearse::execute::nccl {

std::unique_ptr<QueuedTransfers> Connector::connect(Run& run, int rank) {
  std::call_once(once_, [&] {
    splits_ = std::make_unique<Splits>(run.program, run.grid);
    std::string bytes(sizeof id_, '\0');
    if (run.world.root()) {
      REHEARSE_NCCL(api_, get_unique_id(&id_));
      std::memcpy(bytes.data(), &id_, sizeof id_);
    }
    bytes = run.world.from_root(std::move(bytes));
    REHEARSE_CHECK(bytes.size() == sizeof id_, "an id of {} bytes", bytes.size());
    std::memcpy(&id_, bytes.data(), sizeof id_);
  });
  return make_nccl_transfers(api_, *splits_, {rank, run.grid.ranks(), id_, run.options.timeout}, run.world.stop());
}

}  // namespace rehearse::execute::nccl
