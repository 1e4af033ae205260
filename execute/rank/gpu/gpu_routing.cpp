// What the host of a GPU rank has to do with experts: it gives gates recorded choices, keeps what gates chose, and is
// left the counts by which rows are traded. All of it goes through pinned memory, a place an instance, of each of the
// steps that are under way.
#include <cstdint>
#include <variant>

#include "execute/rank/expert_rows.h"
#include "execute/rank/gpu/gpu_rank.h"
#include "execute/rank/kernel_call.h"
#include "sim/base/check.h"

namespace rehearse::execute {

using program::Op;
using program::Router;
using program::RouterPart;

namespace {

const Router* router_of(const Op& op, RouterPart part) {
  const auto* router = std::get_if<Router>(&op.shape);
  return router != nullptr && router->part == part ? router : nullptr;
}

bool counted(const Op& op) {
  const auto* c = std::get_if<program::Collective>(&op.shape);
  return c != nullptr && c->counted;
}

}  // namespace

// Counts lie in one place from the all-gather that makes them to the last all-to-all by them, so it is the latest one
// before that writes there.
void GpuRank::lay_out_routing() {
  const std::size_t n = timeline_.instances.size();
  routed_offset_.assign(n, -1);
  counts_of_.assign(n, -1);
  std::int64_t bytes = 0;
  const auto give = [&](std::size_t index, std::int64_t elements) {
    if (routed_offset_[index] >= 0) return;
    constexpr std::int64_t kAlignment = 256;
    routed_offset_[index] = bytes;
    bytes += (elements * std::int64_t{4} + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (std::size_t index = 0; index < n; ++index) {
    const Instance& i = timeline_.instances[index];
    const Op& op = timeline_.op(i);
    if (const Router* gate = router_of(op, RouterPart::gate); gate != nullptr && (replay_ || routing_))
      give(index, gate->tokens * gate->top_k);
    if (const Router* place = router_of(op, RouterPart::place); place != nullptr && place->own > 0)
      give(index, place->own);
    if (!counted(op)) continue;
    const std::int64_t at = layout_.offset(i.first_place + 1);
    std::size_t maker = index;
    while (maker-- > 0) {
      const Instance& before = timeline_.instances[maker];
      const auto* c = std::get_if<program::Collective>(&timeline_.op(before).shape);
      if (c == nullptr || c->kind != program::CollectiveKind::all_gather ||
          layout_.offset(before.first_place + 1) != at)
        continue;
      give(maker, c->elements);
      counts_of_[index] = static_cast<std::int32_t>(maker);
      break;
    }
    REHEARSE_CHECK(counts_of_[index] >= 0, "'{}' is by counts that nothing gathers", op.name);
  }
  for (StepStaging& staging : staging_)
    if (bytes > 0) staging.routed = gpu_->allocate_host(bytes);
}

// Whether the instance is a gate that gets recorded choices: these are on their way then, and their weights behind
// them.
bool GpuRank::given_choices(std::int32_t index, std::int64_t step) {
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const Op& op = timeline_.op(i);
  const Router* gate = router_of(op, RouterPart::gate);
  if (gate == nullptr || !replay_) return false;
  const Gpu::Stream stream = streams_[static_cast<std::size_t>(i.stream)].stream;
  const std::size_t writes = i.first_place + op.reads.size();
  const kernels::Out logits = layout_.operand(arena_, i.first_place), weights = layout_.operand(arena_, writes),
                     chosen = layout_.operand(arena_, writes + 1);
  auto* const choices = reinterpret_cast<std::int32_t*>(routed(index, step));
  replay_->choose(*gate, step, layout_.first_sequence(i), choices);
  gpu_->to_device(stream, chosen.data, choices,
                  gate->tokens * gate->top_k * static_cast<std::int64_t>(sizeof(std::int32_t)));
  kernels::RouterShape shape{gate->tokens, gate->experts, gate->top_k};
  shape.sigmoid = gate->sigmoid;
  gpu_->device(stream).router_weights(shape, logits, static_cast<const std::int32_t*>(chosen.data),
                                      static_cast<float*>(weights.data));
  return true;
}

// What the host asks the instance for, queued behind it: it is there when the instance's event is.
void GpuRank::take_to_host(std::int32_t index, std::int64_t step) {
  if (routed_offset_[static_cast<std::size_t>(index)] < 0) return;
  const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
  const Op& op = timeline_.op(i);
  const Gpu::Stream stream = streams_[static_cast<std::size_t>(i.stream)].stream;
  const auto take = [&](std::size_t place, std::int64_t elements) {
    gpu_->to_host(stream, routed(index, step), operand(place), elements * std::int64_t{4});
  };
  if (const Router* gate = router_of(op, RouterPart::gate)) {
    if (!replay_) take(i.first_place + op.reads.size() + 1, gate->tokens * gate->top_k);
  } else if (const Router* place = router_of(op, RouterPart::place)) {
    take(i.first_place + op.reads.size() + 1, place->own);
    unchecked_.push_back(index);
  } else {
    take(i.first_place + 1, std::get<program::Collective>(op.shape).elements);
  }
}

// Behind a host sync, which waits for the rows that were placed before it.
void GpuRank::check_rooms(std::int64_t step) {
  for (const std::int32_t index : unchecked_) {
    const Instance& i = timeline_.instances[static_cast<std::size_t>(index)];
    const Router& place = std::get<Router>(timeline_.op(i).shape);
    const Gpu::Event event = instance_event_[static_cast<std::size_t>(index)];
    REHEARSE_CHECK(event >= 0, "rank {}: nothing says when its rows are placed", rank_);
    await(event);
    check_room(place, run_.grid.position(rank_, place.spread), reinterpret_cast<const float*>(routed(index, step)));
  }
  unchecked_.clear();
}

// Of a step that the device has ended.
void GpuRank::log_choices(std::int64_t step) {
  if (!routing_) return;
  for (std::size_t index = 0; index < timeline_.instances.size(); ++index) {
    const Instance& i = timeline_.instances[index];
    if (const Router* gate = router_of(timeline_.op(i), RouterPart::gate))
      routing_->add(*gate, step, layout_.first_sequence(i),
                    {routed(static_cast<std::int32_t>(index), step), DType::i32});
  }
}

}  // namespace rehearse::execute
