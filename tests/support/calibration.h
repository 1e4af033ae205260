// Calibration files for tests: the text of one with what a test asks for, and a place to write it.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary.h"

namespace rehearse::test {

struct KernelLine {
  std::string kind, shape;
  double seconds = 1e-3, flops = 0, bytes = 1000;
  int threads = 1, busy = 1;
  std::string origin = "grid";
};
struct TransferLine {
  std::string kind;
  int ranks = 2;
  long bytes = 1000;
  double seconds = 1e-4;
  std::string transport = "local";
};

struct CalibrationText {
  std::string schema = "rehearse.calibration/1", kind = "cpu", name = "tester", cpu = "Test CPU", isa = "x86-64-v3";
  int cores = 2;
  double dispatch_s = 0, wake_s = 0;
  std::vector<KernelLine> kernels;
  std::vector<TransferLine> transfers;
  std::string sharing, more;  // raw

  std::string text() const {
    std::string out = fmt::format(
        "{{\n \"schema\": \"{}\",\n \"name\": \"this host\", \"kind\": \"{}\",\n"
        " \"host\": {{\"name\": \"{}\", \"cpu\": \"{}\", \"cores\": {}, \"memory_bytes\": 8000000000, \"isa\": \"{}\", "
        "\"kernel\": \"6\"}},\n"
        " \"made\": {{\"date\": \"2026-11-21T01:40:00Z\", \"command\": \"test\", \"version\": \"0.1.0\", \"compiler\": "
        "\"g++\", \"eigen\": \"3.4.0\", \"budget_s\": 60, \"wall_s\": 58.1}},\n"
        " \"peak_flops\": 1.1e+11, \"memory_bandwidth\": 1.2e+10,\n \"kernels\": [",
        schema, kind, name, cpu, cores, isa);
    const char* comma = "\n  ";
    for (const KernelLine& k : kernels) {
      out += fmt::format(
          "{}{{\"kind\": \"{}\", \"shape\": \"{}\", \"dtype\": \"fp32\", \"threads\": {}, \"busy\": {}, \"flops\": {}, "
          "\"bytes\": {}, \"p10_s\": {}, \"p50_s\": {}, \"p90_s\": {}, \"mean_s\": {}, \"repetitions\": 10, "
          "\"origin\": \"{}\"}}",
          comma, k.kind, k.shape, k.threads, k.busy, k.flops, k.bytes, k.seconds * 0.9, k.seconds, k.seconds * 1.2,
          k.seconds, k.origin);
      comma = ",\n  ";
    }
    out += fmt::format("],\n \"dispatch_s\": {}, \"wake_s\": {},\n \"transfers\": [", dispatch_s, wake_s);
    comma = "\n  ";
    for (const TransferLine& t : transfers) {
      out += fmt::format(
          "{}{{\"transport\": \"{}\", \"kind\": \"{}\", \"ranks\": {}, \"bytes\": {}, \"p10_s\": {}, \"p50_s\": {}, "
          "\"p90_s\": {}, \"repetitions\": 100}}",
          comma, t.transport, t.kind, t.ranks, t.bytes, t.seconds * 0.9, t.seconds, t.seconds * 1.1);
      comma = ",\n  ";
    }
    return out + fmt::format("],\n \"sharing\": [{}]{}\n}}\n", sharing, more);
  }
};

// A file of this process's own, gone with the object.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& text) : path_(temporary_path(name)) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace rehearse::test
