// Parameter and FLOP counts, exact sums over the tensors of each family. A transformer layer holds, with h hidden, q
// the width of queries, keys and values, a = heads x head_dim, f the feed-forward width:
//   norms 2 x h (+ 2 x h biases), attention h q + a h (+ q + h), feed-forward 2 h f (+ f + h), or gated 3 h f (+ 2 f +
//   h); one norm where a parallel block has one, 4 x h with norms behind the branches too, and 2 x head_dim where
//   queries and keys have norms. Biases of q alone, or of norms alone, may be there without the others.
// A layer of experts has in the feed-forward layer's place a router h e, e experts 3 h x each, and shared experts 3 h
// y; with biases e and e (2 x + h) more. Sinks of attention are one number a head. Latent attention has in the place of
// h q + a h: h c + c, the queries' latent of width c, and c heads (n + r) to queries, or h heads (n + r) where there is
// none; h (k + r) + k and k heads (n + v) to keys and values; heads v h. For gpt with f = 4 h this is 12 h^2 + 13 h a
// layer, as in Narayanan et al. 2021 (arXiv 2104.04473), equation 2: P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h));
// that equation leaves out the final norm (2 h), which is counted here. bert has the layers of gpt, a norm behind its
// embedding in the place of the final one, a table of segments, and what its heads are made of (encoder_head_weights).
// A module of multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2) has a layer, 2 h h that join two
// rows, and three norms: of both, and before the head. What it shares, table and head, counts once, with the model.
// t5: one table of tokens, encoder and decoder layers of 2 and 3 norms, whose decoder has attention twice, a table of
// biases [heads, buckets] each side, two final norms, and in v1.1 a table of the head; with learned positions one table
// of these for both sides, and with biases those of attention to the encoder (4 h where a = h) and of the head.
#include "sim/model/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/base/window.h"

