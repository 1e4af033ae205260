// See plan.h.
#include "reports/html/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "reports/html/text.h"
#include "reports/html/words.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::reports::html {
namespace {

using result::Result;

constexpr std::int64_t kColumns = 16, kRows = 16, kTicks = 16;
constexpr double kRowLabel = 110, kGridWidth = 990, kHead = 38, kBox = 24, kGap = 6;

std::vector<std::int64_t> integers(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::int64_t> out;
  for (std::int64_t n = 0; in >> n;) out.push_back(n);
  return out;
}

// The list is in the model's order (plan::Plan::layers_per_stage).
void place_layers(const std::vector<std::int64_t>& counts, const plan::PipelineSchedule& schedule, PlanGrid& grid) {
  const auto stages = static_cast<std::size_t>(grid.pipeline);
  if (counts.empty() || counts.size() % stages != 0) return;
  grid.layers.resize(stages);
  std::int64_t next = 1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const int stage = schedule.stage_of(static_cast<int>(i), static_cast<int>(stages));
    if (stage < 0 || stage >= grid.pipeline) return grid.layers.clear();  // not of this schedule
    grid.layers[static_cast<std::size_t>(stage)].emplace_back(next, next + counts[i] - 1);
    next += counts[i];
  }
  if (!schedule.bidirectional()) return;
  const auto down = grid.layers;
  for (std::size_t stage = 0; stage < stages; ++stage) grid.layers[stage].push_back(down[stages - 1 - stage].front());
}

void number_ranks(const std::string& order, PlanGrid& grid) {
  std::istringstream axes(order);
  std::int64_t stride = 1, expert_stride = 0;
  for (std::string axis; axes >> axis;) {
    if (axis == "tensor") {
      grid.tensor_stride = stride;
      stride *= grid.tensor;
    } else if (axis == "context") {
      grid.context_stride = stride;
      stride *= grid.context;
    } else if (axis == "pipeline") {
      grid.pipeline_stride = stride;
      stride *= grid.pipeline;
    } else if (axis == "expert" && grid.expert_replicas() > 1) {
      expert_stride = stride;
      stride *= grid.expert_replicas();
    } else if (axis == "data") {
      grid.data_stride = stride;
      stride *= grid.data / grid.expert_replicas();
    }
  }
  if (expert_stride == 0) return;
  // Replicas are numbered along both axes: evenly if these follow one another.
  if (grid.data_stride == expert_stride * grid.expert_replicas())
    grid.data_stride = expert_stride;
  else
    grid.tensor_stride = 0;
}

std::string layers_of(const PlanGrid& grid, std::size_t stage) {
  if (stage >= grid.layers.size()) return "";
  std::string out;
  for (const auto& [first, last] : grid.layers[stage]) {
    const std::string range = last < first    ? "none"
                              : last == first ? fmt::format("{}", first)
                                              : fmt::format("{}–{}", first, last);
    out += (out.empty() ? "" : ", ") + range;
  }
  return out;
}

std::string ranks_of(const PlanGrid& grid, std::int64_t p, std::int64_t d) {
  if (grid.tensor_stride == 0) return "";
  const std::int64_t ranks = grid.tensor * grid.context;
  const std::int64_t first = grid.rank(0, p, d), last = grid.rank(grid.tensor - 1, p, d, grid.context - 1);
  if (ranks == 1) return fmt::format("{}", first);
  return fmt::format("{}{}{}", first, last - first == ranks - 1 ? "–" : " … ", last);
}

std::string grid_text(double x, double y, const std::string& text, std::string_view anchor = "middle",
                      std::string_view style = "label") {
  return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", style, coordinate(x),
                     coordinate(y), anchor, escape(text));
}

// One tensor-parallel group: a box with a tick a rank, and their numbers if they fit.
std::string box(const PlanGrid& grid, std::int64_t p, std::int64_t d, double x, double y, double width) {
  const std::string ranks = ranks_of(grid, p, d), layers = layers_of(grid, static_cast<std::size_t>(p));
  std::string out =
      fmt::format("<g><title>{}</title><rect class=\"box{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\"/>\n",
                  escape(fmt::format("stage {}, replica {}{}{}", p, d, ranks.empty() ? "" : ": ranks " + ranks,
                                     layers.empty() ? "" : ", layers " + layers)),
                  d == 0 ? " shown" : "", coordinate(x), coordinate(y), coordinate(width), coordinate(kBox));
  const std::int64_t ticks = std::min(grid.tensor * grid.context, kTicks);
  const double tick = (width - 6) / static_cast<double>(ticks);
  for (std::int64_t t = 0; t < ticks; ++t)
    out += fmt::format("<rect class=\"shard\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"4\"/>",
                       coordinate(x + 3 + tick * static_cast<double>(t) + 0.5), coordinate(y + kBox - 7),
                       coordinate(std::max(tick - 1, 0.5)));
  if (static_cast<double>(ranks.size()) * 6.2 < width)
    out += grid_text(x + width / 2, y + 12.5, ranks, "middle", "label small");
  return out + "</g>\n";
}

