#include "calibrate/transfers.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "execute/performer.h"
#include "sim/base/check.h"
#include "sim/program/work.h"

namespace rehearse::calibrate {
namespace {

using execute::Communicator;
using program::CollectiveKind;

constexpr std::int64_t kKiB = 1 << 10;
constexpr std::int64_t kTurn = 16 << 20;                       // bytes a rank's buffers go round in
constexpr std::int64_t kWarmUp = 4, kFewest = 5, kMost = 400;  // calls

// How many buffers of one transfer a rank goes round in, each from a new cache line.
std::int64_t stride_of(const TransferKey& key) {
  return (key.bytes + 255) / 256 * 256;
}
std::int64_t places_of(const TransferKey& key) {
  return std::clamp<std::int64_t>(kTurn / stride_of(key), 2, kMost);
}

struct Call {
  Communicator& communicator;
  int rank;
  const std::vector<int>& members;
  std::int64_t sequence;
  float* data;
  std::int64_t elements;
};

// When the last participant had come, and when we were done.
struct Times {
  Clock::time_point from, to;
};

Times collective(CollectiveKind kind, const Call& c) {
  const execute::CollectiveCall call{0, c.members, c.sequence};
  float* part = c.data + c.rank * (c.elements / static_cast<std::int64_t>(c.members.size()));
  const auto met = [&] {
    switch (kind) {
      case CollectiveKind::all_reduce:
        return c.communicator.all_reduce(call, program::ReduceOp::sum, c.data, c.data, c.elements);
      case CollectiveKind::all_gather:
        return c.communicator.all_gather(call, part, c.data, c.elements);
      case CollectiveKind::reduce_scatter:
        return c.communicator.reduce_scatter(call, c.data, part, c.elements);
      case CollectiveKind::broadcast:
        return c.communicator.broadcast(call, c.data, c.data, c.elements);
      case CollectiveKind::reduce:
        return c.communicator.reduce(call, program::ReduceOp::sum, c.data, c.data, c.elements);
      case CollectiveKind::all_to_all:
        return c.communicator.all_to_all(call, c.data, c.data, c.elements);
    }
    return execute::Arrival{Clock::now()};
  }();
  return {met.when, Clock::now()};
}

// Calls of an even number go from rank 0 to rank 1, odd ones back; a run of calls begins with an even one. The sender
// gives the beginning, the receiver the end.
Times message(const Call& c) {
  const bool sends = (c.sequence % 2 == 0) == (c.rank == 0);
  const std::vector<execute::Message> one = {{sends, 1 - c.rank, 0, c.sequence / 2, c.data, c.elements}};
  const auto from = Clock::now();
  c.communicator.exchange(one);
  return {from, Clock::now()};
}

// A rank's memory and its calls.
class Member {
 public:
  // `memory`: stride_of(key) * places_of(key) bytes.
  Member(const TransferKey& key, int rank, Communicator& communicator, const std::vector<int>& members, float* memory)
      : key_(key), rank_(rank), communicator_(communicator), members_(members), memory_(memory) {}

  // `calls` of them, from number `sequence` on, appended to times(); ends early if `stopped`.
  void run(std::int64_t calls, std::int64_t sequence, const std::atomic<bool>& stopped) {
    const std::int64_t stride = stride_of(key_) / 4, places = places_of(key_);
    try {
      for (std::int64_t i = 0; i < calls && !stopped; ++i, ++sequence) {
        const Call call{communicator_, rank_, members_, sequence, memory_ + sequence % places * stride, key_.bytes / 4};
        times_.push_back(key_.send ? message(call) : collective(key_.kind, call));
      }
    } catch (const execute::WaitEnded&) {  // stopped while it waited
    }
  }
  const std::vector<Times>& times() const { return times_; }

