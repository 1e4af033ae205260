// See ledger_page.h. Figures are made in ledger_figures.cpp; this file has the order and the tables.
#include "reports/ledgers/ledger_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/html/frame.h"
#include "reports/html/text.h"
#include "reports/ledgers/ledger_figures.h"
#include "reports/ledgers/ledger_marks.h"
#include "reports/ledgers/published_memory.h"
#include "reports/ledgers/sweep_ranking.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace html {
namespace {

constexpr std::size_t kWorst = 10;

std::string note_of(std::string_view text) {
  return fmt::format("<p class=\"note\">{}</p>\n", escape(text));
}

std::string error_percent(double share) {
  return fmt::format("{:+.1f}%", share * 100);
}

std::string gigabytes(double bytes) {
  return format_bytes(Bytes(static_cast<std::int64_t>(bytes)));
}

std::string headline(const LedgerRows& used) {
  const ErrorSummary s = summarize(used);
  return "<dl class=\"numbers\">" + headline_number(fmt::format("{}", s.n), "published runs") +
         headline_number(percent(s.mean), "mean error of the step time") +
         headline_number(percent(s.median), "median") + headline_number(error_percent(s.bias), "bias") +
         headline_number(fmt::format("{} of {}", s.inside, s.n), "inside their intervals") + "</dl>\n";
}

std::string residuals(const std::vector<ThroughputRow>& rows) {
  std::string out = "<div class=\"lf-figures\">\n";
  for (const auto& [over, title] : {std::pair{Over::seq_len, "By sequence length"}, std::pair{Over::gpus, "By GPUs"},
                                    std::pair{Over::mfu, "By measured MFU"}})
    if (const std::string figure = residual_figure(rows, over); !figure.empty())
      out += fmt::format("<div><h3>{}</h3>\n{}</div>\n", title, figure);
  return out + "</div>\n" +
         note_of(
             "Errors are predicted / measured - 1; the band is within 10%. Colours and shapes as above. A run that was "
             "slower "
             "than it need be has a low MFU and, as nobody models why, a negative error: the third figure leans for "
             "that reason too.");
}

std::string intervals(const std::vector<ThroughputRow>& rows) {
  return fmt::format(
      "<div class=\"lf-figures\">\n<div><h3>Runs inside, by software</h3>\n{}</div>\n<div><h3>Predicted "
      "interval over measured time</h3>\n{}</div>\n</div>\n",
      coverage_figure(rows), interval_figure(rows));
}

std::string worst_rows(LedgerRows used) {
  std::stable_sort(used.begin(), used.end(), [](const ThroughputRow* a, const ThroughputRow* b) {
    return std::abs(a->error()) > std::abs(b->error());
  });
  TableCells cells = {{"run", "software", "model", "GPUs", "measured", "predicted", "error", "what is missing"}};
  for (std::size_t i = 0; i < std::min(kWorst, used.size()); ++i) {
    const ThroughputRow& row = *used[i];
    cells.push_back({row.id, row.software, row.model, grouped(row.gpus), short_number(row.measured_s) + " s",
                     short_number(row.predicted_s) + " s", error_percent(row.error()),
                     row.missing.empty() ? "not known" : row.missing});
  }
  return "<div class=\"prose worst\">" + table(cells) + "</div>\n";
}

std::string ranking(const std::vector<PublishedSweep>& sweeps) {
  if (sweeps.empty()) return "";
  TableCells cells = sweep_cells(sweeps);
  cells.front().emplace_back("task");
  TableCells members = {{"run", "sweep", "split", "measured", "predicted", "rank", "predicted rank", "", ""}};
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    const PublishedSweep& sweep = sweeps[i];
    cells[i + 1].push_back(sweep.what);
    std::vector<double> measured, predicted;
    for (const ThroughputRow* row : sweep.rows)
      measured.push_back(row->measured_s), predicted.push_back(row->predicted_s);
    measured = average_ranks(measured), predicted = average_ranks(predicted);
    for (std::size_t r = 0; r < sweep.rows.size(); ++r) {
      const ThroughputRow& row = *sweep.rows[r];
      members.push_back({row.id, sweep.name, row.split, short_number(row.measured_s) + " s",
                         short_number(row.predicted_s) + " s", fmt::format("{:g}", measured[r]),
                         fmt::format("{:g}", predicted[r]), row.fits ? "" : "predicted not to fit",
                         &row == sweep.chosen ? "chosen" : ""});
    }
  }
  return "<div class=\"prose\">" + table(cells) + "</div>\n" + table(sweep_summary_cells(sweeps)) +
         note_of(sweep_words()) + details("Every configuration of the sweeps", table(members));
}

