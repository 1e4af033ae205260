#include "sim/lower/parallel/pipeline.h"

namespace rehearse::lower {

using plan::ScheduleSlot;
using program::Collective;
using program::CollectiveKind;
using program::Leg;
using program::PointToPoint;
using program::StreamKind;

bool PipelineTransfers::splits(std::int64_t elements) const {
  return context_.groups.tensor >= 0 && !context_.sequence_parallel && context_.profile().split_point_to_point &&
         elements % context_.tensor == 0;
}

Boundary PipelineTransfers::declare_boundary(const std::string& name, std::vector<std::int64_t> shape) {
  Boundary boundary;
  boundary.whole = builder_.activation(name, context_.compute, std::move(shape), Lifetime::micro_batch);
  boundary.slice = boundary.whole;
  const std::int64_t elements = builder_.buffer(boundary.whole).elements();
  if (splits(elements))
    boundary.slice =
        builder_.activation(name + ".received", context_.compute, {elements / context_.tensor}, Lifetime::micro_batch);
  return boundary;
}

Leg PipelineTransfers::leg(bool is_send, bool forward, std::int64_t elements) const {
  const bool next = (is_send == forward) != up_;
  return {is_send, Axis::pipeline, next ? 1 : -1, forward ? 0 : 1, elements};
}

std::string PipelineTransfers::stream(bool is_send, bool forward) const {
  const bool next = (is_send == forward) != up_;
  return std::string(is_send ? "send" : "receive") + (next ? "_next" : "_previous") + (up_ ? "_up" : "");
}

// The receive is posted when the slot begins: a receive kernel posted earlier would hold multiprocessors for nothing.
void PipelineTransfers::receive(const std::vector<Boundary>& boundaries, bool forward) {
  if (batched_) return;
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::pipeline);
  std::vector<Leg> legs;
  std::vector<Operand> writes;
  for (const Boundary& boundary : boundaries) {
    legs.push_back(leg(false, forward, builder_.buffer(boundary.slice).elements()));
    writes.push_back({boundary.slice});
  }
  builder_.after_compute(builder_.op_on(stream(false, forward), StreamKind::pipeline,
                                        forward ? "receive_forward" : "receive_backward", PointToPoint{std::move(legs)},
                                        context_.compute, {}, writes));
  builder_.set_phase(phase);
}

void PipelineTransfers::unpack(const Boundary& boundary, bool forward) {
  if (!boundary.split()) return;
  builder_.op(
      forward ? "receive_forward.all_gather" : "receive_backward.all_gather",
      Collective{CollectiveKind::all_gather, context_.groups.tensor, builder_.buffer(boundary.whole).elements()},
      context_.compute, {{boundary.slice}}, {{boundary.whole}}, StreamKind::tensor);
}

BufferId PipelineTransfers::packed(BufferId whole, const std::string& name) {
  if (!splits(builder_.buffer(whole).elements())) return whole;
  return builder_.slice(name, whole, static_cast<int>(context_.tensor), {Axis::tensor});
}

void PipelineTransfers::send(const std::vector<BufferId>& slices, bool forward) {
  if (batched_) {
    sent_by_[builder_.current_body()] = slices;
    return;
  }
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::pipeline);
  std::vector<Leg> legs;
  std::vector<Operand> reads;
  for (const BufferId slice : slices) {
    legs.push_back(leg(true, forward, builder_.buffer(slice).elements()));
    reads.push_back({slice});
  }
  builder_.op_on(stream(true, forward), StreamKind::pipeline, forward ? "send_forward" : "send_backward",
                 PointToPoint{std::move(legs)}, context_.compute, reads, {});
  builder_.set_phase(phase);
}

BodyId PipelineTransfers::exchange(BodyId before, const ScheduleSlot* sent, const ScheduleSlot* received,
                                   const std::vector<BufferId>& targets) {
  std::vector<Leg> legs;
  std::vector<Operand> reads, writes;
  if (const auto slices = sent != nullptr ? sent_by_.find(before) : sent_by_.end(); slices != sent_by_.end())
    for (const BufferId slice : slices->second) {
      legs.push_back(leg(true, sent->forward(), builder_.buffer(slice).elements()));
      reads.push_back({slice});
    }
  const int delta = sent != nullptr && received != nullptr ? received->micro_batch - sent->micro_batch : 0;
  for (const BufferId target : targets) {
    legs.push_back(leg(false, received->forward(), builder_.buffer(target).elements()));
    writes.push_back({target, delta});
  }
  if (legs.empty()) return -1;
  const int kind = received == nullptr ? 0 : received->forward() ? 1 : 2;
  const auto [it, added] = exchanges_.try_emplace({before, kind, delta}, -1);
  if (!added) return it->second;
  it->second = builder_.begin_body("exchange" + std::to_string(exchanges_.size()));
  builder_.set_phase(Phase::pipeline);
  const OpRef group = builder_.op_on("pipeline", StreamKind::pipeline, "exchange", PointToPoint{std::move(legs)},
                                     context_.compute, reads, writes);
  builder_.after_compute(group);
  if (context_.plan().cuda_graphs != plan::CudaGraphs::step)  // which holds no wait of the host
    builder_.after(builder_.op("wait_for_exchange", program::HostSync{}, context_.compute, {}, {}, StreamKind::host),
                   group);
  return it->second;
}

}  // namespace rehearse::lower
