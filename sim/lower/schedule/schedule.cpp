// The schedules by the scenario's word for them.
#include "sim/lower/schedule/schedule.h"

#include "sim/base/check.h"

namespace rehearse::lower {

const Schedule& schedule_of(plan::Schedule schedule, int stages) {
  if (stages == 1) return sequential_schedule();
  switch (schedule) {
    case plan::Schedule::sequential:
      return sequential_schedule();
    case plan::Schedule::gpipe:
      return gpipe_schedule();
    case plan::Schedule::one_f_one_b:
      return one_f_one_b_schedule();
    case plan::Schedule::interleaved:
      return interleaved_schedule();
    case plan::Schedule::zero_bubble:
      return zero_bubble_schedule();
  }
  REHEARSE_CHECK(false, "schedule {} has no file", static_cast<int>(schedule));
}

}  // namespace rehearse::lower
