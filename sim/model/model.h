// What is trained: shapes, parameter counts and FLOPs of a model, before any splitting. Counts are exact sums over the
// tensors; formulas and sources stand next to them in model.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/rotation.h"
#include "sim/model/layers.h"
#include "sim/model/recorded_routing.h"

namespace rehearse::model {

enum class Family : unsigned char { gpt, llama, moe, bert, t5, cnn, mlp, vit, custom };
enum class NormKind : unsigned char { layernorm, rmsnorm };
// relative: a bias of the scores by distance, learned by head (t5 alone). alibi: one that falls with the distance, by a
// fixed slope a head (sim/base/alibi.h). none: by what causal layers see alone.
enum class Position : unsigned char { learned, rope, relative, alibi, none };
// swiglu_oai: gpt-oss's, SwiGLU with clamped inputs and other constants (sim/base/swiglu_oai.h).
enum class ActivationKind : unsigned char { gelu, relu, swiglu, squared_relu, geglu, swiglu_oai };
// flash: the fastest fused kernel known for the device; unfused: scores kept in memory; the others a fused kernel by
// name: FlashAttention 1 to 3, FlashAttention 2 as PyTorch builds it (scaled_dot_product_attention's flash backend),
// FlashAttention 1 in Triton (flash_attn_triton.py, and what frameworks made of it), cuDNN's.
enum class AttentionKind : unsigned char { flash, unfused, flash1, flash2, sdpa_flash, flash3, flash_triton, cudnn };
inline constexpr std::array<const char*, 8> kAttentionNames = {"flash",      "unfused", "flash1",       "flash2",
                                                               "sdpa_flash", "flash3",  "flash_triton", "cudnn"};
// What a cnn or an mlp is trained on: classes (softmax and cross-entropy) or numbers (mean squared error, over all
// outputs of the global batch as torch.nn.MSELoss takes it), or each output is the logit of a yes or no (binary
// cross-entropy, over all outputs as torch.nn.BCEWithLogitsLoss).
enum class LossKind : unsigned char { cross_entropy, mse, binary_cross_entropy };

// Whether a block's feed-forward layer reads the token that its attention reads, and both are added to it, instead of
// one after the other: never, through one norm for both (GPT-J, PaLM, Falcon 7B), or through one each (GPT-NeoX, Falcon
// 40B).
enum class ParallelBlock : unsigned char { none, one_norm, two_norms };

// What a router makes of its products before it chooses: a share of one for each expert (Mixtral, Qwen3), or a score of
// each expert by itself (DeepSeek-V3).
enum class Router : unsigned char { softmax, sigmoid };
// How the choices of a simulated router fall on the experts: alike, by Zipf's law, as a table says, or as they fell
// where they were performed.
enum class Routing : unsigned char { uniform, zipf, table, recorded };
// What Zipf's law is drawn for: each layer, or each micro-batch of it.
enum class RoutingPer : unsigned char { layer, micro_batch };

struct ConvLayer {
  std::int64_t channels = 0, kernel = 3;
  std::int64_t pool = 2;  // window of the max pooling after it; 1 = none
};

struct Model {
  std::string name;
  Family family = Family::gpt;
  // gpt, llama, moe, bert, t5 (layers: of encoder and decoder together)
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0, vocab = 0,
               max_seq_len = 0;
  ActivationKind activation = ActivationKind::gelu;
  NormKind norm = NormKind::layernorm;
  Position position = Position::learned;
  bool tied_embeddings = true;
  bool bias = true;  // gpt: biases in linear layers and norms; llama: none; t5: with them one of the head too
  // Where `bias` is false: biases of queries, keys and values all the same (Qwen2), of LayerNorms (Falcon), of the
  // feed-forward layer (GPT-J).
  bool qkv_bias = false, norm_bias = false, mlp_bias = false;
  bool head_bias = false;       // gpt: of each row of the head (GPT-J)
  bool embedding_norm = false;  // gpt: a norm behind the tables (BLOOM)
  ParallelBlock parallel_block = ParallelBlock::none;
  std::int64_t position_rows = 0;         // of a learned table of positions; 0: max_seq_len
  std::int64_t rotary_dim = 0;            // columns of a head that rope turns, the first ones; 0: head_dim
  std::int64_t sliding_window = 0;        // tokens that a token attends to, itself the last of them; 0: all before it
  std::int64_t full_attention_every = 0;  // with a window: layers of which the last has none; 0: all have it
  // llama, moe: a logit a head that is learned and stands in the denominator of every softmax beside the keys' (Agarwal
  // et al. 2025, arXiv 2508.10925, section 2.2).
  bool attention_sinks = false;
  // llama, moe: chunks of so many tokens that a sequence is cut into; a token sees none before its own, but in layers
  // that rotate nothing (Llama 4). 0: there are none.
  std::int64_t attention_chunk = 0;
  std::int64_t nope_every = 0;  // llama, moe: layers of which the last rotates nothing; 0: all rotate
  AttentionKind attention = AttentionKind::flash;
  // llama, moe: multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1), where kv_lora_rank > 0:
  // keys and values come from a latent of that width, queries from one of q_lora_rank, or as ever if that is 0. A
  // head's query and key have qk_nope_head_dim columns of their own and qk_rope_head_dim rotated ones, of which all
  // heads' keys have the same: head_dim is the sum of both. Its value has v_head_dim.
  std::int64_t q_lora_rank = 0, kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  // llama, moe: layers of one branch each, in the place of blocks of two, one for each letter, as Megatron-LM's hybrid
  // models have them (megatron/core/ssm/mamba_hybrid_layer_allocation.py): M a Mamba-2 mixer, * attention, - a
  // feed-forward layer, E experts (moe). "": blocks. Of mixers (sim/base/state_space.h): heads of mamba_head_dim
  // channels, in mamba_groups groups that share B and C, states of mamba_state columns, filters of mamba_conv tokens,
  // chunks of mamba_chunk tokens.
  std::string layer_pattern;
  std::int64_t mamba_heads = 0, mamba_head_dim = 64, mamba_groups = 8, mamba_state = 128, mamba_conv = 4,
               mamba_chunk = 128;
  double dropout = 0;
  // moe: llama with experts in the place of the feed-forward layer, but for the first `dense_layers`. Of `experts`
  // feed-forward layers of width expert_ffn_hidden each token takes experts_per_token; shared_experts more, of width
  // shared_ffn_hidden each, take every token. expert_latent: columns of a token that the former see; 0: all.
  std::int64_t experts = 0, experts_per_token = 0, expert_ffn_hidden = 0, shared_experts = 0, shared_ffn_hidden = 0,
               dense_layers = 0, expert_latent = 0;
  // The experts are in so many equal groups, and a token's are of groups_per_token of these.
  std::int64_t expert_groups = 1, groups_per_token = 1;
  std::int64_t experts_every = 1;  // of so many layers, from the first on, the last has experts, if it is not dense
  // What goes into a token's one expert is multiplied by its score, as it is, and not what comes out (Llama 4).
  bool weigh_expert_inputs = false;
  Router router = Router::softmax;
  double aux_loss = 0;         // weight of the auxiliary loss that keeps the experts' loads even
  double capacity_factor = 0;  // rows an expert takes of a rank's tokens, over the mean; 0: as many as come (dropless)
  // What a simulation takes the loads of the experts to be (sim/plan/expert_loads.h). routing_table: shares of the
  // choices by expert, of every layer with experts or one row for each, or of each routing_table_batches rows, which
  // its micro-batches have in turn.
  Routing routing = Routing::uniform;
  double routing_exponent = 1;
  RoutingPer routing_per = RoutingPer::layer;
  std::vector<std::vector<double>> routing_table;
  std::int64_t routing_table_batches = 1;
  // Rows that a rank has room for, of its experts without a capacity, over the even number; 0: as many as come.
  double buffer_factor = 0;
  // bert: kinds of segments that tokens are of (a table of its own), and tokens of a sequence that are masked and
  // predicted, which alone go through the head: BERT's max_predictions_per_seq. 0: all tokens go.
  std::int64_t segment_kinds = 2, max_predictions = 0;
  // t5: layers of the encoder, which come first, and of the decoder; tokens that the decoder reads and predicts of an
  // example (0: span_targets); buckets of the bias by distance and the distance from which on all have the last.
  std::int64_t encoder_layers = 0, decoder_layers = 0, decoder_seq_len = 0, relative_buckets = 32,
               relative_distance = 128;
  // cnn: convolutions (each conv, ReLU, max pooling), then linear layers with ReLU and dropout between
  std::int64_t image_channels = 0, image_size = 0;
  std::vector<ConvLayer> convolutions;
  // cnn: hidden widths and outputs after flattening; mlp: input, hidden..., output
  std::vector<std::int64_t> widths;
  // cnn: with residual blocks (model/layers.h), in the place of `convolutions`, and how many of them each stage has.
  ResidualBlock residual_block = ResidualBlock::none;
  std::vector<std::int64_t> residual_layers;
  std::int64_t residual_groups = 1, residual_group_width = 64, squeeze_ratio = 0, squeeze_width = 0;
  // Batch normalisation over the examples of all data-parallel ranks' micro-batches, not of each rank's own.
  bool sync_batch_norm = false;
  MapLayout map_layout = MapLayout::channels_last;
  // custom, and cnn with residual blocks: all of the model, its outputs last. custom reads images, or with
  // image_size = 0 rows of `features` numbers.
  std::vector<Layer> layer_list;
  std::int64_t features = 0;
  std::int64_t tokens = 0;  // custom: or rows of so many tokens' numbers
  // vit: sides of the square patches that an image of image_channels x image_size x image_size is cut into, and the
  // classes that the class token's row is turned into. Its sequence is the patches and the class token.
  std::int64_t patch = 0, classes = 0;
  LossKind loss = LossKind::cross_entropy;  // gpt, llama, moe: always cross-entropy
  // Of a model that comes from another's file: what was read there, assumed and left out, a sentence or more each.
  std::vector<std::string> notes;
  // llama, moe: multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2): so many modules behind the
  // layers. Module k, from 1, has a norm of the hidden state before it and one of the embedding of the token k places
  // on, a product of both to the model's width, a block like the last layer, or layers of one branch as mtp_pattern has
  // them (with layer_pattern), and a norm before the head; the table of embeddings and the head are the model's own. It
  // predicts the token k + 1 places on. Positions past a sequence's end are left out, and a module's loss, over all its
  // tokens, has mtp_loss_weight / mtp_depth.
  std::int64_t mtp_depth = 0;
  std::string mtp_pattern;
  double mtp_loss_weight = 0.3;
  // llama: what Gemma has besides (Gemma Team 2024, arXiv 2403.08295 and 2408.00118, 2025, arXiv 2503.19786).
  bool scaled_embeddings = false;                   // rows of the tokens' table are multiplied by sqrt(hidden)
  bool zero_centered_norms = false;                 // RMSNorms multiply by 1 + their weight, which begins with 0
  bool post_norms = false;                          // a norm behind each branch too, before its sum
  bool qk_norm = false;                             // RMSNorms of each head's queries and keys, before they are rotated
  double attention_softcap = 0, logit_softcap = 0;  // x becomes cap tanh(x / cap), of scores, of logits; 0: as it is
  std::int64_t query_scale = 0;                     // scores are divided by its square root; 0: head_dim
  // Of rotated positions; of layers with a window, if that is not 0.
  double rope_base = 10000, rope_base_local = 0;
  // Where positions were lengthened (sim/base/rotation.h); not of layers that rope_base_local is of.
  RotationScaling rope_scaling = RotationScaling::none;
  double rope_factor = Rotation().factor, rope_low_freq_factor = Rotation().low,
         rope_high_freq_factor = Rotation().high;
  std::int64_t rope_trained_len = Rotation().trained;
  // routing recorded: the table's file, the step that was asked for (0: the last one), and what a simulation read
  // there.
  std::string routing_file;
  std::int64_t routing_step = 0;
  std::shared_ptr<const RecordedRouting> recorded_routing;

