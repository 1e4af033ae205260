// A GPU for tests (execute/rank/gpu/gpu.h) whose work is done late: nothing runs before somebody asks whether an event
// is done, and then a few ops of streams picked at random, as far as events allow. So a wait that is missing shows as a
// wrong number, a buffer of the host that is used again too early too, and always the same way for a seed. Kernels are
// the CPU device's. Rules of captures are CUDA's, as far as they are here: breaking one throws.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "execute/rank/gpu/gpu.h"
#include "execute/transport/communicator.h"

namespace rehearse {

struct LateOptions {
  unsigned seed = 1;
  std::int64_t total_bytes = std::int64_t{1} << 30, context_bytes = 1 << 20;
  int fails_at_kernel = -1;       // counted from 0: an error that shows at the next question
  int stuck_after_launches = -1;  // of graphs: those behind never run
  bool lose_waits = false;        // waits for events are forgotten: what a test must notice
  kernels::DeviceState state = {};
  std::vector<result::ProductUse> products = {};
  std::function<void(const std::string& what)> on_products = {};  // "measure", "settle"
};

class LateGpu final : public execute::Gpu {
 public:
  explicit LateGpu(const LateOptions& options);
  ~LateGpu() override;

  void bind_thread() override {}
  std::string name() const override { return "late"; }
  Memory memory() override;
  void* allocate(std::int64_t bytes) override;
  std::byte* allocate_host(std::int64_t bytes) override;
  Stream make_stream(bool urgent) override;
  void* native(Stream stream) override;
  kernels::Device& device(Stream stream) override;
  kernels::DeviceState state() override { return options_.state; }
  std::vector<result::ProductUse> products() override { return options_.products; }
  void measure_products() override {
    if (options_.on_products) options_.on_products("measure");
  }
  Settled settle_products() override {
    if (options_.on_products) options_.on_products("settle");
    return {5, 2};
  }
  Event make_event(bool timing) override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool done(Event event) override;
  double elapsed_s(Event from, Event to) override;
  void to_device(Stream stream, void* device, const void* host, std::int64_t bytes) override;
  void to_host(Stream stream, void* host, const void* device, std::int64_t bytes) override;
  void copy(Stream stream, void* to, const void* from, std::int64_t bytes) override;
  void set_bytes(Stream stream, void* device, int value, std::int64_t bytes) override;
  Graph capture(Stream stream, const std::function<void()>& record) override;
  void launch(Graph graph, Stream stream) override;

  // What Gpu::native() points to: a stream to queue on. `run` says whether it is through; if not it is asked again.
  struct Native {
    LateGpu* gpu;
    Stream stream;
  };
  void queue(Stream stream, std::function<bool()> run);
  // For work that has a beginning when it is replayed too: made anew for each launch.
  void queue_made(Stream stream, std::function<std::function<bool()>()> make);
  void kernel(Stream stream, std::function<void()> call);

  int launches() const { return launches_; }  // of graphs
  int kernels() const { return kernels_; }    // that have run

 private:
  struct Reached {
    bool yes = false;
    execute::Clock::time_point when;
  };
  using Token = std::shared_ptr<Reached>;
  struct Recorded {  // an event
    Token latest;
    bool captured = false, timing = false;
  };
  struct Captured {
    Stream stream;
    enum Kind { work, record, wait } kind;
    std::function<std::function<bool()>()> make;
    Event event = -1;
  };

  void push(Stream stream, std::function<bool()> run);
  void run_some();
  bool run_stream(std::size_t stream, int most);
  Captured& captured(Stream stream, Captured::Kind kind);

  const LateOptions options_;
  std::recursive_mutex mutex_;
  std::mt19937 random_;
  std::vector<std::vector<std::byte>> memory_;
  std::int64_t allocated_ = 0;
  std::vector<std::unique_ptr<Native>> natives_;
  std::vector<std::unique_ptr<kernels::Device>> devices_;  // by stream
  std::vector<std::deque<std::function<bool()>>> streams_;
  std::vector<unsigned> haste_;  // by stream: one of so many chances is taken
  std::vector<Recorded> events_;
  bool capturing_ = false;
  std::vector<Captured> tape_;
  std::set<Stream> in_capture_;
  std::map<Event, Stream> captured_on_;
  std::set<Stream> unjoined_;
  std::vector<std::vector<Captured>> graphs_;
  std::vector<std::map<Stream, Stream>> lanes_;  // of each graph: the streams it runs on
  int kernels_ = 0, launches_ = 0;
  std::string broken_;
};

}  // namespace rehearse
