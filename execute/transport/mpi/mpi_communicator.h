// Ranks that are processes of an MPI job, one a process. A program group is an MPI communicator; its collectives are
// MPI's non-blocking ones, polled, made one after the other in the order of their numbers. Sums are not left to MPI,
// whose order is its own: shares travel, and each member adds its own share in group order, so that a result is that
// of ranks that are threads, bit by bit, run after run.
#pragma once

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "execute/transport/communicator.h"
#include "execute/transport/mpi/send_buffers.h"
#include "execute/transport/stop.h"

namespace rehearse::execute {

class MpiCommunicator : public Communicator {
 public:
  // The program's groups that this rank is in, by their ids: the members, in group order.
  using Groups = std::map<program::GroupId, std::vector<int>>;

  // Every rank of `world`, which is used for nothing else, makes one at the same time: this waits for the others, and
  // throws WaitEnded as calls do. `stop` and `send_buffers` must outlive it.
  // `silent`: the ranks that seem to be stuck, in answer to who is missing when all came to a call and not all got
  // through it; may know none. `limit`: how long a wait for other ranks may last.
  MpiCommunicator(MPI_Comm world, const Groups& groups, std::chrono::milliseconds limit, const Stop& stop,
                  SendBuffers& send_buffers, std::function<std::vector<int>()> silent);
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  Arrival all_reduce(const CollectiveCall& m, program::ReduceOp op, kernels::In in, kernels::Out out,
                     std::int64_t elements) override;
  Arrival all_gather(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) override;
  Arrival reduce_scatter(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) override;
  Arrival broadcast(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) override;
  Arrival reduce(const CollectiveCall& m, program::ReduceOp op, kernels::In in, kernels::Out out,
                 std::int64_t elements) override;
  Arrival all_to_all(const CollectiveCall& m, kernels::In in, kernels::Out out, std::int64_t elements) override;
  Arrival all_to_all_parts(const CollectiveCall& m, kernels::In in, kernels::Out out, const Parts& parts) override;
  Arrival exchange(std::span<const Message> messages) override;
  // By which of MPI's collectives; their algorithms are the library's choice.
  std::string_view way(program::CollectiveKind kind, std::int64_t elements, std::int64_t members,
                       program::DType type) const override;

  // Waits until every rank of the world has come here.
  Arrival barrier();

 private:
  struct ProcessGroup;  // of one group
  class GroupCall;      // one call of one collective

  ProcessGroup& group(const CollectiveCall& m);
  int tag_of(const Message& message) const;

  MPI_Comm messages_;
  std::chrono::milliseconds limit_;
  const Stop& stop_;
  SendBuffers& send_buffers_;
  std::function<std::vector<int>()> silent_;
  int arrival_tag_ = 0, sequences_ = 0;  // sequences_: tags of a channel; numbers are taken modulo this
  std::map<program::GroupId, std::unique_ptr<ProcessGroup>> groups_;
  std::unique_ptr<ProcessGroup> everyone_;
};

}  // namespace rehearse::execute
