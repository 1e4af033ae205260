// See nccl_transfers.h. A mutex keeps abort(), which frees communicators, from those in use; should the issuing thread
// be stuck inside a call of NCCL, abort() goes on without it, for nothing else can end that call: NCCL gives the call
// up when it sees the communicator's abort flag (src/group.cc of 2.28), as it does for the watchdog of PyTorch.
#include "execute/transport/nccl/nccl_transfers.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/base/check.h"

namespace rehearse::execute::nccl {
namespace {

using program::CollectiveKind;

constexpr std::chrono::milliseconds kPatience{1000};  // of abort(), with a thread inside NCCL
constexpr std::chrono::milliseconds kForAbort{5000};  // that NCCL may take to abort
constexpr std::chrono::microseconds kPoll{50};
constexpr int kGroupsAbort = 22200;  // since then several communicators are aborted together (pytorch/pytorch#132291)

ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
    case DType::e4m3:  // copies of operands are gathered, never summed
    case DType::e5m2:
    case DType::e2m1:
      return ncclUint8;
  }
  return ncclFloat32;
}

struct Member {
  ncclComm_t comm = nullptr;
  int index = 0, size = 1;
};

// What outlives an abort() that NCCL does not return from.
struct Shared {
  std::timed_mutex mutex;  // of the communicators
  std::atomic<bool> aborted = false;
};

class NcclTransfers final : public QueuedTransfers {
 public:
  NcclTransfers(const Api& api, const Splits& splits, const NcclOptions& options, const Stop& stop)
      : api_(api), splits_(splits), options_(options), stop_(stop) {
    try {
      connect();
    } catch (...) {
      abort();
      throw;
    }
  }

  // In a thread of its own: to part from others can block as long as they do not come, and has our deadline.
  ~NcclTransfers() override {
    if (shared_->aborted) return;
    const auto done = std::make_shared<std::atomic<bool>>(false);
    std::thread([api = api_, comms = communicators(), timeout = options_.timeout, done] {
      bool well = true;
      for (const ncclComm_t comm : comms) {
        well = well && finalized(api, comm, timeout);
        (well ? api.comm_destroy : api.comm_abort)(comm);  // not well: there is nobody left to part from
      }
      *done = true;
    }).detach();
    const auto until = Clock::now() + options_.timeout;
    while (!*done && (options_.timeout.count() == 0 || Clock::now() < until)) std::this_thread::sleep_for(kPoll);
  }

  void collective(const program::Collective& c, DType type, const void* in, void* out, void* stream) override try {
    const std::optional<std::size_t> split = splits_.of_group(c.group);
    REHEARSE_CHECK(split.has_value(), "no communicator of group {}", c.group);
    const Member& m = members_[*split];
    const std::scoped_lock lock(shared_->mutex);
    look();
    call(c, m, type_of(type), in, out, static_cast<cudaStream_t>(stream));
    look();  // abort() may have ended the call
    settle_locked(m.comm);
  } catch (const NcclError& error) {
    throw BrokenTransfer(error.what());
  }

  void all_to_all_parts(program::GroupId group, DType type, const void* in, void* out, const Parts& parts,
                        void* stream) override try {
    const std::optional<std::size_t> split = splits_.of_group(group);
    REHEARSE_CHECK(split.has_value(), "no communicator of group {}", group);
    const Member& m = members_[*split];
    const std::scoped_lock lock(shared_->mutex);
    look();
    trade_parts(m, type_of(type), static_cast<const std::byte*>(in), static_cast<std::byte*>(out), parts,
                static_cast<cudaStream_t>(stream));
    look();  // abort() may have ended the call
    settle_locked(m.comm);
  } catch (const NcclError& error) {
    throw BrokenTransfer(error.what());
  }

  void exchange(std::span<const QueuedMessage> messages, DType type, void* stream) override try {
    const std::scoped_lock lock(shared_->mutex);
    look();
    const auto queue = static_cast<cudaStream_t>(stream);
    std::vector<ncclComm_t> used;
    REHEARSE_NCCL(api_, group_start());
    for (const QueuedMessage& message : messages) {
      const int from = message.send ? options_.rank : message.peer, to = message.send ? message.peer : options_.rank;
      const std::optional<std::size_t> split = splits_.of_message(from, to, message.channel);
      REHEARSE_CHECK(split.has_value(), "no communicator from rank {} to rank {}", from, to);
      const Member& m = members_[*split];
      const int peer = place_in(splits_.all()[*split], message.peer)->index;
      const auto n = static_cast<std::size_t>(message.elements);
      if (message.send)
        REHEARSE_NCCL(api_, send(message.data, n, type_of(type), peer, m.comm, queue));
      else
        REHEARSE_NCCL(api_, recv(message.data, n, type_of(type), peer, m.comm, queue));
      used.push_back(m.comm);
    }
    REHEARSE_NCCL(api_, group_end());
    look();  // abort() may have ended the call
    for (const ncclComm_t comm : used) settle_locked(comm);
  } catch (const NcclError& error) {
    throw BrokenTransfer(error.what());
  }

