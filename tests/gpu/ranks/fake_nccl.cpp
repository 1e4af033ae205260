// See fake_nccl.h. One mutex for everything; a call of a collective or a group of messages is an item of its stream
// that says "not yet" until all others have come.
#include "tests/gpu/ranks/fake_nccl.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "tests/gpu/ranks/late_gpu.h"

namespace rehearse {
namespace {

using Bytes = std::vector<std::byte>;

struct Round {  // one call of a collective, from all ranks
  std::map<int, Bytes> in;
  int left = 0;
};
struct World {  // a communicator as its ranks share it
  int size = 0;
  std::vector<int> origin;   // of the first world, by rank
  std::map<int, int> asked;  // how often a rank has asked since all came
  std::set<int> came;
  std::map<std::int64_t, Round> rounds;
  std::map<std::tuple<int, int, std::int64_t>, Bytes> sent;  // from, to, which
  std::set<std::tuple<int, int, std::int64_t>> awaited;
  std::set<std::tuple<int, int, int>> connecting;  // who called, from, to; a collective: from and to are -1
};
struct Part {  // asked for
  int color = 0, key = 0;
  ncclComm_t* where = nullptr;
  bool blocking = false;
};
struct Splitting {
  std::map<int, Part> calls;                   // by rank
  std::map<int, std::shared_ptr<World>> made;  // by color
  std::set<int> taken;
};

std::mutex mutex;
std::condition_variable changed;  // a call was made, a communicator aborted
int hanging_call = 0, calls_aborted = 0;
std::map<int, int> calls_made;  // by rank of the first world
std::map<std::uint64_t, std::shared_ptr<World>> worlds;
std::map<std::pair<World*, std::int64_t>, Splitting> splittings;
std::uint64_t next_id = 1;
std::map<int, ncclResult_t> broken;
int alive = 0;

}  // namespace
}  // namespace rehearse

struct ncclComm {
  std::shared_ptr<rehearse::World> world;
  int rank = 0;
  std::int64_t calls = 0, done = 0;  // of collectives and groups: made, through
  std::int64_t collectives = 0;
  std::map<std::tuple<int, int, bool>, std::int64_t> messages;  // from, to, whether sent: how many
  std::int64_t splits = 0;
  std::optional<std::int64_t> splitting;
  bool blocking = false;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
};

