// The rows of Megatron-LM's arguments and the model's; see megatron.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

#include "launch/megatron.h"
#include "sim/base/text_check.h"

namespace rehearse::launch {

using model::Family;

const std::vector<FieldRow>& megatron_model_rows() {
  static const std::vector<FieldRow> rows = {
      {"model.layers", "num-layers"},
      {"model.hidden", "hidden-size"},
      {"model.heads", "num-attention-heads"},
      {"model.ffn_hidden", "ffn-hidden-size"},
      {"model.max_seq_len", "max-position-embeddings"},
      {"model.vocab", "vocab-size"},
      {"model.norm", "normalization", Mapped::word, "layernorm", {{"layernorm", "LayerNorm"}, {"rmsnorm", "RMSNorm"}}},
      {"model.position",
       "position-embedding-type",
       Mapped::word,
       "learned",
       {{"learned", "learned_absolute"}, {"rope", "rope"}, {"none", "none"}}},
      {"model.tied_embeddings", "untie-embeddings-and-output-weights", Mapped::no_flag, "true"},
      {"model.bias", "disable-bias-linear", Mapped::no_flag, "true"},
      {"model.qkv_bias", "add-qkv-bias", Mapped::flag, "false"},
  };
  return rows;
}

namespace {

const std::vector<FieldRow>& expert_rows() {
  static const std::vector<FieldRow> rows = {
      {"model.experts", "num-experts"},
      {"model.experts_per_token", "moe-router-topk", Mapped::integer, "2"},
      {"model.expert_ffn_hidden", "moe-ffn-hidden-size"},
      {"model.expert_latent", "moe-latent-size", Mapped::integer, "0"},
      {"model.router",
       "moe-router-score-function",
       Mapped::word,
       "softmax",
       {{"softmax", "softmax"}, {"sigmoid", "sigmoid"}}},
      {"model.expert_groups", "moe-router-num-groups", Mapped::integer, "1"},
      {"model.aux_loss", "moe-aux-loss-coeff", Mapped::number, "0"},
  };
  return rows;
}

const FieldRow& capacity_row() {
  static const FieldRow row = {"model.capacity_factor", "moe-expert-capacity-factor", Mapped::number, "0"};
  return row;
}

// A capacity without --moe-pad-expert-input-to-capacity drops what is above it and pads nothing: an expert has as many
// rows as come to it, at most tokens x experts_per_token / experts x factor
// (megatron/core/transformer/moe/moe_utils.py, topk_softmax_with_capacity; token_dispatcher.py waits for the counts
// then). With even routing that are the rows of dropless experts from a factor of 1 on. A negative one is none
// (transformer_config.py, __post_init__).
void take_capacity(Taken& taken) {
  const bool padded = taken.flag("moe-pad-expert-input-to-capacity");
  const FieldRow& row = capacity_row();
  const auto factor = taken.number(row.theirs);
  if (!factor || padded) return taken.row(row);
  taken.put(row.ours, "0", nullptr);
  if (*factor < 0) return;
  std::string of_even = "of which even routing has none";
  if (*factor < 1)
    of_even = fmt::format("{:.0f}% of them even with even routing, which are not left out", 100 * (1 - *factor));
  taken.assume(
      fmt::format("experts without a capacity (model.capacity_factor 0): --{} {} without "
                  "--moe-pad-expert-input-to-capacity pads nothing, and drops only rows above it, {}",
                  row.theirs, *factor, of_even));
}

const std::vector<FieldRow>& latent_rows() {
  static const std::vector<FieldRow> rows = {
      {"model.kv_lora_rank", "kv-lora-rank", Mapped::integer},
      {"model.q_lora_rank", "q-lora-rank", Mapped::integer, "0"},
      {"model.qk_nope_head_dim", "qk-head-dim", Mapped::integer},
      {"model.qk_rope_head_dim", "qk-pos-emb-head-dim", Mapped::integer},
      {"model.v_head_dim", "v-head-dim", Mapped::integer},
  };
  return rows;
}

void add_rows(Said& said, const std::vector<FieldRow>& rows, std::vector<Argument>& out) {
  for (const FieldRow& row : rows)
    if (const auto value = said.field(row)) out.push_back({std::string(row.theirs), *value});
}

// Norms around 1 and of queries and keys; as Megatron-LM has them they are of the kind that --normalization says.
const std::vector<FieldRow>& norm_rows() {
  static const std::vector<FieldRow> rows = {
      {"model.zero_centered_norms", "apply-layernorm-1p", Mapped::flag, "false"},
      {"model.qk_norm", "qk-layernorm", Mapped::flag, "false"},
  };
  return rows;
}

// Rotated positions. Megatron-LM divides all angles by an integer, or as Llama 3.1 does, whose low and high factors
// and 8,192 trained positions are in its code (megatron/core/models/common/embeddings/rotary_pos_embedding.py).
constexpr std::int64_t kLatentTrained = 4096;

// Of latent attention as yarn has them, from 4,096 positions, with scores that are longer (multi_latent_attention.py;
// transformer_config.py, MLATransformerConfig).
void add_angles(Said& said, const model::Model& m, std::vector<Argument>& out) {
  if (m.position != model::Position::rope && !m.latent_attention()) return;
  if (const auto base = said.field({"model.rope_base", "rotary-base", Mapped::number, "10000"}))
    out.push_back({"rotary-base", *base});
  if (m.rope_scaling == RotationScaling::none) return;
  const Rotation plain, is = m.rotation();
  if (m.latent_attention()) {
    if (is.scaling != RotationScaling::yarn || is.trained != kLatentTrained)
      return said.left_out("model.rope_scaling",
                           "Megatron-LM has yarn alone, from 4,096 positions, with latent attention");
    for (const char* key : {"model.rope_scaling", "model.rope_factor", "model.rope_trained_len"}) said.said(key);
    out.insert(out.end(), {{"rope-type", "yarn"},
                           {"rotary-scaling-factor", fmt::format("{}", is.factor)},
                           {"mscale", "1.0"},
                           {"mscale-all-dim", "1.0"}});
    return;
  }
  const bool linear = is.scaling == RotationScaling::linear && is.factor == std::floor(is.factor);
  const bool llama3 = is.scaling == RotationScaling::llama3 && is.low == plain.low && is.high == plain.high &&
                      is.trained == plain.trained;
  if (m.rope_base_local > 0 || (!linear && !llama3))
    return said.left_out("model.rope_scaling",
                         "Megatron-LM scales the angles of all layers, by an integer or as Llama "
                         "3.1 does from 8,192 positions");
  for (const char* key : {"model.rope_scaling", "model.rope_factor"}) said.said(key);
  if (llama3) out.push_back({"use-rope-scaling", ""});
  out.push_back({llama3 ? "rope-scaling-factor" : "rotary-seq-len-interpolation-factor", fmt::format("{}", is.factor)});
}

// Latent attention's, in the place of what follows.
void take_latent_angles(Taken& taken) {
  taken.row({"model.rope_base", "rotary-base", Mapped::number, ""});
  const std::optional<double> factor = taken.number("rotary-scaling-factor");
  if (!factor || *factor == 1 || taken.text("rope-type").value_or("yarn") != "yarn") return;
  const double own = taken.number("mscale").value_or(1), scores = taken.number("mscale-all-dim").value_or(0);
  if (own != 1 || scores != 1)
    return taken.ignore(
        "--rotary-scaling-factor: yarn with latent attention is available with --mscale 1 and "
        "--mscale-all-dim 1, as DeepSeek-V3 has it, alone");
  const Setting* at = taken.find("rotary-scaling-factor");
  taken.put("model.rope_scaling", "yarn", at);
  taken.put("model.rope_factor", fmt::format("{}", *factor), at);
  taken.put("model.rope_trained_len", fmt::format("{}", kLatentTrained), at);
}

void take_angles(Taken& taken) {
  if (taken.value_of("model.position") != "rope") return;
  taken.row({"model.rope_base", "rotary-base", Mapped::number, ""});
  const char* linear = "rotary-seq-len-interpolation-factor";
  if (taken.flag("use-rope-scaling")) {
    taken.put("model.rope_scaling", "llama3", taken.find("use-rope-scaling"));
    taken.row({"model.rope_factor", "rope-scaling-factor", Mapped::number, ""});
    if (const auto factor = taken.integer(linear); factor && *factor != 1)  // 1: as without it
      taken.error(*taken.find(linear), "does not go with --use-rope-scaling", "one of them");
  } else if (const auto factor = taken.integer(linear); factor && *factor != 1) {
    taken.put("model.rope_scaling", "linear", taken.find(linear));
    taken.put("model.rope_factor", fmt::format("{}", *factor), taken.find(linear));
  }
}

void take_norms(Taken& taken, bool llama, bool experts) {
  const bool rms = taken.value_of("model.norm") == "rmsnorm";
  for (const FieldRow& row : norm_rows()) {
    if (!taken.flag(row.theirs)) continue;
    const bool of_experts_too = row.ours == "model.qk_norm";
    if (rms && (llama || (experts && of_experts_too)))
      taken.put(row.ours, "true", taken.find(row.theirs));
    else
      taken.ignore(fmt::format("--{}: {} is of models of family llama{} with --normalization RMSNorm alone", row.theirs,
                               row.ours, of_experts_too ? " and moe" : ""));
  }
}

// Of layers of one branch. Megatron-LM's arguments give neither the filters' tokens nor the chunks', which its mixer
// has as defaults (megatron/core/ssm/mamba_mixer.py: d_conv 4, chunk_size 128).
const std::vector<FieldRow>& mixer_rows() {
  static const std::vector<FieldRow> rows = {
      {"model.mamba_heads", "mamba-num-heads"},
      {"model.mamba_head_dim", "mamba-head-dim"},
      {"model.mamba_groups", "mamba-num-groups"},
      {"model.mamba_state", "mamba-state-dim"},
  };
  return rows;
}

void add_mixers(Said& said, std::vector<Argument>& out) {
  const model::Model& m = said.scenario().model;
  said.said("model.layer_pattern");
  out.push_back({"is-hybrid-model", ""});
  out.push_back({"hybrid-override-pattern", m.layer_pattern});
  if (m.mtp_depth > 0) said.said("model.mtp_pattern"), out.push_back({"mtp-hybrid-override-pattern", m.mtp_pattern});
  if (m.has_mixers()) add_rows(said, mixer_rows(), out);
  const model::Model plain;
  if (m.has_mixers() && m.mamba_conv != plain.mamba_conv)
    said.left_out("model.mamba_conv", "Megatron-LM's arguments do not give it: its mixers' filters see 4 tokens");
  if (m.has_mixers() && m.mamba_chunk != plain.mamba_chunk)
    said.left_out("model.mamba_chunk", "Megatron-LM's arguments do not give it: its chunks have 128 tokens");
}

void take_mixers(Taken& taken) {
  for (const char* flag : {"is-hybrid-model", "spec"}) taken.find(flag);
  taken.put("model.layer_pattern", taken.text("hybrid-override-pattern").value_or(""),
            taken.find("hybrid-override-pattern"));
  if (const auto module = taken.text("mtp-hybrid-override-pattern"))
    taken.put("model.mtp_pattern", *module, taken.find("mtp-hybrid-override-pattern"));
  for (const FieldRow& row : mixer_rows()) taken.row(row);
  // 2 x hidden channels in heads of 64, as Megatron-LM has them without --mamba-num-heads.
  if (!taken.given("model.mamba_heads")) {
    const auto hidden = taken.integer("hidden-size"), head = taken.integer("mamba-head-dim");
    taken.put("model.mamba_heads",
              fmt::format("{}", std::max<std::int64_t>(
                                    1, 2 * hidden.value_or(64) / std::max<std::int64_t>(1, head.value_or(64)))),
              nullptr);
    taken.assume("as many heads of mixers as twice the model's width makes, as Megatron-LM without --mamba-num-heads");
  }
}

// Of multi-token prediction.
const std::vector<FieldRow>& prediction_rows() {
  static const std::vector<FieldRow> rows = {
      {"model.mtp_depth", "mtp-num-layers", Mapped::integer, "0"},
      {"model.mtp_loss_weight", "mtp-loss-scaling-factor", Mapped::number},
  };
  return rows;
}

void add_experts(Said& said, const model::Model& m, std::vector<Argument>& out) {
  add_rows(said, expert_rows(), out);
  add_rows(said, {capacity_row()}, out);
  if (m.experts_per_token == 2) out.push_back({"moe-router-topk", "2"});
  out.push_back({"moe-grouped-gemm", ""});
  const plan::ExpertDispatch dispatch = said.scenario().plan.expert_dispatch;
  out.push_back({"moe-token-dispatcher-type", dispatch == plan::ExpertDispatch::forwarding   ? "flex"
                                              : dispatch == plan::ExpertDispatch::all_gather ? "allgather"
                                                                                             : "alltoall"});
  if (dispatch == plan::ExpertDispatch::forwarding) out.push_back({"moe-flex-dispatcher-backend", "deepep"});
  said.said("plan.expert_dispatch");
  if (m.capacity_factor > 0) out.push_back({"moe-pad-expert-input-to-capacity", ""});
  if (m.expert_groups > 1) out.push_back({"moe-router-group-topk", fmt::format("{}", m.groups_per_token)});
  if (m.shared_experts > 0)
    out.push_back({"moe-shared-expert-intermediate-size", fmt::format("{}", m.shared_experts * m.shared_ffn_hidden)});
  if (m.weigh_expert_inputs) out.push_back({"moe-apply-probs-on-input", ""});
  if (m.experts_every > 1) {
    std::vector<std::string> layers;
    for (std::int64_t l = 0; l < m.layers; ++l) layers.emplace_back(m.has_experts(l) ? "1" : "0");
    out.push_back({"moe-layer-freq", fmt::format("([{}])", fmt::join(layers, ","))});
  } else if (m.dense_layers > 0)
    out.push_back({"moe-layer-freq", fmt::format("([0]*{}+[1]*{})", m.dense_layers, m.layers - m.dense_layers)});
}

}  // namespace

void megatron_model_arguments(Said& said, std::vector<Argument>& out) {
  const model::Model& m = said.scenario().model;
  if (m.family != Family::gpt && m.family != Family::llama && m.family != Family::moe)
    throw InputError(
        Diagnostic{said.scenario().file, 0, 0, "model",
                   fmt::format("{} is of the family {}, expected gpt, llama or moe: pretrain_gpt.py trains "
                               "no other",
                               m.name, said.value("model.family")),
                   "--to torchrun starts a script of your own"});
  if (m.kv_heads < m.heads && m.kv_heads < said.scenario().plan.tensor)
    throw InputError(Diagnostic{said.scenario().file, 0, 0, "model.kv_heads",
                                "a key-value head is on several ranks of a tensor group here; Megatron-LM refuses "
                                "that, or from 0.16 on splits its weights",
                                fmt::format("plan.tensor: {}, or --to torchrun", m.kv_heads)});
  said.says_model();
  for (const char* key :
       {"model.sliding_window", "model.full_attention_every", "model.parallel_block", "model.dense_layers",
        "model.shared_experts", "model.norm_bias", "model.mlp_bias", "model.head_bias", "model.embedding_norm",
        "model.kv_lora_rank", "model.q_lora_rank", "model.attention_sinks", "model.attention_chunk", "model.nope_every",
        "model.experts_every", "model.weigh_expert_inputs"})
    said.said(key);
  for (const FieldRow& row : megatron_model_rows()) {
    if (row.ours == "model.ffn_hidden" && m.ffn_hidden == 0) continue;
    if (row.ours == "model.position" && m.position == model::Position::alibi) continue;
    if (const auto value = said.field(row)) out.push_back({std::string(row.theirs), *value});
  }
  if (!m.latent_attention()) out.push_back({"kv-channels", fmt::format("{}", m.head_dim)});
  if (m.kv_heads != m.heads && !m.latent_attention()) {
    out.push_back({"group-query-attention", ""});
    out.push_back({"num-query-groups", fmt::format("{}", m.kv_heads)});
  }
  if (m.latent_attention()) {
    out.push_back({"multi-latent-attention", ""});
    add_rows(said, latent_rows(), out);
  }
  if (m.activation == model::ActivationKind::swiglu) out.push_back({"swiglu", ""});
  if (m.activation == model::ActivationKind::squared_relu) out.push_back({"squared-relu", ""});
  if (m.activation == model::ActivationKind::geglu)
    said.left_out("model.activation", "geglu: a gate with gelu takes code of one's own in Megatron-LM");
  if (m.activation == model::ActivationKind::relu)
    said.left_out("model.activation", "relu: Megatron-LM's arguments have gelu, swiglu and squared ReLU");
  if (m.position == model::Position::rope && m.rotated() != m.head_dim && !m.latent_attention())
    out.push_back(
        {"rotary-percent", fmt::format("{}", static_cast<double>(m.rotated()) / static_cast<double>(m.head_dim))});
  add_angles(said, m, out);
  add_rows(said, norm_rows(), out);
  if (m.sliding_window > 0) {
    out.push_back({"window-size", fmt::format("({},0)", m.sliding_window - 1)});
    if (m.full_attention_every > 0) out.push_back({"window-attn-skip-freq", fmt::format("{}", m.full_attention_every)});
  }
  if (m.attention_sinks) out.push_back({"softmax-type", "learnable"});
  if (m.nope_every > 0) out.push_back({"no-rope-freq", fmt::format("{}", m.nope_every)});
  if (m.attention_chunk > 0)
    said.left_out("model.attention_chunk", "Megatron-LM's arguments have no chunks of attention");
  if (m.activation == model::ActivationKind::swiglu_oai) {
    out.push_back({"quick-geglu", ""});
    out.push_back({"glu-linear-offset", "1.0"});
    out.push_back({"activation-func-clamp-value", "7.0"});
  }
  for (const char* flag : {"attention-dropout", "hidden-dropout"}) out.push_back({flag, fmt::format("{}", m.dropout)});
  using model::AttentionKind;
  const bool fused = m.attention == AttentionKind::cudnn, unfused = m.attention == AttentionKind::unfused;
  out.push_back({"attention-backend", fused                                 ? "fused"
                                      : unfused                             ? "unfused"
                                      : m.attention == AttentionKind::flash ? "auto"
                                                                            : "flash"});
  if (m.attention == AttentionKind::flash1 || m.attention == AttentionKind::flash3 ||
      m.attention == AttentionKind::sdpa_flash || m.attention == AttentionKind::flash_triton)
    said.left_out("model.attention", "the version of FlashAttention is the installed one's");
  if (m.one_branch()) add_mixers(said, out);
  if (m.family == Family::moe) add_experts(said, m, out);
  if (m.mtp_depth > 0) add_rows(said, prediction_rows(), out);
  if (m.parallel_block != model::ParallelBlock::none)
    said.left_out("model.parallel_block",
                  "Megatron-LM's blocks have attention and feed-forward layer one after the other");
  if (m.norm == model::NormKind::layernorm && !m.has_norm_bias())
    said.left_out("model.norm_bias", "false: Megatron-LM's LayerNorm has a bias whatever --disable-bias-linear says");
  if (m.position == model::Position::alibi) {
    said.said("model.position");
    said.left_out("model.position", "alibi: Megatron-LM's arguments have no slopes by distance");
  }
  if (!m.bias && m.mlp_bias) said.left_out("model.mlp_bias", "--disable-bias-linear leaves out those of all products");
  if (m.head_bias) said.left_out("model.head_bias", "Megatron-LM's head has no bias");
  if (m.embedding_norm) said.left_out("model.embedding_norm", "Megatron-LM has no norm behind the embedding");
  if (m.position == model::Position::learned && m.learned_positions() != m.max_seq_len)
    said.left_out("model.position_rows",
                  fmt::format("{}: the table has --max-position-embeddings rows", m.position_rows));
}

std::string megatron_trainer(const model::Model& model) {
  return model.one_branch() ? "pretrain_mamba.py --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec"
                            : "pretrain_gpt.py";
}

namespace {

void take_latents(Taken& taken) {
  for (const FieldRow& row : latent_rows()) taken.row(row);
  // Those of megatron/training/arguments.py, _add_mla_args.
  for (const auto& [key, theirs, width] : {std::tuple{"model.kv_lora_rank", "kv-lora-rank", 32},
                                           {"model.qk_nope_head_dim", "qk-head-dim", 128},
                                           {"model.qk_rope_head_dim", "qk-pos-emb-head-dim", 64},
                                           {"model.v_head_dim", "v-head-dim", 128}}) {
    if (taken.given(key)) continue;
    taken.put(key, fmt::format("{}", width), nullptr);
    taken.assume(fmt::format("{} {}, Megatron-LM's default", theirs, width));
  }
}

void take_expert_layers(Taken& taken) {
  const auto frequency = taken.text("moe-layer-freq");
  if (!frequency) return;
  const Setting& at = *taken.find("moe-layer-freq");
  const auto layers = expert_layers(*frequency, taken.integer("num-layers").value_or(0));
  if (!layers)
    return taken.error(at, fmt::format("{} is not available, expected a number or a list of 0 and 1 for each layer, as "
                                       "([0]*3+[1]*58) or ([0,1]*24)",
                                       detail::shown(*frequency)));
  const auto first = std::find(layers->begin(), layers->end(), true);
  const std::int64_t before = first - layers->begin();
  if (first == layers->end()) return taken.error(at, "no layer has experts, expected a 1 for one of them at least");
  if (std::find(first, layers->end(), false) == layers->end()) {
    if (before > 0) taken.put("model.dense_layers", fmt::format("{}", before), &at);
    return;
  }
  for (std::size_t l = 0; l < layers->size(); ++l)
    if ((*layers)[l] != ((static_cast<std::int64_t>(l) + 1) % (before + 1) == 0))
      return taken.error(at, fmt::format("{} is not available", detail::shown(*frequency)),
                         "layers without experts have to be the first ones, or those between every so many-th");
  taken.put("model.experts_every", fmt::format("{}", before + 1), &at);
}

}  // namespace

void take_megatron_model(Taken& taken) {
  const Setting* one = nullptr;
  std::string missing, slips;
  for (const char* key : {"num-layers", "hidden-size", "num-attention-heads"}) {
    if (taken.has(key)) {
      one = taken.find(key);
      continue;
    }
    missing += fmt::format("{}--{}", missing.empty() ? "" : " and ", key);
    if (const Setting* slip = taken.slip_for(key))
      slips += fmt::format("{}is --{} of line {} meant as --{}", slips.empty() ? "" : ", ", one_line(slip->key),
                           slip->line, key);
  }
  if (one == nullptr) return;
  if (!missing.empty()) {
    taken.error(*one, fmt::format("of a model whose {} the file does not give", missing),
                slips.empty() ? "put it there, or name the model with --model" : slips + "?");
    return;
  }
  for (const FieldRow& row : megatron_model_rows()) taken.row(row);
  if (taken.flag("use-rotary-position-embeddings") && !taken.has("position-embedding-type"))
    taken.put("model.position", "rope", taken.find("use-rotary-position-embeddings"));
  const bool experts = taken.has("num-experts"), oai = taken.flag("quick-geglu"), swiglu = taken.flag("swiglu") || oai;
  const bool relu = taken.flag("squared-relu"), latent = taken.flag("multi-latent-attention");
  const auto number_of = [&](const char* key) {
    std::int64_t value = 0;
    const std::string text = taken.value_of(key);
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const bool hybrid = taken.has("hybrid-override-pattern");
  taken.put("model.family",
            experts                        ? "moe"
            : (swiglu || latent || hybrid) ? "llama"
                                           : "gpt",
            taken.find(experts  ? "num-experts"
                       : swiglu ? "swiglu"
                                : "num-layers"));
  taken.put("model.activation",
            oai      ? "swiglu_oai"
            : swiglu ? "swiglu"
            : relu   ? "squared_relu"
                     : "gelu",
            taken.find(oai ? "quick-geglu" : "swiglu"));
  // gpt-oss's: what is added to the values, and where they are cut off (--quick-geglu alone has neither).
  for (const auto& [key, ours] : {std::pair{"glu-linear-offset", "1.0"}, {"activation-func-clamp-value", "7.0"}})
    if (const auto given = taken.text(key); oai && given.value_or("") != ours)
      taken.assume(fmt::format("--{} {}, which activation swiglu_oai has", key, ours));
  if (const auto softmax = taken.text("softmax-type"); softmax == "learnable")
    taken.put("model.attention_sinks", "true", taken.find("softmax-type"));
  taken.row({"model.nope_every", "no-rope-freq", Mapped::integer});
  taken.row({"model.weigh_expert_inputs", "moe-apply-probs-on-input", Mapped::flag});
  if (!taken.given("model.ffn_hidden")) {
    const double width = 4.0 * static_cast<double>(number_of("model.hidden")) * (swiglu ? 2.0 / 3.0 : 1.0);
    // Megatron-LM, validate_args: 4 x hidden; with swiglu two thirds of it, in multiples of 64.
    const auto whole = static_cast<std::int64_t>(swiglu ? std::floor(width / 64) * 64 : width);
    taken.put("model.ffn_hidden", fmt::format("{}", std::max<std::int64_t>(whole, 1)), nullptr);
    taken.assume(fmt::format("ffn_hidden {}, as Megatron-LM without --ffn-hidden-size", whole));
  }
  if (const auto groups = taken.integer("num-query-groups"); taken.flag("group-query-attention") && !latent) {
    taken.put("model.kv_heads", fmt::format("{}", groups.value_or(1)),
              taken.find(groups ? "num-query-groups" : "group-query-attention"));
    if (!groups) taken.assume("num-query-groups 1, Megatron-LM's default");
  }
  if (const auto channels = taken.integer("kv-channels"); channels && !latent)
    taken.put("model.head_dim", fmt::format("{}", *channels), taken.find("kv-channels"));
  if (latent) take_latents(taken);
  if (!taken.given("model.vocab")) {
    const std::string tokenizer = taken.text("tokenizer-type").value_or("");
    const bool llama2 = tokenizer == "Llama2Tokenizer";
    const auto padded = taken.integer("padded-vocab-size");
    taken.put("model.vocab",
              padded   ? fmt::format("{}", *padded)
              : llama2 ? "32000"
                       : "50257",
              taken.find("padded-vocab-size"));
    if (!padded)
      taken.assume(fmt::format("a vocabulary of {}, since the tokenizer's is not in the file (--vocab-size)",
                               llama2 ? "32,000" : "50,257, GPT-2's"));
  }
  if (!taken.given("model.max_seq_len")) {
    if (const auto length = taken.integer("seq-length"))
      taken.put("model.max_seq_len", fmt::format("{}", *length), taken.find("seq-length"));
  }
  if (const auto share = taken.number("rotary-percent"); share && *share < 1 && *share > 0) {
    std::int64_t width = number_of("model.head_dim");
    if (width == 0) width = number_of("model.hidden") / std::max<std::int64_t>(number_of("model.heads"), 1);
    taken.put("model.rotary_dim",
              fmt::format("{}", static_cast<std::int64_t>(std::lround(*share * static_cast<double>(width)))),
              taken.find("rotary-percent"));
  }
  latent ? take_latent_angles(taken) : take_angles(taken);
  // LayerNorm has a bias whatever --disable-bias-linear says (megatron/core/extensions/transformer_engine.py, TENorm).
  if (taken.value_of("model.norm") == "layernorm" && taken.value_of("model.bias") == "false")
    taken.put("model.norm_bias", "true", taken.find("disable-bias-linear"));
  take_norms(taken, swiglu && !experts && !latent, experts && !latent);
  if (const auto dropout = taken.number("hidden-dropout"))
    taken.put("model.dropout", fmt::format("{}", *dropout), taken.find("hidden-dropout"));
  else
    taken.put("model.dropout", "0.1", nullptr), taken.assume("dropout 0.1, Megatron-LM's default");
  taken.find("attention-dropout");
  taken.row({"model.attention",
             "attention-backend",
             Mapped::word,
             "",
             {{"flash", "auto"}, {"flash2", "flash"}, {"cudnn", "fused"}, {"unfused", "unfused"}}});
  if (const auto window = taken.text("window-size")) {
    std::int64_t left = 0;
    const std::size_t at = window->find_first_of("0123456789");
    if (at != std::string::npos) std::from_chars(window->data() + at, window->data() + window->size(), left);
    if (at == std::string::npos || left < 1 || left > 1'000'000'000)
      taken.error(*taken.find("window-size"), fmt::format("expected (LEFT,0), found {}", detail::shown(*window)));
    else
      taken.put("model.sliding_window", fmt::format("{}", left + 1), taken.find("window-size"));
    taken.row({"model.full_attention_every", "window-attn-skip-freq", Mapped::integer});
  }
  if (const auto modules = taken.integer("mtp-num-layers"); modules && *modules > 0) {
    for (const FieldRow& row : prediction_rows()) taken.row(row);
    if (!taken.given("model.mtp_loss_weight")) {
      taken.put("model.mtp_loss_weight", "0.1", taken.find("mtp-num-layers"));
      taken.assume("mtp-loss-scaling-factor 0.1, Megatron-LM's default");
    }
  }
  if (hybrid) take_mixers(taken);
  if (!experts) return;
  for (const FieldRow& row : expert_rows()) taken.row(row);
  take_capacity(taken);
  if (!taken.given("model.expert_ffn_hidden"))
    taken.put("model.expert_ffn_hidden", taken.value_of("model.ffn_hidden"), taken.find("ffn-hidden-size"));
  taken.row({"model.groups_per_token", "moe-router-group-topk", Mapped::integer});
  if (const auto width = taken.integer("moe-shared-expert-intermediate-size"); width && *width > 0) {
    taken.put("model.shared_experts", "1", taken.find("moe-shared-expert-intermediate-size"));
    taken.put("model.shared_ffn_hidden", fmt::format("{}", *width), taken.find("moe-shared-expert-intermediate-size"));
  }
  take_expert_layers(taken);
}

}  // namespace rehearse::launch