// What a box is.
std::string group_words(const PlanGrid& grid) {
  if (grid.tensor * grid.context == 1) return "one rank";
  if (grid.context == 1) return fmt::format("a tensor-parallel group of {} ranks, a tick each", grid.tensor);
  return fmt::format("{} ranks, a tick each, that share a micro-batch ({} tensor-parallel by {} context-parallel)",
                     grid.tensor * grid.context, grid.tensor, grid.context);
}

}  // namespace

std::optional<PlanGrid> plan_grid(const Result& r) {
  PlanGrid grid;
  grid.tensor = integer_of(r, "plan.tensor");
  grid.pipeline = integer_of(r, "plan.pipeline");
  grid.data = integer_of(r, "plan.data");
  grid.context = std::max<std::int64_t>(1, integer_of(r, "plan.context"));
  if (grid.tensor < 1 || grid.pipeline < 1 || grid.data < 1) return {};
  // Sizes come from a file: divide instead of multiplying.
  if (r.ranks % grid.tensor != 0 || r.ranks / grid.tensor % grid.pipeline != 0 ||
      r.ranks / grid.tensor / grid.pipeline % grid.context != 0 ||
      r.ranks / grid.tensor / grid.pipeline / grid.context != grid.data)
    return {};
  grid.expert = std::max<std::int64_t>(1, integer_of(r, "plan.expert"));
  grid.whole_experts = key_of(r, "plan.expert_tensor") == "1";
  if (grid.data % grid.expert_replicas() != 0) return {};
  if (const plan::PipelineSchedule* schedule = plan::find_schedule(key_of(r, "plan.schedule")))
    place_layers(integers(key_of(r, "plan.layers_per_stage")), *schedule, grid);
  number_ranks(key_of(r, "plan.rank_order"), grid);
  return grid;
}

std::vector<std::int64_t> drawn(std::int64_t n, std::int64_t room) {
  std::vector<std::int64_t> out;
  const std::int64_t first = n <= room ? n : std::max<std::int64_t>(room - 2, 1);
  for (std::int64_t i = 0; i < first; ++i) out.push_back(i);
  if (n > room) out.insert(out.end(), {-1, n - 1});
  return out;
}

std::string plan_figure(const Result& r, const PlanGrid& grid) {
  const auto columns = drawn(grid.pipeline, kColumns);
  const auto rows = drawn(grid.data, grid.data <= kRows ? kRows : 5);
  const double step = std::min((kGridWidth + kGap) / static_cast<double>(columns.size()), 220.0);
  const double width = step - kGap, height = kHead + static_cast<double>(rows.size()) * (kBox + kGap);
  std::string out = fmt::format(
      "<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} pipeline stages by {} replicas of {} "
      "{}-parallel ranks\">\n",
      coordinate(kRowLabel + kGridWidth), coordinate(height), grid.pipeline, grid.data, grid.tensor * grid.context,
      grid.context > 1 ? "tensor- and context" : "tensor");
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const double x = kRowLabel + static_cast<double>(c) * step;
    if (columns[c] < 0) {
      out += grid_text(x + width / 2, 13,
                       fmt::format("… {} more", grid.pipeline - static_cast<std::int64_t>(columns.size()) + 1));
      continue;
    }
    const std::string layers = layers_of(grid, static_cast<std::size_t>(columns[c]));
    out += grid_text(x + width / 2, 13, fmt::format("stage {}", columns[c]));
    if (!layers.empty() && static_cast<double>(layers.size() + 7) * 6.2 < width)
      out += grid_text(x + width / 2, 28, "layers " + layers, "middle", "label small");
    else if (static_cast<double>(layers.size()) * 5.6 < width + kGap)
      out += grid_text(x + width / 2, 28, layers, "middle", "label small");
  }
  for (std::size_t d = 0; d < rows.size(); ++d) {
    const double y = kHead + static_cast<double>(d) * (kBox + kGap);
    if (rows[d] < 0) {
      out += grid_text(0, y + 16,
                       fmt::format("… {} more replicas, each split the same way",
                                   grid.data - static_cast<std::int64_t>(rows.size()) + 1),
                       "start");
      continue;
    }
    out += grid_text(0, y + 16, fmt::format("replica {}", rows[d]), "start");
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (columns[c] >= 0) out += box(grid, columns[c], rows[d], kRowLabel + static_cast<double>(c) * step, y, width);
  }
  out += "</svg>\n";
  const std::string optimizer = integer_of(r, "plan.zero") > 0
                                    ? fmt::format(", ZeRO-{} shards lie along it", integer_of(r, "plan.zero"))
                                    : std::string();
  const std::string experts =
      grid.expert == 1 ? std::string()
                       : fmt::format(
                             " The experts of a layer are spread over {} ranks: those of {} replicas that follow "
                             "one another{}.",
                             grid.expert, grid.expert_replicas(),
                             grid.context > 1 || grid.whole_experts ? ", with all of their boxes" : "");
  return out +
         fmt::format(
             "<p class=\"note\">A box is {}; a row is one replica of the model, a column holds the same layers and "
             "sums its gradients{}. Outlined: the ranks whose timelines are below stand for their column.{}</p>\n",
             group_words(grid), optimizer, experts);
}

}  // namespace rehearse::reports::html
