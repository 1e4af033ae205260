// A GPT trained on one device, written plainly: naive loops over one sequence at a time, a hand-written backward, AdamW
// and clipping as PyTorch does them. It shares nothing with lowering, programs or kernels, so that a plan's loss curve
// can be held against it. The model is the one the gpt family names: pre-norm blocks (LayerNorm), causal attention with
// grouped queries, GELU in the tanh form, learned positions, biases, a tied or an own vocabulary product; or experts in
// the place of the feed-forward layer (plain_experts.cpp), with one sequence a micro-batch, and latent attention, with
// RMSNorm and rotated columns in the place of learned positions (plain_latent.cpp). Products of 8 bits
// are in plain_fp8.cpp. Left out: dropout and SwiGLU elsewhere.
//
// Parameters have the global names and shapes of a lowered program ("layer0.attention.qkv.weight" is [kv_heads,
// (heads / kv_heads + 2) * head_dim, hidden]: a group's queries, its key, its value); weights are [out, in].
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rehearse::numerics {

struct GptShape {
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0,
               max_seq_len = 0;
  bool tied_embeddings = true, bias = true;
  // Experts, if there are any: gated layers of width expert_ffn_hidden, and one of width shared_ffn_hidden for all.
  std::int64_t experts = 0, experts_per_token = 0, expert_ffn_hidden = 0, shared_ffn_hidden = 0;
  std::int64_t expert_groups = 1, groups_per_token = 1;
  bool sigmoid = false;
  double aux_loss = 0, capacity_factor = 0;  // 0: no token is dropped
  // Latent attention, if kv_rank > 0 (without it `rope` is of the first columns of a head, in the place of positions):
  // widths of the latents (q_rank 0: queries come from the token itself), of a head's columns that are not rotated, of
  // those that are, and of its value. head_dim is nope + rope.
  std::int64_t q_rank = 0, kv_rank = 0, nope = 0, rope = 0, value_dim = 0;
  // Where `bias` is false: of queries, keys and values, and of norms.
  bool qkv_bias = false, norm_bias = false;
  // Of the feed-forward layer besides, of the head's rows; a norm behind the embedding; scores of a head get a slope by
  // distance (in the place of positions).
  bool mlp_bias = false, head_bias = false, embedding_norm = false, alibi = false;
  // Whether attention and the feed-forward layer read the same token side by side, and behind how many norms.
  int parallel_norms = 0;
  bool squared_relu = false;  // in GELU's place
  // Token t attends to t - window + 1 ... t, but in every full_every-th layer to all before it (0: in none).
  std::int64_t window = 0, full_every = 0;
  // Operands of the linear layers of blocks are rounded to 8 bits, each tensor of a sequence with a scale of its own,
  // and what is kept between kernels to bf16 (plain_fp8.cpp). Gradients have so many bits of mantissa, and exponents
  // down to that of the smallest subnormal: as given e5m2. `scaled`: by how much scales are off.
  // row_scales: each row that a product sums along has a scale, a power of two, of either operand.
  bool eight_bits = false, row_scales = false;
  int gradient_mantissa = 2, gradient_least = -16;
  double gradient_most = 57344, scaled = 1;
  // Low-rank adaptation, if lora_rank > 0: y += lora_scale B (A x) beside the products of attention, and of the
  // feed-forward layer. Nothing but these matrices is trained.
  std::int64_t lora_rank = 0;
  double lora_scale = 1;
  bool lora_qkv = true, lora_proj = true, lora_up = true, lora_down = true;
  // The tokens of a sequence by the rank that routes them, in its order; none: one rank has all.
  std::vector<std::vector<std::int64_t>> shards = {};
  // Modules of multi-token prediction behind the layers, and the weight of their losses' mean (plain_prediction.cpp).
  std::int64_t mtp_depth = 0;
  double mtp_weight = 0.3;
  // RMSNorm in the place of LayerNorm; of each head's queries and keys too, before they are rotated, with one weight
  // for the queries of a layer and one for its keys (plain_head_norms.cpp).
  bool rms_norms = false, head_norms = false;
  // A learned logit a head beside the scores; in the place of silu(gate) up what gpt-oss has (plain_experts.cpp). With
  // `bias` experts and their router have biases too.
  bool sinks = false, swiglu_oai = false;
  // Experts in every so many-th layer alone, gated layers of width ffn_hidden in the others. A token's score, as it is,
  // multiplies what goes into its expert.
  std::int64_t experts_every = 1;
  bool weigh_inputs = false;
  // Of models with experts: layers of two matrices, GELU or squared_relu between them, in the place of gated ones.
  bool ungated = false;
  // Experts take so many columns, a product of a token, and another product of what they give is added to it (0: all).
  std::int64_t expert_latent = 0;
  // In every nope_every-th layer nothing is rotated (0: in none); in the others tokens see none before their chunk (0:
  // there are none).
  std::int64_t nope_every = 0, chunk = 0;
};

// torch.optim.AdamW on every parameter, after torch.nn.utils.clip_grad_norm_ (clip 0: none). bf16_moments: the averages
// are rounded to bf16 after each step; moment_block: above 0, to what 8 bits in blocks of so many elements hold
// (plain_moments.h).
struct AdamWSettings {
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1.0;
  bool bf16_moments = false;
  std::size_t moment_block = 0;
};

// Token t of a sequence predicts targets[t]; with factors[t] its loss counts so often in the gradients (none: once).
// With slopes[t] gradients are of another loss, of which these are the slopes by the token's first logit.
struct Sequence {
  std::vector<std::int32_t> tokens, targets;
  std::vector<double> factors = {}, slopes = {};
};

// Sums, products and states are in Real: double to check gradients, float to compare with a training run.
template <typename Real>
class PlainGpt {
 public:
  using Values = std::vector<Real>;
  // The value a parameter starts with at a (row-major) index of its global shape.
  using Initial = std::function<float(const std::string& name, std::int64_t global_index)>;
  // The sequence `index` of the global batch of `step`, both from 0.
  using Data = std::function<Sequence(std::int64_t step, std::int64_t index)>;

  struct Parameter {
    std::string name;
    Values value, gradient, exp_avg, exp_avg_sq;
  };

  PlainGpt(const GptShape& shape, const Initial& initial);

  // Mean cross-entropy over the batch's tokens; the second also replaces every parameter's gradient by the mean's.
  double loss(const std::vector<Sequence>& batch) const;
  double loss_and_gradients(const std::vector<Sequence>& batch);
  // With multi-token prediction the mean losses that make it up, not weighted: of the model, and of each module.
  std::vector<double> loss_parts(const std::vector<Sequence>& batch) const;
  // Clips the gradients and makes one AdamW step, of the parameters that are trained. Returns the gradients' norm
  // before clipping.
  double update(const AdamWSettings& settings);
  // The loss of each of `steps` steps before its update.
  std::vector<double> train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                            const Data& data);

  std::vector<Parameter>& parameters() { return parameters_; }
  Parameter& parameter(const std::string& name);
  // Cross-entropy of each token of one sequence.
  Values token_losses(const Sequence& sequence) const;
  // The first logit of each token: what a head with a single output says.
  Values first_logits(const std::vector<std::int32_t>& tokens) const;
  // Of each token that may follow the last one.
  Values next_probabilities(const std::vector<std::int32_t>& tokens) const;

 private:
  struct Norm {
    int gamma = -1, beta = -1;
  };
  struct Linear {
    int weight = -1, bias = -1;
    std::int64_t out = 0, in = 0;
    bool eight_bits = false;
    bool adds_later = false;  // its bias, with what goes by the branch
    int lora_a = -1, lora_b = -1;
  };
  // A weight of so many experts, each [out, in], and their adapters' matrices.
  struct Matrices {
    int weight = -1, lora_a = -1, lora_b = -1;
    std::int64_t count = 0, out = 0, in = 0;
  };
  struct Block {
    Norm norm1, norm2;
    Linear qkv, proj, up, down;
    Linear q_down, q_up, kv_down, kv_up;
    Norm q_norm, kv_norm;
    Norm query_norm, key_norm;
    std::int64_t window = 0, chunk = 0;
    bool rotates = true;
    bool gated = false;  // experts, or a gated layer that stands in the place of shared ones
    int sinks = -1;
    int router = -1, router_bias = -1, up_bias = -1, down_bias = -1;
    Matrices experts_up, experts_down, shared_up, shared_down;
    int to_latent = -1, from_latent = -1;
  };
  // A token's choices: which experts, with which weight, and whether they had room; of each expert how often it was
  // chosen; scores [tokens, experts].
  struct Choice {
    std::int64_t token = 0, expert = 0;
    Real weight = 0;
    bool kept = true;
  };
  struct ExpertTrace {
    Values scores, loads;
    Values rows, sums;            // what experts take and give of each token, in their latent if there is one
    std::vector<Choice> choices;  // by token, the highest score first
  };
  // What a norm and a block keep of one sequence for backward.
  struct NormTrace {
    Values in, mean, inverse_deviation, out;
  };
  struct BlockTrace {
    NormTrace norm1, norm2;
    Values qkv, probabilities, attention, up, activation;
    ExpertTrace experts;
    NormTrace q_norm, kv_norm;
    NormTrace query_norm, key_norm;
  };
  // A module of multi-token prediction, and what it keeps: rows are those of both norms, beside one another.
  struct Module {
    Norm embedding_norm, hidden_norm, final_norm;
    Linear projection;
    Block block;
  };
  struct ModuleTrace {
    NormTrace embedding, hidden, final;
    Values rows, probabilities, losses;  // losses: not weighted, 0 where a token has none
    BlockTrace block;
  };
  struct Trace {
    std::vector<BlockTrace> blocks;
    std::vector<ModuleTrace> modules;
    NormTrace norm, embedding;
    Values probabilities;  // of the next token, [tokens, vocab]
    Values first_logits;
  };

  int add(const std::string& name, std::int64_t elements, const Initial& initial);
  Norm add_norm(const std::string& name, const Initial& initial) { return add_norm(name, shape_.hidden, initial); }
  Norm add_norm(const std::string& name, std::int64_t cols, const Initial& initial);
  Linear add_linear(const std::string& name, std::int64_t out, std::int64_t in, const Initial& initial, bool bias);

  Values norm_forward(const Norm& norm, const Values& x, NormTrace& trace) const;
  Values norm_backward(const Norm& norm, const Values& dy, const NormTrace& trace);
  void add_adapter(Linear& linear, const std::string& name, const Initial& initial);
  Values low_rank(int matrix, const Values& x) const;
  bool trained(const Parameter& parameter) const {
    return shape_.lora_rank == 0 || parameter.name.find(".lora_") != std::string::npos;
  }
  Values linear_forward(const Linear& linear, const Values& x) const;
  Values linear_backward(const Linear& linear, const Values& dy, const Values& x);
  // plain_fp8.cpp: what a product that sums along rows, or down columns, reads in the place of `x`, of its output's
  // gradient and of its weight; what is kept of x. Without 8 bits x itself.
  enum class Sums { along_rows, down_columns };
  Values rounded(const Values& x, std::int64_t width, Sums sums, int mantissa, int least, double most) const;
  Values operand(const Linear& linear, const Values& x, Sums sums) const;
  Values gradient_operand(const Linear& linear, const Values& dy, Sums sums) const;
  Values weight_operand(const Linear& linear, Sums sums) const;
  Values kept(Values x) const;
  Values attention_forward(const Block& block, const Values& qkv, Values& probabilities) const;
  Values attention_backward(const Block& block, const Values& d_out, const Values& qkv, const Values& probabilities,
                            const Values& out);
  Values block_forward(const Block& block, const Values& x, BlockTrace& trace) const;
  Values block_backward(const Block& block, const Values& dy, const BlockTrace& trace, Real scale);
  // plain_latent.cpp: parameters, and a token's packed heads from the norm's output and back.
  void add_latent(Block& block, const std::string& name, const Initial& initial);
  Values latent_forward(const Block& block, const Values& x, BlockTrace& trace) const;
  Values latent_backward(const Block& block, const Values& d_qkv, const Values& x, const BlockTrace& trace);
  // plain_head_norms.cpp: in the place of queries and keys of all tokens, of their gradients backward.
  void add_head_norms(Block& block, const std::string& name, const Initial& initial);
  void norm_heads(const Block& block, Values& qkv, BlockTrace& trace) const;
  void norm_heads_backward(const Block& block, Values& d_qkv, const BlockTrace& trace);
  Values heads_of(const Values& qkv, bool keys) const;
  void put_heads(const Values& heads, bool keys, Values& qkv) const;
  void rotate_heads(Values& qkv, int direction) const;
  void rotate(Values& values, std::int64_t token, std::int64_t first, int direction) const;
  // plain_experts.cpp. The gradients of the second are of `scale` times the auxiliary loss too.
  Values experts_forward(const Block& block, const Values& x, ExpertTrace& trace) const;
  Values experts_backward(const Block& block, const Values& dy, const Values& x, const ExpertTrace& trace, Real scale);
  Matrices add_matrices(const std::string& name, std::int64_t count, std::int64_t out, std::int64_t in, bool adapted,
                        const Initial& initial);
  // W + lora_scale B A of each; and its gradient, which becomes the weight's or the adapters'.
  Values merged(const Matrices& matrices) const;
  void add_gradient(const Matrices& matrices, const Values& of_merged);
  std::vector<bool> open_groups(const std::vector<std::size_t>& order, const Real* score) const;
  void drop(ExpertTrace& trace, std::int64_t tokens) const;
  Block add_block(std::int64_t layer, const Initial& initial);
  // plain_prediction.cpp: the losses of all modules are added to those of the tokens, weighted; the gradient of the
  // last layer's output from them.
  void add_modules(const Initial& initial);
  void modules_forward(const Sequence& sequence, Values hidden, Trace& trace, Values& losses) const;
  Values modules_backward(const Sequence& sequence, const Trace& trace, Real scale);
  Values forward(const Sequence& sequence, Trace& trace) const;
  void backward(const Sequence& sequence, const Trace& trace, Real scale);

  bool latent() const { return shape_.kv_rank > 0; }
  bool rms_norms() const { return latent() || shape_.rms_norms; }
  std::int64_t value_dim() const { return latent() ? shape_.value_dim : shape_.head_dim; }
  std::int64_t group() const { return shape_.heads / shape_.kv_heads; }
  // A key head with the queries it serves, and all of them.
  std::int64_t group_width() const { return (group() + 1) * shape_.head_dim + value_dim(); }
  std::int64_t qkv_width() const { return shape_.kv_heads * group_width(); }
  // Where in a token's packed qkv a head's query, and its group's key and value, begin.
  std::int64_t query_at(std::int64_t head) const {
    return head / group() * group_width() + head % group() * shape_.head_dim;
  }
  std::int64_t key_at(std::int64_t head) const { return head / group() * group_width() + group() * shape_.head_dim; }
  std::int64_t value_at(std::int64_t head) const { return key_at(head) + shape_.head_dim; }
  const Values& value(int parameter) const { return parameters_[static_cast<std::size_t>(parameter)].value; }
  Values& gradient(int parameter) { return parameters_[static_cast<std::size_t>(parameter)].gradient; }

  GptShape shape_;
  std::vector<Parameter> parameters_;
  std::vector<Block> blocks_;
  std::vector<Module> modules_;
  Norm final_norm_, embedding_norm_;
  Linear head_;  // its weight is the word table if tied
  int words_ = -1, positions_ = -1;
  std::int64_t updates_ = 0;
};

extern template class PlainGpt<float>;
extern template class PlainGpt<double>;

}  // namespace rehearse::numerics
