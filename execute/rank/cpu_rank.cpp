// A stream's thread: for each op in turn wait, do, publish. Only ops that another stream waits for take the rank's
// mutex; a position that was waited for once is remembered, so most waits cost a comparison. Transfers are numbered in
// program order and handed to the communicator; inputs are loaded, everything else is a kernel.
#include "execute/rank/cpu_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "execute/checkpoint/checkpoints.h"
#include "execute/memory_use.h"
#include "execute/rank/expert_rows.h"
#include "execute/rank/initial_memory.h"
#include "execute/rank/input_rows.h"
#include "execute/rank/parameters.h"
#include "execute/rank/phase_steps.h"
#include "execute/servers/parameter_servers.h"
#include "execute/step_limit.h"
#include "kernels/cpu/host_memory.h"
#include "sim/account/blame.h"
#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using program::Op;
using result::Share;

namespace {

std::int64_t ps_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count() * 1000;
}

}  // namespace

CpuRank::CpuRank(Run& run, int rank, bool reports_loss)
    : run_(run),
      rank_(rank),
      reports_loss_(reports_loss),
      timeline_(run.timeline(rank)),
      layout_(run, rank),
      ranges_(timeline_, rank),
      communicator_(run.world.communicator(rank)),
      first_weights_(run, rank),
      at_(run.world.whereabouts(rank)) {
  const Timeline& timeline = timeline_;
  // Behind the plan's bytes, one StepValues a stream: in device memory, as kernels read them.
  const std::int64_t values = (timeline.memory.arena_bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  const std::size_t bytes =
      static_cast<std::size_t>(values) + timeline.role->streams.size() * sizeof(kernels::StepValues);
  // Not-a-number as float: what is read before it was written shows. It also means that the whole arena is held from
  // the beginning.
  const auto arena = [&run](std::size_t size) {
    std::byte* const begin = kernels::cpu::HostAllocator<std::byte>().allocate(size);
    std::memset(begin, run.options.clear_arena ? 0 : 0xFF, size);
    return begin;
  };
  memory_.arena = arena(bytes);
  memory_.host_begin = timeline.memory.host_begin;
  if (timeline.memory.host_bytes > 0) memory_.host = arena(static_cast<std::size_t>(timeline.memory.host_bytes));
  REHEARSE_CHECK(timeline.role->streams.size() <= Whereabouts::kStreams, "{} streams", timeline.role->streams.size());
  for (std::size_t s = 0; s < timeline.role->streams.size(); ++s) {
    streams_.push_back(std::make_unique<StreamState>());
    StreamState& state = *streams_.back();
    state.ended.resize(timeline.streams[s].size());
    state.known.assign(timeline.streams.size(), 0);
    state.values = reinterpret_cast<kernels::StepValues*>(memory_.arena + values) + s;
    const bool compute = timeline.role->streams[s].kind == program::StreamKind::compute;
    if (compute) timed_stream_ = static_cast<std::int32_t>(s);
    if (!timeline.streams[s].empty()) state.device = kernels::make_cpu_device(compute ? run.threads_per_rank : 1);
  }
  for (std::size_t g = 0; g < run.program.groups.size(); ++g)
    calls_before_.push_back(first_weights_.calls(static_cast<program::GroupId>(g)));
  if (timeline.loss >= 0)
    losses_.assign(static_cast<std::size_t>(timeline.role->buffers[timeline.loss].elements()), 0.0F);
  if (run.options.record_routing) routing_ = RoutingLog::of(run.scenario, run.grid, rank);
  if (run.choices) replay_.emplace(run.choices, run.scenario, run.grid, rank);
}

CpuRank::~CpuRank() {
  join();
  for (std::byte* const begin : {memory_.arena, memory_.host})
    if (begin != nullptr) kernels::cpu::HostAllocator<std::byte>().deallocate(begin, 0);
}

void CpuRank::initialise() {
  execute::initialise(
      InitialMemory(timeline_, run_.grid, rank_, run_.scenario.training.seed, first_weights_.parameters()),
      run_.threads_per_rank, memory_);
  if (first_weights_.any()) get_first_weights();
  if (run_.checkpoints != nullptr && run_.servers == nullptr) run_.checkpoints->restore(rank_, memory_);
  if (run_.servers != nullptr && rank_ == 0) run_.servers->begin_with(memory_);
}

void CpuRank::get_first_weights() {
  const Clock::time_point began = Clock::now();
  std::map<program::GroupId, std::int64_t> calls;
  first_weights_.distribute(
      [&](program::GroupId group, kernels::Out data, std::int64_t elements) {
        communicator_.broadcast({group, layout_.members(group), calls[group]++}, data, data, elements);
      },
      [&](const InitialMemory::Block& block, const float* values) {
        const auto& places = block.places;
        InitialMemory::keep(
            block, values,
            {memory_.at(places[0].offset), places[1].offset < 0 ? nullptr : memory_.at(places[1].offset)});
      });
  first_weights_s_ = std::chrono::duration<double>(Clock::now() - began).count();
}

void CpuRank::start() {
  for (const auto& instances : timeline_.streams) threads_ += instances.empty() ? 0 : 1;
  running_ = threads_;
  for (std::size_t s = 0; s < streams_.size(); ++s)
    if (!timeline_.streams[s].empty())
      streams_[s]->thread = std::thread([this, s] {
        run_stream(static_cast<std::int32_t>(s));
        --running_;
      });
}

void CpuRank::join() {
  for (auto& stream : streams_)
    if (stream->thread.joinable()) stream->thread.join();
}

void CpuRank::run_stream(std::int32_t stream) {
  try {
    perform_steps(stream);
  } catch (const Stopped& stopped) {
    report_wait(run_, rank_, instance_at(stream), stopped.missing());
  } catch (const DeadlineError& late) {
    report_failure(run_, rank_, instance_at(stream), waited_text(run_.options.timeout), late.missing());
  } catch (const std::exception& error) {
    report_failure(run_, rank_, instance_at(stream), fmt::format("failed: {}", error.what()));
  }
}

bool CpuRank::goes_on(std::int64_t step) {
  return run_.limit != nullptr ? run_.limit->begins(step) : step < run_.options.steps;
}

bool CpuRank::ends_with(std::int64_t step) const {
  return run_.limit != nullptr ? run_.limit->last(step) : step == run_.options.steps - 1;
}

void CpuRank::perform_steps(std::int32_t stream) {
  StreamState& own = *streams_[static_cast<std::size_t>(stream)];
  std::atomic<std::int32_t>& at = at_.instance[static_cast<std::size_t>(stream)];
  const auto& instances = timeline_.streams[static_cast<std::size_t>(stream)];
  Timing timing;
  timing.compute = stream == timed_stream_;
  timing.unpublished = &own.unpublished;
  timing.now = run_.began;
  // Positions and calls count from this run's beginning, what is drawn and reported from the training's.
  for (std::int64_t step = run_.first_step; goes_on(step); ++step) {
    const std::int64_t here = step - run_.first_step;
    const bool recorded = run_.options.record && (run_.options.record_every_step || ends_with(step));
    *own.values = step_values(run_.scenario.training, step, run_.options.steps);
    if (timing.compute) at_.step.store(step, std::memory_order_relaxed);
    if (run_.servers != nullptr) pull_parameters(step, timing);
    if (run_.phase != nullptr && !begin_phase_step(step, timing)) break;
    for (const std::int32_t index : instances) {
      const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
      at.store(index, std::memory_order_relaxed);
      await(own, i, here, timing);
      const Clock::time_point start = Clock::now();
      count(timing, Share::host, start);
      if (run_.options.before_op) run_.options.before_op(rank_, step, timeline_.op(i));
      ranges_.begin(index, step);
      const Arrival last = perform(own, i, step);
      ranges_.end();
      const Clock::time_point end = Clock::now();
      count_op(timing, timeline_.op(i), last, end);
      if (i.awaited) publish(own, i, here, timing);
      if (recorded) record(own, i, step, start, end, last);
    }
    if (run_.servers != nullptr) push_gradients(step, timing);
    end_step(own, timing);
    if (timing.compute) shares_.push_back(std::exchange(timing.shares, {}));
    if (run_.phase != nullptr) end_phase_step(step, timing);
    if (run_.checkpoints != nullptr && run_.servers == nullptr && run_.checkpoints->due(step + 1)) {
      save_checkpoint(step + 1);
      count(timing, Share::other, Clock::now());
    }
    if (run_.world.stop().requested()) throw Stopped(std::vector<int>());
  }
  at.store(-1, std::memory_order_relaxed);
}

// All streams of the rank stand still; the last to come does the work. Waits without a deadline: the others are on
// their way through the step that is over here, or at work. Moments are counted upwards, each of one kind of work.
template <class Work>
void CpuRank::with_all_standing(std::int64_t moment, Work work) {
  {
    std::unique_lock lock(mutex_);
    if (++standing_ < threads_) {
      wait_for(
          lock, stood_changed_, run_.world.stop(), std::chrono::milliseconds(0), [&] { return stood_ >= moment; },
          [] { return std::vector<int>(); });
      return;
    }
    standing_ = 0;
  }
  work();
  {
    const std::lock_guard lock(mutex_);
    stood_ = moment;
  }
  stood_changed_.notify_all();
}

void CpuRank::save_checkpoint(std::int64_t steps_done) {
  with_all_standing(steps_done, [&] { run_.checkpoints->save(rank_, steps_done, memory_); });
}

// With servers it is these that write checkpoints: the moments are their own.
void CpuRank::pull_parameters(std::int64_t step, Timing& timing) {
  with_all_standing(2 * step + 1, [&] { admitted_ = run_.servers->pull(rank_, step, memory_); });
  count(timing, Share::straggler, admitted_);  // whichever stream came last and pulled
  count(timing, Share::exposed_data, Clock::now());
}

// What of the loss is given up counts for nothing.
void CpuRank::push_gradients(std::int64_t step, Timing& timing) {
  with_all_standing(2 * step + 2, [&] {
    const bool counts = run_.servers->push(rank_, step, memory_);
    if (!counts) std::fill(losses_.begin(), losses_.end(), 0.0F);
    if (reports_loss_) report_losses(step);
  });
  count(timing, Share::exposed_data, Clock::now());
}

// What lies between two steps of a phase is no step's time.
bool CpuRank::begin_phase_step(std::int64_t step, Timing& timing) {
  with_all_standing(2 * step + 1, [&] { goes_on_ = run_.phase->begin(rank_, step, memory_); });
  timing.now = Clock::now();
  return goes_on_;
}

void CpuRank::end_phase_step(std::int64_t step, Timing& timing) {
  with_all_standing(2 * step + 2, [&] { run_.phase->end(rank_); });
  timing.now = Clock::now();
}

void CpuRank::report_losses(std::int64_t step) {
  for (std::size_t i = 0; i < losses_.size(); ++i)
    run_.world.report_loss(loss_item(step, i, losses_.size()), rank_, losses_[i]);
}

void CpuRank::count(Timing& timing, Share share, Clock::time_point until) {
  if (until <= timing.now) return;
  if (timing.compute)
    timing.shares[static_cast<std::size_t>(share)] += ps_between(timing.now, until);
  else
    timing.unpublished->push_back({share, timing.now, until});
  timing.now = until;
}

void CpuRank::count_op(Timing& timing, const Op& op, const Arrival& last, Clock::time_point end) {
  if (program::is_transfer(op)) {
    if (run_.late_ranks_known)
      count(timing, late_share(run_.program, run_.grid, rank_, op, last.last), std::min(last.when, end));
  } else if (timing.compute) {
    count(timing, op.phase == program::Phase::optimizer ? Share::optimizer : Share::compute, end);
    return;
  }
  count(timing, account::share_of_op(run_.program, *timeline_.role, op), end);
}

void CpuRank::record(StreamState& own, const Instance& i, std::int64_t step, Clock::time_point start,
                     Clock::time_point end, const Arrival& last) {
  result::OpRecord record{rank_,
                          static_cast<std::int32_t>(step),
                          i.slot,
                          i.body,
                          i.op,
                          ps_between(run_.began, start),
                          ps_between(start, end)};
  if (run_.late_ranks_known && last.when > start) {
    record.waited_ps = ps_between(start, std::min(last.when, end));
    record.waited_for = late_share(run_.program, run_.grid, rank_, timeline_.op(i), last.last);
  }
  own.records.push_back(record);
}

void CpuRank::await(StreamState& own, const Instance& i, std::int64_t step, Timing& timing) {
  WaitEnd last;
  for (std::size_t w = i.first_wait; w < i.last_wait; ++w) {
    const Wait& wait = timeline_.waits[w];
    const std::int64_t per_step = timeline_.per_step(wait.stream), needed = step * per_step + wait.position;
    std::int64_t& known = own.known[static_cast<std::size_t>(wait.stream)];
    if (needed <= known) continue;
    const StreamState& other = *streams_[static_cast<std::size_t>(wait.stream)];
    const auto index = static_cast<std::size_t>((wait.position - 1 + per_step) % per_step);
    {
      std::unique_lock lock(mutex_);
      own.waits_for = wait.stream;
      own.needed = needed;
      // Without a deadline: an op waits only for ops earlier in program order (timeline.h), so whoever waits here
      // waits, through others perhaps, for the earliest unfinished op of the rank, which waits for nobody here. That op
      // is a transfer, which has a deadline, or a kernel, which may take its time.
      wait_for(
          lock, own.changed, run_.world.stop(), std::chrono::milliseconds(0), [&] { return other.done >= needed; },
          [] { return std::vector<int>(); });
      own.waits_for = -1;
      known = other.done;
      if (last.op == nullptr || other.ended[index] > last.ended)
        last = {
            &timeline_
                 .instances[static_cast<std::size_t>(timeline_.streams[static_cast<std::size_t>(wait.stream)][index])],
            other.ended[index]};
    }
  }
  if (last.op != nullptr) count_wait(timing, last);
}

// A wait counts as what the stream of its last op did meanwhile; the time from that op's end until we woke up counts
// as that op.
void CpuRank::count_wait(Timing& timing, const WaitEnd& wait) {
  if (wait.ended <= timing.now) return;
  std::vector<Stretch> stretches;
  {
    const std::lock_guard lock(mutex_);
    if (timing.compute) asked_since_ = timing.now;
    streams_[static_cast<std::size_t>(wait.op->stream)]->history.each(
        timing.now, wait.ended, [&](Share share, Clock::time_point from, Clock::time_point to) {
          stretches.push_back({share, from, to});
        });
  }
  const Share own = account::share_of_op(run_.program, *timeline_.role, timeline_.op(*wait.op));
  for (const Stretch& stretch : stretches) {
    count(timing, own, stretch.from);
    count(timing, stretch.share, stretch.to);
  }
  count(timing, own, Clock::now());
}

Arrival CpuRank::perform(StreamState& own, const Instance& i, std::int64_t step) {
  const Op& op = timeline_.op(i);
  Arrival last;
  if (!timeline_.runs(i, step) || (run_.servers != nullptr && run_.servers->given_up(step))) return last;
  const auto* const router = std::get_if<program::Router>(&op.shape);
  const bool gate = router != nullptr && router->part == program::RouterPart::gate;
  if (program::is_transfer(op)) {
    last = transfer(i, op, step);
  } else if (const auto* input = std::get_if<program::Input>(&op.shape)) {
    own.examples.resize(static_cast<std::size_t>(run_.scenario.plan.micro_batch));
    std::iota(own.examples.begin(), own.examples.end(), own.values->first_sequence + layout_.first_sequence(i));
    load(own, *input, operand(i.first_place));
  } else {
    const std::size_t reads = op.reads.size(), writes = op.writes.size();
    std::vector<kernels::Out>& operands = own.operands;
    operands.resize(reads + writes);
    for (std::size_t o = 0; o < reads + writes; ++o) operands[o] = operand(i.first_place + o);
    const std::span in(operands.data(), reads), out(operands.data() + reads, writes);
    const CallContext context{run_.scenario,
                              *own.device,
                              run_.grid.coordinate(rank_, Axis::tensor),
                              run_.grid.coordinate(rank_, Axis::context),
                              own.values,
                              layout_.first_sequence(i),
                              &run_.grid,
                              rank_};
    if (gate && replay_)
      replay_->gate(*router, step, layout_.first_sequence(i), operands[0], static_cast<float*>(operands[reads].data),
                    static_cast<std::int32_t*>(operands[reads + 1].data));
    else if (run_.phase != nullptr)
      run_.phase->perform(op, in, out, context);
    else
      call_kernel(op, in, out, context);
  }
  if (routing_ && gate)
    routing_->add(*router, step, layout_.first_sequence(i), operand(i.first_place + op.reads.size() + 1));
  if (i.ends_loss && reports_loss_) {
    const auto loss = static_cast<std::size_t>(timeline_.loss);
    const auto* values = reinterpret_cast<const float*>(memory_.at(timeline_.persistent[loss]));
    losses_.assign(values, values + timeline_.role->buffers[loss].elements());
    if (run_.servers == nullptr) report_losses(step);
  }
  return last;
}

// Data gives fp32 or whole numbers.
void CpuRank::load(StreamState& own, const program::Input& input, kernels::Out to) {
  if (!is_half(to.type)) return load_examples(run_, rank_, input, own.examples, to.data);
  own.loaded.resize(static_cast<std::size_t>(input.elements));
  load_examples(run_, rank_, input, own.examples, own.loaded.data());
  from_float(to.type, own.loaded.data(), input.elements, to.data);
}

// What the stream's thread knows of its time becomes known to the others. With the mutex held.
void CpuRank::publish_times(StreamState& own, const Timing& timing) {
  if (timing.compute) {
    asked_since_ = timing.now;
    return;
  }
  for (const Stretch& stretch : own.unpublished) own.history.add(stretch);
  own.unpublished.clear();
  own.history.forget(asked_since_);
}

// A stream whose ops nobody waits for gathers no more than a step's.
void CpuRank::end_step(StreamState& own, const Timing& timing) {
  const std::lock_guard lock(mutex_);
  publish_times(own, timing);
}

// Threads are woken after the mutex is free, which is the first thing that they ask for.
void CpuRank::publish(StreamState& own, const Instance& i, std::int64_t step, const Timing& timing) {
  own.to_wake.clear();
  {
    const std::lock_guard lock(mutex_);
    publish_times(own, timing);
    own.done = step * timeline_.per_step(i.stream) + i.position;
    own.ended[static_cast<std::size_t>(i.position - 1)] = timing.now;
    for (auto& other : streams_)
      if (other->waits_for == i.stream && other->needed <= own.done) own.to_wake.push_back(&other->changed);
  }
  for (std::condition_variable* changed : own.to_wake) changed->notify_one();
}

Arrival CpuRank::transfer(const Instance& i, const Op& op, std::int64_t step_of_training) {
  const std::int64_t step = step_of_training - run_.first_step;
  if (const auto* c = std::get_if<program::Collective>(&op.shape)) return collective(i, op, *c, step);
  return exchange(i, std::get<program::PointToPoint>(op.shape), step);
}

Arrival CpuRank::collective(const Instance& i, const Op& op, const program::Collective& c, std::int64_t step) {
  const CollectiveCall call{c.group, layout_.members(c.group),
                            calls_before_[static_cast<std::size_t>(c.group)] + timeline_.call_number(i, 0, step)};
  const kernels::Out in = operand(i.first_place), out = operand(i.first_place + (c.counted ? 2 : 1));
  REHEARSE_CHECK(in.type == op.dtype && out.type == op.dtype, "'{}' sends {}, its operands are {} and {}", op.name,
                 name_of(op.dtype), name_of(in.type), name_of(out.type));
  switch (c.kind) {
    case program::CollectiveKind::all_reduce:
      return communicator_.all_reduce(call, c.reduce, in, out, c.elements);
    case program::CollectiveKind::all_gather:
      return communicator_.all_gather(call, in, out, c.elements);
    case program::CollectiveKind::reduce_scatter:
      return communicator_.reduce_scatter(call, in, out, c.elements);
    case program::CollectiveKind::broadcast:
      return communicator_.broadcast(call, in, out, c.elements);
    case program::CollectiveKind::reduce:
      return communicator_.reduce(call, c.reduce, in, out, c.elements);
    case program::CollectiveKind::all_to_all:
      if (c.counted) {
        const Parts parts = parts_of(op, c, rank_, call.members, operand(i.first_place + 1));
        return communicator_.all_to_all_parts(call, in, out, parts);
      }
      if (c.parts >= 0)
        return communicator_.all_to_all_parts(
            call, in, out,
            stated_parts(op, c, rank_, call.members, run_.program.parts[static_cast<std::size_t>(c.parts)]));
      return communicator_.all_to_all(call, in, out, c.elements);
  }
  return {Clock::now()};
}

Arrival CpuRank::exchange(const Instance& i, const program::PointToPoint& p, std::int64_t step) {
  std::vector<Message> messages;
  std::size_t reads = i.first_place;
  std::size_t writes = i.first_place + static_cast<std::size_t>(std::count_if(
                                           p.legs.begin(), p.legs.end(), [](const auto& leg) { return leg.send; }));
  for (std::size_t l = 0; l < p.legs.size(); ++l) {
    const program::Leg& leg = p.legs[l];
    messages.push_back({leg.send, run_.grid.peer(rank_, leg.axis, leg.offset), leg.channel,
                        timeline_.call_number(i, l, step), operand(leg.send ? reads++ : writes++), leg.elements});
  }
  return communicator_.exchange(messages);
}

std::vector<result::OpRecord> CpuRank::records() const {
  std::vector<result::OpRecord> all;
  for (const auto& stream : streams_) all.insert(all.end(), stream->records.begin(), stream->records.end());
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.start_ps < b.start_ps; });
  return all;
}

std::vector<float> CpuRank::parameters() const {
  return parameter_values(timeline_, run_.grid, rank_, memory_);
}

std::vector<float> CpuRank::loss_scale() const {
  return execute::loss_scale(timeline_, memory_);
}

CheckpointUse CpuRank::checkpoint_use() const {
  return run_.checkpoints != nullptr && run_.servers == nullptr ? run_.checkpoints->use(rank_) : CheckpointUse{};
}

std::int64_t CpuRank::held_bytes() const {
  const program::ArenaPlaces& memory = timeline_.memory;
  return resident_bytes(memory_.arena, memory.arena_bytes) +
         (memory_.host != nullptr ? resident_bytes(memory_.host, memory.host_bytes) : 0);
}

// The op it is at; -1: none.
std::int32_t CpuRank::instance_at(std::int32_t stream) const {
  return at_.instance[static_cast<std::size_t>(stream)].load(std::memory_order_relaxed);
}

}  // namespace rehearse::execute
