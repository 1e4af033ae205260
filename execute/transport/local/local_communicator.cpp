// A collective: every member posts its pointers and waits until all have; then each works on its own share of the
// elements, reading all inputs in group order and writing what it owns of every output, so no two members touch one
// element; the last to finish lets all go. A message: the sender leaves a copy in the mailbox of (sender, receiver,
// channel) and goes on; the receiver takes it.
#include "execute/transport/local/local_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "execute/transport/fold.h"
#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

struct PendingCall {
  explicit PendingCall(std::size_t members) : in(members), out(members), present(members, 0) {}
  std::condition_variable changed;
  std::vector<In> in;
  std::vector<Out> out;
  std::vector<char> present;
  std::size_t arrived = 0, stages = 0;  // stages: members through with the current stage of the work
  std::int64_t elements = 0;
  DType type = DType::f32;
  Arrival complete;
};

// Of one group of ranks.
struct ProcessGroup {
  std::mutex mutex;
  std::map<std::int64_t, std::shared_ptr<PendingCall>> calls;
};

struct StagedMessage {
  std::vector<std::byte> bytes;
  Clock::time_point posted;
};

struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::int64_t, StagedMessage> messages;
};

class Shared {
 public:
  Shared(std::chrono::milliseconds limit, const Stop& stop) : limit_(limit), stop_(stop) {}

  ProcessGroup& group(program::GroupId group, int first) {
    const std::lock_guard lock(mutex_);
    return groups_[{group, first}];
  }
  Mailbox& mailbox(int from, int to, int channel) {
    const std::lock_guard lock(mutex_);
    return mailboxes_[{from, to, channel}];
  }
  template <class Ready, class Missing>
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& condition, Ready ready, Missing missing) {
    wait_for(lock, condition, stop_, limit_, ready, missing);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<program::GroupId, int>, ProcessGroup> groups_;  // by the group and its first member
  std::map<std::tuple<int, int, int>, Mailbox> mailboxes_;
  std::chrono::milliseconds limit_;
  const Stop& stop_;
};

struct Share {
  std::int64_t first = 0, last = 0;
};
Share share_of(std::int64_t elements, std::size_t parts, std::size_t index) {
  const auto n = static_cast<std::int64_t>(parts), i = static_cast<std::int64_t>(index);
  return {elements * i / n, elements * (i + 1) / n};
}

