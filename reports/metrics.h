// What a run under way is at, in Prometheus's text format: for node_exporter's textfile collector, or anything that
// reads it (https://prometheus.io/docs/instrumenting/exposition_formats).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rehearse::reports {

struct TrainingProgress {
  std::string scenario;
  std::int64_t step = 0, steps = 0;  // done, of the training
  std::int64_t ranks = 0;
  double loss = 0;  // of the last step
  // Those that make it up, if there are several, by name ("model", "mtp1").
  std::vector<std::pair<std::string, double>> loss_parts = {};
  // Mean since the file was written before, of whole steps without the start of the ranks; 0: there is none yet, and no
  // rate either.
  double step_s = 0;
  double examples_per_s = 0;  // sequences, or samples
  // Of parameter servers, once the run has ended: result::ParameterServers. [k]: updates of gradients k updates old.
  std::vector<std::int64_t> staleness = {};
  double tokens_per_s = 0;  // 0: the model reads no text
};

std::string prometheus_text(const TrainingProgress& p);

}  // namespace rehearse::reports
