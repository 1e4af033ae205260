// NCCL for tests: the functions of execute/transport/nccl/nccl_api.h between ranks that are threads of this process and
// whose streams are a LateGpu's. What matters of NCCL here: the world's communicator does not block and is ready some
// questions later; its parts block, so the first call of a collective on one returns when all its ranks have made it,
// the first message between two ranks when both have; calls of a communicator run in the order in which they were made,
// whatever their streams; a send is through when its receiver has come; sends and receives of a group start together if
// they are of one communicator; abort() ends what waits, calls too. Sums are taken in rank order.
#pragma once

#include "execute/transport/nccl/nccl_api.h"

namespace rehearse {

execute::nccl::Api fake_nccl();

// From now on the communicators of `rank` of the latest world report `error`; ncclSuccess: none does.
void break_fake_nccl(int rank, ncclResult_t error);
// The call with this number, from 1, of each rank does not return before its communicator is aborted, as one that waits
// for a connection does; 0: none. Calls are counted from here.
void hang_fake_nccl(int call);
int fake_nccl_calls(int rank);  // since hang_fake_nccl()
int fake_nccl_calls_aborted();  // likewise: calls that abort() has ended
// Communicators that were made and neither destroyed nor aborted.
int fake_nccl_alive();

}  // namespace rehearse
