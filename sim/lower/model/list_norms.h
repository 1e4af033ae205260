// Batch normalisation of a layer list (program::BatchNorm): of one rank's examples in one kernel each way, or with
// model.sync_batch_norm over the examples of all data-parallel ranks, whose sums two all-reduces add, one a way, as
// torch.nn.SyncBatchNorm. What a recomputation restores uses the sums of the forward pass, which are kept. Running
// averages, which only inference reads, are left out.
#pragma once

#include <memory>
#include <string>

#include "sim/lower/model/layer_part.h"

namespace rehearse::lower {

// Layer normalisation of each example's features.
std::unique_ptr<LayerPart> make_layer_norm(const UnitScope& scope, model::Extent in, const std::string& name);
std::unique_ptr<LayerPart> make_batch_norm(const UnitScope& scope, model::Extent in, const std::string& name);

}  // namespace rehearse::lower
