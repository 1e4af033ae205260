// See step_history.h. Rows are step after step, in each the ranks in order, as they are written.
#include "sim/result/step_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>

#include "sim/base/csv.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"

namespace rehearse::result {
namespace {

constexpr std::size_t kMostStepProblems = 20;
constexpr std::int64_t kMostRanks = 1 << 20, kMostSteps = std::int64_t{1} << 40;
constexpr std::int64_t kMostHistoryPs = 9'000'000'000'000'000'000;  // 104 days
constexpr double kMostSeconds = 9e6;                                // as JsonReader::is_time
constexpr std::array<const char*, 6> kStepColumns = {"step", "rank", "loss", "end_s", "step_s", "compute_s"};
constexpr std::size_t kOptionalFrom = 5;  // compute_s, which simulated runs lack
enum class StepField : unsigned char { step, rank, loss, end, length, compute };

class StepsReader {
 public:
  StepsReader(const std::string& file, std::string_view text) : file_(file), rows_(file, text) {}

  StepHistory read() {
    read_heading();
    for (int row = 0; rows_.next() && problems_.list().size() < kMostStepProblems; ++row) {
      if (row % 1024 == 0) check_interrupt();
      if (rows_.size() == columns_)
        read_row();
      else
        problems_.add(
            {file_, rows_.line(), 1, "", fmt::format("expected {} fields, found {}", columns_, rows_.size()), ""});
    }
    problems_.throw_if_any();
    if (out_.known()) close_step();
    return std::move(out_);
  }

 private:
  void read_heading() {
    place_.fill(-1);
    if (!rows_.next()) throw InputError(Diagnostic{file_, 1, 1, "", "expected a row that names the columns", ""});
    columns_ = rows_.size();
    for (std::size_t c = 0; c < kStepColumns.size(); ++c) {
      for (std::size_t i = 0; i < columns_; ++i)
        if (rows_[i] == kStepColumns[c]) place_[c] = static_cast<int>(i);
      if (place_[c] < 0 && c < kOptionalFrom)
        problems_.add({file_, 1, 1, "", fmt::format("there is no column '{}'", kStepColumns[c]),
                       "steps.csv of a result directory is expected"});
    }
    problems_.throw_if_any();
  }

  template <class Number>
  Number number(StepField field, Number least, Number most) {
    const auto at = static_cast<std::size_t>(place_[static_cast<std::size_t>(field)]);
    const std::string_view text = rows_[at];
    Number value{};
    const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // A loss that is no number is one: a run may diverge.
    const bool whole = error == std::errc() && last == text.data() + text.size();
    if (whole &&
        ((value >= least && value <= most) || (field == StepField::loss && !std::isfinite(static_cast<double>(value)))))
      return value;
    problems_.add({file_, rows_.line_of(at), rows_.column_of(at), kStepColumns[static_cast<std::size_t>(field)],
                   fmt::format("expected a number from {} to {}, found '{}'", least, most, text), ""});
    return least;
  }
  std::int64_t picoseconds(StepField field) { return std::llround(number<double>(field, 0, kMostSeconds) * 1e12); }

