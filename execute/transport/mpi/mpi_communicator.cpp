// A collective: wait for our turn on the group; send every member an empty message that says that we have come, and
// post the transfer; look until the messages of all members are here and the transfer is done. The messages say when
// the last member came and, if the wait ends before its time, who did not.
#include "execute/transport/mpi/mpi_communicator.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "execute/transport/fold.h"
#include "execute/transport/mpi/call.h"
#include "execute/transport/mpi/poll.h"
#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

constexpr int kChannels = 64;
constexpr std::int64_t kSmall = 32'768;  // elements of an all-reduce, times members

int count_of(std::int64_t elements) {
  REHEARSE_CHECK(elements >= 0 && elements <= std::numeric_limits<int>::max(), "{} elements in one call of MPI",
                 elements);
  return static_cast<int>(elements);
}

int bytes_of(const Message& message) {
  return count_of(message.elements * size_of(message.data.type));
}

// Sums are ours, so that 16 bits, and 8, are only bits to MPI.
MPI_Datatype type_of(In in, Out out) {
  REHEARSE_CHECK(in.type == out.type, "a collective from {} to {}", name_of(in.type), name_of(out.type));
  if (in.type == DType::f32) return MPI_FLOAT;
  if (in.type == DType::i32) return MPI_INT32_T;
  REHEARSE_CHECK(size_of(in.type) <= 2, "a collective of {}", name_of(in.type));
  return size_of(in.type) == 2 ? MPI_UINT16_T : MPI_BYTE;
}

MPI_Comm communicator_of(MPI_Comm world, const std::vector<int>& members, int tag) {
  MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  REHEARSE_MPI(MPI_Comm_group(world, &all));
  REHEARSE_MPI(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &group));
  REHEARSE_MPI(MPI_Comm_create_group(world, group, tag, &comm));
  REHEARSE_MPI(MPI_Group_free(&group));
  REHEARSE_MPI(MPI_Group_free(&all));
  REHEARSE_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  return comm;
}

}  // namespace

struct MpiCommunicator::ProcessGroup {
  ProcessGroup(MPI_Comm c, std::vector<int> ranks) : comm(c), members(std::move(ranks)) {
    REHEARSE_MPI(MPI_Comm_rank(comm, &index));
    REHEARSE_CHECK(index < static_cast<int>(members.size()), "member {} of {}", index, members.size());
  }

  int size() const { return static_cast<int>(members.size()); }
  std::int64_t part_of(std::int64_t elements) const {
    REHEARSE_CHECK(elements % size() == 0, "{} elements over {} ranks", elements, size());
    return elements / size();
  }
  Out scratch_of(std::int64_t elements, DType type) {
    const auto bytes = static_cast<std::size_t>(elements * size_of(type));
    if (scratch.size() < bytes) scratch.resize(bytes);
    return {scratch.data(), type};
  }
  // `count` elements from each member lie in `space`, one after the other.
  void reduce_scratch(program::ReduceOp op, std::int64_t count, Out out) {
    std::vector<In> parts;
    for (int m = 0; m < size(); ++m) parts.push_back(from(In(scratch.data(), out.type), m * count));
    execute::reduce(parts, op, 0, count, out);
  }

  MPI_Comm comm;
  std::vector<int> members;
  int index = 0;  // ours
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t next = 0;  // the call whose turn it is
  std::vector<std::byte> scratch;
  std::vector<int> counts, offsets, own_counts, own_offsets;
};