constexpr std::int64_t kSummedAtOnce =
    1024;  // elements summed, and then copied, at a time: they stay in the first-level cache

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(int rank, std::shared_ptr<Shared> shared) : rank_(rank), shared_(std::move(shared)) {}

  // Each reads all others' buffers, and adds up its own share.
  std::string_view way(program::CollectiveKind /*kind*/, std::int64_t /*elements*/, std::int64_t /*members*/,
                       program::DType /*type*/) const override {
    return "local";
  }

  Arrival all_reduce(const CollectiveCall& m, program::ReduceOp op, In in, Out out, std::int64_t elements) override {
    return call_together(m, in, out, elements, [&](MemberCall& v) {
      const Share share = share_of(elements, m.members.size(), v.index);
      for (std::int64_t i = share.first; i < share.last; i += kSummedAtOnce) {
        const std::int64_t count = std::min(kSummedAtOnce, share.last - i);
        execute::reduce(v.call.in, op, i, count, from(out, i));
        for (const Out& target : v.call.out) copy_elements(from(out, i), from(target, i), count);
      }
    });
  }

  Arrival all_gather(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    const std::int64_t part = part_of(m, elements);
    return call_together(m, in, out, elements, [&](MemberCall& v) {
      for (std::size_t member = 0; member < m.members.size(); ++member) {
        copy_elements(v.call.in[member], from(out, static_cast<std::int64_t>(member) * part), part);
      }
    });
  }

  Arrival reduce_scatter(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    const std::int64_t part = part_of(m, elements);
    return call_together(m, in, out, elements, [&](MemberCall& v) {
      execute::reduce(v.call.in, program::ReduceOp::sum, static_cast<std::int64_t>(v.index) * part, part, out);
    });
  }

  Arrival broadcast(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    return call_together(m, in, out, elements, [&](MemberCall& v) { copy_elements(v.call.in[0], out, elements); });
  }

  // Each adds up a share, in the root's output.
  Arrival reduce(const CollectiveCall& m, program::ReduceOp op, In in, Out out, std::int64_t elements) override {
    return call_together(m, in, out, elements, [&](MemberCall& v) {
      const Share share = share_of(elements, m.members.size(), v.index);
      execute::reduce(v.call.in, op, share.first, share.last - share.first, from(v.call.out[0], share.first));
    });
  }

  // The output may be the input of others still reading: all read before any writes.
  Arrival all_to_all(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    const std::int64_t part = part_of(m, elements);
    return call_together(m, in, out, elements, [&](MemberCall& v) {
      std::vector<std::byte> memory(static_cast<std::size_t>(elements * size_of(in.type)));
      const Out received(memory.data(), in.type);
      for (std::size_t member = 0; member < m.members.size(); ++member)
        copy_elements(from(v.call.in[member], static_cast<std::int64_t>(v.index) * part),
                      from(received, static_cast<std::int64_t>(member) * part), part);
      synchronize(m, v, 1);
      copy_elements(received, out, elements);
    });
  }

  Arrival all_to_all_parts(const CollectiveCall& m, In in, Out out, const Parts& parts) override {
    return call_together(m, in, out, 0, [&](MemberCall& v) {
      std::int64_t first = 0;
      for (std::size_t member = 0; member < m.members.size(); ++member) {
        copy_elements(from(v.call.in[member], parts.begins[member]), from(out, first), parts.received[member]);
        first += parts.received[member];
      }
    });
  }

  Arrival exchange(std::span<const Message> messages) override {
    Arrival last{Clock::now()};
    for (const Message& message : messages) {
      if (!message.send) continue;
      Mailbox& box = shared_->mailbox(rank_, message.peer, message.channel);
      StagedMessage staged{{at(message.data, 0), at(message.data, message.elements)}, {}};
      {
        const std::lock_guard lock(box.mutex);
        staged.posted = Clock::now();
        box.messages.emplace(message.sequence, std::move(staged));
      }
      box.changed.notify_all();
    }
    for (const Message& message : messages)
      if (!message.send) last.when = std::max(last.when, receive(message));
    return last;
  }

 private:
  struct MemberCall {
    ProcessGroup& group;
    PendingCall& call;
    std::size_t index;  // of this rank in the group
  };

  static std::int64_t part_of(const CollectiveCall& m, std::int64_t elements) {
    const auto members = static_cast<std::int64_t>(m.members.size());
    REHEARSE_CHECK(elements % members == 0, "{} elements over {} ranks", elements, members);
    return elements / members;
  }

  template <class Work>
  Arrival call_together(const CollectiveCall& m, In in, Out out, std::int64_t elements, Work work) {
    const auto found = std::find(m.members.begin(), m.members.end(), rank_);
    REHEARSE_CHECK(found != m.members.end(), "rank {} calls a group it is not in", rank_);
    REHEARSE_CHECK(in.type == out.type, "a collective from {} to {}", name_of(in.type), name_of(out.type));
    const auto index = static_cast<std::size_t>(found - m.members.begin());
    ProcessGroup& group = shared_->group(m.group, m.members.front());
    std::shared_ptr<PendingCall> call;
    {
      std::unique_lock lock(group.mutex);
      auto& slot = group.calls[m.sequence];
      if (slot == nullptr) slot = std::make_shared<PendingCall>(m.members.size());
      call = slot;
      REHEARSE_CHECK(call->arrived == 0 || (call->elements == elements && call->type == in.type),
                     "a collective of {} {} meets one of {} {}", elements, name_of(in.type), call->elements,
                     name_of(call->type));
      call->elements = elements;
      call->type = in.type;
      call->in[index] = in;
      call->out[index] = out;
      call->present[index] = 1;
      if (++call->arrived == m.members.size()) {
        call->complete = {Clock::now(), rank_};
        group.calls.erase(m.sequence);
        lock.unlock();  // before the others wake and ask for it
        call->changed.notify_all();
      } else {
        shared_->wait(
            lock, call->changed, [&] { return call->arrived == m.members.size(); }, [&] { return absent(m, *call); });
      }
    }
    MemberCall own{group, *call, index};
    work(own);
    synchronize(m, own, 2);
    return call->complete;
  }

  // Waits until every member is through with stage `stage` (1 or 2; a call that never uses stage 1 counts both at 2).
  void synchronize(const CollectiveCall& m, MemberCall& v, std::size_t stage) {
    std::unique_lock lock(v.group.mutex);
    const std::size_t members = m.members.size();
    const std::size_t reached = stage == 2 && v.call.present[v.index] == 1 ? 2 : 1;
    v.call.present[v.index] = static_cast<char>(v.call.present[v.index] + static_cast<char>(reached));
    v.call.stages += reached;
    const std::size_t goal = stage * members;
    if (v.call.stages >= goal) {
      lock.unlock();
      v.call.changed.notify_all();
      return;
    }
    shared_->wait(
        lock, v.call.changed, [&] { return v.call.stages >= goal; }, [&] { return behind(m, v.call, stage); });
  }

  static std::vector<int> absent(const CollectiveCall& m, const PendingCall& call) { return behind(m, call, 0); }
  static std::vector<int> behind(const CollectiveCall& m, const PendingCall& call, std::size_t stage) {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < m.members.size(); ++i)
      if (static_cast<std::size_t>(call.present[i]) <= stage) ranks.push_back(m.members[i]);
    return ranks;
  }

  // Returns when it was sent.
  Clock::time_point receive(const Message& message) {
    Mailbox& box = shared_->mailbox(message.peer, rank_, message.channel);
    StagedMessage staged;
    {
      std::unique_lock lock(box.mutex);
      shared_->wait(
          lock, box.changed, [&] { return box.messages.contains(message.sequence); },
          [&] { return std::vector<int>{message.peer}; });
      staged = std::move(box.messages.extract(message.sequence).mapped());
    }
    const std::int64_t expected = message.elements * size_of(message.data.type);
    REHEARSE_CHECK(static_cast<std::int64_t>(staged.bytes.size()) == expected, "a message of {} bytes, {} expected",
                   staged.bytes.size(), expected);
    std::copy(staged.bytes.begin(), staged.bytes.end(), at(message.data, 0));
    return staged.posted;
  }

  int rank_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int ranks, std::chrono::milliseconds limit,
                                                                    const Stop& stop) {
  const auto shared = std::make_shared<Shared>(limit, stop);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(std::make_unique<LocalCommunicator>(rank, shared));
  return all;
}

}  // namespace rehearse::execute
