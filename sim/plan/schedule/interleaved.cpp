// interleaved: 1f1b over `chunks` model chunks a stage, p micro-batches through a chunk at a time (Narayanan et al.
// 2021, arXiv 2104.04473, section 2.2, as Megatron-LM's forward_backward_pipelining_with_interleaving orders them).
// With p equal stages, v chunks and free communication the bubble is (p - 1) / (m v + p - 1) of the step.
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/nearest_numbers.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

// The k-th forward (or backward) of a stage: groups of `stages` micro-batches pass chunk after chunk.
ScheduleSlot interleaved_slot(SlotKind kind, int k, const PipelinePlace& place) {
  const int round = place.stages * place.chunks;
  const int chunk = k % round / place.stages;
  return {kind, k / round * place.stages + k % place.stages,
          kind == SlotKind::forward ? chunk : place.chunks - 1 - chunk};
}

class Interleaved : public PipelineSchedule {
 public:
  std::string_view name() const override { return "interleaved"; }
  std::string_view summary() const override {
    return "1f1b over several chunks a stage; needs micro-batches divisible by `pipeline`";
  }
  std::string title(std::int64_t chunks) const override {
    return fmt::format("interleaved, {} chunks a stage", chunks);
  }
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    const int all = micro_batches * place.chunks, first = warm_up(place, micro_batches);
    std::vector<ScheduleSlot> slots;
    for (int k = 0; k < first; ++k) slots.push_back(interleaved_slot(SlotKind::forward, k, place));
    for (int k = 0; k + first < all; ++k) {
      slots.push_back(interleaved_slot(SlotKind::forward, k + first, place));
      slots.push_back(interleaved_slot(SlotKind::backward, k, place));
    }
    for (int k = all - first; k < all; ++k) slots.push_back(interleaved_slot(SlotKind::backward, k, place));
    if (place.pairs) run_in_pairs(slots);
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, place.stages);
  }
  int held(const PipelinePlace& place, int micro_batches) const override {
    return std::min(warm_up(place, micro_batches) + 1, micro_batches * place.chunks);
  }
  bool alternates(std::int64_t /*stages*/) const override { return true; }
  double bubble(const PassTimes& times, const PipelinePlace& place, int /*micro_batches*/) const override {
    return (place.stages - 1) * times.whole() / place.chunks;
  }
  // Groups of `pipeline` micro-batches go through a chunk together.
  std::vector<ScheduleProblem> problems(const Plan& plan, std::optional<std::int64_t> micro_batches) const override {
    if (!micro_batches || *micro_batches % plan.pipeline == 0) return {};
    return {{{"training.global_batch", "plan.schedule"},
             fmt::format("schedule interleaved needs a number of micro-batches divisible by pipeline = {}, but there "
                         "are {} (global_batch / (data * micro_batch)); nearest: {}",
                         plan.pipeline, *micro_batches, nearest_multiples(*micro_batches, plan.pipeline))}};
  }
  bool takes_chunks() const override { return true; }
  Schedule with_one_chunk(Schedule /*self*/) const override { return Schedule::one_f_one_b; }
  // A stage sends as soon as it can: its neighbours' slots do not alternate with its own.
  bool may_batch_transfers() const override { return false; }

 private:
  // Forwards before the first backward.
  static int warm_up(const PipelinePlace& place, int micro_batches) {
    const int all = micro_batches * place.chunks;
    if (micro_batches == place.stages && !place.alternates_in_one_round) return all;
    return std::min((place.stages - place.stage - 1) * 2 + (place.chunks - 1) * place.stages + (place.pairs ? 1 : 0),
                    all);
  }
};

}  // namespace

const PipelineSchedule& interleaved_schedule() {
  static const Interleaved schedule;
  return schedule;
}

}  // namespace rehearse::plan
