// The list of schedules.
#include "sim/plan/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/check.h"

namespace rehearse::plan {

namespace {

// As the enumeration has them.
const std::array<const PipelineSchedule*, kSchedules>& all_schedules() {
  static const std::array<const PipelineSchedule*, kSchedules> all = {
      &sequential_schedule(),  &gpipe_schedule(),         &one_f_one_b_schedule(), &interleaved_schedule(),
      &zero_bubble_schedule(), &zero_bubble_v_schedule(), &dualpipe_v_schedule(),  &dualpipe_schedule()};
  return all;
}

}  // namespace

const PipelineSchedule& schedule_of(Schedule schedule) {
  const auto index = static_cast<std::size_t>(schedule);
  REHEARSE_CHECK(index < all_schedules().size(), "schedule {} has no file", index);
  return *all_schedules()[index];
}

const PipelineSchedule& schedule_of(Schedule schedule, std::int64_t stages) {
  return stages == 1 ? sequential_schedule() : schedule_of(schedule);
}

const PipelineSchedule* find_schedule(std::string_view name) {
  for (const PipelineSchedule* schedule : all_schedules())
    if (schedule->name() == name) return schedule;
  return nullptr;
}

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const PipelineSchedule* schedule : all_schedules()) names.push_back(schedule->name());
  return names;
}

void run_in_pairs(std::vector<ScheduleSlot>& slots) {
  const auto is_forward = [](const ScheduleSlot& slot) { return slot.forward(); };
  const auto first_backward = std::find_if_not(slots.begin(), slots.end(), is_forward);
  if (std::none_of(first_backward, slots.end(), is_forward)) return;
  for (std::size_t i = 0; i + 1 < slots.size(); ++i) slots[i].with_next = slots[i].forward() && !slots[i + 1].forward();
}

int most_held(const std::vector<ScheduleSlot>& slots) {
  int held = 0, most = 0;
  for (const ScheduleSlot& slot : slots) {
    held += slot.forward() ? 1 : 0;
    most = std::max(most, held);
    held -= slot.kind == SlotKind::backward || slot.kind == SlotKind::backward_weight ? 1 : 0;
  }
  return most;
}

// Gradients that only live within one backward cannot be in two parts.
std::vector<ScheduleProblem> problems_of_parted_backward(std::string_view schedule, const Plan& plan) {
  std::vector<ScheduleProblem> found;
  // One rank that has its optimizer on the host sends its gradients there.
  if (plan.zero >= 2 && (plan.data * plan.context > 1 || plan.offload_optimizer))
    found.push_back({{"plan.zero"},
                     fmt::format("zero = {} {} gradients after each backward, which schedule {} leaves in two "
                                 "parts; zero: 0 or 1",
                                 plan.zero, plan.data * plan.context > 1 ? "shards" : "moves", schedule)});
  return found;
}

}  // namespace rehearse::plan
