// See timeline.h. What is left out: events between ops, and ranks other than each stage's representative.
#include "reports/html/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>

#include "sim/base/interrupt.h"

namespace rehearse::reports::html {
namespace {

using result::OpText;
using result::StoredResult;

// Rows of a stage from top to bottom; other streams follow by name.
constexpr std::array<std::string_view, 11> kStreams = {
    "compute",   "tensor",           "context",   "expert",       "data",          "norm",
    "embedding", "receive_previous", "send_next", "receive_next", "send_previous",
};

std::size_t place_of(std::string_view stream) {
  return static_cast<std::size_t>(std::find(kStreams.begin(), kStreams.end(), stream) - kStreams.begin());
}

std::vector<Row> all_rows(const StoredResult& run, std::int64_t origin) {
  std::map<std::tuple<int, std::size_t, std::string, int>, Row> rows;
  for (const result::OpRow& op : run.ops) {
    const OpText& text = run.text_of(op);
    Row& row = rows[{text.stage, place_of(text.stream), text.stream, op.rank}];
    if (row.bars.empty()) row = {op.rank, text.stage, text.stream, {}};
    row.bars.push_back({op.start_ps - origin, op.duration_ps, op.text, op.micro_batch, 1});
  }
  std::vector<Row> out;
  for (auto& [place, row] : rows) {
    check_interrupt();
    std::stable_sort(row.bars.begin(), row.bars.end(),
                     [](const Bar& a, const Bar& b) { return a.start_ps < b.start_ps; });
    // A clock's noise must not make bars overlap: the page searches them by their starts.
    for (std::size_t i = 0; i + 1 < row.bars.size(); ++i)
      row.bars[i].duration_ps = std::min(row.bars[i].duration_ps, row.bars[i + 1].start_ps - row.bars[i].start_ps);
    out.push_back(std::move(row));
  }
  return out;
}

// Runs of neighbours that lie within `quantum` become one bar as long as they were busy, named after the longest.
std::vector<Bar> merged(const std::vector<Bar>& bars, std::int64_t quantum) {
  std::vector<Bar> out;
  std::int64_t longest = 0;
  for (const Bar& bar : bars) {
    if (!out.empty() && bar.start_ps + bar.duration_ps - out.back().start_ps <= quantum) {
      Bar& group = out.back();
      if (bar.duration_ps > longest) {
        longest = bar.duration_ps;
        group.text = bar.text;
        group.micro_batch = bar.micro_batch;
      }
      group.duration_ps += bar.duration_ps;
      ++group.ops;
      continue;
    }
    out.push_back(bar);
    longest = bar.duration_ps;
  }
  return out;
}

std::size_t bars_of(const std::vector<Row>& rows) {
  std::size_t n = 0;
  for (const Row& row : rows) n += row.bars.size();
  return n;
}

// When the recorded step starts and ends, by the clock of the ops; what a step account's window is too. Of a run that
// computes nothing all of its ops.
std::pair<std::int64_t, std::int64_t> step_of(const StoredResult& run) {
  std::int64_t first = INT64_MAX, end = INT64_MIN;
  for (const bool all : {false, true}) {
    if (first != INT64_MAX) break;
    for (const result::OpRow& op : run.ops)
      if (all || run.text_of(op).stream == "compute")
        first = std::min(first, op.start_ps), end = std::max(end, op.start_ps + op.duration_ps);
  }
  if (run.result.source != "measured") first = end - result::recorded_step_ps(run.result);
  return {first, end};
}

bool starts(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix);
}

}  // namespace

Timeline timeline_of(const StoredResult& run, std::size_t most_bars) {
  Timeline out;
  out.ops = run.ops.size();
  if (run.ops.empty()) return out;
  std::int64_t first = run.ops.front().start_ps, last = first;
  for (const result::OpRow& op : run.ops) {
    first = std::min(first, op.start_ps);
    last = std::max(last, op.start_ps + op.duration_ps);
  }
  const auto [origin, end] = step_of(run);
  out.first_ps = first - origin;
  out.last_ps = last - origin;
  out.window_ps = end - origin;
  const std::vector<Row> rows = all_rows(run, origin);
  out.rows = rows;
  const std::int64_t span = last - first;
  std::int64_t quantum = std::max<std::int64_t>(span >> 22, 1);
  while (bars_of(out.rows) > std::max(most_bars, rows.size()) && quantum < span) {
    quantum *= 2;
    for (std::size_t i = 0; i < rows.size(); ++i) out.rows[i].bars = merged(rows[i].bars, quantum);
    out.merged_below_ps = quantum;
  }
  return out;
}

bool is_compute(const Row& row) {
  return row.stream == "compute";
}

double idle_share(const Timeline& timeline, const Row& row) {
  if (timeline.window_ps <= 0) return 0;
  std::int64_t busy = 0;
  for (const Bar& bar : row.bars)
    busy += std::max<std::int64_t>(
        std::min(bar.start_ps + bar.duration_ps, timeline.window_ps) - std::max<std::int64_t>(bar.start_ps, 0), 0);
  return 1 - static_cast<double>(busy) / static_cast<double>(timeline.window_ps);
}

std::string phase_class(const OpText& op) {
  if (op.stream != "compute") {
    for (const std::string_view axis : {"tensor", "context", "expert", "data"})
      if (op.stream == axis) return std::string(axis);
    if (starts(op.stream, "send") || starts(op.stream, "receive")) return "pipeline";
    return op.stream == "copy" ? "copy" : "other";
  }
  for (const std::string_view phase : {"forward", "recompute", "backward", "optimizer"})
    if (op.phase == phase) return std::string(phase);
  return "other";
}

std::string kind_class(const OpText& op) {
  if (op.stream != "compute") return phase_class(op);
  if (op.phase == "optimizer") return "optimizer";
  if (starts(op.kind, "gemm") || starts(op.kind, "conv")) return "matmul";
  if (op.kind.find("attention") != std::string::npos) return "attention";
  if (starts(op.kind, "cross_entropy") || starts(op.kind, "mse") || starts(op.kind, "embedding")) return "loss";
  return "vector";
}

}  // namespace rehearse::reports::html
