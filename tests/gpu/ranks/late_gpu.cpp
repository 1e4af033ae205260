// See late_gpu.h.
#include "tests/gpu/ranks/late_gpu.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "tests/gpu/ranks/late_device.h"

namespace rehearse {

LateGpu::LateGpu(const LateOptions& options) : options_(options), random_(options.seed) {}
LateGpu::~LateGpu() = default;

execute::Gpu::Memory LateGpu::memory() {
  return {options_.total_bytes - options_.context_bytes - allocated_, options_.total_bytes};
}

void* LateGpu::allocate(std::int64_t bytes) {
  if (bytes > memory().free_bytes) throw execute::GpuOutOfMemory(std::to_string(bytes) + " bytes asked for", bytes);
  allocated_ += bytes;
  return memory_.emplace_back(static_cast<std::size_t>(bytes + 256)).data();
}

std::byte* LateGpu::allocate_host(std::int64_t bytes) {
  return memory_.emplace_back(static_cast<std::size_t>(bytes)).data();
}

execute::Gpu::Stream LateGpu::make_stream(bool) {
  const std::lock_guard lock(mutex_);
  const auto stream = static_cast<Stream>(streams_.size());
  streams_.emplace_back();
  constexpr unsigned kSlowest = 6;
  haste_.push_back(1U << random_() % kSlowest);
  natives_.push_back(std::make_unique<Native>(Native{this, stream}));
  devices_.push_back(make_late_device(*this, stream));
  return stream;
}

void* LateGpu::native(Stream stream) {
  return natives_[static_cast<std::size_t>(stream)].get();
}
kernels::Device& LateGpu::device(Stream stream) {
  return *devices_[static_cast<std::size_t>(stream)];
}

execute::Gpu::Event LateGpu::make_event(bool timing) {
  const std::lock_guard lock(mutex_);
  events_.push_back({nullptr, false, timing});
  return static_cast<Event>(events_.size()) - 1;
}

LateGpu::Captured& LateGpu::captured(Stream stream, Captured::Kind kind) {
  if (!in_capture_.contains(stream)) throw std::logic_error("a stream that is not part of the capture");
  unjoined_.insert(stream);
  tape_.push_back({stream, kind, {}, -1});
  return tape_.back();
}

void LateGpu::push(Stream stream, std::function<bool()> run) {
  streams_[static_cast<std::size_t>(stream)].push_back(std::move(run));
}

void LateGpu::queue_made(Stream stream, std::function<std::function<bool()>()> make) {
  const std::lock_guard lock(mutex_);
  if (capturing_)
    captured(stream, Captured::work).make = std::move(make);
  else
    push(stream, make());
}

void LateGpu::queue(Stream stream, std::function<bool()> run) {
  queue_made(stream, [run] { return run; });
}

void LateGpu::kernel(Stream stream, std::function<void()> call) {
  queue(stream, [this, call = std::move(call)] {
    if (kernels_++ == options_.fails_at_kernel) throw std::runtime_error("an illegal memory access was encountered");
    call();
    return true;
  });
}

void LateGpu::record(Event event, Stream stream) {
  const std::lock_guard lock(mutex_);
  Recorded& e = events_[static_cast<std::size_t>(event)];
  if (capturing_) {
    captured(stream, Captured::record).event = event;
    captured_on_[event] = stream;
    e.captured = true;
    return;
  }
  e.captured = false;
  e.latest = std::make_shared<Reached>();
  push(stream, [token = e.latest] {
    token->yes = true;
    token->when = execute::Clock::now();
    return true;
  });
}

void LateGpu::wait(Stream stream, Event event) {
  const std::lock_guard lock(mutex_);
  const Recorded& e = events_[static_cast<std::size_t>(event)];
  if (capturing_) {
    const auto on = captured_on_.find(event);
    if (on == captured_on_.end()) throw std::logic_error("a capture waits for an event from outside");
    in_capture_.insert(stream);
    captured(stream, Captured::wait).event = event;
    if (stream == tape_.front().stream) unjoined_.erase(on->second);
    return;
  }
  if (e.captured) throw std::logic_error("a wait for an event that was captured");
  if (e.latest == nullptr || options_.lose_waits) return;
  push(stream, [token = e.latest] { return token->yes; });
}

bool LateGpu::done(Event event) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw std::runtime_error(broken_);
  const Recorded& e = events_[static_cast<std::size_t>(event)];
  if (e.captured && !capturing_) throw std::logic_error("a question about an event that was captured");
  if (e.latest == nullptr || e.latest->yes) return true;
  run_some();
  return events_[static_cast<std::size_t>(event)].latest->yes;
}