// Our turn on a group, from its beginning to its end. A call that throws leaves the group unusable: what it has posted
// cannot be taken back.
class MpiCommunicator::GroupCall {
 public:
  GroupCall(const MpiCommunicator& own, ProcessGroup& group, std::int64_t sequence) : own_(own), group_(group) {
    std::unique_lock lock(group.mutex);
    wait_for(
        lock, group.changed, own.stop_, own.limit_, [&] { return group.next == sequence; },
        [] { return std::vector<int>(); });
    lock.unlock();
    last_ = {Clock::now(), group.members[static_cast<std::size_t>(group.index)]};
    const auto n = static_cast<std::size_t>(group.size());
    arrivals_.assign(2 * n, MPI_REQUEST_NULL);
    for (int m = 0; m < group.size(); ++m)
      if (m != group.index)
        REHEARSE_MPI(
            MPI_Irecv(nullptr, 0, MPI_BYTE, m, own.arrival_tag_, group.comm, &arrivals_[static_cast<std::size_t>(m)]));
    for (int m = 0; m < group.size(); ++m)
      if (m != group.index)
        REHEARSE_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, m, own.arrival_tag_, group.comm,
                               &arrivals_[n + static_cast<std::size_t>(m)]));
  }

  // Until everyone has come and `transfer` is done.
  void wait(MPI_Request transfer = MPI_REQUEST_NULL) {
    poll_for(
        own_.stop_, own_.limit_,
        [&] {
          if (!all_came_) look_for_arrivals();
          int done = 1;
          if (transfer != MPI_REQUEST_NULL) REHEARSE_MPI(MPI_Test(&transfer, &done, MPI_STATUS_IGNORE));
          return all_came_ && done != 0;
        },
        [&] { return missing(); });
  }

  // The end. Returns when the last member had come: when its word had reached us, by our own clock.
  Arrival leave() {
    const std::lock_guard lock(group_.mutex);
    ++group_.next;
    group_.changed.notify_all();
    return last_;
  }

 private:
  void look_for_arrivals() {
    bool all = true;
    for (int m = 0; m < group_.size(); ++m) {
      MPI_Request& request = arrivals_[static_cast<std::size_t>(m)];
      if (request == MPI_REQUEST_NULL) continue;
      int done = 0;
      REHEARSE_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      all &= done != 0;
      if (done != 0 && looked_) last_ = {Clock::now(), group_.members[static_cast<std::size_t>(m)]};
    }
    looked_ = true;  // whose word was there already came before us
    if (!all) return;
    int sent = 0;
    const std::size_t n = group_.members.size();
    REHEARSE_MPI(MPI_Testall(static_cast<int>(n), arrivals_.data() + n, &sent, MPI_STATUSES_IGNORE));
    all_came_ = sent != 0;
  }

  std::vector<int> missing() {
    std::vector<int> ranks;
    for (int m = 0; !all_came_ && m < group_.size(); ++m) {
      MPI_Request& request = arrivals_[static_cast<std::size_t>(m)];
      int done = 1;
      if (request != MPI_REQUEST_NULL) REHEARSE_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done == 0) ranks.push_back(group_.members[static_cast<std::size_t>(m)]);
    }
    if (!ranks.empty()) return ranks;
    for (const int rank : own_.silent_())
      if (std::find(group_.members.begin(), group_.members.end(), rank) != group_.members.end()) ranks.push_back(rank);
    if (!ranks.empty()) return ranks;
    for (int m = 0; m < group_.size(); ++m)
      if (m != group_.index) ranks.push_back(group_.members[static_cast<std::size_t>(m)]);
    return ranks;
  }

  const MpiCommunicator& own_;
  ProcessGroup& group_;
  std::vector<MPI_Request> arrivals_;  // from each member, then to each
  bool all_came_ = false, looked_ = false;
  Arrival last_;
};

MpiCommunicator::MpiCommunicator(MPI_Comm world, const Groups& groups, std::chrono::milliseconds limit,
                                 const Stop& stop, SendBuffers& send_buffers, std::function<std::vector<int>()> silent)
    : messages_(world), limit_(limit), stop_(stop), send_buffers_(send_buffers), silent_(std::move(silent)) {
  int size = 0, found = 0;
  const int* most = nullptr;
  REHEARSE_MPI(MPI_Comm_size(world, &size));
  REHEARSE_MPI(MPI_Comm_get_attr(world, MPI_TAG_UB, static_cast<void*>(&most), &found));
  REHEARSE_CHECK(found != 0, "MPI says nothing of its largest tag");
  arrival_tag_ = *most;
  sequences_ = arrival_tag_ / kChannels;  // so that no message has arrival_tag_
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  everyone_ = std::make_unique<ProcessGroup>(world, std::move(all));
  barrier();  // making communicators has no deadline: not before all are here
  // In the order of their numbers at every rank: no two ranks wait for one another in different groups.
  for (const auto& [id, members] : groups)
    groups_[id] = std::make_unique<ProcessGroup>(communicator_of(world, members, id), members);
}

// Communicators are left to MPI_Finalize: freeing one is a collective call, which the others may not come to.
MpiCommunicator::~MpiCommunicator() = default;

Arrival MpiCommunicator::barrier() {
  GroupCall call(*this, *everyone_, everyone_->next);
  call.wait();
  return call.leave();
}

