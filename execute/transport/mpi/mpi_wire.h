// A Wire (transport/wire.h) between the processes of an MPI job, for what parameter servers and their workers say to
// one another. One thread of each process receives whatever comes next from whomever (MPI_Improbe with MPI_ANY_SOURCE)
// and lays it ready for the transfer it is for, so that nobody need be expected by name and no sender waits. Messages
// of one sender come in the order in which they were sent (MPI 3.1, section 3.5); which of several senders' comes first
// is as MPI has it: a server puts two of one instant in the order of their ranks (servers/server.h).
//
// A message is a header - lane, tag, bytes - and behind it its bytes, in pieces that an MPI count can say.
#pragma once

#include <mpi.h>

#include <memory>

#include "execute/transport/mpi/send_buffers.h"
#include "execute/transport/stop.h"
#include "execute/transport/wire.h"

namespace rehearse::execute {

inline constexpr std::size_t kMpiPiece = std::size_t{1} << 30;  // bytes

// Every rank of `world` makes one at the same time. Waits of Wire::wait() end after `limit`. `stop` and `send_buffers`,
// which someone keeps moving, must outlive it; what it has posted goes on its way in these. `piece`: bytes of one
// message of MPI at most.
std::unique_ptr<Wire> make_mpi_wire(MPI_Comm world, int lanes, std::chrono::milliseconds limit, const Stop& stop,
                                    SendBuffers& send_buffers, std::size_t piece = kMpiPiece);

}  // namespace rehearse::execute
