// See sweep.h. Threads take combinations in order from a counter and fill each one's own row, so that neither the rows
// nor what is printed depends on which was done first; a row keeps a few numbers of its result, not the result.
#include "cli/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "cli/sweep_axes.h"
#include "reports/limits.h"
#include "reports/sweep_parts.h"
#include "reports/sweep_rows.h"
#include "sim/base/diagnostics.h"
#include "sim/base/in_parallel.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

using reports::SweepAxis;
using reports::SweepRow;
using reports::SweepStatus;
namespace fs = std::filesystem;

// The last axis varies fastest.
std::vector<SweepRow> combinations(const std::vector<SweepAxis>& axes) {
  std::vector<SweepRow> rows(1);
  for (const SweepAxis& axis : axes) {
    std::vector<SweepRow> longer;
    for (const SweepRow& row : rows)
      for (const std::string& value : axis.values) {
        longer.push_back(row);
        longer.back().values.push_back(value);
      }
    rows = std::move(longer);
  }
  return rows;
}

// "007-tensor=4-pipeline=2" with nothing that a shell or a file system minds.
std::string directory_name(std::size_t index, const std::vector<SweepAxis>& axes, const SweepRow& row) {
  std::string name = fmt::format("{:03}", index + 1);
  for (std::size_t a = 0; a < axes.size(); ++a)
    name += "-" + axes[a].key.substr(axes[a].key.rfind('.') + 1) + "=" + row.values[a];
  for (char& c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!plain && c != '-' && c != '=' && c != '.') c = '_';
  }
  return name.substr(0, 100);
}

class Sweep {
 public:
  Sweep(const SweepRequest& request, const std::string& root)
      : request_(request),
        root_(root),
        part_(request.session != nullptr ? request.session->rank() : 0),
        parts_(request.session != nullptr ? request.session->ranks() : 1),
        axes_(read_axes(request.sweeps)),
        rows_(combinations(axes_)) {
    for (std::size_t i = 0; i < rows_.size(); ++i)
      if (reports::row_of_part(i, part_, parts_)) own_.push_back(i);
    if (!request.output_given) return;
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].directory = directory_name(i, axes_, rows_[i]);
  }

  void run() {
    if (request_.session != nullptr) request_.session->begin_work();
    simulate_own();
    if (request_.session != nullptr) exchange();
    reports::set_scaling(rows_);
  }

  const std::vector<SweepAxis>& axes() const { return axes_; }
  const std::vector<SweepRow>& rows() const { return rows_; }

 private:
  void simulate_own() {
    Progress progress(parts_ == 1 ? fmt::format("simulating {} plans", rows_.size())
                                  : fmt::format("simulating {} of {} plans", own_.size(), rows_.size()));
    const auto wanted =
        static_cast<std::size_t>(request_.threads > 0 ? request_.threads : std::max(1, hardware_threads() / parts_));
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < std::min(wanted, own_.size()); ++t)
      others.emplace_back([this, &progress] { work(progress); });
    work(progress);
    for (std::thread& other : others) other.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  // The root gets the others' rows.
  void exchange() {
    const std::vector<std::string> all = request_.session->gather(reports::pack_part(rows_, part_, parts_), kLongest);
    for (int part = 1; part < static_cast<int>(all.size()); ++part)
      reports::unpack_part(all[static_cast<std::size_t>(part)], rows_, part, parts_);
  }

  // Takes rows until there are none left or one of the threads met an error that is no row's.
  void work(Progress& progress) {
    for (std::size_t i = next_++; i < own_.size(); i = next_++) {
      try {
        one(rows_[own_[i]], progress);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        stop_ = true;
      }
      if (stop_) return;
    }
  }

  void one(SweepRow& row, Progress& progress) {
    SimulationRequest request = request_.base;
    for (std::size_t a = 0; a < axes_.size(); ++a) request.assignments.push_back(axes_[a].key + "=" + row.values[a]);
    request.record = request_.output_given;
    request.progress = [&, before = 0.0](double done) mutable {
      const std::lock_guard lock(mutex_);
      if (stop_) throw std::runtime_error("another row has ended the sweep");  // whose reason is kept
      if (request_.session != nullptr && request_.session->failed())
        throw std::runtime_error("another process has ended the sweep");
      done_ += done - before;
      before = done;
      progress(done_ / static_cast<double>(own_.size()));
    };
    try {
      request.progress(0);
      const result::Result r = simulate_file(request, root_);
      if (request_.output_given) result::write_directory(r, (fs::path(request_.output) / row.directory).string());
      fill(row, r);
    } catch (const InputError& error) {
      row.directory.clear();
      row.problems = error.diagnostics();
    }
    request.progress(1);
  }

  static constexpr std::chrono::hours kLongest{24};  // that a process is waited for after the root has done its part

  const SweepRequest& request_;
  const std::string& root_;
  const int part_, parts_;        // of the processes that share the rows
  std::vector<std::size_t> own_;  // rows of this process
  std::vector<SweepAxis> axes_;
  std::vector<SweepRow> rows_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // of the progress line, done_ and failure_
  double done_ = 0;
  std::exception_ptr failure_;
};

// Every reason once.
[[noreturn]] void throw_all(const std::vector<SweepRow>& rows) {
  std::vector<Diagnostic> list;
  std::set<std::string> seen;
  for (const SweepRow& row : rows)
    for (const Diagnostic& d : row.problems)
      if (seen.insert(d.text()).second) list.push_back(d);
  throw InputError(std::move(list));
}

}  // namespace

int sweep(const SweepRequest& request, const std::string& root) {
  if (request.output_given) check_output_directory(request.output, {"sweep.csv"});
  Sweep all(request, root);
  all.run();
  if (request.session != nullptr && request.session->rank() > 0) return kDone;
  const std::vector<SweepRow>& rows = all.rows();
  const auto is = [](SweepStatus status) { return [status](const SweepRow& row) { return row.status == status; }; };
  if (std::all_of(rows.begin(), rows.end(), is(SweepStatus::infeasible))) throw_all(rows);
  if (request.output_given) {
    fs::create_directories(request.output);
    result::write_output((fs::path(request.output) / "sweep.csv").string(), reports::sweep_csv(all.axes(), rows));
  }
  print(request.json ? reports::sweep_json(all.axes(), rows)
                     : reports::sweep_table(all.axes(), rows, terminal_width()));
  return std::any_of(rows.begin(), rows.end(), is(SweepStatus::fits)) ? kDone : kDoesNotFit;
}

}  // namespace rehearse::cli
