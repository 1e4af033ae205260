// The plan as a grid: columns are pipeline stages with their layers, rows are replicas, a box is the tensor-
// and context-parallel ranks of both. What repeats many times is drawn a few times and counted. Internal to the report
// page.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::reports::html {

struct PlanGrid {
  std::int64_t tensor = 1, context = 1, expert = 1, pipeline = 1, data = 1;
  bool whole_experts = false;  // experts are not split over the tensor group
  // Rank numbers between neighbours on each axis; 0 if the result does not say how ranks are ordered.
  std::int64_t tensor_stride = 0, context_stride = 0, pipeline_stride = 0, data_stride = 0;
  // Replicas that hold different experts of a layer.
  std::int64_t expert_replicas() const {
    const std::int64_t before = context * (whole_experts ? tensor : 1);
    return expert > before ? expert / before : 1;
  }
  // Per stage, the layers it holds as first and last (counted from 1), one pair a chunk.
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> layers;

  std::int64_t rank(std::int64_t t, std::int64_t p, std::int64_t d, std::int64_t c = 0) const {
    return t * tensor_stride + c * context_stride + p * pipeline_stride + d * data_stride;
  }
};

// Nothing if the result's keys do not give a grid of exactly its ranks.
std::optional<PlanGrid> plan_grid(const result::Result& r);
// Which of `n` columns or rows are drawn when there is room for `room`: all, or the first ones and the last with -1
// where some were left out.
std::vector<std::int64_t> drawn(std::int64_t n, std::int64_t room);

std::string plan_figure(const result::Result& r, const PlanGrid& grid);

}  // namespace rehearse::reports::html
