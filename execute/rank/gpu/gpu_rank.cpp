// A rank's set-up, its thread, and the end of its steps; what one step queues is in gpu_issue.cpp, what is made of the
// measured times in gpu_account.cpp.
#include "execute/rank/gpu/gpu_rank.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "execute/rank/gpu/state_log.h"
#include "execute/rank/initial_memory.h"
#include "execute/rank/parameters.h"
#include "sim/base/check.h"
#include "sim/base/half.h"
#include "sim/base/in_parallel.h"
#include "sim/program/link/send_slots.h"

namespace rehearse::execute {
namespace {

constexpr std::chrono::milliseconds kForOthers{500};  // that may know better what went wrong
constexpr std::int64_t kSlabBytes = std::int64_t{16} << 20;

// Host memory that is only there once it is written.
class HostCopy {
 public:
  explicit HostCopy(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED)
      throw std::runtime_error(fmt::format("{} bytes of host memory: {}", bytes_, std::strerror(errno)));
  }
  ~HostCopy() { ::munmap(data_, bytes_); }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

bool reads_step_values(const program::Op& op) {
  if (std::holds_alternative<program::Optimizer>(op.shape) || std::holds_alternative<program::Adafactor>(op.shape) ||
      std::holds_alternative<program::AdafactorParts>(op.shape))
    return true;
  if (const auto* a = std::get_if<program::Attention>(&op.shape)) return a->dropout > 0;
  if (const auto* e = std::get_if<program::Elementwise>(&op.shape)) return e->dropout > 0;
  return false;
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Bytes from the arena's beginning within which everything persistent lies.
std::int64_t persistent_end(const Timeline& timeline) {
  std::int64_t end = kArenaAlignment;
  for (std::size_t b = 0; b < timeline.persistent.size(); ++b)
    if (timeline.persistent[b] >= 0) end = std::max(end, timeline.persistent[b] + timeline.role->buffers[b].bytes());
  return end;
}

}  // namespace

bool graphs_possible(const Timeline& timeline) {
  return std::none_of(timeline.instances.begin(), timeline.instances.end(), [&](const Instance& i) {
    return std::holds_alternative<program::HostSync>(timeline.op(i).shape);
  });
}

GpuRank::GpuRank(Run& run, int rank, bool reports_loss, std::unique_ptr<Gpu> gpu, Connect connect, GpuOptions options)
    : run_(run),
      rank_(rank),
      reports_loss_(reports_loss),
      timeline_(run.timeline(rank)),
      layout_(run, rank),
      ranges_(timeline_, rank),
      at_(run.world.whereabouts(rank)),
      options_(options),
      gpu_(std::move(gpu)),
      connect_(std::move(connect)) {
  has_transfers_ = std::any_of(timeline_.instances.begin(), timeline_.instances.end(),
                               [&](const Instance& i) { return !layout_.others(i).empty(); });
  if (run.options.record_routing) routing_ = RoutingLog::of(run.scenario, run.grid, rank);
  if (run.choices) replay_.emplace(run.choices, run.scenario, run.grid, rank);
  const bool possible =
      graphs_possible(timeline_) && !run.options.before_op && options.send_slots == 0 && !replay_.has_value();
  graphs_ = possible && (options_.graphs == Graphs::on || (options_.graphs == Graphs::automatic && !has_transfers_));
  gpu_->bind_thread();
  if (options_.measure_products && !has_transfers_) gpu_->measure_products();
  if (options_.library_attention) gpu_->attention_by_library();
  make_streams();
  lay_out_memory();
  make_send_staging();
}

GpuRank::~GpuRank() {
  join();
  watch_.reset();
}

void GpuRank::make_streams() {
  const auto& streams = timeline_.role->streams;
  REHEARSE_CHECK(streams.size() <= Whereabouts::kStreams, "{} streams", streams.size());
  streams_.resize(streams.size());
  for (std::size_t s = 0; s < streams.size(); ++s) {
    StreamState& state = streams_[s];
    state.known.assign(streams.size(), 0);
    if (streams[s].kind == program::StreamKind::compute) compute_stream_ = static_cast<std::int32_t>(s);
    if (timeline_.streams[s].empty() || streams[s].kind == program::StreamKind::host) continue;
    state.stream = gpu_->make_stream(streams[s].kind != program::StreamKind::compute);
    for (Gpu::Event& e : state.ends) e = gpu_->make_event(false);
  }
  REHEARSE_CHECK(compute().stream >= 0, "{}: no op on the compute stream", timeline_.role->name);
  instance_event_.assign(timeline_.instances.size(), -1);
  for (std::size_t index = 0; index < timeline_.instances.size(); ++index) {
    const Instance& i = timeline_.instances[index];
    StreamState& state = streams_[static_cast<std::size_t>(i.stream)];
    const program::Op& op = timeline_.op(i);
    REHEARSE_CHECK((state.stream < 0) == std::holds_alternative<program::HostSync>(op.shape),
                   "'{}' is on the stream '{}'", op.name, streams[static_cast<std::size_t>(i.stream)].name);
    if (i.awaited && state.stream >= 0) instance_event_[index] = gpu_->make_event(false);
    state.reads_values |= reads_step_values(op);
  }
  for (Gpu::Event& e : step_ends_) e = gpu_->make_event(true);
  values_ready_ = gpu_->make_event(false);
}

void GpuRank::lay_out_memory() {
  arena_ = static_cast<std::byte*>(gpu_->allocate(std::max(timeline_.memory.arena_bytes, kArenaAlignment)));
  values_ = static_cast<kernels::StepValues*>(gpu_->allocate(sizeof(kernels::StepValues)));
  std::int64_t inputs = 0;
  for (const Instance& i : timeline_.instances) {
    const auto* input = std::get_if<program::Input>(&timeline_.op(i).shape);
    input_offset_.push_back(input == nullptr ? -1 : inputs);
    if (input == nullptr) continue;
    const std::int64_t bytes = input->elements * size_of(layout_.operand(arena_, i.first_place).type);
    inputs += aligned(bytes);
  }
  lay_out_routing();
  for (StepStaging& staging : staging_) {
    staging.inputs = gpu_->allocate_host(std::max(inputs, kArenaAlignment));
    staging.values = new (gpu_->allocate_host(sizeof(kernels::StepValues))) kernels::StepValues();
    staging.losses = reinterpret_cast<float*>(gpu_->allocate_host(losses() * static_cast<std::int64_t>(sizeof(float))));
    std::fill_n(staging.losses, losses(), 0.0F);
    staging.host_spans.resize(timeline_.instances.size());
  }
}

void GpuRank::make_send_staging() {
  send_staging_.resize(streams_.size());
  if (options_.send_slots == 0) return;
  const std::vector<std::int64_t> bytes = program::send_slot_bytes(*timeline_.role);
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (bytes[s] == 0) continue;
    SendStaging& out = send_staging_[s].emplace();
    out.stream = gpu_->make_stream(true);
    for (Gpu::Event& e : out.ends) e = gpu_->make_event(false);
    for (int slot = 0; slot < options_.send_slots; ++slot) {
      out.slots.push_back(static_cast<std::byte*>(gpu_->allocate(bytes[s])));
      out.filled.push_back(gpu_->make_event(false));
      out.sent.push_back(gpu_->make_event(false));
    }
  }
}

// Not-a-number in every type: what is read before it was written shows. What is drawn is made on the host, by all its
// threads, in one of two pieces of pinned memory while the other is copied.
void GpuRank::initialise() {
  gpu_->bind_thread();
  const Gpu::Stream stream = compute().stream;
  gpu_->set_bytes(stream, arena_, run_.options.clear_arena ? 0 : 0xFF, timeline_.memory.arena_bytes);
  const FirstWeights weights(run_, rank_);
  const InitialMemory memory(timeline_, run_.grid, rank_, run_.scenario.training.seed, weights.parameters());
  for (const InitialMemory::Zeros& z : memory.zeros()) gpu_->set_bytes(stream, arena_ + z.offset, 0, z.bytes);
  const auto& blocks = memory.blocks();
  std::array<std::byte*, 2> slabs{};
  for (std::size_t first = 0, turn = 0; first < blocks.size(); turn = 1 - turn) {
    std::byte*& slab = slabs[turn];
    if (slab == nullptr)
      slab = gpu_->allocate_host(kSlabBytes);
    else
      await(compute().ends[turn]);
    std::vector<std::array<std::byte*, 2>> to;  // by block from `first`, as far as the slab goes
    for (std::int64_t used = 0; first + to.size() < blocks.size();) {
      const auto& places = blocks[first + to.size()].places;
      const std::int64_t second = used + aligned(places[0].bytes), end = second + aligned(places[1].bytes);
      if (end > kSlabBytes) break;
      to.push_back({slab + used, slab + second});
      used = end;
    }
    in_parallel(run_.threads_per_rank, to.size(), [&](std::size_t i) { memory.make(blocks[first + i], to[i]); });
    for (std::size_t i = 0; i < to.size(); ++i)
      for (std::size_t p = 0; p < to[i].size(); ++p)
        if (const InitialMemory::Place& place = blocks[first + i].places[p]; place.offset >= 0)
          gpu_->to_device(stream, arena_ + place.offset, to[i][p], place.bytes);
    first += to.size();
    gpu_->record(compute().ends[turn], stream);
  }
  gpu_->record(compute().ends[0], stream);
  await(compute().ends[0]);
  if (!connect_) return;
  load_kernels();
  transfers_ = connect_();
  if (weights.any()) get_first_weights(weights);
}

// Through a piece of device memory, so that a message goes in pieces.
void GpuRank::get_first_weights(const FirstWeights& first) {
  const double began = host_s();
  const Gpu::Stream stream = compute().stream;
  auto* const piece = static_cast<std::byte*>(gpu_->allocate(kSlabBytes));
  const auto done = [&](const std::vector<int>& members) {
    gpu_->record(compute().ends[0], stream);
    const auto limit = run_.options.timeout;
    const auto deadline = limit.count() > 0 ? Clock::now() + limit : Clock::time_point::max();
    while (!gpu_->done(compute().ends[0])) {
      if (run_.world.stop().requested()) throw Stopped(members);
      if (Clock::now() >= deadline) throw DeadlineError(members);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  };
  first.distribute(
      [&](program::GroupId group, kernels::Out data, std::int64_t elements) {
        const std::int64_t size = size_of(data.type), most = kSlabBytes / size;
        std::vector<int> others = layout_.members(group);
        std::erase(others, rank_);
        for (std::int64_t e = 0; e < elements; e += most) {
          const std::int64_t n = std::min(most, elements - e);
          std::byte* const host = static_cast<std::byte*>(data.data) + e * size;
          gpu_->to_device(stream, piece, host, n * size);
          transfers_->collective({program::CollectiveKind::broadcast, group, n}, data.type, piece, piece,
                                 gpu_->native(stream));
          gpu_->to_host(stream, host, piece, n * size);
          done(others);
        }
      },
      [&](const InitialMemory::Block& block, const float* values) {
        for (const InitialMemory::Place& place : block.places) {
          if (place.offset < 0) continue;
          std::vector<std::byte> kept(static_cast<std::size_t>(place.bytes));
          from_float(place.type, values, block.count, kept.data());
          gpu_->to_device(stream, arena_ + place.offset, kept.data(), place.bytes);
          done({});
        }
      });
  first_weights_s_ = host_s() - began;
}

// One product and one kernel, before others begin to wait for us: what the first of each loads may take longer than
// --timeout where several processes do it at once, of which each loads all (CUDA_MODULE_LOADING=EAGER,
// shared_device.h).
void GpuRank::load_kernels() {
  constexpr std::int64_t kSide = 64;
  DType type = DType::f32;  // of the rank's own products
  for (const Instance& i : timeline_.instances)
    if (std::holds_alternative<program::Gemm>(timeline_.op(i).shape)) type = timeline_.op(i).dtype;
  const std::int64_t bytes = kSide * kSide * size_of(type);
  auto* const memory = static_cast<std::byte*>(gpu_->allocate(3 * bytes));
  const Gpu::Stream stream = compute().stream;
  gpu_->set_bytes(stream, memory, 0, 3 * bytes);
  const kernels::Out a{memory, type}, b{memory + bytes, type}, c{memory + 2 * bytes, type};
  gpu_->device(stream).gemm({kSide, kSide, kSide}, a, b, nullptr, c);
  gpu_->device(stream).activation_forward(kernels::Unary::relu, kSide * kSide, c, a);
  gpu_->record(compute().ends[0], stream);
  await(compute().ends[0]);
}

void GpuRank::start() {
  running_ = true;
  Watch::Handlers handlers;
  handlers.late = [this](std::int32_t instance) {
    defer_to_blocked_peers(instance);
    if (reported_.exchange(true)) return;
    const std::string waited = waited_text(run_.options.timeout);
    if (run_.world.stop().requested())
      report_wait(run_, rank_, instance, instance < 0 ? std::vector<int>() : missing(instance));
    else if (instance < 0)
      report_failure(run_, rank_, -1,
                     waited +
                         " for a step of CUDA graphs, in which others may be late; a longer --timeout allows it, "
                         "--cuda-graphs off says where");
    else
      report_failure(run_, rank_, instance, waited, missing(instance));
  };
  handlers.failed = [this](std::int32_t instance, const std::string& what) { report_broken(instance, what); };
  watch_ = std::make_unique<Watch>(*gpu_, transfers_.get(), run_.world.stop(), at_, streams_.size(),
                                   run_.options.timeout, std::move(handlers));
  thread_ = std::thread([this] {
    run();
    running_ = false;
  });
}

void GpuRank::join() {
  if (thread_.joinable()) thread_.join();
}

void GpuRank::wait_for_other_reports() const {
  const Clock::time_point until = Clock::now() + kForOthers;
  while (!run_.world.stop().requested() && Clock::now() < until) std::this_thread::sleep_for(kLook / 10);
}

// A broken transfer is most often another rank's end: then whoever saw that tells it.
void GpuRank::report_broken(std::int32_t instance, const std::string& what) {
  wait_for_other_reports();
  if (reported_.exchange(true)) return;
  const bool cause = !run_.world.stop().requested();
  const std::vector<int> others = instance < 0 ? std::vector<int>() : missing(instance);
  if (cause)
    report_failure(run_, rank_, instance, fmt::format("failed: {}", what));
  else
    report_wait(run_, rank_, instance, others);
}

// Those of a transfer's other ranks that are not known to have come: NCCL does not say.
std::vector<int> GpuRank::missing(std::int32_t instance) const {
  const Instance& i = timeline_.instances[static_cast<std::size_t>(instance)];
  const std::vector<int> all = layout_.others(i);
  const std::int64_t step = at_.step.load(std::memory_order_relaxed);
  std::vector<int> absent;
  for (const int other : all) {
    const Whereabouts& at = run_.world.whereabouts(other);
    const bool collective = std::holds_alternative<program::Collective>(timeline_.op(i).shape);
    const bool here = collective && &run_.timeline(other) == &timeline_ &&
                      at.step.load(std::memory_order_relaxed) == step &&
                      at.instance[static_cast<std::size_t>(i.stream)].load(std::memory_order_relaxed) == instance;
    if (!here) absent.push_back(other);
  }
  return absent.empty() ? all : absent;
}

// A rank that we wait for and that waits for another itself loses patience when we do, and knows better who is late.
void GpuRank::defer_to_blocked_peers(std::int32_t instance) const {
  if (instance < 0) return;
  const auto in_transfer = [this](int other) {
    const Timeline& timeline = run_.timeline(other);
    const auto& at = run_.world.whereabouts(other).instance;
    return std::any_of(at.begin(), at.end(), [&](const auto& stream) {
      const std::int32_t i = stream.load(std::memory_order_relaxed);
      if (i < 0) return false;
      const program::OpShape& shape = timeline.op(timeline.instances[static_cast<std::size_t>(i)]).shape;
      return std::holds_alternative<program::Collective>(shape) || std::holds_alternative<program::PointToPoint>(shape);
    });
  };
  const std::vector<int> others = missing(instance);
  if (std::none_of(others.begin(), others.end(), in_transfer)) return;
  wait_for_other_reports();
}

void GpuRank::run() {
  try {
    gpu_->bind_thread();
    run_steps();
    finish();
    fetch();
    watch_->clear();
  } catch (const Stopped&) {
    if (reported_.exchange(true)) return;
    const std::optional<std::int32_t> at = watch_->waiting();
    if (at && *at >= 0) report_wait(run_, rank_, *at, missing(*at));
  } catch (const DeadlineError& late) {
    if (reported_.exchange(true)) return;
    const std::optional<std::int32_t> at = watch_->waiting();
    report_failure(run_, rank_, at.value_or(issuing_), waited_text(run_.options.timeout), late.missing());
  } catch (const BrokenTransfer& broken) {
    report_broken(issuing_, broken.what());
  } catch (const std::exception& error) {
    if (reported_.exchange(true)) return;
    report_failure(run_, rank_, issuing_, fmt::format("failed: {}", error.what()));
  }
}

void GpuRank::run_steps() {
  base_host_s_ = anchor(base_);
  StateLog states([this] { return gpu_->state(); });
  for (std::int64_t step = 0; step < run_.options.steps; ++step) {
    if (step >= kAhead) retire(step - kAhead);
    if (step == kAhead) settle_products();
    issue(step);
    issuing_ = -1;
  }
  for (std::int64_t step = std::max<std::int64_t>(0, run_.options.steps - kAhead); step < run_.options.steps; ++step)
    retire(step);
  states.end();
  use_.conditions = states.conditions();
  products_ = gpu_->products();
}

// The steps before this are issued op by op in any case.
void GpuRank::settle_products() {
  if (!options_.measure_products || has_transfers_) return;
  const Gpu::Settled settled = gpu_->settle_products();
  use_.products = settled.products;
  use_.other_products = settled.others;
}

std::int64_t GpuRank::losses() const {
  return timeline_.loss < 0 ? 1 : timeline_.role->buffers[static_cast<std::size_t>(timeline_.loss)].elements();
}

// Waits until the device has ended a step, and takes what it left: its time, its loss, its profile.
void GpuRank::retire(std::int64_t step) {
  StepStaging& staging = staging_of(step);
  const auto k = static_cast<std::size_t>(step % kAhead);
  for (const StreamState& s : streams_)
    if (s.stream >= 0 && (!staging.graphed || &s == &compute())) await(s.ends[k]);
  for (const auto& out : send_staging_)
    if (out) await(out->ends[k]);
  const Gpu::Event end = step_ends_[static_cast<std::size_t>(step) % step_ends_.size()];
  const Gpu::Event before = step == 0 ? base_ : step_ends_[static_cast<std::size_t>(step - 1) % step_ends_.size()];
  ends_s_.push_back((step == 0 ? 0 : ends_s_.back()) + gpu_->elapsed_s(before, end));
  at_.step.store(step + 1, std::memory_order_relaxed);
  if (staging.mode == Mode::measured) keep_profile(step, staging);
  log_choices(step);
  for (std::size_t i = 0; reports_loss_ && i < static_cast<std::size_t>(losses()); ++i)
    run_.world.report_loss(loss_item(step, i, static_cast<std::size_t>(losses())), rank_, staging.losses[i]);
}

// Polls, so that a stopped run ends whatever the device does.
void GpuRank::await(Gpu::Event event) {
  constexpr int kSpins = 200;
  constexpr std::chrono::microseconds kNap{20};
  for (int i = 0; !gpu_->done(event); ++i) {
    if (run_.world.stop().requested()) throw Stopped(std::vector<int>());
    if (i >= kSpins) std::this_thread::sleep_for(kNap);
  }
}

// What is left on the device that is asked for: copied to where it would lie in an arena of the host.
void GpuRank::fetch() {
  const HostCopy copy(persistent_end(timeline_));
  const auto& buffers = timeline_.role->buffers;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (timeline_.persistent[b] < 0 || !(run_.options.keep_parameters || buffers[b].name == "loss_scale")) continue;
    const std::int64_t at = timeline_.persistent[b];
    gpu_->to_host(compute().stream, copy.data() + at, arena_ + at, buffers[b].bytes());
  }
  gpu_->record(values_ready_, compute().stream);
  await(values_ready_);
  loss_scale_ = execute::loss_scale(timeline_, copy.data());
  if (run_.options.keep_parameters) parameters_ = parameter_values(timeline_, run_.grid, rank_, copy.data());
}

bool GpuRank::measured(std::int64_t step) const {
  return step == run_.options.steps - 1 || (run_.options.record && run_.options.record_every_step);
}

bool GpuRank::replayed(std::int64_t step) const {
  return graphs_ && step >= kAhead && !measured(step);
}

}  // namespace rehearse::execute
