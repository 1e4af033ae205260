#include "cli/gpu_loop.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "cli/calibrate_cuda.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "kernels/cuda/cuda.h"
#include "reports/ledgers/gpu_ledger.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/unfinished.h"
#include "sim/cost/device_file.h"
#include "sim/result/output_file.h"
#include "sim/result/read_directory.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLoopPlans = "scenarios/gpu/plans.yaml";
constexpr int kLeastSteps = 8, kMostSteps = 200, kLate = 124;
constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::seconds kBesideSteps{60};  // to start, to fill the arena, and for steps slower than simulated

std::vector<reports::LocalPlan> plans_selected(const std::string& filter, const std::string& root) {
  std::vector<reports::LocalPlan> plans = reports::read_local_plans((fs::path(root) / kLoopPlans).string());
  std::erase_if(plans, [&](const auto& plan) { return plan.id.find(filter) == std::string::npos; });
  if (plans.empty())
    throw InputError(Diagnostic{kLoopPlans, 0, 0, "", fmt::format("no plan matches --filter {}", filter), ""});
  return plans;
}

// Asks a child to end as we are, and waits until it has.
[[noreturn]] void end_with_us(pid_t child) {
  ::kill(child, SIGTERM);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  throw Interrupted(end_signal());
}

// Runs this very program with its standard streams in the file `log`; its exit code, or 128 and the signal's number.
// One that takes longer than `limit`, as a kernel may that never ends, is ended: 124.
int run_self(std::vector<std::string> arguments, const std::string& log, std::chrono::seconds limit) {
  result::OutputFile output(log, result::OutputFile::Format::plain);
  arguments.insert(arguments.begin(), "/proc/self/exe");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error(fmt::format("cannot start this program again: error {}", failed));
  int status = 0;
  const auto until = std::chrono::steady_clock::now() + limit;
  bool late = false;
  while (::waitpid(child, &status, late ? 0 : WNOHANG) != child) {
    if (end_signal() != 0) end_with_us(child);
    if (!late && std::chrono::steady_clock::now() >= until) {
      late = true;
      ::kill(child, SIGKILL);
    }
    if (!late) std::this_thread::sleep_for(kLook);
  }
  check_interrupt();
  output.commit();
  if (late) return kLate;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The last line that is not empty: what the program says when it fails.
std::string last_line(const std::string& file) {
  std::ifstream in(file);
  std::string line, last;
  while (std::getline(in, line))
    if (!line.empty()) last = line;
  return last;
}

reports::GpuRow failed(const reports::LocalPlan& plan, const std::string& reason) {
  reports::GpuRow row;
  row.step.id = plan.id;
  row.held_out = plan.held_out;
  row.step.reason = reason;
  return row;
}

struct Loop {
  const GpuValidation& v;
  const std::string& root;
  std::string folder, calibration;
  reports::Algorithms algorithms;  // of the calibration's products

  // A plan that fails, whatever the way, leaves the others alone.
  reports::GpuRow row(const reports::LocalPlan& plan) const {
    try {
      return performed(plan);
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      return failed(plan, error.what());
    }
  }

 private:
  reports::GpuRow performed(const reports::LocalPlan& plan) const {
    const fs::path place = fs::path(folder) / plan.id;
    const std::string simulated = (place / "simulated").string(), measured = (place / "measured").string();
    fs::create_directories(place);
    SimulationRequest request;
    request.file = plan.scenario;
    request.assignments = plan.assignments;
    request.calibrations = {calibration};
    request.purpose = plan::Purpose::perform;
    request.record = true;
    const result::Result prediction = simulate_file(request, root);
    result::write_directory(prediction, simulated);
    const double step = static_cast<double>(prediction.step_time_ps) * 1e-12;
    const int steps = std::clamp(static_cast<int>(std::min(v.seconds / step, 1e6)), kLeastSteps, kMostSteps);
    std::vector<std::string> command = {
        "execute", plan.scenario, "--device", "cuda", "--steps", fmt::format("{}", steps), "-o", measured};
    if (v.measure_products) command.insert(command.end(), {"--products", "measured"});
    for (const std::string& a : plan.assignments) command.insert(command.end(), {"--set", a});
    Progress progress("performing " + plan.id);
    progress(0);
    const std::string log = (place / "execute.log").string();
    const auto limit = kBesideSteps + std::chrono::seconds(static_cast<int>(3 * steps * step));
    if (const int code = run_self(command, log, limit); code != kDone)
      return failed(plan, code == kLate ? fmt::format("took longer than {} s", limit.count())
                                        : fmt::format("exit status {}: {}", code, last_line(log)));
    const result::StoredResult first = result::read_directory(simulated), second = result::read_directory(measured);
    const plan::Scenario scenario = plan::read_scenario(plan.scenario, plan.assignments, root, plan::Purpose::perform);
    if (scenario.model.is_transformer())
      if (const std::string problem = reports::loss_problem(second.result.loss, scenario.model.vocab);
          !problem.empty()) {
        reports::GpuRow row = failed(plan, problem);
        row.wrong_losses = true;
        return row;
      }
    return reports::gpu_row(plan, reports::difference(first, second), algorithms);
  }
};

std::string calibrated(const GpuValidation& v, const std::vector<reports::LocalPlan>& plans, const std::string& folder,
                       const std::string& root) {
  CudaCalibration how;
  for (const reports::LocalPlan& plan : plans) {
    if (plan.held_out) how.not_walked.insert(how.scenarios.size());
    how.scenarios.push_back(plan::read_scenario(plan.scenario, plan.assignments, root, plan::Purpose::perform));
  }
  how.budget_s = v.budget_s;
  how.measure_products = v.measure_products;
  how.command = fmt::format("rehearse validate --gpu --budget {}{}", v.budget_s,
                            v.measure_products ? " --products measured" : "");
  how.file = (fs::path(folder) / "calibration.yaml").string();
  const CudaCalibrated made = calibrate_cuda(how);
  kernels::cuda::leave_device();  // the plans, each a process, have the device to themselves
  print(made.summary + '\n');
  return made.file;
}

reports::Algorithms algorithms_of(const std::string& calibration) {
  reports::Algorithms all;
  for (const cost::ProductPoint& p : cost::read_device_files({calibration}).measured.products)
    if (!p.held_out && !p.algorithm.empty())
      all[reports::product_text(cost::form_text(p.key), p.key.m, p.key.n, p.key.k)] = p.algorithm;
  return all;
}

}  // namespace

