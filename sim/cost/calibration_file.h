// What `rehearse calibrate` measured on a machine whose ranks share its cores, as simulation reads it: kernels by
// shape, transfers between ranks by size, and what lies between them (the Performer's own time, how much cores slow one
// another). One JSON file of schema rehearse.calibration/1, of one host; read strictly, as every file. Its writer is
// calibrate/.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/pace.h"
#include "sim/cost/jitter.h"
#include "sim/program/op.h"
#include "sim/program/program.h"

namespace rehearse::cost {

inline constexpr const char* kCalibrationSchema = "rehearse.calibration/1";

struct HostFacts {
  std::string name, cpu;
  int cores = 0;  // usable by this process
  std::int64_t memory_bytes = 0;
  std::string isa;     // what the kernels are compiled for
  std::string kernel;  // of the operating system
  // The same machine as far as speed goes: name, cpu, cores and isa.
  bool same_machine(const HostFacts& other) const {
    return name == other.name && cpu == other.cpu && cores == other.cores && isa == other.isa;
  }
};

struct Provenance {
  std::string date, command, version, compiler, eigen;
  double budget_s = 0, wall_s = 0;
};

// Seconds over repetitions.
struct Quantiles {
  double p10 = 0, p50 = 0, p90 = 0;
};

// grid: measured alone, over and over; program: in the company it has in a scenario.
enum class Origin : unsigned char { grid, program };

struct CalibratedKernel {
  std::string kind;   // program::kind_name
  std::string shape;  // program::shape_text
  program::DType dtype = program::DType::f32;
  int threads = 1;  // of the rank
  int busy = 1;     // cores of the host at work while it was measured
  double flops = 0, bytes = 0;
  Quantiles time;
  double mean = 0;  // sums of means are what a step takes
  int repetitions = 0;
  Origin origin = Origin::grid;
};

enum class Transport : unsigned char { local, gloo };

// From the last participant's arrival to the end, mean over members; a message: from the later of its post and the
// receive's to the receiver's end.
struct CalibratedTransfer {
  Transport transport = Transport::local;
  bool send = false;  // else `kind`
  program::CollectiveKind kind = program::CollectiveKind::all_reduce;
  int ranks = 2;
  std::int64_t bytes = 0;  // the full size, see program/op.h
  Quantiles time;
  int repetitions = 0;
};

// What a core is busy with.
enum class Load : unsigned char { gemm, memory, transfer };
inline constexpr int kLoads = 3;

struct Calibration {
  std::string file;  // as read
  std::string name;
  HostFacts host;
  Provenance made;
  double peak_flops = 0;        // best fp32 product, all cores
  double memory_bandwidth = 0;  // bytes/s read and written, all cores
  std::vector<CalibratedKernel> kernels;
  double dispatch_s = 0;  // from the end of an op to the start of the next on a stream
  double wake_s = 0;      // from an op's end to the start of one of another stream that slept for it
  std::vector<CalibratedTransfer> transfers;
  // slowdown[what][beside]: of one thread when every other core does `beside`.
  std::array<std::array<double, kLoads>, kLoads> slowdown{{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};
  // Files of before there was any have none of these.
  Jitter jitter;  // its kernel_delays are empty: they are below, by company
  std::vector<CompanyDelays> kernel_delays;
  Pace pace;  // of the machine meanwhile
};

// Whether a path is that of a calibration and not of a device file.
bool is_calibration_path(const std::string& path);
// Throws InputError: missing, broken, another schema or kind; the hint names `rehearse calibrate`. Whether it is of
// this host is for the caller to ask.
Calibration read_calibration(const std::string& path);

// Of this machine and build.
HostFacts host_fingerprint();
// $XDG_CACHE_HOME/rehearse/calibration-HOST.json, else under $HOME/.cache; "" if there is neither.
std::string default_calibration_path();

}  // namespace rehearse::cost