namespace rehearse::model {
namespace {

// Elements of the weights of a layer's attention that a token is multiplied with.
std::int64_t attention_weights(const Model& model) {
  const std::int64_t h = model.hidden, out = model.attention_width() * h;
  if (!model.latent_attention()) return h * model.qkv_width() + out;
  const std::int64_t queries = model.heads * model.head_dim, rank = model.q_lora_rank;
  const std::int64_t keys_values = model.heads * (model.qk_nope_head_dim + model.v_head_dim);
  return (rank > 0 ? (h + queries) * rank : h * queries) + h * (model.kv_lora_rank + model.qk_rope_head_dim) +
         model.kv_lora_rank * keys_values + out;
}

// Elements of a mixer's two products, and all of its parameters: these, a filter and a bias for each channel of x, B
// and C, three numbers a head, and the norm's.
std::int64_t mixer_weights(const Model& model) {
  return model.hidden * (model.mamba_in() + model.mamba_inner());
}
std::int64_t mixer_parameters(const Model& model) {
  const std::int64_t channels = model.mamba_inner() + 2 * model.mamba_groups * model.mamba_state;
  return mixer_weights(model) + channels * (model.mamba_conv + 1) + 3 * model.mamba_heads + model.mamba_inner();
}

std::int64_t norm_parameters(const Model& model) {
  return model.has_norm_bias() ? 2 * model.hidden : model.hidden;
}

// Of a module of multi-token prediction: its product of two rows beside one another.
std::int64_t joining_weights(const Model& model) {
  return 2 * model.hidden * model.hidden;
}

// What one convolution sees and makes: square maps, padded so that the convolution keeps their size.
struct ConvShape {
  std::int64_t in_channels, out_channels, kernel, size;
};

std::vector<ConvShape> conv_shapes(const Model& model) {
  std::vector<ConvShape> shapes;
  std::int64_t channels = model.image_channels, size = model.image_size;
  for (const ConvLayer& layer : model.convolutions) {
    shapes.push_back({channels, layer.channels, layer.kernel, size});
    channels = layer.channels;
    size /= layer.pool;
  }
  return shapes;
}

// Widths of the linear layers from first input to last output.
std::vector<std::int64_t> linear_widths(const Model& model) {
  if (model.family != Family::cnn) return model.widths;
  std::vector<std::int64_t> widths = {flattened_width(model)};
  widths.insert(widths.end(), model.widths.begin(), model.widths.end());
  return widths;
}

std::int64_t vision_parameters(const Model& model) {
  if (model.is_list()) return layer_parameters(model.layer_list, model.input());
  std::int64_t count = 0;
  for (const ConvShape& conv : conv_shapes(model)) {
    count += (conv.in_channels * conv.kernel * conv.kernel + 1) * conv.out_channels;
  }
  const auto widths = linear_widths(model);
  for (std::size_t i = 1; i < widths.size(); ++i) count += (widths[i - 1] + 1) * widths[i];
  return count;
}

// Multiply-adds of the forward pass of one image or row, layer by layer.
std::vector<double> vision_multiply_adds(const Model& model) {
  std::vector<double> layers;
  for (const ConvShape& conv : conv_shapes(model)) {
    const auto filter = static_cast<double>(conv.in_channels * conv.kernel * conv.kernel);
    layers.push_back(filter * static_cast<double>(conv.out_channels) * static_cast<double>(conv.size * conv.size));
  }
  const auto widths = linear_widths(model);
  for (std::size_t i = 1; i < widths.size(); ++i) {
    layers.push_back(static_cast<double>(widths[i - 1]) * static_cast<double>(widths[i]));
  }
  return layers;
}

// Of one image or row, forward and backward: each layer's product, again for its weights' gradient, and for its
// input's, which the first layer's is not asked for.
double vision_training_multiply_adds(const Model& model) {
  if (model.is_list())
    return 3 * layer_multiply_adds(model.layer_list, model.input()) -
           first_multiply_adds(model.layer_list, model.input());
  const std::vector<double> layers = vision_multiply_adds(model);
  return 3 * std::accumulate(layers.begin(), layers.end(), 0.0) - layers.front();
}

// Elements of the weights of a layer's feed-forward part that one token goes through; with `all` of every expert's.
std::int64_t ffn_weights(const Model& model, std::int64_t layer, bool all) {
  const std::int64_t matrices = model.ffn_inputs() + 1;
  if (!model.has_experts(layer)) return matrices * model.hidden * model.ffn_hidden;
  const std::int64_t routed = (all ? model.experts : model.experts_per_token) * model.expert_ffn_hidden;
  const std::int64_t shared = model.shared_experts * model.shared_ffn_hidden;
  return model.hidden * (model.experts + matrices * shared + 2 * model.expert_latent) +
         matrices * routed * model.expert_columns();
}

// Of an expert's two products.
std::int64_t biases_of_expert(const Model& model) {
  return model.ffn_inputs() * model.expert_ffn_hidden + model.expert_columns();
}

// Weights of BERT's heads but for the decoder, which is the embedding's table (Devlin et al. 2019, arXiv 1810.04805,
// section 3.1; google-research/bert run_pretraining.py, get_masked_lm_output and get_next_sentence_output): a product
// that each predicted token goes through before the decoder, and of each sequence's first token the pooler and the two
// classes of the next sentence.
std::int64_t transform_weights(const Model& model) {
  return model.hidden * model.hidden;
}
std::int64_t sequence_weights(const Model& model) {
  return model.hidden * model.hidden + 2 * model.hidden;
}
// With biases, the transform's norm, and the decoder's bias, one a row of the table.
std::int64_t encoder_head_parameters(const Model& model, std::int64_t vocab) {
  return transform_weights(model) + model.hidden + norm_parameters(model) + vocab + sequence_weights(model) +
         model.hidden + 2;
}

// Keys that a token counts for in layer `layer`: those of a window, or of a chunk, are the widest row's of the mask.
std::int64_t keys_of_layer(const Model& model, std::int64_t layer, std::int64_t seq_len) {
  const std::int64_t chunk = model.chunk(layer, seq_len);
  return counted_keys(chunk > 0 ? chunk : seq_len, model.window(layer, seq_len));
}

// Of a token in layers of one branch. A mixer's state takes up step x B^T and is read by C: a multiply-add each for
// every element of it; what is multiplied besides within a chunk is the algorithm's.
double branch_multiply_adds(const Model& model, std::int64_t layer, std::int64_t seq_len) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  switch (model.branch(layer)) {
    case 'M':
      return real(mixer_weights(model)) + 2 * real(model.mamba_inner() * model.mamba_state);
    case '*':
      return real(attention_weights(model)) +
             real(keys_of_layer(model, layer, seq_len)) * real(model.heads * (model.head_dim + model.value_dim()));
    default:
      return real(ffn_weights(model, layer, false));
  }
}

// Multiply-adds of the forward pass of one token: every weight matrix once, queries with keys and probabilities with
// values over the whole sequence (a causal mask is not subtracted), or over a window, and the vocabulary product; of an
// encoder without it.
double token_multiply_adds(const Model& model, std::int64_t seq_len) {
  const double head = model.is_encoder() || model.is_vision()
                          ? 0
                          : static_cast<double>(model.hidden) * static_cast<double>(model.vocab);
  if (model.one_branch()) {
    double branches = 0;
    for (std::int64_t layer = 0; layer < model.blocks(); ++layer)
      branches += branch_multiply_adds(model, layer, seq_len);
    return branches + head +
           static_cast<double>(model.mtp_depth) * (static_cast<double>(joining_weights(model)) + head);
  }
  const auto projections = static_cast<double>(attention_weights(model));
  const double attention =
      static_cast<double>(seq_len) * static_cast<double>(model.heads * (model.head_dim + model.value_dim()));
  const std::int64_t blocks = model.blocks();
  double ffn = 0;
  for (std::int64_t layer = 0; layer < blocks; ++layer) ffn += static_cast<double>(ffn_weights(model, layer, false));
  // Of every module of multi-token prediction what joins two rows, and the vocabulary product again.
  ffn += static_cast<double>(model.mtp_depth) * (static_cast<double>(joining_weights(model)) + head);
  if (model.windowed(seq_len) || model.chunked(seq_len)) {
    std::int64_t keys = 0;  // of a token, in all layers
    for (std::int64_t l = 0; l < blocks; ++l) keys += keys_of_layer(model, l, seq_len);
    const double attentions =
        static_cast<double>(keys) * static_cast<double>(model.heads * (model.head_dim + model.value_dim()));
    return static_cast<double>(blocks) * projections + attentions + ffn + head;
  }
  return static_cast<double>(blocks) * (projections + attention) + ffn + head;
}

// Of one sequence in an encoder's heads.
double encoder_head_multiply_adds(const Model& model, std::int64_t seq_len) {
  const double decoder = static_cast<double>(model.hidden) * static_cast<double>(model.vocab);
  return static_cast<double>(model.predicted(seq_len)) * (static_cast<double>(transform_weights(model)) + decoder) +
         static_cast<double>(sequence_weights(model));
}

}  // namespace

