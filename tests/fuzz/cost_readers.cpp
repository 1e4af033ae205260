// Device files, the tables next to them, and calibrations of this machine.
#include <filesystem>

#include "calibrate/trace/chakra_trace.h"
#include "calibrate/trace/trace_samples.h"
#include "sim/collective/measurements.h"
#include "sim/cost/calibration_file.h"
#include "sim/cost/device_file.h"
#include "sim/lower/lower.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/small_plans.h"

namespace rehearse::fuzz {
namespace {

namespace fs = std::filesystem;

// A folder with the tables of calibrate/devices, which device files name.
fs::path devices_folder() {
  static const fs::path folder = [] {
    const fs::path made = fs::path(temporary_folder()) / "devices";
    fs::create_directories(made);
    for (const auto& entry : fs::directory_iterator(source_file("calibrate/devices")))
      if (entry.path().extension() == ".csv") fs::create_symlink(entry.path(), made / entry.path().filename());
    return made;
  }();
  return folder;
}

std::string put_device(const std::string& name, const std::string& content) {
  return put_file((devices_folder().filename() / name).string(), content);
}

// A step of each kind of model, for devices to cost.
const std::vector<program::Program>& programs() {
  static const std::vector<program::Program> made = [] {
    std::vector<program::Program> list;
    for (const char* model : {"gpt-tiny", "llama-tiny", "cnn-cifar"}) {
      const bool cnn = std::string(model) == "cnn-cifar";
      const std::string path =
          put_file("costed.yaml", std::string("rehearse: 1\nframework: rehearse\nmodel: ") + model +
                                      "\ncluster: {topology: dgx-a100, gpus: 2}\nplan: {zero: 1, micro_batch: 1}\n"
                                      "training: {global_batch: 4, precision: " +
                                      (cnn ? "fp32}\n" : "bf16, seq_len: 16}\n"));
      list.push_back(lower::lower(plan::read_scenario(path, {}, REHEARSE_SOURCE_DIR)));
    }
    return list;
  }();
  return made;
}

void cost_all(const cost::CostModel& costs) {
  for (const program::Program& program : programs())
    for (const program::Role& role : program.roles)
      for (const program::Body& body : role.bodies)
        for (const program::Op& op : body.ops) {
          if (program::is_transfer(op) || std::holds_alternative<program::HostSync>(op.shape)) continue;
          cost::Interference beside;
          if (costs.device().cpu) beside.busy_cores = 2;
          if (costs.kernel(role, op, beside).duration < Time()) fail("a kernel that takes less than no time");
        }
}

void read_device(const std::string& bytes) {
  const std::string path = put_device("input.yaml", bytes);
  (void)collective::find_measured_data(path);
  (void)collective::takes_collectives_of_topology(path);
  cost_all(*cost::load_costs({path}));
  print_all(simulate_text(small_scenario("dgx-a100", 2), {path}));
}

// What adds to a device, alone and so to the one that it names.
void read_measurements(const std::string& bytes) {
  const std::string path = put_device("input.yaml", bytes);
  if (cost::measurements_for(path) != "a100-sxm-80g") return;
  cost_all(*cost::load_costs({source_file("calibrate/devices/a100-sxm-80g.yaml"), path}));
  print_all(simulate_text(small_scenario("dgx-a100", 2), {path}));
}

// What each operator is asked too: its shapes are texts in the file.
void read_chakra(const std::string& bytes) {
  const calibrate::trace::Trace trace = calibrate::trace::read_chakra_trace(put_file("trace.et", bytes));
  for (const calibrate::trace::Operator& op : trace.operators) (void)calibrate::trace::of_operator(op, "kernel");
  for (const calibrate::trace::Collective& c : trace.collectives) (void)calibrate::trace::of_collective(c, 8, 0);
}

void read_profiler_trace(const std::string& bytes) {
  const calibrate::trace::Trace trace = calibrate::trace::read_trace(put_file("trace.json", bytes));
  calibrate::trace::SampleTable table;
  calibrate::trace::add_samples(trace, {1, 8}, 0, table);
}

// A table as a device file has it beside it.
void read_table(const std::string& bytes, const std::string& key) {
  put_device("input.csv", bytes);
  const std::string path =
      put_device("device.yaml",
                 "rehearse_device: 1\nname: fuzzed\nkind: gpu\nsms: 100\nmemory: 16GiB\nmemory_bandwidth: 900GB/s\n"
                 "kernel_time: 1us\npeak: {fp32: 20TFLOPS, bf16: 200TFLOPS}\nmemory_efficiency: {elementwise: 0.5}\n"
                 "gemm: {constants: {efficiency: 0.5, launch: 1us, tiles: [[128, 128]]}" +
                     key);
  cost_all(*cost::load_costs({path}));
}

void read_collectives(const std::string& bytes) {
  const std::string path = put_device("input.collectives.yaml", bytes);
  (void)collective::read_measured_data(path);
}

void read_collective_table(const std::string& bytes) {
  put_device("input.csv", bytes);
  (void)collective::read_measured_data(
      put_device("fixed.collectives.yaml", "collectives: 1\nmeasurements: input.csv\n"));
}

void read_calibration(const std::string& bytes) {
  const std::string path = put_file("calibration.json", bytes);
  (void)cost::read_calibration(path);
  (void)collective::find_measured_data(path);
  cost_all(*cost::load_costs({path}, {2, 1}));
  std::string text = small_scenario("local", 2);
  text.replace(text.find("bf16"), 4, "fp32");
  print_all(simulate_text(text, {path}));
}

}  // namespace

void add_cost_readers(std::vector<Reader>& list) {
  list.push_back({.name = "device", .read = read_device, .seeds = {"calibrate/devices/*.yaml"}});
  list.push_back({.name = "gemm-table",
                  .read = [](const std::string& bytes) { read_table(bytes, ", table: input.csv}\n"); },
                  .seeds = {"calibrate/devices/*.gemm.csv"}});
  list.push_back({.name = "attention-table",
                  .read =
                      [](const std::string& bytes) {
                        read_table(bytes,
                                   "}\nattention: {table: input.csv, forward: {rate: 100TFLOPS}, "
                                   "backward: {rate: 100TFLOPS}}\n");
                      },
                  .seeds = {"calibrate/devices/*.attention.csv"}});
  list.push_back({.name = "wide-attention-table",
                  .read =
                      [](const std::string& bytes) {
                        read_table(
                            bytes,
                            "}\nattention: {forward: {rate: 100TFLOPS}, backward: {rate: 100TFLOPS}, wide: {table: "
                            "input.csv, forward: {rate: 100TFLOPS}, backward: {rate: 100TFLOPS}}}\n");
                      },
                  .seeds = {"calibrate/devices/*.wide-attention.csv"}});
  list.push_back({.name = "kernel-table",
                  .read = [](const std::string& bytes) { read_table(bytes, "}\nkernels: {table: input.csv}\n"); }});
  list.push_back({.name = "collectives", .read = read_collectives, .seeds = {"calibrate/devices/*.collectives.yaml"}});
  list.push_back(
      {.name = "collective-table", .read = read_collective_table, .seeds = {"calibrate/devices/*.collectives.csv"}});
  list.push_back({.name = "calibration", .read = read_calibration});
  list.push_back({.name = "measurements", .read = read_measurements});
  list.push_back({.name = "profiler-trace", .read = read_profiler_trace});
  list.push_back({.name = "chakra-trace", .read = read_chakra});
}

}  // namespace rehearse::fuzz
