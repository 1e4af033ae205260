#include "cli/calibrate_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "calibrate/cuda/cuda_bench.h"
#include "calibrate/gpu/gpu_calibrate.h"
#include "calibrate/statistics.h"
#include "cli/console.h"
#include "cli/refuse.h"
#include "kernels/cuda/cuda.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/base/units.h"
#include "sim/cost/calibration_file.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;
using calibrate::gpu::GpuCalibration;
using calibrate::gpu::GpuOutcome;

std::string default_file(const std::string& gpu) {
  const std::string beside = cost::default_calibration_path();
  if (beside.empty()) refuse("", "neither XDG_CACHE_HOME nor HOME is set", "say where the file goes: -o FILE");
  return (fs::path(beside).parent_path() / (calibrate::gpu::device_name(gpu) + ".yaml")).string();
}

void make_folder_of(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::absolute(path).parent_path();
  fs::create_directories(folder, error);
  if (error) refuse("-o", fmt::format("cannot make {}: {}", folder.string(), error.message()), "");
}

std::string us(double seconds) {
  return seconds > 0 ? format_time(Time::from_seconds(seconds)) : "not measured";
}

std::string held_out_text(const std::vector<calibrate::gpu::HeldOut>& held_out) {
  const HeldOutErrors e = errors_of(held_out);
  if (e.shapes == 0) return "none";
  return fmt::format("{} products: {} in the median, worst {}", e.shapes, reports::percent(e.median),
                     reports::percent(e.worst));
}

std::string summary_of(const GpuOutcome& outcome, const CudaCalibrated& made) {
  const GpuCalibration& c = outcome.calibration;
  const auto& m = c.measured;
  const cost::Range sustained = calibrate::gpu::sustained_of(m.products);
  const std::string copy = c.facts.memory_bandwidth > 0
                               ? fmt::format("{:.4g} GB/s read and written, {} of nominal", c.copy_bandwidth / 1e9,
                                             reports::percent(c.copy_bandwidth / c.facts.memory_bandwidth))
                               : fmt::format("{:.4g} GB/s read and written", c.copy_bandwidth / 1e9);
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"Copy", copy},
      {"Launch", fmt::format("{} alone, {} in a graph, host time a kernel", us(m.launch.plain), us(m.launch.graph))},
      {"Kernels", fmt::format("{} products, {} attentions, {} others; {} of the scenarios' time", m.products.size(),
                              c.flash.size(), m.shapes.size(), reports::percent(outcome.covered))},
      {"Walked", c.walks.empty() ? std::string("nothing") : fmt::format("{} programs", c.walks.size())},
      {c.walks.empty() ? "Long run" : "In steps",
       fmt::format("products at {} of a burst's rate", reports::percent(sustained.value))},
      {"Held out", held_out_text(made.held_out)},
      {"NCCL", c.transfers.empty() ? "not measured: one GPU, or no library" : fmt::format("{}", c.transfers.size())},
      {"Took", fmt::format("{:.3g} s of {:.3g}", c.made.wall_s, c.made.budget_s)},
  };
  return reports::wrap(fmt::format("{}, {} multiprocessors", c.facts.name, c.facts.sms)) + reports::labelled(rows) +
         reports::left("Written to", 18) + made.file + '\n' +
         reports::wrap("Simulate with it: --calibration FILE; commit it as calibrate/devices/NAME.yaml to name it.");
}

}  // namespace

void require_cuda_device() {
  if (const std::string why = kernels::cuda::why_no_device(); !why.empty())
    refuse("--device", "no CUDA device: " + why, "GPUs are simulated from the device files in calibrate/devices");
}

HeldOutErrors errors_of(const std::vector<calibrate::gpu::HeldOut>& held_out) {
  std::vector<double> errors;
  for (const auto& h : held_out) errors.push_back(std::fabs(h.predicted / h.measured - 1));
  if (errors.empty()) return {};
  return {static_cast<int>(errors.size()), median(errors), *std::max_element(errors.begin(), errors.end())};
}

CudaCalibrated calibrate_cuda(const CudaCalibration& how) {
  require_cuda_device();
  if (!how.file.empty() && !how.file.ends_with(".yaml"))
    refuse("-o", "expected a file ending in .yaml, found " + how.file, "a GPU's calibration is a device file");
  const auto bench = calibrate::gpu::make_cuda_bench(0, nullptr, how.measure_products);
  CudaCalibrated made;
  made.file = how.file.empty() ? default_file(bench->facts().name) : how.file;
  result::check_output_file(made.file);
  make_folder_of(made.file);
  calibrate::gpu::GpuRequest request;
  request.scenarios = how.scenarios;
  request.not_walked = how.not_walked;
  request.budget_s = how.budget_s;
  request.command = how.command;
  PhasedProgress progress;
  request.progress = [&](const std::string& what, double done) { progress(what, done); };
  const GpuOutcome outcome = calibrate::gpu::calibrate_gpu(*bench, request);
  progress.clear();
  made.text = calibrate::gpu::to_yaml(outcome.calibration);
  result::write_output(made.file, made.text);
  made.held_out = calibrate::gpu::check_held_out(made.file);
  for (const std::string& shortfall : outcome.shortfalls)
    note("rehearse: note: " + shortfall + "; a larger --budget helps");
  made.summary = summary_of(outcome, made);
  return made;
}

}  // namespace rehearse::cli