  std::string problem() override {
    std::unique_lock lock(shared_->mutex, std::try_to_lock);
    if (!lock || shared_->aborted) return "";
    for (const Member& m : members_) {
      ncclResult_t state = ncclSuccess;
      if (m.comm == nullptr || api_.comm_get_async_error(m.comm, &state) != ncclSuccess) continue;
      if (state != ncclSuccess && state != ncclInProgress) return text_of(state, m.comm);
    }
    return "";
  }

  void abort() override {
    if (shared_->aborted.exchange(true)) return;
    const auto done = std::make_shared<std::atomic<bool>>(false);
    std::thread([shared = shared_, comms = communicators(), done, api = api_] {
      const std::unique_lock lock(shared->mutex, kPatience);
      // One after the other, an abort can wait for the kernel of a communicator whose turn has not come
      // (NVIDIA/nccl#1013).
      const bool together = api.version >= kGroupsAbort;
      if (together) api.group_start();
      for (const ncclComm_t comm : comms) api.comm_abort(comm);
      if (together) api.group_end();
      *done = true;
    }).detach();
    for (const auto until = Clock::now() + kForAbort; !*done && Clock::now() < until;)
      std::this_thread::sleep_for(kPoll);
  }

 private:
  void connect() {
    if (api_.version < kOldestNccl || api_.comm_split == nullptr || api_.comm_init_rank_config == nullptr)
      throw NcclError(ncclInvalidUsage, fmt::format("NCCL {} ({}) is too old; at least {}", version_text(api_.version),
                                                    api_.file, version_text(kOldestNccl)));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER, part = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // of the world: what is made by all ranks together is waited for here, with a deadline
    part.blocking = 1;
    const std::scoped_lock lock(shared_->mutex);
    REHEARSE_NCCL(api_, comm_init_rank_config(&world_, options_.ranks, options_.id, options_.rank, &config));
    settle_locked(world_);
    members_.resize(splits_.all().size());
    for (std::size_t s = 0; s < members_.size(); ++s) {
      const Split& split = splits_.all()[s];
      Member& m = members_[s];
      const std::optional<Place> place = place_in(split, options_.rank);
      int color = NCCL_SPLIT_NOCOLOR;
      if (place) {
        m.index = place->index;
        m.size = static_cast<int>(place->part->size());
        color = static_cast<int>(place->part - split.data());
      }
      REHEARSE_NCCL(api_, comm_split(world_, color, m.index, &m.comm, &part));
      settle_locked(world_);
      if (m.comm != nullptr) settle_locked(m.comm);
    }
  }

  void call(const program::Collective& c, const Member& m, ncclDataType_t type, const void* in, void* out,
            cudaStream_t stream) {
    const auto n = static_cast<std::size_t>(c.elements), share = n / static_cast<std::size_t>(m.size);
    switch (c.kind) {
      case CollectiveKind::all_reduce: {
        const ncclRedOp_t op = c.reduce == program::ReduceOp::sum ? ncclSum : ncclMax;
        REHEARSE_NCCL(api_, all_reduce(in, out, n, type, op, m.comm, stream));
        return;
      }
      case CollectiveKind::all_gather:
        REHEARSE_NCCL(api_, all_gather(in, out, share, type, m.comm, stream));
        return;
      case CollectiveKind::reduce_scatter: {
        const ncclRedOp_t op = c.reduce == program::ReduceOp::sum ? ncclSum : ncclMax;
        REHEARSE_NCCL(api_, reduce_scatter(in, out, share, type, op, m.comm, stream));
        return;
      }
      case CollectiveKind::broadcast:
        REHEARSE_NCCL(api_, broadcast(in, out, n, type, 0, m.comm, stream));
        return;
      case CollectiveKind::reduce: {
        const ncclRedOp_t op = c.reduce == program::ReduceOp::sum ? ncclSum : ncclMax;
        REHEARSE_NCCL(api_, reduce(in, out, n, type, op, 0, m.comm, stream));
        return;
      }
      case CollectiveKind::all_to_all:
        all_to_all(m, type, in, out, share, stream);
        return;
    }
  }

