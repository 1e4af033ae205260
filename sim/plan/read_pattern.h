// Layers of one branch each (model.layer_pattern) and their mixers: problems of what a model has, and of keys that are
// given where no layer has them.
#pragma once

#include "sim/model/model.h"
#include "sim/plan/model_source.h"

namespace rehearse::plan::detail {

void check_pattern(const ModelSource& source, const model::Model& model);

}  // namespace rehearse::plan::detail
