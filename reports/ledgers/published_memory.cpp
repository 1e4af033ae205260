// See published_memory.h.
#include "reports/ledgers/published_memory.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {

std::vector<MemoryScore> memory_scores(const std::vector<ThroughputRow>& rows) {
  std::map<std::pair<std::string, std::string>, MemoryScore> of_source;
  for (const ThroughputRow& row : rows) {
    if (!row.has_memory()) continue;
    MemoryScore& score = of_source[{row.source, row.memory_kind}];
    score.source = row.source, score.kind = row.memory_kind;
    ++score.n;
    score.mean += std::abs(row.memory_error());
    score.bias += row.memory_error();
    if (score.worst == nullptr || std::abs(row.memory_error()) > std::abs(score.worst->memory_error()))
      score.worst = &row;
  }
  std::vector<MemoryScore> out;
  for (auto& [key, score] : of_source) {
    score.mean /= score.n, score.bias /= score.n;
    out.push_back(score);
  }
  return out;
}

TableCells memory_score_cells(const std::vector<ThroughputRow>& rows) {
  TableCells cells = {{"memory of source", "peak", "n", "mean", "bias", "worst", "of"}};
  for (const MemoryScore& s : memory_scores(rows))
    cells.push_back({clip(s.source, 20), s.kind, fmt::format("{}", s.n), fmt::format("{:.1f}%", s.mean * 100),
                     fmt::format("{:+.1f}%", s.bias * 100), fmt::format("{:+.1f}%", s.worst->memory_error() * 100),
                     s.worst->id});
  return cells;
}

std::string memory_score_table(const std::vector<ThroughputRow>& rows) {
  const TableCells cells = memory_score_cells(rows);
  return cells.size() > 1 ? align(cells) : "";
}

}  // namespace rehearse::reports