std::int64_t flattened_width(const Model& model) {
  std::int64_t channels = model.image_channels, size = model.image_size;
  for (const ConvLayer& layer : model.convolutions) {
    channels = layer.channels;
    size /= layer.pool;
  }
  return channels * size * size;
}

std::int64_t span_targets(std::int64_t seq_len) {
  // Of a text of `tokens`: what is left of it, and what is taken out, with the tokens that stand for spans and an end.
  const auto lengths = [](std::int64_t tokens) {
    // Halves to even numbers, as numpy rounds them.
    const auto noise = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(tokens) * 0.15));
    const auto spans = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(noise) / 3));
    return std::pair{tokens - noise + spans + 1, noise + spans + 1};
  };
  // The inputs never get shorter with a token more, and are about 0.9 of the text.
  std::int64_t tokens = std::max<std::int64_t>(1, seq_len / 10 * 11 - 8);
  while (lengths(tokens + 1).first <= seq_len) ++tokens;
  return std::max<std::int64_t>(2, lengths(tokens).second);
}

std::int64_t Model::decoder_tokens(std::int64_t seq_len) const {
  return decoder_seq_len > 0 ? decoder_seq_len : span_targets(seq_len);
}

bool Model::windowed(std::int64_t seq_len) const {
  for (std::int64_t layer = 0; sliding_window > 0 && layer < layers; ++layer)
    if (window(layer, seq_len) > 0) return true;
  return false;
}

