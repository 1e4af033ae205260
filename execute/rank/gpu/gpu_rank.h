// One rank of a run on a GPU. One thread issues the steps in program order, each op to the CUDA stream of its program
// stream, a wait for another stream as a wait for the event behind the op waited for (Timeline); only a HostSync holds
// the thread itself. Memory is one arena as the memory plan lays it out. Examples are loaded on the host into pinned
// memory and copied by the stream of the op; what changes from step to step (StepValues) is one copy at its beginning,
// the loss one behind the op that ends it. The host is at most kAhead steps ahead of the device, and has what it lends
// to copies as often.
//
// Where sends that wait for their receivers could make ranks wait in a circle (sim/program/link/send_slots.h) they are
// made from copies in slots outside the arena, on a stream of their own; the op then lasts as long as the copy. Such
// steps are not recorded.
//
// Since addresses are the same in every step, a step can be recorded as a CUDA graph and replayed: one for even and one
// for odd steps, as their pinned memory differs. The first two steps are always issued op by op (libraries set
// themselves up, NCCL connects), and so are steps that are measured op by op: there each op lies between two events
// with the time, which in a graph would be nodes of their own between kernels that else start back to back. The last
// step is one of those; the others are timed by the ends of their compute streams, and their shares have the last one's
// proportions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "execute/rank/first_weights.h"
#include "execute/rank/gpu/gpu.h"
#include "execute/rank/gpu/step_profile.h"
#include "execute/rank/gpu/watch.h"
#include "execute/rank/op_ranges.h"
#include "execute/rank/rank.h"
#include "execute/rank/rank_layout.h"
#include "execute/rank/routing_log.h"
#include "execute/rank/run.h"
#include "execute/transport/queued_transfers.h"

namespace rehearse::execute {

enum class Graphs : unsigned char { automatic, on, off };  // automatic: on if the rank has no transfers

// Whether every step is the same to the device: no host sync holds the host within it.
bool graphs_possible(const Timeline& timeline);

struct GpuOptions {
  Graphs graphs = Graphs::automatic;
  // The fastest of the library's algorithms for each product, timed in the first two steps, instead of its first
  // choice. Of a rank without transfers alone: ranks that share a product's result or wait for one another do alike.
  bool measure_products = false;
  bool library_attention = false;  // Gpu::attention_by_library
  int ranks_on_device = 1;
  int send_slots = 0;  // sim/program/link/send_slots.h
};

class GpuRank final : public Rank {
 public:
  // `connect` makes the transfers, in initialise(), for a rank that has any. Throws GpuOutOfMemory.
  using Connect = std::function<std::unique_ptr<QueuedTransfers>()>;
  GpuRank(Run& run, int rank, bool reports_loss, std::unique_ptr<Gpu> gpu, Connect connect, GpuOptions options);
  ~GpuRank() override;

  void initialise() override;
  void start() override;
  bool ended() const override { return !running_; }
  void join() override;

  int rank() const override { return rank_; }
  const Timeline& timeline() const override { return timeline_; }
  const std::vector<Shares>& shares() const override { return shares_; }
  std::vector<result::OpRecord> records() const override { return records_; }
  std::vector<float> parameters() const override { return parameters_; }
  std::vector<float> loss_scale() const override { return loss_scale_; }
  double first_weights_s() const override { return first_weights_s_; }
  std::int64_t held_bytes() const override { return timeline_.memory.arena_bytes; }
  std::vector<TransferStart> transfer_starts() const override { return starts_; }
  std::vector<TransferWait> transfer_waits() const override { return waits_; }
  DeviceUse device_use() const override { return use_; }
  std::vector<result::ProductUse> products() const override { return products_; }
  std::vector<model::RoutedChoices> routing() const override {
    return routing_ ? routing_->all() : std::vector<model::RoutedChoices>();
  }

  static constexpr std::int64_t kAhead = 2;

 private:
  enum class Mode : unsigned char { plain, measured, captured };
  struct StreamState {
    Gpu::Stream stream = -1;              // -1: no ops, or the host's
    std::array<Gpu::Event, kAhead> ends;  // behind a step's last op
    std::vector<std::int64_t> known;      // other streams' positions we have waited for
    bool reads_values = false;            // has kernels that read StepValues
  };
  struct SendStaging {  // of a stream whose sends are made from copies
    Gpu::Stream stream = -1;
    std::vector<std::byte*> slots;
    std::vector<Gpu::Event> filled, sent;  // by slot
    std::array<Gpu::Event, kAhead> ends;
    std::size_t next = 0;
  };
  struct StepStaging {  // of the steps with one remainder by kAhead; pinned memory and what was issued
    std::byte* inputs = nullptr;
    kernels::StepValues* values = nullptr;
    float* losses = nullptr;
    std::byte* routed = nullptr;  // what gates chose, counts and loads of experts' rows
    Gpu::Graph graph = -1;
    Mode mode = Mode::plain;
    bool graphed = false;
    std::vector<std::pair<Gpu::Event, Gpu::Event>> op_events;  // by instance, of measured steps
    std::vector<Span> host_spans;                              // by instance, of host syncs
  };

