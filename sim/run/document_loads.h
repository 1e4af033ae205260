// How much attention each rank's micro-batches are, where sequences are packed of documents (sim/plan/documents.h):
// pairs of queries of the rank and keys that these see, over those of equal documents. Ranks of a tensor or pipeline
// group have the same sequences; of a context group that gathers keys each has its own queries, with all_to_all all of
// them.
#pragma once

#include <optional>

#include "sim/engine/attention_loads.h"
#include "sim/plan/scenario.h"

namespace rehearse::run {

// Nothing where sequences are single documents. `steps`: of the simulation.
std::optional<engine::AttentionLoads> document_loads(const plan::Scenario& scenario, int steps);

}  // namespace rehearse::run
