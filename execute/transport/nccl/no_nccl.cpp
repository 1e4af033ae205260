// Instead of the rest of this folder in a build that found no nccl.h.
#include "execute/transport/nccl/connect.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {

std::unique_ptr<NcclConnector> load_nccl() {
  throw InputError(Diagnostic{"--ranks nccl", 0, 0, "", "this program was built without NCCL",
                              "install the CUDA toolkit and nccl.h (libnccl-dev), and build again"});
}

}  // namespace rehearse::execute