std::string memory_tables(const std::vector<ThroughputRow>& rows) {
  const TableCells scores = memory_score_cells(rows);
  if (scores.size() <= 1) return "";
  TableCells members = {{"run", "model", "split", "peak", "measured", "predicted", "error"}};
  for (const ThroughputRow& row : rows)
    if (row.has_memory())
      members.push_back({row.id, row.model, row.split, row.memory_kind, gigabytes(row.memory_measured),
                         gigabytes(row.memory_predicted), error_percent(row.memory_error())});
  return table(scores) +
         note_of(
             "Allocated memory is compared with the predicted tensors at their peak, reserved memory with these and "
             "the allocator's waste; where a source does not say which it prints, with the tensors.") +
         details("Every run with a measured peak", table(members));
}

std::string every_run(const LedgerRows& used) {
  TableCells cells = {{"run", "software", "tier", "model", "GPUs", "tokens", "split", "measured", "predicted", "error",
                       "low", "high", "fits"}};
  for (const ThroughputRow* row : used)
    cells.push_back({row->id, row->software, row->complete ? "A" : "B", row->model, grouped(row->gpus),
                     grouped(row->seq_len), row->split, short_number(row->measured_s), short_number(row->predicted_s),
                     error_percent(row->error()), short_number(row->low_s), short_number(row->high_s),
                     row->fits ? "yes" : "no"});
  return details("Every run, in seconds", table(cells));
}

std::string not_used(const std::vector<ThroughputRow>& rows) {
  TableCells cells = {{"why", "rows"}};
  for (const auto& [count, reason] : unused_reasons(rows)) cells.push_back({reason, fmt::format("{}", count)});
  return cells.size() > 1 ? details("Rows that are not used", table(cells)) : "";
}

std::string figure_style() {
  return std::string(ledger_figure_style()) + R"(.lf-figure { display: block; width: 100%; height: auto; }
.lf-wide { max-width: 760px; overflow-x: auto; } .lf-wide .lf-figure { min-width: 520px; }
.lf-figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 8px 32px; }
.worst td:nth-child(2), .worst th:nth-child(2), .worst td:nth-child(3), .worst th:nth-child(3) { text-align: left; }
.prose td:last-child, .prose th:last-child { white-space: normal; text-align: left; min-width: 26em; }
)";
}

}  // namespace
}  // namespace html

std::string ledger_page(const std::vector<ThroughputRow>& rows, const std::string& table_name) {
  using namespace html;
  const LedgerRows used = used_rows(rows);
  std::string out = page_head("Published runs – Rehearse", false, figure_style());
  out +=
      "<body>\n<main>\n<header><p class=\"brand\">Rehearse</p><h1>Published runs against their "
      "predictions</h1></header>\n";
  out += fmt::format(
      "<p>{} of the {} rows of {} are scenarios that can be simulated; each configuration counts once.</p>\n",
      used.size(), rows.size(), escape(table_name));
  if (used.empty()) return out + not_used(rows) + "</main>\n</body>\n</html>\n";
  out += headline(used);
  out += section("predicted", "Predicted against measured",
                 "<div class=\"lf-wide\">\n" + predicted_measured_figure(rows, false) + "</div>\n" +
                     note_of("Hover over a mark to see its run."));
  out += section("residuals", "Where errors lie", residuals(rows));
  out += section("intervals", "Intervals", intervals(rows));
  out += section("software", "By software",
                 table(throughput_cells(rows)) +
                     note_of("Errors are of the step time, predicted / measured - 1. Inside: within the predicted "
                             "interval. Unfit: ran, and is predicted not to fit in memory."));
  out += section("worst", "The worst runs", worst_rows(used));
  out += section("ranking", "Ranking the plans of a sweep", ranking(published_sweeps(rows)));
  out += section("memory", "Memory", memory_tables(rows));
  out += section("rows", "Rows", every_run(used) + not_used(rows));
  return out + "</main>\n</body>\n</html>\n";
}

std::string predicted_measured_svg(const std::vector<ThroughputRow>& rows) {
  return html::predicted_measured_figure(rows, true);
}

}  // namespace rehearse::reports