std::int64_t Model::expert_capacity(std::int64_t of_rank) const {
  const double mean = static_cast<double>(of_rank * experts_per_token) / static_cast<double>(experts);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(mean * capacity_factor)));
}

namespace {

// Of an attention and of what comes behind it, with their biases and what else they have inside, without the norms
// around them.
std::int64_t attention_parameters(const Model& model) {
  return attention_weights(model) + (model.has_qkv_bias() ? model.qkv_width() : 0) + (model.bias ? model.hidden : 0) +
         (model.qk_norm ? 2 * model.head_dim : 0) + (model.attention_sinks ? model.heads : 0) +
         (model.latent_attention() ? model.q_lora_rank + model.kv_lora_rank : 0);
}
std::int64_t ffn_parameters(const Model& model, std::int64_t layer, bool all) {
  const std::int64_t weights = ffn_weights(model, layer, all);
  if (!model.has_experts(layer))
    return weights + (model.has_mlp_bias() ? model.ffn_inputs() * model.ffn_hidden + model.hidden : 0);
  // Of a router, and of each expert's two products.
  const std::int64_t experts = all ? model.experts : model.experts_per_token;
  return weights + (model.bias ? model.experts + experts * biases_of_expert(model) : 0);
}

std::int64_t layer_parameters(const Model& model, std::int64_t layer, bool all) {
  if (model.one_branch()) {
    const char branch = model.branch(layer);
    return norm_parameters(model) + (branch == 'M'   ? mixer_parameters(model)
                                     : branch == '*' ? attention_parameters(model)
                                                     : ffn_parameters(model, layer, all));
  }
  // Of attention to the encoder's output: a norm, and weights and biases as attention to a token's own sequence has.
  const std::int64_t cross = !model.of_decoder(layer)
                                 ? 0
                                 : norm_parameters(model) + attention_weights(model) +
                                       (model.bias ? 3 * model.attention_width() + model.hidden : 0);
  const std::int64_t norms = model.parallel_block == ParallelBlock::one_norm ? 1 : model.post_norms ? 4 : 2;
  return norms * norm_parameters(model) + attention_parameters(model) + ffn_parameters(model, layer, all) + cross;
}

// vit (Dosovitskiy et al. 2020, arXiv 2010.11929): the product of the patches, the class token, a table of positions,
// gpt's layers, the final norm and the classes' product.
std::int64_t vit_parameters(const Model& model) {
  const std::int64_t h = model.hidden, tokens = model.patches() + 1;
  return (model.patch_width() + 1) * h + h + tokens * h + model.layers * layer_parameters(model, 0, true) +
         norm_parameters(model) + (h + 1) * model.classes;
}

// t5 (Raffel et al. 2020, arXiv 1910.10683, section 2.1), whose products and norms have no biases; or as Megatron-LM
// and NeMo have it.
std::int64_t t5_parameters(const Model& model, std::int64_t vocab) {
  const std::int64_t positions = model.position == Position::relative ? 2 * model.heads * model.relative_buckets
                                                                      : model.learned_positions() * model.hidden;
  return vocab * model.hidden * (model.tied_embeddings ? 1 : 2) + positions +
         model.encoder_layers * layer_parameters(model, 0, true) +
         model.decoder_layers * layer_parameters(model, model.encoder_layers, true) + 2 * norm_parameters(model) +
         (model.has_head_bias() ? vocab : 0);
}

// Of one example of `seq_len` tokens in the encoder, forward: each layer's weights for each of its tokens, the
// decoder's cross-attention with keys and values of the encoder's tokens, and scores and values of all pairs.
double t5_multiply_adds(const Model& model, std::int64_t seq_len) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double s = real(seq_len), t = real(model.decoder_tokens(seq_len)), a = real(model.attention_width());
  const double h = real(model.hidden), ffn = real(ffn_weights(model, 0, false)), attention = 4 * h * a;
  const double encoder = real(model.encoder_layers) * s * (attention + 2 * s * a + ffn);
  const double decoder =
      real(model.decoder_layers) * (t * (attention + 2 * t * a + 2 * h * a + 2 * s * a + ffn) + s * 2 * h * a);
  return encoder + decoder + t * h * real(model.vocab);
}