 private:
  TransferKey key_;
  int rank_;
  Communicator& communicator_;
  const std::vector<int>& members_;
  float* memory_;
  std::vector<Times> times_;
};

// Every member does `calls` more, each in a thread; the caller watches the budget. False if that ended them.
bool run_all(std::vector<Member>& members, std::int64_t calls, RankGroup& group, const Budget& budget) {
  std::atomic<std::size_t> running = members.size();
  std::atomic<bool> stopped = false;
  const std::int64_t sequence = std::exchange(group.sequence, group.sequence + calls + calls % 2);
  std::vector<std::thread> threads;
  for (Member& m : members)
    threads.emplace_back([&] {
      m.run(calls, sequence, stopped);
      --running;
    });
  const auto end = [&] {
    stopped = true;
    group.stop();
  };
  try {
    for (int looks = 0; running > 0; ++looks) {
      std::this_thread::sleep_for(std::chrono::microseconds(looks < 20 ? 200 : 5000));
      if (budget.spent() && !stopped) end();
      budget.poll();
    }
  } catch (...) {
    end();
    for (auto& thread : threads) thread.join();
    throw;
  }
  for (auto& thread : threads) thread.join();
  return !stopped;
}

// Seconds of the calls from `first` on that everyone finished.
std::vector<double> samples_of(const std::vector<Member>& members, const TransferKey& key, std::size_t first) {
  std::size_t calls = members.front().times().size();
  for (const Member& m : members) calls = std::min(calls, m.times().size());
  std::vector<double> samples;
  for (std::size_t i = first; i < calls; ++i) {
    double sum = 0;
    if (key.send) {
      const std::size_t sender = i % 2;
      const Times &sent = members[sender].times()[i], &received = members[1 - sender].times()[i];
      sum = seconds_between(std::max(sent.from, received.from), received.to);
    } else {
      for (const Member& m : members) sum += seconds_between(m.times()[i].from, m.times()[i].to);
      sum /= static_cast<double>(members.size());
    }
    samples.push_back(std::max(1e-9, sum));
  }
  return samples;
}

std::int64_t divisible(std::int64_t bytes, int ranks) {
  const std::int64_t unit = std::int64_t{4} * ranks;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

float* RankMemory::of(int rank, std::int64_t bytes) {
  const auto index = static_cast<std::size_t>(rank), floats = static_cast<std::size_t>(bytes / 4);
  if (memory_.size() <= index) memory_.resize(index + 1);
  if (memory_[index].size() < floats) memory_[index] = std::vector<float>(floats);
  return memory_[index].data();
}

std::vector<double> measure_transfer(const TransferKey& key, RankGroup& group, double seconds, const Budget& budget,
                                     RankMemory& memory) {
  REHEARSE_CHECK(key.ranks >= 2 && key.bytes >= 4, "a transfer of {} bytes between {} ranks", key.bytes, key.ranks);
  std::vector<int> ranks(static_cast<std::size_t>(key.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<Member> members;
  for (const int rank : ranks)
    members.emplace_back(key, rank, *group.communicators[static_cast<std::size_t>(rank)], ranks,
                         memory.of(rank, stride_of(key) * places_of(key)));
  const auto began = Clock::now();
  if (!run_all(members, kWarmUp, group, budget)) return {};
  const std::vector<double> first = samples_of(members, key, 0);
  const double once = std::max(2e-6, first.back()), left = seconds - seconds_between(began, Clock::now());
  run_all(members, std::clamp(static_cast<std::int64_t>(left / once), kFewest, kMost), group, budget);
  return samples_of(members, key, kWarmUp);
}

std::vector<TransferKey> transfers_of(const std::vector<Target>& targets) {
  std::set<TransferKey> keys;
  for (const Target& target : targets) {
    for (int rank = 0; rank < target.grid.ranks(); ++rank) {
      const program::RoleId role = program::role_of(target.program, target.grid.coordinates(rank));
      if (rank > 0 &&
          rank !=
              target.grid.members(rank, {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::replica}).front())
        continue;  // ranks of a role do the same
      for (const program::Body& body : target.program.roles[static_cast<std::size_t>(role)].bodies) {
        for (const program::Op& op : body.ops) {
          if (const auto* c = std::get_if<program::Collective>(&op.shape)) {
            const program::Group& g = target.program.groups[static_cast<std::size_t>(c->group)];
            const auto members =
                static_cast<int>(target.grid.members(rank, g.axes, g.pipeline_only, g.tensor_block).size());
            keys.insert({false, c->kind, members, program::collective_bytes(op)});
          } else if (const auto* p = std::get_if<program::PointToPoint>(&op.shape)) {
            for (const program::Leg& leg : p->legs)
              keys.insert({true, CollectiveKind::all_reduce, 2, program::leg_bytes(op, leg)});
          }
        }
      }
    }
  }
  std::vector<TransferKey> list;
  for (const TransferKey& key : keys)
    if (key.ranks >= 2 && key.ranks <= execute::kMaxRanks) list.push_back(key);
  return list;
}

std::vector<TransferKey> least_transfers() {
  std::vector<TransferKey> keys;
  for (const std::int64_t bytes : {kKiB, 1024 * kKiB})
    for (const bool send : {false, true}) keys.push_back({send, CollectiveKind::all_reduce, 2, bytes});
  return keys;
}

std::vector<TransferKey> transfer_grid(int most_ranks) {
  std::vector<TransferKey> keys;
  const auto add = [&](int ranks, std::initializer_list<std::int64_t> sizes, bool others) {
    for (const std::int64_t kib : sizes) {
      const std::int64_t bytes = divisible(kib * kKiB, ranks);
      if (!others) {
        keys.push_back({false, CollectiveKind::all_reduce, ranks, bytes});
        continue;
      }
      for (const auto kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::broadcast,
                              CollectiveKind::all_to_all})
        keys.push_back({false, kind, ranks, bytes});
      if (ranks == 2) keys.push_back({true, CollectiveKind::all_reduce, 2, kib * kKiB});
    }
  };
  std::vector<int> sizes;
  for (const int ranks : {2, 4, 3, 8})
    if (ranks <= most_ranks) sizes.push_back(ranks);
  for (const int ranks : sizes) add(ranks, {1, 64, 1024, 65536}, false);
  for (const int ranks : sizes) add(ranks, {1, 64, 1024, 16384}, true);
  for (const int ranks : sizes) add(ranks, {4, 16, 256, 4096, 16384}, false);
  for (const int ranks : sizes) add(ranks, {4, 16, 256, 4096, 65536}, true);
  return keys;
}

std::vector<cost::CalibratedTransfer> measure_transfers(const std::vector<TransferKey>& keys, cost::Transport transport,
                                                        const MakeRankGroup& make, double seconds, const Budget& budget,
                                                        JitterSamples& jitter) {
  constexpr double kFast = 4e9;  // bytes/s of all ranks together: what would not even so fit into the time is skipped
  const Budget own = budget.part(seconds);
  RankMemory memory;
  std::map<int, RankGroup> groups;  // by ranks
  std::set<TransferKey> done;
  std::vector<cost::CalibratedTransfer> list;
  for (std::size_t i = 0; i < keys.size() && !own.spent(); ++i) {
    const TransferKey& key = keys[i];
    if (!done.insert(key).second) continue;
    if (static_cast<double>(key.bytes) * key.ranks / kFast * (kWarmUp + kFewest) > own.left()) continue;
    auto group = groups.find(key.ranks);
    if (group == groups.end()) group = groups.emplace(key.ranks, make(key.ranks)).first;
    // What the small ones leave is for the large ones.
    const double share = std::clamp(own.left() / static_cast<double>(keys.size() - i), 2e-3, 0.25);
    const std::vector<double> samples = measure_transfer(key, group->second, share, own, memory);
    if (samples.size() < 2) continue;
    const Summary s = summarize(samples);
    jitter.add_transfers(samples);
    list.push_back({transport,
                    key.send,
                    key.kind,
                    key.ranks,
                    key.bytes,
                    {s.p10_s, s.p50_s, s.p90_s},
                    static_cast<int>(s.repetitions)});
  }
  return list;
}

}  // namespace rehearse::calibrate