MpiCommunicator::ProcessGroup& MpiCommunicator::group(const CollectiveCall& m) {
  const auto found = groups_.find(m.group);
  REHEARSE_CHECK(found != groups_.end() && std::equal(m.members.begin(), m.members.end(),
                                                      found->second->members.begin(), found->second->members.end()),
                 "group {} was not known when the run began", m.group);
  return *found->second;
}

Arrival MpiCommunicator::all_reduce(const CollectiveCall& m, program::ReduceOp op, In in, Out out,
                                    std::int64_t elements) {
  ProcessGroup& r = group(m);
  GroupCall call(*this, r, m.sequence);
  const int n = r.size();
  const int total = count_of(elements);
  const MPI_Datatype type = type_of(in, out);
  MPI_Request request = MPI_REQUEST_NULL;
  if (n * elements <= kSmall) {  // all of it to all: more bytes, but one round instead of two
    REHEARSE_MPI(
        MPI_Iallgather(in.data, total, type, r.scratch_of(n * elements, in.type).data, total, type, r.comm, &request));
    call.wait(request);
    r.reduce_scratch(op, elements, out);
    return call.leave();
  }
  r.counts.resize(static_cast<std::size_t>(n));
  r.offsets.resize(static_cast<std::size_t>(n));
  r.own_offsets.resize(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < r.counts.size(); ++i) {
    const auto part = static_cast<std::int64_t>(i);
    r.offsets[i] = static_cast<int>(static_cast<std::int64_t>(total) * part / n);
    r.counts[i] = static_cast<int>(static_cast<std::int64_t>(total) * (part + 1) / n) - r.offsets[i];
  }
  const int own = r.counts[static_cast<std::size_t>(r.index)];
  r.own_counts.assign(static_cast<std::size_t>(n), own);
  for (int i = 0; i < n; ++i) r.own_offsets[static_cast<std::size_t>(i)] = count_of(std::int64_t{i} * own);
  const Out parts = r.scratch_of(std::int64_t{n} * own, in.type);
  REHEARSE_MPI(MPI_Ialltoallv(in.data, r.counts.data(), r.offsets.data(), type, parts.data, r.own_counts.data(),
                              r.own_offsets.data(), type, r.comm, &request));
  call.wait(request);
  r.reduce_scratch(op, own, from(out, r.offsets[static_cast<std::size_t>(r.index)]));
  REHEARSE_MPI(
      MPI_Iallgatherv(MPI_IN_PLACE, 0, type, out.data, r.counts.data(), r.offsets.data(), type, r.comm, &request));
  call.wait(request);
  return call.leave();
}

std::string_view MpiCommunicator::way(program::CollectiveKind kind, std::int64_t elements, std::int64_t members,
                                      program::DType /*type*/) const {
  using Kind = program::CollectiveKind;
  switch (kind) {
    case Kind::all_reduce:
      return members * elements <= kSmall ? "MPI all-gather" : "MPI all-to-all, all-gather";
    case Kind::all_gather:
      return "MPI all-gather";
    case Kind::broadcast:
      return "MPI broadcast";
    case Kind::reduce:
      return "MPI gather";
    default:
      return "MPI all-to-all";
  }
}

Arrival MpiCommunicator::all_gather(const CollectiveCall& m, In in, Out out, std::int64_t elements) {
  ProcessGroup& r = group(m);
  GroupCall call(*this, r, m.sequence);
  const int part = count_of(r.part_of(elements));
  const bool in_place = in.data == at(out, std::int64_t{r.index} * part);
  const MPI_Datatype type = type_of(in, out);
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Iallgather(in_place ? MPI_IN_PLACE : in.data, part, type, out.data, part, type, r.comm, &request));
  call.wait(request);
  return call.leave();
}

Arrival MpiCommunicator::reduce_scatter(const CollectiveCall& m, In in, Out out, std::int64_t elements) {
  ProcessGroup& r = group(m);
  GroupCall call(*this, r, m.sequence);
  const int part = count_of(r.part_of(elements));
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Ialltoall(in.data, part, type_of(in, out), r.scratch_of(elements, in.type).data, part,
                             type_of(in, out), r.comm, &request));
  call.wait(request);
  r.reduce_scratch(program::ReduceOp::sum, part, out);
  return call.leave();
}

