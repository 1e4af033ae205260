// The units of a stage's chunks: which parts of the model they are, in its order, with their parameters.
#include <memory>
#include <utility>

#include "sim/lower/model/prediction.h"
#include "sim/lower/model/unit.h"
#include "sim/lower/stage_lowering.h"

namespace rehearse::lower {

void StageLowering::make_units(Chunk& chunk) {
  parameters_.begin_chunk();
  chunk.first_unit = units_;
  if (chunk.first) make_first(chunk);
  for (std::int64_t i = chunk.layers.first; i < chunk.layers.first + chunk.layers.count; ++i) make_layer(chunk, i);
  if (chunk.last) make_last(chunk);
}

void StageLowering::add_unit(Chunk& chunk, std::unique_ptr<Unit> unit) {
  unit->declare_parameters();
  chunk.units.push_back(std::move(unit));
}

void StageLowering::make_first(Chunk& chunk) {
  const model::Model& m = context_.model();
  UnitScope scope = next_scope(context_);
  add_unit(chunk, m.is_vision()        ? make_patch_embedding(scope)
                  : m.is_encoder()     ? make_encoder_embedding(scope)
                  : m.is_transformer() ? make_embedding(scope)
                                       : make_input(scope));
  table_ = chunk.units.back()->table();
  positions_ = chunk.units.back()->positions();
}

void StageLowering::make_layer(Chunk& chunk, std::int64_t i) {
  const model::Model& m = context_.model();
  if (m.has_decoder()) return make_layer_of_two(chunk, i);
  const int layer = static_cast<int>(i);
  const auto convolutions = static_cast<std::int64_t>(m.convolutions.size());
  UnitScope scope = next_scope(context_);
  scope.recompute = context_.plan().recompute_of(i - chunk.layers.first);
  scope.fp8 = m.is_transformer() && context_.fp8(i);
  add_unit(chunk, m.is_encoder()       ? make_post_norm_block(scope, layer)
                  : m.one_branch()     ? make_one_branch_block(scope, layer)
                  : m.is_transformer() ? make_block(scope, layer)
                  : m.is_list()        ? make_list_unit(scope, layer)
                  : i < convolutions   ? make_convolution(scope, layer)
                                       : make_linear(scope, static_cast<int>(i - convolutions)));
}

// A layer of an encoder with a decoder: before the decoder's first is its embedding, behind the encoder's last its
// norm; the first layer of either on this stage comes after the table of biases.
void StageLowering::make_layer_of_two(Chunk& chunk, std::int64_t i) {
  const model::Model& m = context_.model();
  const bool decoder = m.of_decoder(i);
  const Context& context = decoder ? decoder_ : context_;
  const std::int64_t stack = decoder ? m.encoder_layers : 0;
  if (decoder && i == stack) {
    const auto unit = static_cast<int>(chunk.units.size());
    add_unit(chunk, make_decoder_embedding(next_scope(decoder_), table_, positions_, memory_));
    if (table_ < 0) table_ = chunk.units.back()->table(), table_unit_ = unit;
  }
  if (m.shares_positions()) {
    relative_bias_ = -1;
  } else if (i == chunk.layers.first || i == stack) {
    bias_units_.push_back(static_cast<int>(chunk.units.size()));
    add_unit(chunk, make_relative_bias(next_scope(context), decoder, i > stack));
    relative_bias_ = chunk.units.back()->table();
  } else {
    parameters_.add_use(relative_bias_);
  }
  UnitScope scope = next_scope(context);
  scope.recompute = context_.plan().recompute_of(i - chunk.layers.first);
  scope.relative_bias = relative_bias_;
  add_unit(chunk,
           decoder ? make_decoder_block(scope, static_cast<int>(i), memory_) : make_block(scope, static_cast<int>(i)));
  if (i + 1 == m.encoder_layers) add_unit(chunk, make_encoder_end(next_scope(context_)));
}

void StageLowering::make_last(Chunk& chunk) {
  const model::Model& m = context_.model();
  if (!m.has_decoder()) table_ = chunks_.front().first ? chunks_.front().units.front()->table() : -1;
  make_predictions(chunk);
  table_shared_ = m.is_transformer() && m.tied_embeddings && table_ >= 0;
  const ParamId table = table_shared_ ? table_ : -1;
  UnitScope scope = next_scope(decoder_);
  add_unit(chunk, m.is_vision()        ? make_class_head(scope)
                  : m.is_encoder()     ? make_encoder_head(scope, table)
                  : m.mtp_depth > 0    ? make_prediction_head(scope, table, predictions_)
                  : m.is_transformer() ? make_head(scope, table)
                                       : make_loss(scope));
}

// The modules of multi-token prediction, whose blocks are numbered behind the layers. Of those that are recomputed so
// are these as if the stage had more layers.
void StageLowering::make_predictions(Chunk& chunk) {
  const model::Model& m = context_.model();
  std::int64_t behind = 0;  // the layers
  for (std::int64_t i = 0; i < m.mtp_depth; ++i) {
    const auto unit = static_cast<int>(chunk.units.size());
    add_unit(chunk, make_prediction_entry(next_scope(context_), static_cast<int>(i) + 1, table_, predictions_));
    if (table_ < 0) table_ = chunk.units.back()->table(), table_unit_ = unit;
    for (std::int64_t of_module = 0; of_module < m.module_blocks(); ++of_module, ++behind) {
      UnitScope scope = next_scope(context_);
      scope.recompute = context_.plan().recompute_of(chunk.layers.count + behind);
      scope.fp8 = context_.fp8(m.layers + behind);
      const auto layer = static_cast<int>(m.layers + behind);
      add_unit(chunk, m.one_branch() ? make_one_branch_block(scope, layer) : make_block(scope, layer));
    }
  }
}

}  // namespace rehearse::lower
