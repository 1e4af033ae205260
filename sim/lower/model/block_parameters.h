// Parameters of a transformer block's products, as GPT-2 initialises them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "sim/lower/model/unit.h"

namespace rehearse::lower {

inline constexpr double kWeightScale = 0.02;  // standard deviation

// Of the products whose output is added to the residual stream: smaller with depth.
inline double residual_weight_scale(const model::Model& model) {
  return kWeightScale / std::sqrt(2.0 * static_cast<double>(model.layers));
}

inline ParamId add_weight(const UnitScope& scope, std::string name, std::vector<std::int64_t> shape, int tensor_dim,
                          double scale) {
  return scope.parameters.add(scope.number,
                              {std::move(name), std::move(shape), tensor_dim, program::Init::Kind::normal, scale});
}

// -1 if the model has no biases.
inline ParamId add_bias(const UnitScope& scope, std::string name, std::vector<std::int64_t> shape, int tensor_dim) {
  if (!scope.context.model().bias) return -1;
  return scope.parameters.add(scope.number,
                              {std::move(name), std::move(shape), tensor_dim, program::Init::Kind::zeros, 0});
}

}  // namespace rehearse::lower