std::int64_t transformer_parameters(const Model& model, std::int64_t vocab, bool all) {
  if (model.is_vision()) return vit_parameters(model);
  if (model.has_decoder()) return t5_parameters(model, vocab);
  const std::int64_t table = vocab * model.hidden;
  const std::int64_t positions = model.position == Position::learned ? model.learned_positions() * model.hidden : 0;
  std::int64_t count = table + positions + norm_parameters(model) + (model.tied_embeddings ? 0 : table);
  count += (model.embedding_norm ? norm_parameters(model) : 0) + (model.has_head_bias() ? vocab : 0);
  for (std::int64_t layer = 0; layer < model.blocks(); ++layer) count += layer_parameters(model, layer, all);
  count += model.mtp_depth * (joining_weights(model) + 3 * norm_parameters(model));
  if (model.is_encoder()) count += model.segment_kinds * model.hidden + encoder_head_parameters(model, vocab);
  return count;
}

// A block's product: out columns of `in` ones each, of so many `experts` side by side, of which a token goes through
// `chosen`.
struct BlockProduct {
  std::int64_t in, out;
  bool adapted;
  std::int64_t experts = 1, chosen = 1;

  double multiply_adds() const { return real(chosen * in) * real(out); }
  std::int64_t adapter(std::int64_t rank) const { return rank * (in + out); }  // parameters

  static double real(std::int64_t n) { return static_cast<double>(n); }
};
// Products in their order; several paths stand side by side.
using ProductPath = std::vector<BlockProduct>;

std::vector<ProductPath> paths_to_scores(const Model& m, const Adapters& a) {
  if (!m.latent_attention()) return {{{m.hidden, m.qkv_width(), a.qkv}}};
  const std::int64_t queries = m.heads * m.head_dim, own = m.heads * (m.qk_nope_head_dim + m.v_head_dim);
  ProductPath query = {{m.q_lora_rank > 0 ? m.q_lora_rank : m.hidden, queries, a.qkv}};
  if (m.q_lora_rank > 0) query.insert(query.begin(), {m.hidden, m.q_lora_rank, a.qkv});
  return {query, {{m.hidden, m.kv_lora_rank + m.qk_rope_head_dim, a.qkv}, {m.kv_lora_rank, own, a.qkv}}};
}
ProductPath path_from_scores(const Model& m, const Adapters& a) {
  return {{m.attention_width(), m.hidden, a.proj}};
}
std::vector<ProductPath> ffn_paths(const Model& m, const Adapters& a, std::int64_t layer) {
  const auto path = [&](std::int64_t width, std::int64_t experts, std::int64_t chosen) -> ProductPath {
    return {{m.hidden, m.ffn_inputs() * width, a.fc1, experts, chosen}, {width, m.hidden, a.fc2, experts, chosen}};
  };
  if (!m.has_experts(layer)) return {path(m.ffn_hidden, 1, 1)};
  std::vector<ProductPath> paths = {path(m.expert_ffn_hidden, m.experts, m.experts_per_token)};
  if (m.shared_experts > 0) paths.push_back(path(m.shared_experts * m.shared_ffn_hidden, 1, 1));
  return paths;
}