  bool is_transformer() const { return family != Family::cnn && family != Family::mlp && family != Family::custom; }
  // Given as layer_list.
  bool is_list() const { return !layer_list.empty(); }
  // Of images or rows of numbers: what comes in.
  Extent input() const {
    if (image_size > 0) return {image_channels, image_size};
    if (tokens > 0) return {1, 0, tokens, true};
    return {family == Family::mlp ? widths.front() : features, 0};
  }
  // Of the same: what comes out, of which the loss is made.
  std::int64_t outputs() const { return is_list() ? extent_after(layer_list, input()).elements() : widths.back(); }
  // Reads images as patches, and predicts one class of each.
  bool is_vision() const { return family == Family::vit; }
  std::int64_t patches() const { return (image_size / patch) * (image_size / patch); }
  std::int64_t patch_width() const { return image_channels * patch * patch; }
  // Tokens of a sequence where none are given: the longest, but no more than the window where all layers have one.
  std::int64_t usual_seq_len() const {
    return sliding_window > 0 && full_attention_every == 0 ? std::min(max_seq_len, sliding_window) : max_seq_len;
  }
  // Whether its examples are sequences of tokens of a text, and not images or rows of numbers.
  bool reads_text() const { return is_transformer() && !is_vision(); }
  // Whether a token sees none behind it.
  bool is_causal() const { return !is_encoder() && !is_vision(); }
  // An encoder and a decoder whose blocks attend to the encoder's output too (T5).
  bool has_decoder() const { return family == Family::t5; }
  bool of_decoder(std::int64_t layer) const { return has_decoder() && layer >= encoder_layers; }
  // Encoder and decoder read one table of positions. Of T5 as Megatron-LM and NeMo train it, which differs in two more
  // things (nemo/collections/nlp/modules/common/megatron/token_level_encoder_decoder.py and utils.py,
  // parallel_lm_logits; megatron/core/models/T5/t5_model.py): scores are divided by sqrt(head_dim), and the output is
  // not scaled before a tied table.
  bool shares_positions() const { return has_decoder() && position == Position::learned; }
  bool scales_output() const { return has_decoder() && tied_embeddings && position == Position::relative; }
  // A bias of each row of the head; of Megatron's T5 with the others (T5LMHead and MegatronTokenLevelHead, ibid.).
  bool has_head_bias() const { return head_bias || (has_decoder() && bias); }
  bool has_mlp_bias() const { return bias || mlp_bias; }
  // Tokens of a sequence that the decoder has, where the encoder has `seq_len`.
  std::int64_t decoder_tokens(std::int64_t seq_len) const;
  // Tokens see those after them too, blocks have their norms behind their sums, and the head predicts masked tokens and
  // whether one segment follows the other.
  bool is_encoder() const { return family == Family::bert; }
  // Tokens of a sequence of `seq_len` whose logits are made.
  std::int64_t predicted(std::int64_t seq_len) const {
    return is_encoder() && max_predictions > 0 ? max_predictions : seq_len;
  }
  // Whether the last part of the model has the tokens' table too: as its head, or for multi-token prediction.
  bool table_on_two_stages() const { return tied_embeddings || mtp_depth > 0; }
  // Transformer blocks, or layers of one branch: the layers, and behind them those of the modules of multi-token
  // prediction, module by module.
  std::int64_t blocks() const { return layers + mtp_depth * module_blocks(); }
  std::int64_t module_blocks() const { return one_branch() ? static_cast<std::int64_t>(mtp_pattern.size()) : 1; }
  // Whether layers have one branch each; that of layer `layer`, from 0, as the patterns have it, of a block ' '.
  bool one_branch() const { return !layer_pattern.empty(); }
  char branch(std::int64_t layer) const {
    if (!one_branch()) return ' ';
    if (layer < layers) return layer_pattern[static_cast<std::size_t>(layer)];
    return mtp_pattern[static_cast<std::size_t>(layer - layers) % mtp_pattern.size()];
  }
  // Whether any layer, or one of a module's, is of a kind.
  bool has_branch(char kind) const {
    return layer_pattern.find(kind) != std::string::npos || mtp_pattern.find(kind) != std::string::npos;
  }
  bool has_mixers() const { return has_branch('M'); }
  // Whether a layer has the feed-forward part of width ffn_hidden.
  bool has_dense_ffn() const {
    if (one_branch()) return has_branch('-');
    return family != Family::moe || expert_layers() < blocks();
  }
  bool has_attention() const { return !one_branch() || has_branch('*'); }
  // Channels of all heads of a mixer; columns of its first product.
  std::int64_t mamba_inner() const { return mamba_heads * mamba_head_dim; }
  std::int64_t mamba_in() const { return 2 * mamba_inner() + 2 * mamba_groups * mamba_state + mamba_heads; }
  // A module of multi-token prediction is like the last layer.
  bool has_experts(std::int64_t layer) const {
    if (one_branch()) return family == Family::moe && branch(layer) == 'E';
    const std::int64_t place = layer < layers ? layer : layers - 1;
    return family == Family::moe && place >= dense_layers && (place + 1) % experts_every == 0;
  }
  // Blocks with experts before block `layer`; of blocks(): all.
  std::int64_t expert_layers(std::int64_t layer) const {
    std::int64_t count = 0;
    for (std::int64_t l = 0; l < layer; ++l) count += has_experts(l) ? 1 : 0;
    return count;
  }
  // Of all blocks.
  std::int64_t expert_layers() const { return expert_layers(blocks()); }
  // Rows that each expert takes of `tokens` tokens of one rank: ceil(tokens x experts_per_token / experts x
  // capacity_factor), the rule of GShard (Lepikhin et al. 2020, arXiv 2006.16668) as Megatron-Core has it
  // (megatron/core/transformer/moe/moe_utils.py, get_capacity). Only with a capacity factor.
  std::int64_t expert_capacity(std::int64_t tokens) const;
  // Whether layer `layer`, from 0, has no window though others have: each so many-th. A module of multi-token
  // prediction is like the last layer.
  bool full_among_windows(std::int64_t layer) const {
    return full_attention_every > 0 && ((layer < layers ? layer : layers - 1) + 1) % full_attention_every == 0;
  }
  // The window of layer `layer`, from 0, in sequences of `seq_len`; 0 where its tokens see all before them.
  std::int64_t window(std::int64_t layer, std::int64_t seq_len) const {
    const bool full = full_among_windows(layer);
    return full || sliding_window >= seq_len ? 0 : sliding_window;
  }
  // Whether layer `layer`, from 0, rotates nothing though others do.
  bool rotates_nothing(std::int64_t layer) const {
    return nope_every > 0 && ((layer < layers ? layer : layers - 1) + 1) % nope_every == 0;
  }
  // The chunks of layer `layer`, from 0, in sequences of `seq_len`; 0 where these have one.
  std::int64_t chunk(std::int64_t layer, std::int64_t seq_len) const {
    return rotates_nothing(layer) || attention_chunk >= seq_len ? 0 : attention_chunk;
  }
  // Of layer `layer`, from 0.
  bool rotates_by_local_base(std::int64_t layer) const {
    return rope_base_local > 0 && sliding_window > 0 && !full_among_windows(layer);
  }
  double rotation_base(std::int64_t layer) const { return rotates_by_local_base(layer) ? rope_base_local : rope_base; }
  // Of the layers with rope_base.
  Rotation rotation() const {
    return {rope_base, rope_scaling, rope_factor, rope_low_freq_factor, rope_high_freq_factor, rope_trained_len};
  }
  std::int64_t score_scale() const { return query_scale > 0 ? query_scale : head_dim; }
  // Whether any layer's is felt.
  bool windowed(std::int64_t seq_len) const;
  bool chunked(std::int64_t seq_len) const {
    return attention_chunk > 0 && attention_chunk < seq_len && nope_every != 1;
  }
  bool has_qkv_bias() const { return bias || qkv_bias; }
  bool gated() const {
    return activation == ActivationKind::swiglu || activation == ActivationKind::geglu ||
           activation == ActivationKind::swiglu_oai;
  }
  // Gated feed-forward (Shazeer 2020, arXiv 2002.05202) has two matrices on the way in.
  std::int64_t ffn_inputs() const { return gated() ? 2 : 1; }
  // Of the rows that routed experts take and give.
  std::int64_t expert_columns() const { return expert_latent > 0 ? expert_latent : hidden; }
  bool has_norm_bias() const { return norm == NormKind::layernorm && (bias || norm_bias); }
  std::int64_t learned_positions() const { return position_rows > 0 ? position_rows : max_seq_len; }
  std::int64_t rotated() const { return rotary_dim > 0 ? rotary_dim : head_dim; }
  bool latent_attention() const { return kv_lora_rank > 0; }
  std::int64_t value_dim() const { return latent_attention() ? v_head_dim : head_dim; }
  // Of a token's queries, keys and values, and of attention's output, which its heads' values make.
  std::int64_t qkv_width() const { return heads * head_dim + kv_heads * (head_dim + value_dim()); }
  std::int64_t attention_width() const { return heads * value_dim(); }
};

// Adapters of low-rank adaptation (LoRA, Hu et al. 2021, arXiv 2106.09685) beside a block's products, of which alone a
// training with them changes the weights. The product of queries, keys and values has one, or each product of latent
// attention that leads to them, and so has that of gate and up-projection; every expert has its own.
struct Adapters {
  std::int64_t rank = 0;  // 0: there are none, and everything is trained
  // Which products have one: attention's first and its projection, the feed-forward layer's first and second.
  bool qkv = true, proj = true, fc1 = true, fc2 = true;
  bool on() const { return rank > 0; }
};

// Parameters; `vocab` may be padded by the caller (0: the model's own).
std::int64_t parameter_count(const Model& model, std::int64_t vocab = 0);
// Of layer `layer`, from 0; those of gpt and llama are alike.
std::int64_t layer_parameter_count(const Model& model, std::int64_t layer = 0);
// Of these, those of routed experts, which may be spread over ranks.
std::int64_t routed_parameter_count(const Model& model, std::int64_t layer);
// Of all, those of tables of which tokens, places or sparse features look up rows; a head that is tied to one is that
// one.
std::int64_t table_parameter_count(const Model& model);
// What a token's forward pass uses of them: of the routed experts those that it is sent to.
std::int64_t active_parameter_count(const Model& model);
// Of the adapters of a gpt, llama or moe: rank (in + out) for each product, of all experts.
std::int64_t adapter_parameter_count(const Model& model, const Adapters& adapters);
// Tokens of the targets that span corruption leaves of an example whose corrupted text has `seq_len`: 15% of the tokens
// in spans of a mean length of 3, each replaced by one token, and an end in both (Raffel et al. 2020, arXiv 1910.10683,
// section 3.1.4; google-research/text-to-text-transfer-transformer t5/data/preprocessors.py, random_spans_helper): 114
// of 512.
std::int64_t span_targets(std::int64_t seq_len);
// cnn: features after the last pooling, the input of the first linear layer. Convolutions are padded to keep the size;
// pooling windows do not overlap and drop an incomplete last row and column.
std::int64_t flattened_width(const Model& model);

// FLOPs the model needs for forward and backward of `sequences` sequences of `seq_len` tokens (images for cnn, rows for
// mlp): matrix products only, a multiply-add is 2, attention counted in full. Nothing asks for the gradient of a cnn's
// or an mlp's input, so the first layer's is not counted. For gpt with ffn = 4 hidden and one vocabulary product this
// equals 72 B s L h^2 (1 + s/6h + V/12Lh) (Narayanan et al. 2021, arXiv 2104.04473, without recomputation). A layer
// with a sliding window that is shorter than the sequence counts the window's keys in the place of s
// (sim/base/window.h). With adapters (gpt, llama and moe): forward and input gradients of every product, no gradients
// of frozen weights, no gradients below the first adapter of the first layer, and of the adapters' own products forward
// and both gradients. `document` > 0: sequences are packed of documents, equal ones of so many tokens
// (sim/plan/documents.h), and a token attends to those of its own.
double model_flops(const Model& model, std::int64_t sequences, std::int64_t seq_len, const Adapters& adapters = {},
                   std::int64_t document = 0);
// How model_flops counts this model, in its own symbols: one line for result.json and reports. With a window that
// sequences of `seq_len` feel, what it leaves.
std::string flop_formula(const Model& model, std::int64_t seq_len = 0, const Adapters& adapters = {},
                         std::int64_t document = 0);

}  // namespace rehearse::model
