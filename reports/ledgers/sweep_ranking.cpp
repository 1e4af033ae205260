// See sweep_ranking.h. A row that is predicted not to fit cannot be chosen, though its step time is ranked with the
// others': it ran.
#include "reports/ledgers/sweep_ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reports/text.h"
#include "sim/base/check.h"
#include "sim/base/csv_field.h"
#include "sim/result/json_writer.h"

namespace rehearse::reports {
namespace {

enum RankingColumn : unsigned char {
  kSweepName,
  kSweepRows,
  kSweepSpearman,
  kSweepRegret,
  kSweepUnfit
};  // and chosen, best

std::string sweep_task(const ThroughputRow& row) {
  return fmt::format("{}, {} GPUs, batch {}, {} tokens", row.model, grouped(row.gpus), grouped(row.global_batch),
                     grouped(row.seq_len));
}

std::vector<double> step_times_of(const std::vector<const ThroughputRow*>& rows, double ThroughputRow::*time) {
  std::vector<double> out;
  for (const ThroughputRow* row : rows) out.push_back(row->*time);
  return out;
}

void rank_sweep(PublishedSweep& sweep) {
  sweep.spearman = spearman(step_times_of(sweep.rows, &ThroughputRow::predicted_s),
                            step_times_of(sweep.rows, &ThroughputRow::measured_s));
  for (const ThroughputRow* row : sweep.rows) {
    if (sweep.best == nullptr || row->measured_s < sweep.best->measured_s) sweep.best = row;
    sweep.unfit += row->fits ? 0 : 1;
    if (row->fits && (sweep.chosen == nullptr || row->predicted_s < sweep.chosen->predicted_s)) sweep.chosen = row;
  }
}

std::string correlation_cell(std::optional<double> value) {
  return value ? fmt::format("{:+.2f}", *value) : std::string("-");
}

std::string share_cell(std::optional<double> value) {
  return value ? fmt::format("{:.1f}%", *value * 100) : std::string("-");
}

std::string number_or_nothing(std::optional<double> value) {
  return value ? result::number(*value) : std::string();
}

}  // namespace

std::vector<double> average_ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double place = 0.5 * static_cast<double>(first + 1 + end);  // the mean of first + 1, ..., end
    for (; first < end; ++first) ranks[order[first]] = place;
  }
  return ranks;
}

std::optional<double> spearman(const std::vector<double>& x, const std::vector<double>& y) {
  REHEARSE_CHECK(x.size() == y.size(), "ranks of pairs");
  const std::vector<double> a = average_ranks(x), b = average_ranks(y);
  const double middle = 0.5 * static_cast<double>(x.size() + 1);  // the mean of all ranks, ties or not
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - middle) * (b[i] - middle);
    aa += (a[i] - middle) * (a[i] - middle);
    bb += (b[i] - middle) * (b[i] - middle);
  }
  if (aa <= 0 || bb <= 0) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

std::optional<double> PublishedSweep::regret() const {
  if (chosen == nullptr) return std::nullopt;
  return chosen->measured_s / best->measured_s - 1;
}

std::vector<PublishedSweep> published_sweeps(const std::vector<ThroughputRow>& rows) {
  std::vector<PublishedSweep> sweeps;
  std::map<std::string, std::size_t> of_task;
  for (const ThroughputRow& row : rows) {
    if (!row.used) continue;
    const auto [known, added] = of_task.emplace(row.task, sweeps.size());
    if (added) sweeps.emplace_back();
    sweeps[known->second].rows.push_back(&row);
  }
  std::erase_if(sweeps, [](const PublishedSweep& sweep) { return sweep.rows.size() < kLeastSweep; });
  std::map<std::string, int> numbers;
  for (PublishedSweep& sweep : sweeps) {
    sweep.source = sweep.rows.front()->source;
    sweep.what = sweep_task(*sweep.rows.front());
    sweep.name = fmt::format("{} {}", sweep.source, ++numbers[sweep.source]);
    rank_sweep(sweep);
  }
  return sweeps;
}