namespace rehearse {
namespace {

std::size_t size_of_type(ncclDataType_t type) {
  return type == ncclFloat16 || type == ncclBfloat16 ? 2 : type == ncclUint8 ? 1 : 4;
}

template <class T>
void fold(Bytes& into, const Bytes& x, ncclRedOp_t op) {
  for (std::size_t at = 0; at < into.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, into.data() + at, sizeof a);
    std::memcpy(&b, x.data() + at, sizeof b);
    const float fa = static_cast<float>(a), fb = static_cast<float>(b);
    const T result = static_cast<T>(op == ncclMax ? std::max(fa, fb) : fa + fb);
    std::memcpy(into.data() + at, &result, sizeof result);
  }
}

Bytes reduced(const Round& round, ncclDataType_t type, ncclRedOp_t op) {
  Bytes sum = round.in.begin()->second;
  for (auto it = std::next(round.in.begin()); it != round.in.end(); ++it) {
    if (type == ncclFloat16)
      fold<__half>(sum, it->second, op);
    else if (type == ncclBfloat16)
      fold<__nv_bfloat16>(sum, it->second, op);
    else
      fold<float>(sum, it->second, op);
  }
  return sum;
}

// A call of a communicator as work on a stream: `step` under the mutex, again and again until it says it is through.
// One that waits for calls made before on other streams waits like them.
void queue(ncclComm_t comm, cudaStream_t stream, std::function<std::function<bool()>()> make) {
  auto* native = reinterpret_cast<LateGpu::Native*>(stream);
  native->gpu->queue_made(native->stream, [comm, make = std::move(make)]() -> std::function<bool()> {
    const std::lock_guard lock(mutex);
    const std::int64_t turn = comm->calls++;
    return [comm, turn, step = make(), aborted = comm->aborted] {
      const std::lock_guard inner(mutex);
      if (*aborted) return true;
      if (comm->done < turn || !step()) return false;
      ++comm->done;
      return true;
    };
  });
}

// Waits in the calling thread until those of `others` have called too.
ncclResult_t connect(ncclComm_t comm, const std::set<std::tuple<int, int, int>>& ours,
                     const std::set<std::tuple<int, int, int>>& others) {
  constexpr std::chrono::seconds kLongest{20};  // a test fails and does not hang
  std::unique_lock lock(mutex);
  const std::shared_ptr<World> world = comm->world;
  const std::shared_ptr<bool> aborted = comm->aborted;  // the communicator itself goes with an abort
  if (!comm->blocking) return ncclInvalidUsage;
  const int call = ++calls_made[world->origin[static_cast<std::size_t>(comm->rank)]];
  world->connecting.insert(ours.begin(), ours.end());
  changed.notify_all();
  const bool hangs = call == hanging_call;
  const bool met = changed.wait_for(lock, kLongest, [&] {
    return *aborted ||
           (!hangs && std::includes(world->connecting.begin(), world->connecting.end(), others.begin(), others.end()));
  });
  if (!*aborted) return met ? ncclSuccess : ncclSystemError;
  ++calls_aborted;
  return ncclInternalError;
}

// `give` bytes of every rank; `take` makes ours from all of them.
ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const void* in, std::size_t give,
                        std::function<void(const Round&)> take) {
  std::set<std::tuple<int, int, int>> all;
  for (int rank = 0; rank < comm->world->size; ++rank) all.insert({rank, -1, -1});
  if (const ncclResult_t result = connect(comm, {{comm->rank, -1, -1}}, all); result != ncclSuccess) return result;
  queue(comm, stream, [=] {
    const std::int64_t number = comm->collectives++;
    return std::function<bool()>([=, here = false]() mutable {
      Round& round = comm->world->rounds[number];
      if (!here) {
        const auto* bytes = static_cast<const std::byte*>(in);
        round.in[comm->rank] = Bytes(bytes, bytes + give);
        here = true;
      }
      if (static_cast<int>(round.in.size()) < comm->world->size) return false;
      take(round);
      if (++round.left == comm->world->size) comm->world->rounds.erase(number);
      return true;
    });
  });
  return ncclSuccess;
}

void put(void* out, const Bytes& bytes, std::size_t from, std::size_t n) {
  std::memcpy(out, bytes.data() + from, n);
}

struct Leg {
  bool send;
  void* data;
  std::size_t bytes;
  int peer;
  ncclComm_t comm;
  cudaStream_t stream;
};
thread_local int group_depth = 0;
thread_local std::vector<Leg> legs;

ncclResult_t launch(const std::vector<Leg>& together) {
  const ncclComm_t comm = together.front().comm;
  std::set<std::tuple<int, int, int>> ours, others;
  for (const Leg& leg : together) {
    const int from = leg.send ? comm->rank : leg.peer, to = leg.send ? leg.peer : comm->rank;
    ours.insert({comm->rank, from, to});
    others.insert({leg.peer, from, to});
  }
  if (const ncclResult_t result = connect(comm, ours, others); result != ncclSuccess) return result;
  queue(comm, together.front().stream, [comm, together] {
    std::vector<std::tuple<int, int, std::int64_t>> keys;
    for (const Leg& leg : together) {
      const int from = leg.send ? comm->rank : leg.peer, to = leg.send ? leg.peer : comm->rank;
      keys.emplace_back(from, to, comm->messages[{from, to, leg.send}]++);
    }
    return std::function<bool()>(
        [=, begun = std::vector<bool>(together.size()), through = std::vector<bool>(together.size())]() mutable {
          World& w = *comm->world;
          for (std::size_t i = 0; i < together.size(); ++i) {
            const Leg& leg = together[i];
            if (!begun[i] && leg.send) {
              const auto* bytes = static_cast<const std::byte*>(leg.data);
              w.sent[keys[i]] = Bytes(bytes, bytes + leg.bytes);
            }
            if (!begun[i] && !leg.send) w.awaited.insert(keys[i]);
            begun[i] = true;
            if (through[i]) continue;
            if (leg.send) {
              through[i] = w.awaited.contains(keys[i]);
            } else if (const auto found = w.sent.find(keys[i]); found != w.sent.end()) {
              put(leg.data, found->second, 0, leg.bytes);
              through[i] = true;
            }
          }
          return std::find(through.begin(), through.end(), false) == through.end();
        });
  });
  return ncclSuccess;
}

