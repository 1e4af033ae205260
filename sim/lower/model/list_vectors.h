// The layers of a list that read tokens or sparse features, or make features of an example's vectors. Vectors lie
// [vector, example, width], as tokens do.
#pragma once

#include <memory>
#include <string>

#include "sim/lower/model/layer_part.h"

namespace rehearse::lower {

std::unique_ptr<LayerPart> make_list_attention(const UnitScope& scope, const model::Layer& layer, model::Extent in,
                                               const std::string& name);
std::unique_ptr<LayerPart> make_list_embedding(const UnitScope& scope, const model::Layer& layer, model::Extent in,
                                               const std::string& name);
std::unique_ptr<LayerPart> make_tables(const UnitScope& scope, const model::Layer& layer, model::Extent in,
                                       const std::string& name);
std::unique_ptr<LayerPart> make_pairs(const UnitScope& scope, model::Extent in, const std::string& name);
// Features of vectors: all of them in a row, or (of tokens) their mean.
std::unique_ptr<LayerPart> make_flatten(const UnitScope& scope, model::Extent in, const std::string& name);
std::unique_ptr<LayerPart> make_mean_of_vectors(const UnitScope& scope, model::Extent in, const std::string& name);

}  // namespace rehearse::lower