double LateGpu::elapsed_s(Event from, Event to) {
  const std::lock_guard lock(mutex_);
  const Recorded &a = events_.at(static_cast<std::size_t>(from)), &b = events_.at(static_cast<std::size_t>(to));
  if (!a.timing || !b.timing) throw std::logic_error("an event that does not take the time");
  if (a.latest == nullptr || b.latest == nullptr || !a.latest->yes || !b.latest->yes)
    throw std::logic_error("the time of an event that is not done");
  return std::chrono::duration<double>(b.latest->when - a.latest->when).count();
}

// Picks a stream until one has moved, or all of them had their chance and none could.
void LateGpu::run_some() {
  constexpr int kMost = 8;
  const std::size_t n = streams_.size();
  try {
    for (std::size_t tries = 0; tries < 4 * n; ++tries) {
      const std::size_t s = random_() % n;
      if (random_() % haste_[s] == 0 && run_stream(s, 1 + static_cast<int>(random_() % kMost))) return;
    }
    for (std::size_t s = 0; s < n; ++s)
      if (run_stream(s, 1)) return;
  } catch (const std::exception& error) {
    broken_ = error.what();
    throw;
  }
}

bool LateGpu::run_stream(std::size_t stream, int most) {
  auto& items = streams_[stream];
  int ran = 0;
  for (; ran < most && !items.empty(); ++ran) {
    if (!items.front()()) break;
    items.pop_front();
  }
  return ran > 0;
}

void LateGpu::to_device(Stream stream, void* device, const void* host, std::int64_t bytes) {
  copy(stream, device, host, bytes);
}
void LateGpu::to_host(Stream stream, void* host, const void* device, std::int64_t bytes) {
  copy(stream, host, device, bytes);
}
void LateGpu::copy(Stream stream, void* to, const void* from, std::int64_t bytes) {
  queue(stream, [=] {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
    return true;
  });
}
void LateGpu::set_bytes(Stream stream, void* device, int value, std::int64_t bytes) {
  queue(stream, [=] {
    std::memset(device, value, static_cast<std::size_t>(bytes));
    return true;
  });
}

execute::Gpu::Graph LateGpu::capture(Stream stream, const std::function<void()>& record) {
  {
    const std::lock_guard lock(mutex_);
    capturing_ = true;
    tape_.clear();
    in_capture_ = {stream};
    captured_on_.clear();
    unjoined_.clear();
    captured(stream, Captured::work).make = [] { return [] { return true; }; };
  }
  try {
    record();
  } catch (...) {
    capturing_ = false;
    throw;
  }
  const std::lock_guard lock(mutex_);
  capturing_ = false;
  unjoined_.erase(stream);
  if (!unjoined_.empty()) throw std::logic_error("a stream has not come back by the end of the capture");
  graphs_.push_back(std::move(tape_));
  std::map<Stream, Stream>& lanes = lanes_.emplace_back();
  for (const Stream s : in_capture_) lanes[s] = make_stream(false);
  return static_cast<Graph>(graphs_.size()) - 1;
}

void LateGpu::launch(Graph graph, Stream stream) {
  const std::lock_guard lock(mutex_);
  ++launches_;
  const auto& lanes = lanes_[static_cast<std::size_t>(graph)];
  const auto token_item = [](const Token& token) {
    return [token] {
      token->yes = true;
      return true;
    };
  };
  const auto begun = std::make_shared<Reached>();
  if (launches_ == options_.stuck_after_launches) push(stream, [] { return false; });
  push(stream, token_item(begun));
  for (const auto& [from, lane] : lanes) push(lane, [begun] { return begun->yes; });
  std::map<Event, Token> tokens;
  for (const Captured& c : graphs_[static_cast<std::size_t>(graph)]) {
    const Stream lane = lanes.at(c.stream);
    if (c.kind == Captured::work) push(lane, c.make());
    if (c.kind == Captured::record) push(lane, token_item(tokens[c.event] = std::make_shared<Reached>()));
    if (c.kind == Captured::wait && !options_.lose_waits)
      push(lane, [token = tokens.at(c.event)] { return token->yes; });
  }
  for (const auto& [from, lane] : lanes) {
    const auto ended = std::make_shared<Reached>();
    push(lane, token_item(ended));
    push(stream, [ended] { return ended->yes; });
  }
}

}  // namespace rehearse
