// How long a kernel takes alone on a device, or during communication: from measured shapes where there are some, from
// interpolation that respects tiles and waves, else from a roofline with the device class's efficiency. The answer
// carries its coverage and an error interval. A kernel nobody can cost is an error that names it, never a silent zero.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/base/pace.h"
#include "sim/base/units.h"
#include "sim/cost/jitter.h"
#include "sim/cost/power.h"
#include "sim/program/program.h"

namespace rehearse::cost {

enum class Coverage : unsigned char { exact, interpolated, extrapolated, spec };
inline constexpr int kCoverages = 4;

// What communication takes from the device while the kernel runs.
struct Interference {
  int sms_held = 0;
  std::int64_t bandwidth_taken = 0;  // bytes/s of device memory
  // On a host whose ranks share its cores: cores at work in all, the kernel's own included; 0: its own alone.
  int busy_cores = 0;
  friend auto operator<=>(const Interference&, const Interference&) = default;
};

struct Estimate {
  Time duration;
  Coverage coverage = Coverage::spec;
  double low = 1, high = 1;  // error interval, as factors of the duration
};

// Facts of a device, from calibrate/devices/NAME.yaml.
struct Device {
  std::string name, file;
  bool cpu = false;
  int sms = 0;  // multiprocessors; cores on a CPU
  Bytes memory;
  Bandwidth memory_bandwidth;                // nominal
  FlopRate peak_bf16, peak_fp16, peak_fp32;  // dense; fp32 is what fp32 matmuls use (TF32 where the file says so)
  FlopRate peak_fp8;                         // of either 8-bit format; zero: the device has no such products
  FlopRate peak_fp4;                         // of NVFP4; zero: the same
  // Matrix products in a long run reach this share of the rates in a table of short bursts (clocks under load). It is
  // in every duration; multiply a duration by it to compare with a burst.
  double sustained = 1;
  // On a CPU, of the thread that performs a stream: from an op's end to the next one's start; what is added where it
  // slept for another stream.
  Time dispatch, wake;
  // Of a calibrated GPU: host time a kernel where bodies are launched as graphs; zero: not measured.
  Time launch;
  // What its host takes to launch a kernel, in the times of the x86 servers that frameworks' launch_cost is of.
  double host_launch = 1;
  // Of a calibrated GPU: what a process of ours holds there besides its tensors; zero: not measured.
  Bytes reserve;
  // How its durations scatter, and how fast it was, while they were measured; nothing unless that was measured.
  Jitter jitter;
  Pace pace;
  // Where measurements of later files come from, for people: "a profiler's trace of 8 GPUs, train.json.gz".
  std::vector<std::string> measured_in;
  Power power;  // !known(): the file does not say
  // Zero for types without matrix products (i32, u8).
  FlopRate peak(program::DType dtype) const;
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual const Device& device() const = 0;
  // Throws InputError naming the op if it cannot be costed. Transfers and HostSync are not kernels.
  virtual Estimate kernel(const program::Role& role, const program::Op& op, const Interference& beside) const = 0;
  // Bytes of the device that a kernel allocates for itself while it runs, beside its operands: what attention's
  // backward under training.deterministic adds up in, or writes and reads again. The usual backward's is not counted.
  virtual std::int64_t own_memory(const program::Op& /*op*/) const { return 0; }
  // Whether kernels of a kind (program/kernel_kinds.h) all take the same, so that one need be asked for.
  virtual bool by_kind() const { return false; }
};

// How the ranks of a simulation divide a host.
struct HostShare {
  int ranks = 1;    // on the host
  int threads = 1;  // of each, on its compute stream
  // Of a rank on an accelerator while all ranks of the host are at the same: of the nominal bandwidth of the host's
  // memory; of PCIe to the host, 0 where that is as the device's file has it.
  Bandwidth host_memory{100'000'000'000}, to_host = {};
};

// A device that is not as it is, for what-ifs: factors of its rates and of what its host takes. What was measured takes
// the ratio that the device's model has between the two devices (for this very kernel and company), so that a kernel
// bound by its products follows `compute`, one bound by its traffic `memory`, and constants stay: a measured time T
// becomes T * model'(kernel) / model(kernel). compute: all that multiprocessors do, matrix units and what feeds them.
// launch: of a CPU rank's threads (dispatch, wake); what a GPU's host takes is the framework's.
struct Scale {
  double compute = 1, memory = 1, launch = 1;
  bool none() const { return compute == 1 && memory == 1; }
};

// `files`: device or calibration files; the first is the device, later ones add measurements. A calibration's device is
// one rank's share of its host. Throws InputError.
std::unique_ptr<CostModel> load_costs(const std::vector<std::string>& files, const HostShare& share = {},
                                      const Scale& scale = {});
// The path of calibrate/devices/NAME.yaml, or `name` itself if it is a path. Throws InputError with the nearest name.
// "local", the machine at hand, is the calibration that `rehearse calibrate` left in the user's cache, if it is of this
// very host and build; else the error names that command.
std::string find_device_file(const std::string& name, const std::string& data_root);
// `costs` where launches block (CUDA_LAUNCH_BLOCKING=1): the device idles for `gap` with every kernel, since the host
// launches the next one only once it has seen this one end.
std::unique_ptr<CostModel> with_blocking_launches(std::unique_ptr<CostModel> costs, Time gap);
// A device on which every kernel of a role takes `duration` (tests of schedules).
std::unique_ptr<CostModel> make_uniform_costs(Time duration);

}  // namespace rehearse::cost
