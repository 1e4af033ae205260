// Parameters of a transformer block's products, as GPT-2 initialises them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {

inline constexpr double kWeightScale = 0.02;  // standard deviation

// Of the products whose output is added to the residual stream: smaller with depth.
inline double residual_weight_scale(const model::Model& model) {
  return kWeightScale / std::sqrt(2.0 * static_cast<double>(model.layers));
}

inline ParamSpec weight_spec(const UnitScope& scope, std::string name, std::vector<std::int64_t> shape, int tensor_dim,
                             double scale) {
  ParamSpec spec{std::move(name), std::move(shape), tensor_dim, program::Init::Kind::normal, scale};
  spec.eight_bits = scope.fp8;
  spec.matrices = 1;
  return spec;
}

inline ParamId add_weight(const UnitScope& scope, std::string name, std::vector<std::int64_t> shape, int tensor_dim,
                          double scale) {
  return scope.parameters.add(scope.number, weight_spec(scope, std::move(name), std::move(shape), tensor_dim, scale));
}

// The weight of the product `name` of a block's linear layer and, if `adapted`, its adapter (lora.h). `matrices`,
// `packed_qkv`: as in ParamSpec.
inline ParamId add_product(const UnitScope& scope, TensorParallel& products, const std::string& name,
                           std::vector<std::int64_t> shape, int tensor_dim, double scale, bool adapted,
                           std::int64_t matrices = 1, bool packed_qkv = false) {
  ParamSpec spec = weight_spec(scope, name + ".weight", std::move(shape), tensor_dim, scale);
  spec.matrices = matrices, spec.packed_qkv = packed_qkv;
  const ParamId weight = scope.parameters.add(scope.number, spec);
  if (adapted) products.add_adapter(scope.number, name, weight, spec);
  return weight;
}

// -1 if there is none.
inline ParamId add_bias(const UnitScope& scope, std::string name, std::vector<std::int64_t> shape, int tensor_dim,
                        bool present) {
  if (!present) return -1;
  return scope.parameters.add(scope.number,
                              {std::move(name), std::move(shape), tensor_dim, program::Init::Kind::zeros, 0});
}

// -1 if the model's products have no biases.
inline ParamId add_bias(const UnitScope& scope, std::string name, std::vector<std::int64_t> shape, int tensor_dim) {
  return add_bias(scope, std::move(name), std::move(shape), tensor_dim, scope.context.model().bias);
}

}  // namespace rehearse::lower