// Multiply-adds of a token for gradients that nothing asks for: what the first one of a path with an adapter reads has
// none, nor has what comes before. `ends`: whether there is one with an adapter.
struct Unasked {
  double multiply_adds = 0;
  bool ends = false;
};
Unasked below_first_adapter(const std::vector<ProductPath>& paths, std::int64_t rank) {
  Unasked all;
  for (const ProductPath& path : paths)
    for (const BlockProduct& p : path) {
      all.multiply_adds += p.multiply_adds();
      if (!p.adapted) continue;
      all.multiply_adds += BlockProduct::real(p.chosen * rank) * BlockProduct::real(p.in);
      all.ends = true;
      break;
    }
  return all;
}

// Of the first layer; side by side, attention does not come before the feed-forward layer.
double unasked_in_first_layer(const Model& model, const Adapters& adapters, double scores) {
  Unasked attention = below_first_adapter(paths_to_scores(model, adapters), adapters.rank);
  if (!attention.ends) {
    const Unasked rest = below_first_adapter({path_from_scores(model, adapters)}, adapters.rank);
    attention = {attention.multiply_adds + 2 * scores + rest.multiply_adds, rest.ends};
  }
  if (attention.ends && model.parallel_block == ParallelBlock::none) return attention.multiply_adds;
  const double router = model.has_experts(0) ? BlockProduct::real(model.hidden * model.experts) : 0;
  return attention.multiply_adds + router +
         below_first_adapter(ffn_paths(model, adapters, 0), adapters.rank).multiply_adds;
}

// Of all layers; of experts all, or those that a token is sent to.
std::int64_t adapter_weights(const Model& model, const Adapters& adapters, bool all) {
  std::int64_t count = 0;
  const auto add = [&](const ProductPath& path) {
    for (const BlockProduct& p : path)
      if (p.adapted) count += (all ? p.experts : p.chosen) * p.adapter(adapters.rank);
  };
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    for (const ProductPath& path : paths_to_scores(model, adapters)) add(path);
    add(path_from_scores(model, adapters));
    for (const ProductPath& path : ffn_paths(model, adapters, layer)) add(path);
  }
  return count;
}

// Of one token, forward and backward, where adapters alone are trained.
double adapted_multiply_adds(const Model& model, std::int64_t seq_len, const Adapters& adapters) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const auto scores = [&](std::int64_t layer) {
    return real(keys_of_layer(model, layer, seq_len)) * real(model.heads * (model.head_dim + model.value_dim()));
  };
  double total = token_multiply_adds(model, seq_len) + real(model.hidden) * real(model.vocab);  // forward; the head's
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    total += real(attention_weights(model) + ffn_weights(model, layer, false)) + 2 * scores(layer);  // of both operands
  total += 3 * real(adapter_weights(model, adapters, false));
  return total - unasked_in_first_layer(model, adapters, scores(0));
}

}  // namespace

std::int64_t layer_parameter_count(const Model& model, std::int64_t layer) {
  return layer_parameters(model, layer, true);
}

std::int64_t routed_parameter_count(const Model& model, std::int64_t layer) {
  if (!model.has_experts(layer)) return 0;
  return model.experts * ((model.ffn_inputs() + 1) * model.expert_columns() * model.expert_ffn_hidden +
                          (model.bias ? biases_of_expert(model) : 0));
}

std::int64_t parameter_count(const Model& model, std::int64_t vocab) {
  if (!model.is_transformer()) return vision_parameters(model);
  return transformer_parameters(model, vocab > 0 ? vocab : model.vocab, true);
}

