// The executed ops of a run as rows of bars, one row a stage and stream, for drawing: sorted by start, and not more
// than a page can hold. Internal to the report page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

struct Bar {
  std::int64_t start_ps = 0, duration_ps = 0;  // start from the step's; time busy
  std::uint32_t text = 0;                      // into StoredResult::texts
  std::int32_t micro_batch = -1;
  std::uint32_t ops = 1;  // above 1: neighbours merged; `text` is of the longest
};

struct Row {
  std::int32_t rank = 0, stage = 0;
  std::string stream;
  std::vector<Bar> bars;  // none overlaps the next
};

struct Timeline {
  // The step ends with the last compute stream. Of a simulated run 0 is a step time before that; of a measured one,
  // whose step time is the median of several, it is where the first compute stream starts: inputs are loaded ahead.
  std::int64_t window_ps = 0;              // the step: what idle shares are of
  std::int64_t first_ps = 0, last_ps = 0;  // first start, which may be before the step; last end
  std::int64_t merged_below_ps = 0;        // neighbours within so much time are one bar; 0: every op has its own
  std::size_t ops = 0;
  std::vector<Row> rows;  // by stage, then stream: compute first
};

// Neighbours are merged only as far as needed for `most_bars` or fewer.
Timeline timeline_of(const result::StoredResult& run, std::size_t most_bars);

bool is_compute(const Row& row);
// The share of the step in which a row has no bar.
double idle_share(const Timeline& timeline, const Row& row);

// What colours a bar by phase or axis: "forward", "recompute", "backward", "optimizer", or for transfers "tensor",
// "data", "pipeline", "copy", ...; and by what kind of kernel it is: "matmul", "attention", "vector", "loss",
// "optimizer", transfers as above.
std::string phase_class(const result::OpText& op);
std::string kind_class(const result::OpText& op);

// The compute rows as a static picture.
std::string timeline_figure(const result::StoredResult& run, const Timeline& timeline, std::int64_t axis_ps);

}  // namespace rehearse::reports::html
