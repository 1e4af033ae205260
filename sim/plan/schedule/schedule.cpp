// The list of schedules.
#include "sim/plan/schedule/schedule.h"

#include <array>

#include "sim/base/check.h"

namespace rehearse::plan {

namespace {

// As the enumeration has them.
const std::array<const PipelineSchedule*, kSchedules>& all_schedules() {
  static const std::array<const PipelineSchedule*, kSchedules> all = {&sequential_schedule(), &gpipe_schedule(),
                                                                      &one_f_one_b_schedule(), &interleaved_schedule(),
                                                                      &zero_bubble_schedule()};
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

}  // namespace rehearse::plan