std::int64_t table_parameter_count(const Model& model) {
  if (!model.is_transformer()) return model.is_list() ? table_parameters(model.layer_list, model.input()) : 0;
  if (model.is_vision()) return 0;
  const std::int64_t kinds = model.is_encoder() ? model.segment_kinds : 0;
  const bool biases = model.position == Position::relative, learned = model.position == Position::learned;
  return (model.vocab + kinds + (learned ? model.learned_positions() : 0)) * model.hidden +
         (biases ? 2 * model.heads * model.relative_buckets : 0);
}

std::int64_t active_parameter_count(const Model& model) {
  return model.is_transformer() ? transformer_parameters(model, model.vocab, false) : vision_parameters(model);
}

std::int64_t adapter_parameter_count(const Model& model, const Adapters& adapters) {
  return adapter_weights(model, adapters, true);
}

// A multiply-add is 2 FLOPs; backward is two products, for inputs and for weights, the size of each one in forward.
// What a transformer's first layer takes in are the embedding's rows, whose gradient is needed.
double model_flops(const Model& model, std::int64_t sequences, std::int64_t seq_len, const Adapters& adapters,
                   std::int64_t document) {
  const auto count = static_cast<double>(sequences);
  const std::int64_t keys = document > 0 ? document : seq_len;
  if (adapters.on()) return 2 * count * static_cast<double>(seq_len) * adapted_multiply_adds(model, keys, adapters);
  if (!model.is_transformer()) return 2 * count * vision_training_multiply_adds(model);
  if (model.is_vision()) {
    // Nothing asks for the gradient of the patches; the head reads one row of an image.
    const auto h = static_cast<double>(model.hidden);
    const double patches = static_cast<double>(model.patches() * model.patch_width()) * h;
    return count * (6 * static_cast<double>(seq_len) * token_multiply_adds(model, seq_len) + 4 * patches +
                    6 * h * static_cast<double>(model.classes));
  }
  if (model.has_decoder()) return 6 * count * t5_multiply_adds(model, seq_len);
  const double body = 6 * count * static_cast<double>(seq_len) * token_multiply_adds(model, keys);
  return model.is_encoder() ? body + 6 * count * encoder_head_multiply_adds(model, seq_len) : body;
}

namespace {

// Whether the closed form of the paper holds: every projection as wide as the model, a feed-forward four times that.
bool is_plain_gpt(const Model& model) {
  return model.kv_heads == model.heads && model.attention_width() == model.hidden &&
         model.ffn_hidden * model.ffn_inputs() + model.ffn_hidden == 8 * model.hidden;
}

// Of a token in a layer with experts.
std::string expert_multiply_adds_text(const Model& model) {
  const std::string matrices = std::to_string(model.ffn_inputs() + 1);
  if (model.expert_latent == 0) return "h (e + " + matrices + " (t x + y))";
  return "(h (e + 2 l + " + matrices + " y) + " + matrices + " l t x)";
}
std::string expert_widths_text(const Model& model) {
  return std::string(", e experts of width x, of which each token takes t, y = width of all shared experts") +
         (model.expert_latent > 0 ? ", l = expert_latent" : "");
}

}  // namespace

