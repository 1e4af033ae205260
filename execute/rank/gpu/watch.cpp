// See watch.h.
#include "execute/rank/gpu/watch.h"

#include <algorithm>
#include <utility>

namespace rehearse::execute {
namespace {

constexpr std::chrono::milliseconds kPeriod{5};
constexpr int kAskEvery = 10;  // periods between questions to the transfers

}  // namespace

Watch::Watch(Gpu& gpu, QueuedTransfers* transfers, const Stop& stop, Whereabouts& at, std::size_t streams,
             std::chrono::milliseconds timeout, Handlers handlers)
    : gpu_(gpu),
      transfers_(transfers),
      stop_(stop),
      at_(at),
      timeout_(timeout),
      handlers_(std::move(handlers)),
      queues_(streams) {
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  ended_ = true;
  thread_.join();
}

Gpu::Event Watch::event() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const Gpu::Event e = free_.back();
      free_.pop_back();
      return e;
    }
  }
  return gpu_.make_event(false);
}

void Watch::record(std::size_t program_stream, const Mark& mark) {
  const std::lock_guard lock(mutex_);
  queues_[program_stream].marks.push_back(mark);
}

void Watch::begin_transfer(std::size_t program_stream, Gpu::Stream stream, std::int32_t instance) {
  Mark m;
  m.instance = instance;
  m.transfer = true;
  m.begun = event();
  gpu_.record(m.begun, stream);
  const std::lock_guard lock(mutex_);
  queues_[program_stream].open = m;
}

void Watch::end_transfer(std::size_t program_stream, Gpu::Stream stream) {
  const Gpu::Event done = event();
  gpu_.record(done, stream);
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[program_stream];
  if (!queue.open) return;
  queue.open->done = done;
  queue.marks.push_back(*queue.open);
  queue.open.reset();
}

void Watch::begin_call(std::size_t program_stream, std::int32_t instance) {
  Mark m;
  m.instance = instance;
  m.transfer = true;
  m.since = Clock::now();
  const std::lock_guard lock(mutex_);
  queues_[program_stream].open = m;
}

void Watch::end_call(std::size_t program_stream) {
  const std::lock_guard lock(mutex_);
  queues_[program_stream].open.reset();
}

void Watch::mark(std::size_t program_stream, Gpu::Stream stream, std::int32_t instance) {
  Mark m;
  m.instance = instance;
  m.done = event();
  gpu_.record(m.done, stream);
  record(program_stream, m);
}

void Watch::begin_graph(std::size_t program_stream, Gpu::Stream stream, bool transfers) {
  Mark m;
  m.transfer = transfers;
  m.done = event();
  gpu_.record(m.done, stream);
  record(program_stream, m);
}

std::optional<std::int32_t> Watch::waiting() const {
  const std::lock_guard lock(mutex_);
  std::optional<std::int32_t> first;
  for (const Queue& queue : queues_) {
    // A transfer that is being queued waits too: the call may not return before others come.
    const Mark* m = !queue.marks.empty() ? &queue.marks.front() : queue.open ? &*queue.open : nullptr;
    if (m == nullptr || !m->transfer || !m->since) continue;
    if (!first || m->instance < *first) first = m->instance;
  }
  return first;
}

void Watch::clear() {
  const std::lock_guard lock(mutex_);
  for (Queue& queue : queues_) {
    for (const Mark& m : queue.marks)
      for (const Gpu::Event e : {m.begun, m.done})
        if (e >= 0) free_.push_back(e);
    queue.marks.clear();
    queue.open.reset();
  }
  for (auto& i : at_.instance) i.store(-1, std::memory_order_relaxed);
}

void Watch::advance(std::size_t stream, Queue& queue) {
  while (!queue.marks.empty() && gpu_.done(queue.marks.front().done)) {
    for (const Gpu::Event e : {queue.marks.front().begun, queue.marks.front().done})
      if (e >= 0) free_.push_back(e);
    queue.marks.pop_front();
  }
  Mark* m = !queue.marks.empty() ? &queue.marks.front() : queue.open ? &*queue.open : nullptr;
  if (m != nullptr && m->transfer && !m->since && (m->begun < 0 || gpu_.done(m->begun))) m->since = Clock::now();
  const bool here = m != nullptr && (!m->transfer || m->since);
  at_.instance[stream].store(here ? m->instance : -1, std::memory_order_relaxed);
}

bool Watch::look() {
  if (stop_.requested()) return false;
  std::optional<std::int32_t> late;
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    for (std::size_t s = 0; s < queues_.size(); ++s) {
      Queue& queue = queues_[s];
      advance(s, queue);
      const Mark* m = !queue.marks.empty() ? &queue.marks.front() : queue.open ? &*queue.open : nullptr;
      if (m == nullptr || !m->since || timeout_.count() == 0 || now - *m->since < timeout_) continue;
      if (!late || m->instance < *late) late = m->instance;
    }
  }
  if (late) handlers_.late(*late);
  return !late;
}

void Watch::run() {
  try {
    gpu_.bind_thread();
    for (int period = 0; !ended_; ++period) {
      if (!look()) break;
      if (transfers_ != nullptr && period % kAskEvery == 0)
        if (const std::string problem = transfers_->problem(); !problem.empty()) {
          handlers_.failed(waiting().value_or(-1), problem);
          break;
        }
      std::this_thread::sleep_for(kPeriod);
    }
  } catch (const std::exception& error) {
    handlers_.failed(waiting().value_or(-1), error.what());
  }
  if (!ended_ && transfers_ != nullptr) transfers_->abort();
}

}  // namespace rehearse::execute
