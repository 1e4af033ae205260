#include "calibrate/cuda/nccl_times.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "calibrate/statistics.h"
#include "execute/transport/nccl/nccl_api.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/runtime.h"

namespace rehearse::calibrate::gpu {
namespace {

using execute::nccl::Api;
using kernels::cuda::DeviceMemory;
using kernels::cuda::Event;
using kernels::cuda::Stream;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

// For the life of one: an environment variable, "" for none.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    const char* old = std::getenv(name);
    if (old != nullptr) before_ = old;
    if (!value.empty()) ::setenv(name, value.c_str(), 1);
  }
  ~Setting() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

struct Rank {
  int device = 0;
  ncclComm_t comm = nullptr;
  std::optional<Stream> stream;
  DeviceMemory from, to;
  std::optional<Event> begin, end;
};

// One communicator a GPU, made together.
class Ranks {
 public:
  Ranks(const Api& api, int count) : api_(api), ranks_(static_cast<std::size_t>(count)) {
    ncclUniqueId id;
    REHEARSE_NCCL(api_, get_unique_id(&id));
    for (int i = 0; i < count; ++i) {
      Rank& r = ranks_[static_cast<std::size_t>(i)];
      r.device = i;
      kernels::cuda::use_device(i);
      r.stream.emplace();
      r.from = DeviceMemory(kMostBytes), r.to = DeviceMemory(kMostBytes);
      kernels::cuda::set_bytes(r.from.data(), 0, kMostBytes, *r.stream);
      r.begin.emplace(Event::Use::timing), r.end.emplace(Event::Use::timing);
    }
    REHEARSE_NCCL(api_, group_start());
    for (Rank& r : ranks_) {
      kernels::cuda::use_device(r.device);
      REHEARSE_NCCL(api_, comm_init_rank(&r.comm, count, id, r.device));
    }
    REHEARSE_NCCL(api_, group_end());
  }
  ~Ranks() {
    for (const Rank& r : ranks_)
      if (r.comm != nullptr) api_.comm_destroy(r.comm);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Seconds of one of `times` in a row, of the slowest rank.
  double time(const std::string& kind, std::int64_t bytes, int times) {
    for (Rank& r : ranks_) on(r).record(*r.begin);
    for (int i = 0; i < times; ++i) {
      REHEARSE_NCCL(api_, group_start());
      for (Rank& r : ranks_) queue(kind, r, static_cast<std::size_t>(bytes / 2));
      REHEARSE_NCCL(api_, group_end());
    }
    for (Rank& r : ranks_) on(r).record(*r.end);
    double slowest = 0;
    for (Rank& r : ranks_) {
      on(r).synchronize();
      slowest = std::max(slowest, Event::elapsed_ms(*r.begin, *r.end) * 1e-3);
    }
    return slowest / times;
  }

 private:
  static Stream& on(Rank& r) {
    kernels::cuda::use_device(r.device);
    return *r.stream;
  }

  // `count` 16-bit elements in all.
  void queue(const std::string& kind, Rank& r, std::size_t count) {
    const std::size_t n = ranks_.size(), share = count / n;
    const cudaStream_t stream = on(r).get();
    const void* const from = r.from.data();
    void* const to = r.to.data();
    if (kind == "all_reduce") REHEARSE_NCCL(api_, all_reduce(from, to, count, ncclBfloat16, ncclSum, r.comm, stream));
    if (kind == "all_gather") REHEARSE_NCCL(api_, all_gather(from, to, share, ncclBfloat16, r.comm, stream));
    if (kind == "reduce_scatter")
      REHEARSE_NCCL(api_, reduce_scatter(from, to, share, ncclBfloat16, ncclSum, r.comm, stream));
    if (kind == "all_to_all") {
      for (std::size_t peer = 0; peer < n; ++peer) {
        const std::size_t offset = peer * share * 2;
        const int rank = static_cast<int>(peer);
        REHEARSE_NCCL(api_, send(r.from.as<char>() + offset, share, ncclBfloat16, rank, r.comm, stream));
        REHEARSE_NCCL(api_, recv(r.to.as<char>() + offset, share, ncclBfloat16, rank, r.comm, stream));
      }
    }
    if (kind == "send") {  // round the ring, as nccl-tests' sendrecv
      const int next = (r.device + 1) % static_cast<int>(n),
                last = (r.device + static_cast<int>(n) - 1) % static_cast<int>(n);
      REHEARSE_NCCL(api_, send(from, count, ncclBfloat16, next, r.comm, stream));
      REHEARSE_NCCL(api_, recv(to, count, ncclBfloat16, last, r.comm, stream));
    }
  }

  const Api& api_;
  std::vector<Rank> ranks_;
};

struct Pinning {
  std::string algorithm, protocol;  // "" both: free
};

// What NCCL has on one node (src/graph/tuning.cc, 2.28.9): NVLS from compute capability 9.0 on, only Simple.
std::vector<Pinning> pinnings(int major) {
  std::vector<Pinning> list = {{"Ring", "LL"}, {"Ring", "LL128"}, {"Ring", "Simple"},
                               {"Tree", "LL"}, {"Tree", "LL128"}, {"Tree", "Simple"}};
  if (major >= 9) list.push_back({"NVLS", "Simple"});
  return list;
}

class Measuring {
 public:
  Measuring(const Api& api, const std::function<double()>& now, double deadline)
      : api_(api), now_(now), deadline_(deadline) {}