std::vector<SweepSummary> summarize(const std::vector<PublishedSweep>& sweeps) {
  std::map<std::string, SweepSummary> of_source;
  for (const PublishedSweep& sweep : sweeps) {
    SweepSummary& s = of_source[sweep.source];
    s.source = sweep.source;
    ++s.sweeps;
    s.rows += static_cast<int>(sweep.rows.size());
    if (sweep.spearman) s.mean_spearman += *sweep.spearman, ++s.with_spearman;
    if (const auto regret = sweep.regret()) {
      s.mean_regret += *regret, ++s.with_regret;
      s.worst_regret = std::max(s.worst_regret, *regret);
      s.best_chosen += *regret == 0 ? 1 : 0;
    }
  }
  std::vector<SweepSummary> out;
  for (auto& [source, s] : of_source) {
    s.mean_spearman /= std::max(1, s.with_spearman), s.mean_regret /= std::max(1, s.with_regret);
    out.push_back(s);
  }
  return out;
}

TableCells sweep_cells(const std::vector<PublishedSweep>& sweeps) {
  TableCells cells = {{"sweep", "n", "Spearman", "regret", "unfit", "chosen", "best"}};
  for (const PublishedSweep& sweep : sweeps)
    cells.push_back({clip(sweep.name, 30), fmt::format("{}", sweep.rows.size()), correlation_cell(sweep.spearman),
                     share_cell(sweep.regret()), sweep.unfit > 0 ? fmt::format("{}", sweep.unfit) : "",
                     sweep.chosen != nullptr ? sweep.chosen->split : std::string("-"), sweep.best->split});
  return cells;
}

TableCells sweep_summary_cells(const std::vector<PublishedSweep>& sweeps) {
  TableCells cells = {{"source", "sweeps", "n", "mean Spearman", "mean regret", "worst", "best chosen"}};
  for (const SweepSummary& s : summarize(sweeps)) {
    const auto known = [](int n, double value) { return n > 0 ? std::optional(value) : std::nullopt; };
    cells.push_back({clip(s.source, 20), fmt::format("{}", s.sweeps), fmt::format("{}", s.rows),
                     correlation_cell(known(s.with_spearman, s.mean_spearman)),
                     share_cell(known(s.with_regret, s.mean_regret)), share_cell(known(s.with_regret, s.worst_regret)),
                     fmt::format("{} of {}", s.best_chosen, s.sweeps)});
  }
  return cells;
}

std::string sweep_words() {
  return "Sweeps: one task, split in at least 3 ways. chosen: the shortest predicted step of those predicted to fit; "
         "regret: its measured step over the best measured one, minus 1. tp: tensor, pp: pipeline (x chunks), dp: "
         "replicas, z: ZeRO stage, mb: micro-batch.";
}

std::string sweep_tables(const std::vector<PublishedSweep>& sweeps) {
  if (sweeps.empty()) return "";
  TableCells narrow;  // the two plans stand below
  for (const std::vector<std::string>& row : sweep_cells(sweeps))
    narrow.push_back({row[kSweepName], row[kSweepRows], row[kSweepSpearman], row[kSweepRegret], row[kSweepUnfit]});
  std::string out = align(narrow);
  for (const PublishedSweep& sweep : sweeps)
    out += wrap(fmt::format("{}: {}; chosen {}, best {}", sweep.name, sweep.what,
                            sweep.chosen != nullptr ? sweep.chosen->split : "none", sweep.best->split),
                2);
  return out + "\n" + align(sweep_summary_cells(sweeps)) + wrap(sweep_words());
}

std::string sweeps_csv(const std::vector<PublishedSweep>& sweeps) {
  using result::number;
  std::string out =
      "sweep,source,what,spearman,regret,id,split,framework,measured,predicted,measured_rank,predicted_rank,fits,"
      "chosen,best\n";
  for (const PublishedSweep& sweep : sweeps) {
    const std::vector<double> measured = average_ranks(step_times_of(sweep.rows, &ThroughputRow::measured_s)),
                              predicted = average_ranks(step_times_of(sweep.rows, &ThroughputRow::predicted_s));
    for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
      const ThroughputRow& row = *sweep.rows[i];
      out += fmt::format("{},{},{},{},{},{},{},{},{},{},{:g},{:g},{},{},{}\n", csv_field(sweep.name),
                         csv_field(sweep.source), csv_field(sweep.what), number_or_nothing(sweep.spearman),
                         number_or_nothing(sweep.regret()), csv_field(row.id), csv_field(row.split),
                         csv_field(row.framework), number(row.measured_s), number(row.predicted_s), measured[i],
                         predicted[i], row.fits, &row == sweep.chosen, &row == sweep.best);
    }
  }
  return out;
}

}  // namespace rehearse::reports
