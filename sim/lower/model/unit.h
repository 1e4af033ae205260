// A unit is a consecutive part of the model that lowering treats as one: embedding, transformer block, head,
// convolution, linear layer. A stage is a run of units. A unit declares its parameters, then emits its forward and
// backward ops into whatever body is current; buffers are declared once and shared by both.
#pragma once

#include <memory>
#include <vector>

#include "sim/lower/parallel/parameters.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class Unit {
 public:
  virtual ~Unit() = default;

  // Adds the parameters to the store (before its layout).
  virtual void declare_parameters() {}
  // Declares the buffers, given the input and how long the output must live: micro_batch if the next unit keeps it for
  // backward or it crosses slots. Returns the output, -1 for the loss.
  virtual BufferId declare_buffers(BufferId input, Lifetime output) = 0;

  // Ops at the start of a step.
  virtual void begin_step() {}
  // After the chunk's backward: what a framework does with a micro-batch's outputs.
  virtual void end_micro_batch() {}
  // Ops from input to output. `again`: within a backward body, to restore what backward reads and the micro-batch did
  // not keep.
  virtual void forward(bool again) = 0;
  // Given the gradient of the output (-1 for the loss), emits the ops that give the parameters' gradients and returns
  // the gradient of the input; -1 if `input_gradient` is false (nothing before needs it).
  virtual BufferId backward(BufferId output_gradient, bool input_gradient) = 0;
  // Whether backward reads the parameters' values (an embedding's adds to gradients alone).
  virtual bool backward_reads_parameters() const { return true; }
  // Of an embedding: the tokens' table, which a head may be tied to. Of a unit of biases: their table.
  virtual ParamId table() const { return -1; }
  // Of an embedding: the table of learned positions; -1: it has none.
  virtual ParamId positions() const { return -1; }
  // Whether forward(true) goes before backward.
  virtual bool recomputes() const { return false; }
};

// Everything a unit needs; `number` is its index in the stage, `recompute` what the plan says for it.
struct UnitScope {
  const Context& context;
  RoleBuilder& builder;
  ParameterStore& parameters;
  int number = 0;
  plan::Recompute recompute = plan::Recompute::none;
  bool fp8 = false;  // its linear layers multiply in 8 bits
  // Of a block whose scores have a bias by distance: the stack's table on this stage; -1: they have none.
  ParamId relative_bias = -1;

  // How long what only backward reads lives, and forward(true) restores.
  Lifetime restored() const {
    const bool again = recompute == plan::Recompute::full || recompute == plan::Recompute::ops;
    return again ? Lifetime::slot : Lifetime::micro_batch;
  }
  // The same of what `ops` keeps.
  Lifetime kept() const { return recompute == plan::Recompute::full ? Lifetime::slot : Lifetime::micro_batch; }
  bool recomputes() const { return restored() == Lifetime::slot; }
  // The same of what is read by 8-bit products alone: an 8-bit copy takes its place, unless it is cast again. No
  // gradient of a frozen weight reads it, but that of its adapter does, in 16 bits.
  Lifetime of_product_input(Lifetime lifetime, bool adapted = false) const {
    if (context.scenario.training.lora()) return adapted ? lifetime : Lifetime::slot;
    const bool again = context.profile().fp8_casts_again || context.scenario.training.fp8_rows();
    return fp8 && !again ? Lifetime::slot : lifetime;
  }
  // What norms give to a layer's branches is made again in backward, and not with all of the layer.
  bool makes_norms_again() const { return context.plan().recompute_norms && !recomputes(); }
  bool keeps_some() const { return recompute == plan::Recompute::ops; }
};

std::unique_ptr<Unit> make_embedding(UnitScope scope);
std::unique_ptr<Unit> make_block(UnitScope scope, int layer);
std::unique_ptr<Unit> make_one_branch_block(UnitScope scope, int layer);  // of model.layer_pattern
// The final norm, the vocabulary product and the loss. `table_on_this_stage`: the embedding's table, tied and on this
// stage; -1: the head has a table of its own, or its own copy of the tied one.
std::unique_ptr<Unit> make_head(UnitScope scope, ParamId table_on_this_stage);

// The same of encoders.
std::unique_ptr<Unit> make_encoder_embedding(UnitScope scope);
std::unique_ptr<Unit> make_post_norm_block(UnitScope scope, int layer);
std::unique_ptr<Unit> make_encoder_head(UnitScope scope, ParamId table_on_this_stage);

// An encoder's output, as a stage's decoder layers share it: itself, and the sum of the gradients that they give.
struct CrossMemory {
  const Context* encoder = nullptr;  // sizes of the encoder's tokens
  RoleBuilder* builder = nullptr;
  BufferId value = -1, gradient = -1;  // gradient -1: no layer has given one yet
  // Adds to the sum: into it, or it begins with this.
  void add_gradient(const std::string& name, BufferId more);
};

// Of an encoder with a decoder (t5). The decoder's embedding passes no input on: what comes in becomes the memory, and
// the gradient it returns is the memory's. `table`, `positions`: of tokens and positions, if this stage has them
// already.
std::unique_ptr<Unit> make_decoder_embedding(UnitScope scope, ParamId table, ParamId positions, CrossMemory& memory);
std::unique_ptr<Unit> make_decoder_block(UnitScope scope, int layer, CrossMemory& memory);
std::unique_ptr<Unit> make_encoder_end(UnitScope scope);
// Has the biases of scores of the encoder's or the decoder's layers on this stage, and computes nothing. `copy`: the
// stack begins on another stage.
std::unique_ptr<Unit> make_relative_bias(UnitScope scope, bool decoder, bool copy);

// The same of vision transformers.
std::unique_ptr<Unit> make_patch_embedding(UnitScope scope);
std::unique_ptr<Unit> make_class_head(UnitScope scope);

// Units of cnn and mlp: convolution + ReLU + pooling, linear + ReLU + dropout, and the loss on the last one's output.
std::unique_ptr<Unit> make_input(UnitScope scope);
std::unique_ptr<Unit> make_convolution(UnitScope scope, int index);
std::unique_ptr<Unit> make_linear(UnitScope scope, int index);
std::unique_ptr<Unit> make_loss(UnitScope scope);
// Of a model given as a list of layers (sim/model/layers.h): its unit `index`, and what comes into that.
std::unique_ptr<Unit> make_list_unit(UnitScope scope, int index);
model::Extent list_extent_before(const model::Model& model, std::int64_t unit);

}  // namespace rehearse::lower