  void sweep(int gpus, const Pinning& pin, const std::vector<std::string>& kinds, int factor) {
    if (now_() >= deadline_) return;
    const Setting algorithm("NCCL_ALGO", pin.algorithm), protocol("NCCL_PROTO", pin.protocol);
    try {
      Ranks ranks(api_, gpus);
      for (const std::string& kind : kinds)
        for (std::int64_t bytes = std::max<std::int64_t>(8, 2 * gpus); bytes <= kMostBytes; bytes *= factor)
          if (now_() < deadline_) measure(ranks, gpus, pin, kind, bytes);
    } catch (const execute::nccl::NcclError&) {
      // This algorithm or protocol is not to be had here; the others are.
      if (pin.algorithm.empty()) throw;
    }
  }

  std::vector<Transfer> done;

 private:
  void measure(Ranks& ranks, int gpus, const Pinning& pin, const std::string& kind, std::int64_t bytes) {
    constexpr int kWarmUp = 5, kRepetitions = 20;
    ranks.time(kind, bytes, kWarmUp);
    const int times = std::clamp(static_cast<int>(2e-3 / ranks.time(kind, bytes, 1)), 1, 20);
    std::vector<double> samples;
    for (int i = 0; i < kRepetitions && (i < 3 || now_() < deadline_); ++i)
      samples.push_back(ranks.time(kind, bytes, times));
    const Summary s = summarize(samples);
    done.push_back({kind, gpus, bytes, pin.algorithm.empty() ? "free" : pin.algorithm,
                    pin.protocol.empty() ? "free" : pin.protocol, s.p50_s, s.p10_s, s.p90_s, s.repetitions});
  }

  const Api& api_;
  const std::function<double()>& now_;
  double deadline_;
};

}  // namespace

std::string nccl_version() {
  std::string ignored;
  const auto api = execute::nccl::load(ignored);
  return api ? execute::nccl::version_text(api->version) : "";
}

std::vector<Transfer> nccl_times(int major, const std::function<double()>& now, double deadline) {
  const int devices = kernels::cuda::device_count();
  std::string reason;
  const auto api = execute::nccl::load(reason);
  if (devices < 2 || !api) return {};
  Measuring measuring(*api, now, deadline);
  const std::vector<std::string> all = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"};
  const std::array<int, 3> groups = {8, 2, 4};  // the largest first
  for (const int gpus : groups)
    if (gpus <= devices) measuring.sweep(gpus, {}, all, 2);
  for (const int gpus : groups)
    for (const Pinning& pin : pinnings(major))
      if (gpus <= devices) measuring.sweep(gpus, pin, {"all_reduce"}, 4);
  return std::move(measuring.done);
}

}  // namespace rehearse::calibrate::gpu
