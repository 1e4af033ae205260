// How well predictions rank the plans of one published sweep: runs of one source that trained the same model, on the
// same machine and as many GPUs, with the same global batch and sequence length, and differ in how the model was split.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::reports {

// Spearman's rank correlation: Pearson's of the ranks, where values alike share the mean of the places they take
// (Kendall and Gibbons, Rank Correlation Methods, 1990, chapter 3; so does scipy.stats.spearmanr). Nothing for fewer
// than two pairs, or where all values of one side are alike. Both sides have as many values.
std::optional<double> spearman(const std::vector<double>& x, const std::vector<double>& y);
// The ranks of `values`, from 1 for the smallest, as above.
std::vector<double> average_ranks(const std::vector<double>& values);

struct PublishedSweep {
  std::string name, source, what;          // name: of the source and a number, "bloom-prequel 1"
  std::vector<const ThroughputRow*> rows;  // in the order of the table
  std::optional<double> spearman;          // of predicted and measured step times, of all rows
  // What the prediction would choose: the shortest predicted step of those predicted to fit (of several alike the
  // first), and the shortest measured step. nullptr: none is predicted to fit.
  const ThroughputRow* chosen = nullptr;
  const ThroughputRow* best = nullptr;
  int unfit = 0;

  // How much longer the chosen plan's step was measured than the best one's, as a share; nothing if none was chosen.
  std::optional<double> regret() const;
};

inline constexpr std::size_t kLeastSweep = 3;  // configurations

// Sweeps of at least kLeastSweep used rows, in the order of their first rows.
std::vector<PublishedSweep> published_sweeps(const std::vector<ThroughputRow>& rows);

// All sweeps of one source.
struct SweepSummary {
  std::string source;
  int sweeps = 0, rows = 0, best_chosen = 0;
  double mean_spearman = 0, mean_regret = 0, worst_regret = 0;
  int with_spearman = 0, with_regret = 0;  // how many the means are of
};
std::vector<SweepSummary> summarize(const std::vector<PublishedSweep>& sweeps);  // by source

TableCells sweep_cells(const std::vector<PublishedSweep>& sweeps);          // a row a sweep, the heading first
TableCells sweep_summary_cells(const std::vector<PublishedSweep>& sweeps);  // a row a source
// What the words of these tables mean, a sentence or two.
std::string sweep_words();
std::string sweep_tables(const std::vector<PublishedSweep>& sweeps);  // 80 columns; "" without sweeps
std::string sweeps_csv(const std::vector<PublishedSweep>& sweeps);    // a row a configuration

}  // namespace rehearse::reports
