// See node_status.h.
#include "execute/processes/mpi/node_status.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>

#include "execute/transport/mpi/call.h"

namespace rehearse::execute {

struct NodeStatus::Slot {
  Whereabouts at;
  std::atomic<std::int64_t> life = 0;  // of the steady clock, ns
  pid_t process = 0;
  std::uint64_t space = 0;  // in which the process has this number: a container may have its own
};

namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::uint64_t process_space() {
  struct stat s {};
  return ::stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 0;
}

}  // namespace

NodeStatus::NodeStatus(MPI_Comm world) {
  int ranks = 0, on_node = 0;
  REHEARSE_MPI(MPI_Comm_rank(world, &rank_));
  REHEARSE_MPI(MPI_Comm_size(world, &ranks));
  REHEARSE_MPI(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_));
  REHEARSE_MPI(MPI_Comm_set_errhandler(node_, MPI_ERRORS_RETURN));
  REHEARSE_MPI(MPI_Comm_size(node_, &on_node));
  ranks_.resize(static_cast<std::size_t>(on_node));
  REHEARSE_MPI(MPI_Allgather(&rank_, 1, MPI_INT, ranks_.data(), 1, MPI_INT, node_));

  void* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  REHEARSE_MPI(MPI_Win_allocate_shared(sizeof(Slot), 1, MPI_INFO_NULL, node_, static_cast<void*>(&own), &window));
  auto* slot = new (own) Slot();
  slot->process = ::getpid();
  slot->space = process_space();
  slot->life = now_ns();
  REHEARSE_MPI(MPI_Barrier(node_));
  slots_.assign(static_cast<std::size_t>(ranks), nullptr);
  elsewhere_ = std::vector<Whereabouts>(static_cast<std::size_t>(ranks));
  for (int i = 0; i < on_node; ++i) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* base = nullptr;
    REHEARSE_MPI(MPI_Win_shared_query(window, i, &bytes, &unit, static_cast<void*>(&base)));
    slots_[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(i)])] = static_cast<Slot*>(base);
  }
}

Whereabouts& NodeStatus::whereabouts(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return slots_[r] == nullptr ? elsewhere_[r] : slots_[r]->at;
}

void NodeStatus::sign_of_life() const {
  slots_[static_cast<std::size_t>(rank_)]->life.store(now_ns(), std::memory_order_relaxed);
}

std::vector<int> NodeStatus::silent_for(std::chrono::milliseconds time) const {
  std::vector<int> silent;
  const std::int64_t before = now_ns() - std::chrono::nanoseconds(time).count();
  for (const int rank : ranks_)
    if (rank != rank_ && slots_[static_cast<std::size_t>(rank)]->life.load(std::memory_order_relaxed) < before)
      silent.push_back(rank);
  return silent;
}

std::vector<int> NodeStatus::dead() const {
  std::vector<int> ranks;
  const Slot& own = *slots_[static_cast<std::size_t>(rank_)];
  for (const int rank : ranks_) {
    const Slot& other = *slots_[static_cast<std::size_t>(rank)];
    if (other.space == own.space && ::kill(other.process, 0) != 0 && errno == ESRCH) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace rehearse::execute
