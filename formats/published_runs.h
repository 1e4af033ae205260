// Published training runs as scenario files. A table of runs (the columns of scenarios/published/throughput.csv: a row
// is one configuration and one measured metric) becomes scenarios by rules, which stand in a file of their own
// (calibrate/published/throughput-rules.yaml): what software and machine a source used, what its columns leave out, and
// by which formula it counts FLOPs. What is publicly known and a row leaves out is filled in first (run_facts.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/run_facts.h"

namespace rehearse::formats {

// What of a GPU's memory a published peak counts: tensors (torch.cuda.max_memory_allocated), or what the caching
// allocator had taken from the device for them (max_memory_reserved); not_stated where a source prints one number
// without a name.
enum class MemoryKind : unsigned char { none, allocated, reserved, not_stated };

struct PublishedRun {
  std::string id, source, model;
  std::string software;  // what the run is booked under: the rules' name, else the source
  std::string metric, unit;
  double value = 0;                  // as published
  std::string scenario;              // a scenario file; empty if the row cannot be one
  std::string reason;                // then: why not
  std::vector<std::string> assumed;  // what the row does not say and the rules or this reader put in
  bool complete = false;             // nothing assumed: tier A, else B
  double step_s = 0;                 // the metric as seconds of one optimizer step; 0 if it cannot be
  double gpus = 0, seq_len = 0, global_batch = 0;
  // What was to be trained on which machine: the source and every key of the scenario but `plan` and `framework`. Runs
  // with the same task differ only in how it was split and by which software.
  std::string task;
  std::string split;    // "tp8 pp12 dp4 z1 mb2": tensor, pipeline (x chunks), replicas, ZeRO stage, micro-batch
  std::string missing;  // what of this software is not modelled, as the rules say
  MemoryKind memory_kind = MemoryKind::none;
  double memory_bytes = 0;  // the published peak of a GPU
};

// What is wrong with the row's columns of memory; "" if nothing is.
std::string memory_problem(const RunColumns& row);

class PublishedRules {
 public:
  // Throws InputError with every problem of a file. `facts`: a file of them, or "".
  static PublishedRules read(const std::string& path, const std::string& facts = "");
  PublishedRun convert(const RunColumns& row) const;

 private:
  struct Rule {
    RowPattern when;
    std::vector<std::pair<std::string, std::string>> set;  // scenario key -> value as YAML; in order
    std::string software, flops, assume, skip, missing;
    double peak_tflops = 0;
  };
  std::vector<Rule> rules_;
  RunFacts facts_;
};

}  // namespace rehearse::formats
