// See first_weights.h.
#include "sim/run/first_weights.h"

#include <algorithm>

#include "sim/account/first_weights.h"
#include "sim/engine/engine.h"

namespace rehearse::run {

result::FirstWeights first_weights_of(const Prepared& prepared) {
  const account::FirstWeights first = account::first_weights(prepared.scenario(), prepared.program());
  if (!first.any()) return {};
  engine::Options options = prepared.engine_options();
  options.steps = 1;
  options.noise = {};
  options.layout = nullptr, options.arenas = nullptr;
  options.loaders = nullptr, options.attention_loads = nullptr;
  const engine::Outcome outcome = engine::simulate(first.program, prepared.grid(), prepared.cluster(),
                                                   prepared.collectives(), prepared.costs(), options);
  result::FirstWeights out = account::first_weights_facts(first.messages);
  out.time_ps = outcome.step_time.ps();
  out.link_bytes = outcome.links.bytes;
  for (const result::CollectiveUse& use : outcome.collectives) {
    const std::string way = use.protocol.empty() ? use.algorithm : use.algorithm + "/" + use.protocol;
    if (std::find(out.ways.begin(), out.ways.end(), way) == out.ways.end()) out.ways.push_back(way);
  }
  return out;
}

}  // namespace rehearse::run
