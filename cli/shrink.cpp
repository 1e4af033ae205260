// See shrink.h.
#include "cli/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/local_loop.h"
#include "cli/paths.h"
#include "cli/refuse.h"
#include "execute/performer.h"
#include "reports/difference.h"
#include "reports/miniature.h"
#include "reports/text.h"
#include "sim/base/input_files.h"
#include "sim/base/unfinished.h"
#include "sim/cost/calibration_file.h"
#include "sim/result/output_file.h"
#include "sim/result/read_directory.h"
#include "sim/run/miniature.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

// What a core does a second of a step's products with all that is around them, a judgement: only the miniature's size
// follows from it.
constexpr double kFlopsOfCore = 2e10;
constexpr int kShareOfMemory = 4;  // of the host's, for tensors
constexpr const char* kFates[] = {"kept", "reduced", "raised", "dropped"};

run::MiniatureLimits limits_here(const ShrinkRequest& r, const plan::Scenario& large) {
  const cost::HostFacts host = cost::host_fingerprint();
  run::MiniatureLimits limits;
  limits.ranks = r.ranks_at_most > 0 ? r.ranks_at_most
                                     : std::max<std::int64_t>(host.cores, run::ranks_that_keep_splits(large.plan));
  limits.ranks = std::min<std::int64_t>(limits.ranks, execute::kMaxRanks);
  limits.flops = kFlopsOfCore * host.cores * r.step_s;
  if (host.memory_bytes > 0) limits.bytes = Bytes(host.memory_bytes / kShareOfMemory);
  return limits;
}

std::vector<reports::ShrunkRow> rows_of(const run::Miniature& m) {
  std::vector<reports::ShrunkRow> rows;
  for (const run::MiniatureRow& row : m.rows)
    rows.push_back({row.what, row.large, row.small, kFates[static_cast<std::size_t>(row.fate)], row.why});
  return rows;
}

// The prediction that the miniature is to check, with its operations.
result::Result simulate_large(const ShrinkRequest& r, const std::string& root) {
  SimulationRequest request;
  request.file = r.file;
  request.assignments = r.assignments;
  request.record = true;
  return simulate_file(request, root);
}

std::string calibration_here(const ShrinkRequest& r) {
  if (!r.base.empty()) return r.base;
  const std::string cached = cost::default_calibration_path();
  std::error_code error;
  if (cached.empty() || !fs::is_regular_file(cached, error)) return "";
  return cost::read_calibration(cached).host.same_machine(cost::host_fingerprint()) ? cached : "";
}

std::string calibrated_for(const ShrinkRequest& r, const reports::LocalPlan& plan, const std::string& file,
                           const std::string& root) {
  if (!r.calibration.empty()) return r.calibration;
  const std::string base = calibration_here(r);
  calibrate_for({plan}, {base.empty() ? 2 * r.budget_s : r.budget_s, "rehearse execute --shrink", file, base}, root);
  return file;
}

std::string heading(const plan::Scenario& large, const run::Miniature& m) {
  const int cores = cost::host_fingerprint().cores;
  std::string text =
      fmt::format("{}, in miniature: {} rank{} of {}, {} FLOPs a step", large.name, m.scenario.cluster.gpus,
                  m.scenario.cluster.gpus == 1 ? "" : "s", large.cluster.gpus, reports::compact(m.flops));
  if (m.scenario.cluster.gpus > cores)
    text += fmt::format("; {} ranks share {} core{}, which is simulated too", m.scenario.cluster.gpus, cores,
                        cores == 1 ? "" : "s");
  return reports::wrap(text + ".");
}

std::string compared(const reports::Difference& d, bool brief) {
  if (!brief) return reports::difference_table(d);
  const auto time = [&](std::size_t side) { return format_time(Time::from_ps(d.results[side]->result.step_time_ps)); };
  return reports::labelled({{"Miniature's step",
                             fmt::format("{} simulated, {} measured", time(reports::kFirst), time(reports::kSecond))},
                            {"Compared", fmt::format("{} operations, {} alone", d.matched,
                                                     d.alone[reports::kFirst] + d.alone[reports::kSecond])}}) +
         reports::wrap(d.sentence) + (d.drift_sentence.empty() ? "" : reports::wrap(d.drift_sentence));
}

}  // namespace

void check_shrink_output(const std::string& dir) {
  check_output_directory(dir, {"miniature.yaml", "miniature.json", "calibration.json", "compare.csv", "compare.json"});
  for (const char* result : {"large", "simulated", "measured"})
    check_result_directory((fs::path(dir) / result).string());
}

int execute_shrunk(const ShrinkRequest& r, const std::string& root) {
  if (!r.output.empty()) check_shrink_output(r.output);
  const plan::Scenario large = plan::read_scenario(r.file, r.assignments, root);
  if (large.plan.served())
    refuse("--shrink", "there are no miniatures of plans with parameter servers yet",
           "plan.servers: 0, or execute it as it is");
  if (large.reinforcement.given)
    refuse("--shrink", "there are no miniatures of steps of reinforcement learning yet",
           "--set reinforcement=null, the training alone");
  const run::Miniature m = run::miniature_of(large, r.assignments, root, limits_here(r, large));
  const std::vector<reports::ShrunkRow> rows = rows_of(m);
  const TemporaryFolder temporary("shrink");
  const fs::path folder = r.output.empty() ? temporary.path() : r.output;
  fs::create_directories(folder);
  const auto below = [&](const char* name) { return (folder / name).string(); };
  std::vector<std::string> all = r.assignments;
  all.insert(all.end(), m.assignments.begin(), m.assignments.end());
  result::write_output(below("miniature.yaml"),
                       plan::scenario_text(r.file, all, fmt::format("The miniature of {}.", large.name)));
  if (!r.json) print(heading(large, m) + '\n' + reports::shrunk_table(rows) + '\n');
  if (!m.within) note("rehearse: note: a step of it takes longer than asked: nothing smaller of this plan is known");

  result::write_directory(simulate_large(r, root), below("large"));
  const reports::LocalPlan plan{m.scenario.name, below("miniature.yaml"), {}, false};
  const LocalRun run =
      simulate_and_perform(plan, calibrated_for(r, plan, below("calibration.json"), root), r.seconds, true, root);
  result::write_directory(run.simulated, below("simulated"));
  result::write_directory(run.measured, below("measured"));
  const result::StoredResult simulated = result::read_directory(below("simulated")),
                             measured = result::read_directory(below("measured")),
                             predicted = result::read_directory(below("large"));
  const reports::Difference d = reports::difference(simulated, measured);
  const reports::Carried carried = reports::carry_back(d, predicted);
  const std::string json = reports::miniature_json(rows, d, carried);
  if (!r.output.empty())
    result::write_files(r.output, {{"compare.csv", reports::difference_csv(d)},
                                   {"compare.json", reports::difference_json(d)},
                                   {"miniature.json", json}});
  print(r.json ? json : compared(d, r.brief) + '\n' + reports::carried_text(carried));
  return kDone;
}

}  // namespace rehearse::cli