ncclResult_t group_start() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t group_end() {
  if (--group_depth > 0) return ncclSuccess;
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<Leg>> together;
  for (const Leg& leg : legs) together[{leg.comm, leg.stream}].push_back(leg);
  legs.clear();
  for (const auto& [key, all] : together)
    if (const ncclResult_t result = launch(all); result != ncclSuccess) return result;
  return ncclSuccess;
}
ncclResult_t message(Leg leg) {
  group_start();
  legs.push_back(leg);
  return group_end();
}

std::shared_ptr<World> new_world(int size) {
  auto w = std::make_shared<World>();
  w->size = size;
  return w;
}
ncclComm_t new_comm(std::shared_ptr<World> world, int rank, bool blocking) {
  ++alive;
  auto* comm = new ncclComm();  // NOLINT(cppcoreguidelines-owning-memory): as NCCL does; destroy() deletes
  comm->world = std::move(world);
  comm->rank = rank;
  comm->blocking = blocking;
  comm->world->came.insert(rank);
  return comm;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &next_id, sizeof next_id);
  ++next_id;
  return ncclSuccess;
}

ncclResult_t init(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const std::lock_guard lock(mutex);
  if (config == nullptr || config->blocking != 0) return ncclInvalidArgument;
  std::uint64_t number = 0;
  std::memcpy(&number, &id, sizeof number);
  auto& world = worlds[number];
  if (!world) {
    world = new_world(ranks);
    for (int r = 0; r < ranks; ++r) world->origin.push_back(r);
  }
  *comm = new_comm(world, rank, false);
  return ncclInProgress;
}

// Makes the parts once every rank has called; gives ours.
bool split_done(ncclComm_t comm) {
  World* world = comm->world.get();
  Splitting& s = splittings[{world, *comm->splitting}];
  if (static_cast<int>(s.calls.size()) < world->size) return false;
  const auto& [color, key, where, blocking] = s.calls.at(comm->rank);
  if (color != NCCL_SPLIT_NOCOLOR) {
    std::vector<std::pair<int, int>> members;  // key, rank
    for (const auto& [rank, call] : s.calls)
      if (call.color == color) members.emplace_back(call.key, rank);
    std::sort(members.begin(), members.end());
    auto& made = s.made[color];
    if (!made) {
      made = new_world(static_cast<int>(members.size()));
      for (const auto& [k, rank] : members) made->origin.push_back(world->origin[static_cast<std::size_t>(rank)]);
    }
    const auto own = std::find(members.begin(), members.end(), std::pair(key, comm->rank));
    *where = new_comm(made, static_cast<int>(own - members.begin()), blocking);
  } else {
    *where = nullptr;
  }
  comm->splitting.reset();
  return true;
}

ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  const std::lock_guard lock(mutex);
  const bool blocking = config == nullptr ? comm->blocking : config->blocking != 0;
  comm->splitting = comm->splits++;
  splittings[{comm->world.get(), *comm->splitting}].calls[comm->rank] = {color, key, made, blocking};
  return ncclInProgress;
}

ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* state) {
  constexpr int kQuestions = 3;  // until it is ready
  const std::lock_guard lock(mutex);
  const auto bad = broken.find(comm->world->origin[static_cast<std::size_t>(comm->rank)]);
  *state = ncclInProgress;
  if (bad != broken.end())
    *state = bad->second;
  else if (static_cast<int>(comm->world->came.size()) == comm->world->size &&
           ++comm->world->asked[comm->rank] >= kQuestions && (!comm->splitting || split_done(comm)))
    *state = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t destroy(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  --alive;
  *comm->aborted = true;
  changed.notify_all();
  delete comm;
  return ncclSuccess;
}

}  // namespace