Arrival MpiCommunicator::broadcast(const CollectiveCall& m, In in, Out out, std::int64_t elements) {
  ProcessGroup& r = group(m);
  GroupCall call(*this, r, m.sequence);
  if (r.index == 0) copy_elements(in, out, elements);
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Ibcast(out.data, count_of(elements), type_of(in, out), 0, r.comm, &request));
  call.wait(request);
  return call.leave();
}

Arrival MpiCommunicator::reduce(const CollectiveCall& m, program::ReduceOp op, In in, Out out, std::int64_t elements) {
  ProcessGroup& r = group(m);
  GroupCall call(*this, r, m.sequence);
  const bool root = r.index == 0;
  const MPI_Datatype type = type_of(in, out);
  void* all = root ? r.scratch_of(r.size() * elements, in.type).data : nullptr;
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Igather(in.data, count_of(elements), type, all, count_of(elements), type, 0, r.comm, &request));
  call.wait(request);
  if (root) r.reduce_scratch(op, elements, out);
  return call.leave();
}

Arrival MpiCommunicator::all_to_all(const CollectiveCall& m, In in, Out out, std::int64_t elements) {
  ProcessGroup& r = group(m);
  GroupCall call(*this, r, m.sequence);
  const int part = count_of(r.part_of(elements));
  const Out received = in.data == out.data ? r.scratch_of(elements, in.type) : out;
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Ialltoall(in.data, part, type_of(in, out), received.data, part, type_of(in, out), r.comm, &request));
  call.wait(request);
  copy_elements(received, out, elements);
  return call.leave();
}

Arrival MpiCommunicator::all_to_all_parts(const CollectiveCall& m, In in, Out out, const Parts& parts) {
  ProcessGroup& r = group(m);
  GroupCall call(*this, r, m.sequence);
  const auto counts_of = [](const std::vector<std::int64_t>& elements) {
    std::vector<int> counts, offsets;
    std::int64_t first = 0;
    for (const std::int64_t n : elements) {
      counts.push_back(count_of(n));
      offsets.push_back(count_of(first));
      first += n;
    }
    return std::pair(counts, offsets);
  };
  const auto [sent, send_offsets] = counts_of(parts.sent);
  const auto [received, receive_offsets] = counts_of(parts.received);
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Ialltoallv(in.data, sent.data(), send_offsets.data(), type_of(in, out), out.data, received.data(),
                              receive_offsets.data(), type_of(in, out), r.comm, &request));
  call.wait(request);
  return call.leave();
}

// Numbers repeat after sequences_ messages; a channel's messages with one tag arrive in the order they were sent.
int MpiCommunicator::tag_of(const Message& message) const {
  REHEARSE_CHECK(message.channel >= 0 && message.channel < kChannels, "channel {}", message.channel);
  return message.channel * sequences_ + static_cast<int>(message.sequence % sequences_);
}

Arrival MpiCommunicator::exchange(std::span<const Message> messages) {
  std::vector<MPI_Request> requests;
  std::vector<const Message*> receives;
  for (const Message& message : messages) {
    if (message.send) continue;
    MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
    receives.push_back(&message);
    REHEARSE_MPI(
        MPI_Irecv(message.data.data, bytes_of(message), MPI_BYTE, message.peer, tag_of(message), messages_, &request));
  }
  for (const Message& message : messages)
    if (message.send)
      send_buffers_.send(message.data.data, static_cast<std::size_t>(bytes_of(message)), message.peer, tag_of(message),
                         messages_);
  std::vector<char> came(receives.size(), 0);
  const auto look = [&] {
    bool all = true;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      if (came[i] != 0) continue;
      int done = 0, received = 0;
      MPI_Status status;
      REHEARSE_MPI(MPI_Test(&requests[i], &done, &status));
      all &= done != 0;
      if (done == 0) continue;
      came[i] = 1;
      REHEARSE_MPI(MPI_Get_count(&status, MPI_BYTE, &received));
      REHEARSE_CHECK(received == bytes_of(*receives[i]), "a message of {} bytes, {} expected", received,
                     bytes_of(*receives[i]));
    }
    return all;
  };
  poll_for(stop_, limit_, look, [&] {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < receives.size(); ++i)
      if (came[i] == 0) ranks.push_back(receives[i]->peer);
    return ranks;
  });
  return {Clock::now()};  // MPI does not say when they were sent
}

}  // namespace rehearse::execute