int validate_gpu(const GpuValidation& v, const std::string& root) {
  require_cuda_device();
  const std::vector<reports::LocalPlan> plans = plans_selected(v.filter, root);
  const TemporaryFolder temporary("gpu");  // for results that nobody asked to keep
  const std::string folder = v.output.empty() ? temporary.path() : v.output;
  if (!v.calibration.empty()) note_input(v.calibration);
  if (!v.output.empty()) check_output_directory(v.output, {"ledger.csv", "ledger.json", "calibration.yaml"});
  fs::create_directories(folder);
  const std::string calibration = v.calibration.empty() ? calibrated(v, plans, folder, root) : v.calibration;
  const Loop loop{v, root, folder, calibration, algorithms_of(calibration)};
  std::vector<reports::GpuRow> rows;
  for (const reports::LocalPlan& plan : plans) {
    rows.push_back(loop.row(plan));
    if (v.output.empty()) continue;  // after each: a run that is cut off leaves what it has
    result::write_files(
        folder, {{"ledger.csv", reports::gpu_ledger_csv(rows)}, {"ledger.json", reports::gpu_ledger_json(rows)}});
  }
  print(reports::gpu_ledger_table(rows));
  const HeldOutErrors held_out = errors_of(calibrate::gpu::check_held_out(loop.calibration));
  if (held_out.shapes > 0)
    print(reports::wrap(fmt::format("{} products held out of the calibration: within {} in the median, worst {}.",
                                    held_out.shapes, reports::percent(held_out.median),
                                    reports::percent(held_out.worst))));
  const bool wrong = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.wrong_losses; });
  return reports::summarize(rows).plans > 0 && !wrong ? kDone : kFailed;
}

}  // namespace rehearse::cli