  void read_row() {
    const auto which = number<std::int64_t>(StepField::step, 1, kMostSteps);
    const auto who = number<std::int64_t>(StepField::rank, 0, kMostRanks);
    const double value = number<double>(StepField::loss, -1e30, 1e30);
    const bool shares = place_[kOptionalFrom] >= 0;
    const std::int64_t ends = picoseconds(StepField::end), took = picoseconds(StepField::length),
                       computed = shares ? picoseconds(StepField::compute) : 0;
    const bool next = !out_.known() || who == 0;
    const std::int64_t expected =
        out_.known() ? out_.first_step + static_cast<std::int64_t>(out_.step_ps.size()) - (next ? 0 : 1) : which;
    if (which != expected || who != (next ? 0 : rank_ + 1)) {
      problems_.add(
          {file_, rows_.line(), 1, "",
           fmt::format("step {} of rank {} follows step {} of rank {}", which, who, expected - (next ? 1 : 0), rank_),
           "rows go by step, then by rank from 0"});
      return;
    }
    if (static_cast<std::size_t>(who) < out_.computed.size() &&
        computed > kMostHistoryPs - out_.computed[static_cast<std::size_t>(who)]) {
      problems_.add({file_, rows_.line(), 1, "",
                     fmt::format("with this row rank {} computed for more than {} ps", who, kMostHistoryPs), ""});
      return;
    }
    if (next) {
      if (out_.known())
        close_step();
      else
        out_.first_step = which;
      out_.loss.push_back(value), out_.step_ps.push_back(0), out_.end_ps.push_back(0);
      most_ = -1;
    }
    rank_ = who;
    out_.step_ps.back() = std::max(out_.step_ps.back(), took);
    out_.end_ps.back() = std::max(out_.end_ps.back(), ends);
    if (!shares) return;
    if (static_cast<std::size_t>(who) >= out_.computed.size()) out_.computed.push_back(0), out_.slowest.push_back(0);
    out_.computed[static_cast<std::size_t>(who)] += computed;
    if (computed > most_) most_ = computed, most_rank_ = who;
  }
  void close_step() {
    if (!out_.slowest.empty()) ++out_.slowest[static_cast<std::size_t>(most_rank_)];
  }

  const std::string& file_;
  CsvReader rows_;
  Diagnostics problems_;
  StepHistory out_;
  std::array<int, kStepColumns.size()> place_{};
  std::size_t columns_ = 0;
  std::int64_t rank_ = 0, most_ = -1, most_rank_ = 0;
};

}  // namespace

void write_simulated_steps(const Result& r, OutputFile& out) {
  constexpr std::int64_t kSecond = 1'000'000'000'000;
  out.write("step,rank,loss,end_s,step_s\n");
  if (r.step_ends_ps.empty()) return;
  std::string rows;  // of a step
  std::size_t steps = r.step_ends_ps.front().size();
  for (const auto& ends : r.step_ends_ps) steps = std::min(steps, ends.size());
  for (std::size_t s = 0; s < steps; ++s) {
    rows.clear();
    for (std::size_t rank = 0; rank < r.step_ends_ps.size(); ++rank) {
      const std::int64_t end = r.step_ends_ps[rank][s], took = end - (s == 0 ? 0 : r.step_ends_ps[rank][s - 1]);
      fmt::format_to(std::back_inserter(rows), "{},{},nan,{}.{:012},{}.{:012}\n", s + 1, rank, end / kSecond,
                     end % kSecond, took / kSecond, took % kSecond);
    }
    out.write(rows);
  }
}

std::optional<std::int64_t> StepHistory::end_of(std::int64_t step) const {
  const std::int64_t at = step - first_step;
  if (at < 0 || at >= static_cast<std::int64_t>(end_ps.size())) return std::nullopt;
  return end_ps[static_cast<std::size_t>(at)];
}

StepHistory parse_steps_csv(const std::string& file, std::string_view text) {
  return StepsReader(file, text).read();
}

std::vector<double> mean_losses(const StepHistory& history, std::int64_t window) {
  // Added up anew each time: a loss that is no number is in no later window.
  std::vector<double> means;
  for (auto first = history.loss.begin(); history.loss.end() - first >= window; ++first)
    means.push_back(std::accumulate(first, first + window, 0.0) / static_cast<double>(window));
  return means;
}

TimeToLoss time_to_loss(const StepHistory& history, double loss, std::int64_t window) {
  const std::vector<double> means = mean_losses(history, window);
  const auto found = std::find_if(means.begin(), means.end(), [&](double mean) { return mean <= loss; });
  if (found == means.end()) return {};
  const std::int64_t last = found - means.begin() + window - 1;
  return {history.first_step + last, history.end_ps[static_cast<std::size_t>(last)]};
}

LossTarget loss_target(const StepHistory& history, double loss) {
  const TimeToLoss when = time_to_loss(history, loss, kLossWindow);
  return {true, loss, kLossWindow, when.steps, when.ps};
}

}  // namespace rehearse::result
