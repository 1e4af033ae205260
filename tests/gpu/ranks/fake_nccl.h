// NCCL for tests: the functions of execute/transport/nccl/nccl_api.h between ranks that are threads of this process and
// whose streams are a LateGpu's. What matters of NCCL here: communicators do not block and are ready some questions
// later; calls of a communicator run in the order in which they were made, whatever their streams; a send is through
// when its receiver has come; sends and receives of a group start together if they are of one communicator; abort()
// ends what waits. Sums are taken in rank order.
#pragma once

#include "execute/transport/nccl/nccl_api.h"

namespace rehearse {

execute::nccl::Api fake_nccl();

// From now on the communicators of `rank` of the latest world report `error`; ncclSuccess: none does.
void break_fake_nccl(int rank, ncclResult_t error);
// Communicators that were made and neither destroyed nor aborted.
int fake_nccl_alive();

}  // namespace rehearse