std::string flop_formula(const Model& model, std::int64_t seq_len, const Adapters& adapters, std::int64_t document) {
  if (document > 0)
    return flop_formula(model, std::min(document, seq_len), adapters) +
           "; in attention s = " + std::to_string(document) +
           ", the sum of documents' squared lengths over that of lengths";
  const std::string counted = "forward and backward matrix products, a multiply-add is 2, no recomputation";
  if (adapters.on())
    return counted +
           ", attention in full (no causal discount), no gradients of frozen weights nor below the first adapter: 4 N "
           "+ 6 P a token and attention, N = weights of products, P = those of adapters of rank " +
           std::to_string(adapters.rank);
  std::string attention = counted + ", attention in full (no causal discount): ";
  if (model.windowed(seq_len))
    attention = counted +
                ", attention in full (no causal discount), of w keys a token and not s in layers with a window of w: ";
  else if (model.chunked(seq_len))
    attention =
        counted + ", attention in full (no causal discount), of c keys a token and not s in layers with chunks of c: ";
  const std::string modules = model.mtp_depth == 0 ? ""
                                                   : "; and so much for each of " + std::to_string(model.mtp_depth) +
                                                         " modules of multi-token prediction as for " +
                                                         (model.one_branch() ? "its layers" : "a last layer") +
                                                         ", and 6 B s (2 h^2 + h V)";
  if (model.one_branch())
    return attention +
           "6 B s (sum over layers + h V): of a mixer h (3 m + 2 g n + heads) + 2 m n, m = mamba_heads x "
           "mamba_head_dim, g = mamba_groups, n = mamba_state, by the recurrence, without what chunks multiply "
           "besides; "
           "of attention 2 h a + 2 h k + 2 s a, a = heads x head_dim, k = kv_heads x head_dim; of a feed-forward "
           "layer " +
           std::to_string(model.ffn_inputs() + 1) + " h f, f = ffn_hidden" +
           (model.family == Family::moe ? "; of experts " + expert_multiply_adds_text(model) + expert_widths_text(model)
                                        : "") +
           modules;
  const bool latent = model.latent_attention();
  const std::string layer = latent ? "A + s heads (d + v)" : "2 h a + 2 h k + 2 s a";
  const std::string widths = latent ? ", A = the weights of attention, d = head_dim, v = v_head_dim"
                                    : ", a = heads x head_dim, k = kv_heads x head_dim";
  switch (model.family) {
    case Family::gpt:
      if (is_plain_gpt(model)) return attention + "72 B s L h^2 (1 + s/6h + V/12Lh), arXiv 2104.04473";
      [[fallthrough]];
    case Family::llama:
      return attention + "6 B s (L (" + layer + " + " + std::to_string(model.ffn_inputs() + 1) + " h f) + h V)" +
             widths + ", f = ffn_hidden" + modules;
    case Family::moe:
      return attention + "6 B s (L (" + layer + ") + (L - D) " + expert_multiply_adds_text(model) + " + " +
             std::to_string(model.ffn_inputs() + 1) + " D h f + h V)" + widths + expert_widths_text(model) +
             ", D dense layers of width f = ffn_hidden" + modules;
    case Family::bert:
      return attention +
             "6 B (s L (4 h^2 + 2 s h + 2 h f) + p (h^2 + h V) + h^2 + 2 h), f = ffn_hidden, p = the tokens " +
             "of a sequence that are predicted";
    case Family::t5:
      return attention + "6 B (E s (4 h a + 2 s a + " + std::to_string(model.ffn_inputs() + 1) +
             " h f) + D (t (6 h a + 2 t a + 2 s a + " + std::to_string(model.ffn_inputs() + 1) +
             " h f) + 2 s h a) + t h V), a = heads x head_dim, f = ffn_hidden, E and D layers of encoder and decoder, "
             "t = the decoder's tokens of an example";
    case Family::vit:
      return attention +
             "6 B (s L (4 h^2 + 2 s h + 2 h f) + h C) + 4 B p w h, f = ffn_hidden, C = classes, p patches of w "
             "numbers, "
             "whose gradient nothing asks for";
    case Family::custom:
      return counted +
             ": 2 B (3 S - S1), S = sum of Cin K^2 Cout H W over convolutions, in x out over linear layers (of each "
             "token), t h (2 h + 2 k + 2 t) over attention of t tokens in full, and n (n - 1) / 2 w over pairs of n "
             "vectors, S1 = the first's, whose input needs no gradient";
    case Family::cnn:
      return counted +
             ": 2 B (3 S - S1), S = sum of Cin K^2 Cout H W over convolutions and in x out over linear "
             "layers, S1 = the first convolution's, whose input needs no gradient";
    case Family::mlp:
      return counted +
             ": 2 B (3 S - S1), S = sum of in x out over layers, S1 = the first's, whose input needs no "
             "gradient";
  }
  return counted;
}

}  // namespace rehearse::model
