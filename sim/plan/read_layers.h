// Reads the list of layers that a model of the user's own is (model.layer_list).
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "sim/base/document.h"
#include "sim/model/layers.h"
#include "sim/model/model.h"

namespace rehearse::plan::detail {

// In the order of model::LayerKind.
inline constexpr std::array<std::string_view, 19> kLayerWords = {
    "linear",  "convolution", "batch_norm",   "layer_norm", "relu",      "gelu",      "tanh",
    "dropout", "max_pool",    "average_pool", "residual",   "attention", "embedding", "tables",
    "pairs",   "flatten",     "sigmoid",      "silu",       "scale"};
std::string_view layer_word(model::LayerKind kind);
// Whether layers of this kind have the key ("width").
bool takes(model::LayerKind kind, std::string_view key);

// Problems are reported at their place; lists within lists go to a depth of 8, and have 1000 layers at most.
std::vector<model::Layer> read_layers(const Node& list, int depth = 0);

// `model.convolutions`: each with its kernel and pool, on maps of the size before it.
void read_convolutions(const Node& list, model::Model& model);

}  // namespace rehearse::plan::detail