  void make_streams();
  void lay_out_memory();
  void make_send_staging();
  void load_kernels();
  void get_first_weights(const FirstWeights& first);
  void run();
  void run_steps();
  void settle_products();
  std::int64_t losses() const;  // of a step
  void retire(std::int64_t step);
  void await(Gpu::Event event);
  void fetch();
  bool measured(std::int64_t step) const;
  bool replayed(std::int64_t step) const;
  void report_broken(std::int32_t instance, const std::string& what);
  std::vector<int> missing(std::int32_t instance) const;
  void wait_for_other_reports() const;
  void defer_to_blocked_peers(std::int32_t instance) const;

  // gpu_issue.cpp
  void issue(std::int64_t step);
  void issue_graph(std::int64_t step);
  void issue_ops(std::int64_t step, Mode mode);
  void begin_step(std::int64_t step, Mode mode);
  void end_step(std::int64_t step, Mode mode);
  void issue_op(std::int32_t index, std::int64_t step, Mode mode);
  void issue_waits(const Instance& i, std::int64_t step, Mode mode);
  Gpu::Event event_of(const Wait& wait) const;
  void host_sync(std::int32_t index, std::int64_t step, Mode mode);
  void load_input(std::int32_t index, std::int64_t step);
  void queue_input(std::int32_t index, std::int64_t step, Mode mode);
  void queue_kernel(std::int32_t index, std::int64_t step);
  void queue_transfer(std::int32_t index, std::int64_t step, bool marked);
  void trade_counted(std::int32_t index, std::int64_t step, const program::Collective& c, Gpu::Stream stream);

  // gpu_routing.cpp
  void lay_out_routing();
  std::byte* routed(std::int32_t index, std::int64_t step) {
    return staging_of(step).routed + routed_offset_[static_cast<std::size_t>(index)];
  }
  bool given_choices(std::int32_t index, std::int64_t step);
  void take_to_host(std::int32_t index, std::int64_t step);
  void check_rooms(std::int64_t step);
  void log_choices(std::int64_t step);
  bool sends_from_copy(const program::Op& op) const;
  void send_from_copy(std::int32_t index);
  std::vector<QueuedMessage> messages(const Instance& i) const;

  // gpu_account.cpp
  double host_s() const;             // since the run began
  double anchor(Gpu::Event& event);  // records it on the idle compute stream; when that was, as host_s()
  void keep_profile(std::int64_t step, StepStaging& staging);
  void finish();

  StepStaging& staging_of(std::int64_t step) { return staging_[static_cast<std::size_t>(step % kAhead)]; }
  StreamState& compute() { return streams_[static_cast<std::size_t>(compute_stream_)]; }
  std::byte* operand(std::size_t place) const { return arena_ + layout_.offset(place); }

  Run& run_;
  const int rank_;
  const bool reports_loss_;
  const Timeline& timeline_;
  const RankLayout layout_;
  const OpRanges ranges_;
  Whereabouts& at_;
  const GpuOptions options_;
  const std::unique_ptr<Gpu> gpu_;
  const Connect connect_;
  std::unique_ptr<QueuedTransfers> transfers_;
  std::unique_ptr<Watch> watch_;
  bool has_transfers_ = false, graphs_ = false;
  double first_weights_s_ = 0;

  std::byte* arena_ = nullptr;
  kernels::StepValues* values_ = nullptr;  // device memory
  std::array<StepStaging, kAhead> staging_;
  std::vector<std::int64_t> input_offset_;  // by instance, in StepStaging::inputs; -1: no input
  // By instance, in StepStaging::routed: where the host has what it chose for a gate, or what the device left of the
  // instance's rows; -1: nothing. Of a counted all-to-all the instance whose counts it is by.
  std::vector<std::int64_t> routed_offset_;
  std::vector<std::int32_t> counts_of_;
  std::vector<std::int32_t> unchecked_;  // placed rows whose loads no host sync has looked at yet
  std::unique_ptr<RoutingLog> routing_;  // null: choices are not recorded
  std::optional<RoutingReplay> replay_;
  std::vector<StreamState> streams_;                      // by program stream
  std::vector<std::optional<SendStaging>> send_staging_;  // by program stream
  std::int32_t compute_stream_ = 0;
  std::vector<Gpu::Event> instance_event_;  // by instance; -1: nobody waits for it
  Gpu::Event values_ready_ = -1;
  std::array<Gpu::Event, 2 * kAhead> step_ends_;  // of the compute stream, with the time; by step
  Gpu::Event base_ = -1;
  double base_host_s_ = 0;  // host seconds since the run began, of the base event

  std::vector<double> ends_s_;  // by step: the end of the compute stream, seconds since the base event
  std::vector<StepProfile> profiles_;
  std::vector<Shares> shares_;
  std::vector<result::OpRecord> records_;
  std::vector<TransferStart> starts_;
  std::vector<TransferWait> waits_;
  std::vector<float> parameters_, loss_scale_;
  DeviceUse use_;
  std::vector<result::ProductUse> products_;
  std::int32_t issuing_ = -1;  // the instance that is being queued
  std::atomic<bool> running_ = false;
  std::atomic<bool> reported_ = false;  // the failure of this rank was reported
  std::thread thread_;
};

}  // namespace rehearse::execute