  // As sends and receives that start together; ncclAlltoAll is younger than kOldestNccl.
  void all_to_all(const Member& m, ncclDataType_t type, const void* in, void* out, std::size_t share,
                  cudaStream_t stream) {
    REHEARSE_CHECK(in != out, "an all-to-all in place");
    const std::size_t bytes = share * bytes_of(type);
    REHEARSE_NCCL(api_, group_start());
    for (int peer = 0; peer < m.size; ++peer) {
      const std::size_t at = static_cast<std::size_t>(peer) * bytes;
      REHEARSE_NCCL(api_, send(static_cast<const std::byte*>(in) + at, share, type, peer, m.comm, stream));
      REHEARSE_NCCL(api_, recv(static_cast<std::byte*>(out) + at, share, type, peer, m.comm, stream));
    }
    REHEARSE_NCCL(api_, group_end());
  }
  // Two ranks know alike whether there is anything for one from the other.
  void trade_parts(const Member& m, ncclDataType_t type, const std::byte* in, std::byte* out, const Parts& parts,
                   cudaStream_t stream) {
    const auto size = static_cast<std::size_t>(m.size);
    REHEARSE_CHECK(parts.sent.size() == size && parts.received.size() == size, "{} parts for {} ranks",
                   parts.sent.size(), size);
    REHEARSE_NCCL(api_, group_start());
    for (std::size_t peer = 0; peer < size; ++peer) {
      const auto give = static_cast<std::size_t>(parts.sent[peer]),
                 get = static_cast<std::size_t>(parts.received[peer]);
      if (give > 0) REHEARSE_NCCL(api_, send(in, give, type, static_cast<int>(peer), m.comm, stream));
      if (get > 0) REHEARSE_NCCL(api_, recv(out, get, type, static_cast<int>(peer), m.comm, stream));
      in += give * bytes_of(type);
      out += get * bytes_of(type);
    }
    REHEARSE_NCCL(api_, group_end());
  }
  static std::size_t bytes_of(ncclDataType_t type) {
    return type == ncclUint8 ? 1 : type == ncclFloat16 || type == ncclBfloat16 ? 2 : 4;
  }

  void look() const {
    if (shared_->aborted || stop_.requested()) throw Stopped(std::vector<int>());
  }

  std::vector<int> others() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < options_.ranks; ++rank)
      if (rank != options_.rank) ranks.push_back(rank);
    return ranks;
  }

  // Until NCCL has taken what was last called on `comm`. The mutex, which is held, is let go in between.
  void settle_locked(ncclComm_t comm) {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    for (;;) {
      ncclResult_t state = ncclSuccess;
      REHEARSE_NCCL(api_, comm_get_async_error(comm, &state));
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) throw NcclError(state, text_of(state, comm));
      shared_->mutex.unlock();
      std::this_thread::sleep_for(kPoll);
      shared_->mutex.lock();
      look();
      if (options_.timeout.count() > 0 && Clock::now() >= deadline) throw DeadlineError(others());
    }
  }

  std::string text_of(ncclResult_t state, ncclComm_t comm) const {
    const char* last = api_.get_last_error != nullptr ? api_.get_last_error(comm) : nullptr;
    return fmt::format("NCCL: {}{}{}", api_.get_error_string(state), last != nullptr && *last != '\0' ? ": " : "",
                       last != nullptr ? last : "");
  }

  // The world's parts first.
  std::vector<ncclComm_t> communicators() const {
    std::vector<ncclComm_t> comms;
    for (const Member& m : members_)
      if (m.comm != nullptr) comms.push_back(m.comm);
    if (world_ != nullptr) comms.push_back(world_);
    return comms;
  }

  static bool finalized(const Api& api, ncclComm_t comm, std::chrono::milliseconds timeout) {
    if (api.comm_finalize == nullptr) return true;
    ncclResult_t state = api.comm_finalize(comm);
    for (const auto until = Clock::now() + timeout; state == ncclInProgress;) {
      if (timeout.count() > 0 && Clock::now() >= until) return false;
      std::this_thread::sleep_for(kPoll);
      if (api.comm_get_async_error(comm, &state) != ncclSuccess) return false;
    }
    return state == ncclSuccess;
  }

  const Api& api_;
  const Splits& splits_;
  const NcclOptions options_;
  const Stop& stop_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  ncclComm_t world_ = nullptr;
  std::vector<Member> members_;  // by split; no communicator where we are in no part
};

}  // namespace

std::unique_ptr<QueuedTransfers> make_nccl_transfers(const Api& api, const Splits& splits, const NcclOptions& options,
                                                     const Stop& stop) {
  return std::make_unique<NcclTransfers>(api, splits, options, stop);
}

}  // namespace rehearse::execute::nccl