execute::nccl::Api fake_nccl() {
  execute::nccl::Api api;
  api.file = "fake";
  api.version = 22809;
  api.get_version = [](int* version) {
    *version = 22809;
    return ncclSuccess;
  };
  api.get_error_string = [](ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited or there was a network error" : "some error";
  };
  api.get_unique_id = get_unique_id;
  api.comm_init_rank_config = init;
  api.comm_split = split;
  api.comm_get_async_error = get_async_error;
  api.comm_destroy = destroy;
  api.comm_abort = destroy;
  api.comm_finalize = [](ncclComm_t) { return ncclSuccess; };
  api.group_start = group_start;
  api.group_end = group_end;
  api.send = [](const void* data, std::size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return message({true, const_cast<void*>(data), n * size_of_type(type), peer, comm, stream});
  };
  api.recv = [](void* data, std::size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return message({false, data, n * size_of_type(type), peer, comm, stream});
  };
  api.all_reduce = [](const void* in, void* out, std::size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                      cudaStream_t stream) {
    const std::size_t bytes = n * size_of_type(type);
    return collective(comm, stream, in, bytes,
                      [=](const Round& round) { put(out, reduced(round, type, op), 0, bytes); });
  };
  api.reduce_scatter = [](const void* in, void* out, std::size_t n, ncclDataType_t type, ncclRedOp_t op,
                          ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = n * size_of_type(type);
    return collective(comm, stream, in, bytes * static_cast<std::size_t>(comm->world->size), [=](const Round& round) {
      put(out, reduced(round, type, op), bytes * static_cast<std::size_t>(comm->rank), bytes);
    });
  };
  api.all_gather = [](const void* in, void* out, std::size_t n, ncclDataType_t type, ncclComm_t comm,
                      cudaStream_t stream) {
    const std::size_t bytes = n * size_of_type(type);
    return collective(comm, stream, in, bytes, [=](const Round& round) {
      for (const auto& [rank, part] : round.in)
        put(static_cast<std::byte*>(out) + static_cast<std::size_t>(rank) * bytes, part, 0, bytes);
    });
  };
  api.broadcast = [](const void* in, void* out, std::size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                     cudaStream_t stream) {
    const std::size_t bytes = n * size_of_type(type);
    return collective(comm, stream, in, bytes, [=](const Round& round) { put(out, round.in.at(root), 0, bytes); });
  };
  api.reduce = [](const void* in, void* out, std::size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                  ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = n * size_of_type(type);
    return collective(comm, stream, in, bytes, [=](const Round& round) {
      if (comm->rank == root) put(out, reduced(round, type, op), 0, bytes);
    });
  };
  return api;
}

void break_fake_nccl(int rank, ncclResult_t error) {
  const std::lock_guard lock(mutex);
  broken.clear();
  if (error != ncclSuccess) broken[rank] = error;
}

void hang_fake_nccl(int call) {
  const std::lock_guard lock(mutex);
  hanging_call = call;
  calls_made.clear();
  calls_aborted = 0;
}

int fake_nccl_calls(int rank) {
  const std::lock_guard lock(mutex);
  return calls_made[rank];
}

int fake_nccl_calls_aborted() {
  const std::lock_guard lock(mutex);
  return calls_aborted;
}

int fake_nccl_alive() {
  const std::lock_guard lock(mutex);
  return alive;
}

}  // namespace rehearse
