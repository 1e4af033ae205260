// Stands for calibrate.cpp, compare_trace.cpp, local_loop.cpp and gpu_loop.cpp in a static build, which has no Google
// Benchmark: the commands are there and say so.
#include "cli/commands.h"
#include "cli/compare_trace.h"
#include "cli/gpu_loop.h"
#include "cli/local_loop.h"
#include "sim/base/diagnostics.h"

namespace rehearse::cli {
namespace {

[[noreturn]] void refuse_to_calibrate() {
  throw InputError(Diagnostic{"", 0, 0, "",
                              "this program is a static build, which cannot calibrate or perform plans to "
                              "be compared",
                              "build without REHEARSE_STATIC for that"});
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("calibrate", "Not in this build: measure this machine");
  command->allow_extras();
  command->callback([&action] { action = []() -> int { refuse_to_calibrate(); }; });
}

std::vector<reports::LocalPlan> local_plans(const std::string&) {
  refuse_to_calibrate();
}

void calibrate_for(const std::vector<reports::LocalPlan>&, const Calibrating&, const std::string&) {
  refuse_to_calibrate();
}

LocalRun simulate_and_perform(const reports::LocalPlan&, const std::string&, double, bool, const std::string&) {
  refuse_to_calibrate();
}

int compare_trace(const TraceComparison&) {
  throw InputError(Diagnostic{"", 0, 0, "", "this program is a static build, which reads no profiler's traces",
                              "build without REHEARSE_STATIC for that"});
}

int validate_local(const LocalValidation&, const std::string&) {
  refuse_to_calibrate();
}

int validate_gpu(const GpuValidation&, const std::string&) {
  refuse_to_calibrate();
}

}  // namespace rehearse::cli
