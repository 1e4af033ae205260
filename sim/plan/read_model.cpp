// Reads the `model:` value of a scenario: the name of a preset, or a mapping, which may itself start from a preset and
// override single keys ({preset: gpt3-175b, dropout: 0.1}). Keys are read by their rows (key_table_model.cpp), whose
// ranges keep every count of sim/model inside 64 bits; here is what follows from several of them and from the family.
// A Hugging Face configuration stands in a preset's place (hf/translate.h).
#include "sim/plan/read_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sim/base/text_check.h"
#include "sim/plan/hf/translate.h"
#include "sim/plan/model_presets.h"
#include "sim/plan/model_source.h"
#include "sim/plan/nearest_numbers.h"
#include "sim/plan/read_keys.h"
#include "sim/plan/read_layers.h"
#include "sim/plan/read_pattern.h"
#include "sim/plan/read_routing.h"
#include "sim/plan/sections.h"

namespace rehearse::plan {
namespace {

using detail::ModelSource;
using model::ActivationKind;
using model::ConvLayer;
using model::Family;
using model::LossKind;
using model::Model;
using model::NormKind;
using model::Position;

constexpr std::int64_t kMaxQkv = 1 << 22;
constexpr std::int64_t kMaxFlattened = 1 << 30;
constexpr std::size_t kMaxListed = 1000;
// Keys of latent attention.
constexpr std::array kLatent = {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"};

// A cross-entropy over one class is 0 whatever the model does.
void check_classes(const ModelSource& source, const Model& model) {
  if (!model.is_transformer() && model.loss != LossKind::cross_entropy) return;
  const bool tokens = model.reads_text();
  const std::int64_t classes = model.is_vision() ? model.classes : tokens ? model.vocab : model.outputs();
  const char* key = model.is_vision()                ? "classes"
                    : tokens                         ? "vocab"
                    : model.family == Family::custom ? "layer_list"
                                                     : "widths";
  if (classes == 1)
    source.value(key).error("one class leaves nothing to learn: its cross-entropy is always 0",
                            "at least two, as in 'widths: [512, 2]'");
}

void set_family_defaults(Model& model) {
  const bool gpt = model.family == Family::gpt || model.family == Family::bert || model.is_vision();
  model.activation = gpt ? ActivationKind::gelu : ActivationKind::swiglu;
  model.norm = gpt ? NormKind::layernorm : NormKind::rmsnorm;
  model.position = gpt ? Position::learned : Position::rope;
  model.bias = gpt;
  model.tied_embeddings = gpt && !model.is_vision();
  if (!model.has_decoder()) return;
  model.activation = ActivationKind::relu;
  model.position = Position::relative;
  model.tied_embeddings = true;
}

// Reads one model at a time.
class ModelReader {
 public:
  ModelReader(const ModelSource& source, const FrameworkProfile& profile, const Diagnostics& diagnostics)
      : source_(source), profile_(profile), diagnostics_(diagnostics) {}

  // `named`: what it is called if it does not say; "": as its family.
  Model read(const std::string& named) {
    const std::size_t problems = diagnostics_.list().size();
    read_key(*find_key("model.family"));
    const std::string family(find_key("model.family")->values.at(static_cast<std::size_t>(model_.family)));
    model_.name = source_.of("name").text("name", named.empty() ? family : named);
    // Of a family nobody knows, no key can be called wrong.
    if (diagnostics_.list().size() != problems) return model_;
    set_family_defaults(model_);
    if (model_.is_transformer()) shape(family);
    for (const Key& key : keys()) {
      const bool own = key.path.starts_with("model.") && key.path.find_first_of(".[", 6) == std::string_view::npos;
      if (own && key.of_family(family) && key.path != "model.family" && !is_shape(key.leaf())) read_key(key);
    }
    if (model_.is_transformer())
      finish_transformer();
    else
      finish_small(problems);
    if (diagnostics_.list().size() == problems) check_classes(source_, model_);
    source_.finish();
    return model_;
  }

 private:
  static bool is_shape(std::string_view leaf) {
    return leaf == "layer_pattern" || leaf == "hidden" || leaf == "heads" || leaf == "kv_heads" || leaf == "head_dim" ||
           is_latent(leaf);
  }
  static bool is_latent(std::string_view leaf) {
    return std::find(kLatent.begin(), kLatent.end(), leaf) != kLatent.end();
  }

  void read_key(const Key& key) {
    if (!key.read_by_table()) return;
    const auto value = detail::read_value(source_.of(key.leaf()), key, [&](const Key& open) {
      // Of models that read no text dropout is the model's own.
      return model_.reads_text() || open.path != "model.dropout" ? default_of(open, profile_) : "0";
    });
    if (value) key.field.set(model_, *value, key.values);
  }

  // The widths of attention, and whether they go together.
  void shape(std::string_view family) {
    const std::size_t problems = diagnostics_.list().size();
    for (const char* path : {"model.layer_pattern", "model.hidden", "model.heads", "model.kv_heads", "model.head_dim"})
      if (const Key& key = *find_key(path); key.of_family(family)) read_key(key);
    if (model_.family != Family::gpt && model_.is_causal() && !model_.has_decoder()) latent();
    if (model_.heads == 0) {
      if (model_.has_attention() && diagnostics_.list().size() == problems)
        source_.value("heads").error("required key is missing, expected an integer");
      model_.heads = 1;
    }
    const bool head_dim_given = source_.given("head_dim") || model_.latent_attention() || !model_.has_attention();
    if (model_.kv_heads == 0) model_.kv_heads = model_.heads;
    if (model_.head_dim == 0) model_.head_dim = std::max<std::int64_t>(1, model_.hidden / model_.heads);
    if (diagnostics_.list().size() != problems) return;  // what follows would complain about stand-in values
    const Node heads = source_.value("heads");
    if (!head_dim_given && model_.hidden % model_.heads != 0)
      heads.error(fmt::format("hidden {} is not divisible by {} heads", model_.hidden, model_.heads),
                  "give head_dim if the heads do not divide the hidden size");
    if (model_.heads % model_.kv_heads != 0)
      source_.value("kv_heads")
          .error(fmt::format("{} heads are not divisible by {} kv_heads", model_.heads, model_.kv_heads));
    if (model_.qkv_width() > kMaxQkv)
      heads.error(fmt::format("queries, keys and values are {} wide, the limit is {}", model_.qkv_width(), kMaxQkv));
  }

  // The keys of latent attention, which is a whole or none.
  void latent() {
    for (const char* leaf : kLatent) read_key(*find_key(fmt::format("model.{}", leaf)));
    if (!model_.latent_attention()) {
      for (const char* leaf : kLatent)
        if (std::string_view(leaf).ends_with("head_dim") && source_.given(leaf))
          source_.value(leaf).error(fmt::format("'{}' is of latent attention, which kv_lora_rank = 0 leaves out", leaf),
                                    "kv_lora_rank: 512, or leave it out");
      if (model_.q_lora_rank > 0)
        source_.value("q_lora_rank")
            .error("a latent of queries alone: latent attention has one of keys and values too", "kv_lora_rank: 512");
      return;
    }
    for (const char* leaf : {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
      if (!source_.given(leaf))
        source_.value(leaf).error("required key is missing, expected an integer: latent attention (kv_lora_rank)");
    const std::int64_t width = model_.qk_nope_head_dim + model_.qk_rope_head_dim;
    if (model_.head_dim > 0 && model_.head_dim != width)
      source_.value("head_dim")
          .error(fmt::format("head_dim = {}, but queries and keys of latent attention have "
                             "qk_nope_head_dim + qk_rope_head_dim = {} columns",
                             model_.head_dim, width),
                 "leave it out");
    model_.head_dim = width;
    if (model_.kv_heads > 0 && model_.kv_heads != model_.heads)
      source_.value("kv_heads")
          .error(fmt::format("kv_heads = {}: latent attention makes keys and values for each of its {} heads",
                             model_.kv_heads, model_.heads),
                 "leave it out");
    model_.kv_heads = model_.heads;
  }

  void finish_latent() {
    if (model_.position != Position::rope)
      source_.value("position").error("latent attention tells places by its rotated columns", "position: rope");
    if (model_.bias) source_.value("bias").error("products of latent attention have no biases", "bias: false");
    if (model_.rotary_dim > 0)
      source_.value("rotary_dim").error("latent attention says it by qk_rope_head_dim", "leave it out");
    if (model_.qkv_bias)
      source_.value("qkv_bias").error("products of latent attention have no biases", "qkv_bias: false");
    if (model_.qk_rope_head_dim % 2 != 0)
      source_.value("qk_rope_head_dim")
          .error(fmt::format("rope turns pairs of features, but qk_rope_head_dim is {}", model_.qk_rope_head_dim));
  }

  void finish_transformer() {
    detail::check_pattern(source_, model_);
    if (!source_.given("ffn_hidden")) {
      if (model_.family == Family::moe && model_.has_dense_ffn())
        source_.value("ffn_hidden")
            .error("required key is missing, expected an integer: the width of the dense layers");
      // Llama's rule (8/3 hidden, rounded up to a multiple that differs by model) cannot be guessed, so it is required.
      if (model_.family == Family::llama && model_.has_dense_ffn())
        source_.value("ffn_hidden").error("required key is missing, expected an integer");
      model_.ffn_hidden = 4 * model_.hidden;
    }
    if (model_.is_vision()) return finish_vision();
    if (model_.has_decoder()) return finish_encoder_decoder();
    if (model_.position == Position::relative)
      source_.value("position").error("a bias of the scores by distance is family t5's", "position: learned or rope");
    if (model_.position == Position::alibi && model_.attention_softcap > 0)
      source_.value("attention_softcap")
          .error("scores with ALiBi are not capped", "attention_softcap: 0, or leave it out");
    if (model_.family == Family::moe) finish_experts();
    // Its default may be said of any model of these families.
    if (model_.mtp_depth == 0 && model_.mtp_loss_weight != Model().mtp_loss_weight)
      source_.value("mtp_loss_weight").error("has no meaning without multi-token prediction", "mtp_depth: 1");
    if (!source_.given("attention")) detail::choose_capped_attention(model_);
    finish_positions();
    finish_window();
    finish_kinds();
    if (model_.latent_attention()) return finish_latent();
    if (model_.rotary_dim > 0) return finish_rotation();
    if (model_.position == Position::rope && model_.head_dim % 2 != 0)
      source_.value("position").error(fmt::format("rope turns pairs of features, but head_dim is {}", model_.head_dim));
  }

  // Scores have a bias or belong to two sequences, and fused kernels here take neither.
  void finish_encoder_decoder() {
    if (model_.decoder_layers == 0) model_.decoder_layers = model_.encoder_layers;
    model_.layers = model_.encoder_layers + model_.decoder_layers;
    if (model_.position == Position::rope || model_.position == Position::alibi)
      source_.value("position")
          .error("an encoder with a decoder tells places by distances or by a table",
                 "position: learned, or leave it out");
    if (model_.position == Position::relative)
      check_distances();
    else
      check_no_distances();
    finish_positions();
    if (!source_.given("attention"))
      model_.attention = model::AttentionKind::unfused;
    else if (model_.attention != model::AttentionKind::unfused)
      source_.value("attention")
          .error(model_.position == Position::relative
                     ? "T5 adds a bias to the scores, which no fused kernel here takes"
                     : "a decoder's tokens attend to another sequence, which no fused kernel here takes",
                 "attention: unfused, or leave it out");
  }

  void check_distances() {
    if (model_.relative_buckets % 4 != 0)
      source_.value("relative_buckets")
          .error(
              fmt::format("{} buckets are not divisible by 4: two directions have half of them each, and of these half "
                          "are distances of their own",
                          model_.relative_buckets),
              "relative_buckets: 32");
    else if (model_.relative_distance <= model_.relative_buckets / 2)
      source_.value("relative_distance")
          .error(
              fmt::format("{} buckets tell distances up to {} apart one by one, expected relative_distance above that",
                          model_.relative_buckets, model_.relative_buckets / 2));
  }

  void check_no_distances() {
    for (const char* leaf : {"relative_buckets", "relative_distance"})
      if (source_.given(leaf))
        source_.value(leaf).error(fmt::format("'{}' has no meaning with learned positions", leaf),
                                  "position: relative, or leave it out");
  }

  // The sequence is an image's patches and the class token.
  void finish_vision() {
    const std::size_t problems = diagnostics_.list().size();
    read_image();
    if (diagnostics_.list().size() != problems || model_.patch < 1) return;
    if (model_.image_size % model_.patch != 0)
      return source_.value("patch").error(fmt::format(
          "patches of {0}x{0} do not cut an image of {1}x{1} into equal parts; nearest sizes that do: {2}",
          model_.patch, model_.image_size, nearest_divisors(model_.image_size, model_.patch, model_.image_size)));
    model_.max_seq_len = model_.patches() + 1;
  }

  void read_image() {
    const Node image = source_.value("image");
    if (!image) return image.error("required key is missing, expected a mapping", "image: {channels: 3, size: 32}");
    const ModelSource keys = source_.within("image");
    for (const char* path : {"model.image.channels", "model.image.size"}) {
      const Key& key = *find_key(path);
      if (const auto value = detail::read_value(keys.of(key.leaf()), key, {}))
        key.field.set(model_, *value, key.values);
    }
    keys.finish();
  }

  void finish_rotation() {
    const Node given = source_.value("rotary_dim");
    if (model_.position != Position::rope)
      given.error("has no meaning without rotated positions", "position: rope");
    else if (model_.rotary_dim > model_.head_dim)
      given.error(fmt::format("{} columns turn, but a head has {}", model_.rotary_dim, model_.head_dim));
    else if (model_.rotary_dim % 2 != 0)
      given.error(fmt::format("rope turns pairs of features, but rotary_dim is {}", model_.rotary_dim));
  }

  void finish_positions() {
    if (model_.position_rows == 0) return;
    if (model_.position != Position::learned)
      source_.value("position_rows").error("has no meaning without a table of positions", "position: learned");
    else if (model_.position_rows < model_.max_seq_len)
      source_.value("position_rows")
          .error(
              fmt::format("{} rows do not hold max_seq_len = {} positions", model_.position_rows, model_.max_seq_len));
  }

  // Layers of other kinds: without rotation, with chunks.
  void finish_kinds() {
    if (model_.nope_every > 0 && model_.position != Position::rope)
      source_.value("nope_every").error("has no meaning without rotated positions", "position: rope");
    if (model_.nope_every > 0 && model_.latent_attention())
      source_.value("nope_every").error("latent attention rotates in every layer", "nope_every: 0");
    if (model_.attention_chunk > 0 && model_.sliding_window > 0)
      source_.value("attention_chunk")
          .error(fmt::format("a layer has chunks or a window, and sliding_window = {}", model_.sliding_window),
                 "sliding_window: 0");
  }

  void finish_window() {
    const std::int64_t every = model_.full_attention_every;
    if (every == 0) return;
    if (model_.sliding_window == 0)
      source_.value("full_attention_every")
          .error(fmt::format("full_attention_every = {} says which layers have no window, but sliding_window = 0 gives "
                             "none to any",
                             every),
                 "sliding_window: 4096, or leave it out");
    else if (every == 1)
      source_.value("full_attention_every")
          .error(fmt::format("full_attention_every = 1 leaves no layer for sliding_window = {}", model_.sliding_window),
                 "2 for every second layer, or sliding_window: 0");
  }

  void finish_experts() {
    if (model_.shared_ffn_hidden == 0) model_.shared_ffn_hidden = model_.expert_ffn_hidden;
    if (model_.experts > 0 && model_.experts_per_token > model_.experts)
      source_.value("experts_per_token")
          .error(fmt::format("a token is sent to {} of {} experts", model_.experts_per_token, model_.experts));
    check_groups();
    if (model_.layers > 0 && model_.dense_layers >= model_.layers)
      source_.value("dense_layers")
          .error(fmt::format("{} of {} layers have no experts", model_.dense_layers, model_.layers),
                 "family: llama has none");
    if (model_.layers > 0 && model_.experts_every > 1 && model_.dense_layers < model_.layers &&
        model_.expert_layers() == 0)
      source_.value("experts_every")
          .error(fmt::format("every {}th of {} layers behind {} dense ones leaves none with experts",
                             model_.experts_every, model_.layers, model_.dense_layers));
    if (model_.activation == ActivationKind::geglu)
      source_.value("activation").error("experts gated by gelu are not available yet", "swiglu, gelu or squared_relu");
    if (model_.expert_latent > 0 && model_.weigh_expert_inputs)
      source_.value("expert_latent")
          .error("scores multiply whole tokens (weigh_expert_inputs), of which experts in a latent see none",
                 "expert_latent: 0");
    if (model_.bias && model_.shared_experts > 0)
      source_.value("bias").error("products of shared experts have no biases", "bias: false, or shared_experts: 0");
    if (model_.weigh_expert_inputs && model_.experts_per_token != 1)
      source_.value("weigh_expert_inputs")
          .error(fmt::format("a token's score multiplies what goes into one expert, not into each of {}",
                             model_.experts_per_token),
                 "experts_per_token: 1");
    detail::read_routing({source_.value("routing_file"), source_.value("routing_step"), source_.value("routing_table")},
                         model_);
  }

  void check_groups() {
    if (!source_.given("groups_per_token")) model_.groups_per_token = model_.expert_groups;
    const std::int64_t groups = model_.expert_groups, chosen = model_.groups_per_token;
    if (groups < 1 || model_.experts < model_.experts_per_token) return;
    if (model_.experts % groups != 0)
      return source_.value("expert_groups")
          .error(fmt::format("{} experts do not divide into {} equal groups; nearest that do: {}", model_.experts,
                             groups, nearest_divisors(model_.experts, groups, model_.experts)));
    if (chosen > groups)
      return source_.value("groups_per_token").error(fmt::format("a token chooses {} of {} groups", chosen, groups));
    if (model_.experts_per_token > chosen * (model_.experts / groups))
      source_.value("groups_per_token")
          .error(fmt::format("a token is sent to {} experts, and {} of {} groups have {}", model_.experts_per_token,
                             chosen, groups, chosen * (model_.experts / groups)));
  }

  void finish_small(std::size_t problems) {
    if (model_.family == Family::custom) return finish_list(problems);
    const std::size_t at_least = model_.family == Family::cnn ? 1 : 2;
    if (diagnostics_.list().size() == problems &&
        (model_.widths.size() < at_least || model_.widths.size() > kMaxListed))
      source_.value("widths").error(fmt::format("expected a list of {} to {} widths", at_least, kMaxListed),
                                    "e.g. 'widths: [512, 10]'");
    if (model_.family != Family::cnn) return;
    read_image();
    if (model_.residual_block != model::ResidualBlock::none) return finish_residual(problems);
    if (!model_.residual_layers.empty())
      source_.value("residual_layers")
          .error("says how many residual blocks there are, but not which",
                 "residual_block: bottleneck, or leave it out");
    if (model_.sync_batch_norm)
      source_.value("sync_batch_norm")
          .error("this model has no batch normalisation", "residual_block: bottleneck, or leave it out");
    for (const char* key : {given_group_key(), given_squeeze_key()})
      if (key != nullptr)
        source_.value(key).error("this model has no residual blocks", "residual_block: bottleneck, or leave it out");
    const Node list = source_.value("convolutions");
    detail::read_convolutions(list, model_);
    if (diagnostics_.list().size() == problems && model::flattened_width(model_) > kMaxFlattened)
      list.error(fmt::format("the maps flatten to {} features, the limit is {}", model::flattened_width(model_),
                             kMaxFlattened));
  }

  void finish_list(std::size_t problems) {
    const Node list = source_.value("layer_list"), image = source_.value("image");
    if (image) read_image();
    const int inputs = (image ? 1 : 0) + (source_.given("features") ? 1 : 0) + (source_.given("tokens") ? 1 : 0);
    if (inputs != 1)
      source_.value("features")
          .error("a model reads images, rows of numbers or tokens: one of image, features and tokens",
                 "e.g. 'features: 64'");
    if (model_.dropout > 0)
      source_.value("dropout").error("a list of layers has its dropout in layers of their own",
                                     "{layer: dropout, rate: 0.1}");
    std::vector<model::Layer> layers = detail::read_layers(list);
    if (diagnostics_.list().size() != problems) return;
    const std::string problem = model::layers_problem(layers, model_.input(), "layer_list");
    if (!problem.empty()) return list.error(problem);
    if (model::extent_after(layers, model_.input()).maps())
      return list.error("the last layer gives maps, which no loss is of", "{layer: average_pool}, then linear");
    if (model::extent_after(layers, model_.input()).rows())
      return list.error("the last layer gives vectors, which no loss is of",
                        "{layer: average_pool} or {layer: flatten}");
    if (model::layer_multiply_adds(layers, model_.input()) == 0)
      return list.error("none of the layers multiplies", "{layer: linear, width: 10}");
    model_.layer_list = std::move(layers);
  }

  // Those of residual blocks that are not as they would be without them; nullptr: they all are.
  const char* given_group_key() const {
    const Model plain;
    if (model_.residual_groups != plain.residual_groups) return "residual_groups";
    return model_.residual_group_width != plain.residual_group_width ? "residual_group_width" : nullptr;
  }
  const char* given_squeeze_key() const {
    return model_.squeeze_ratio > 0 ? "squeeze_ratio" : model_.squeeze_width > 0 ? "squeeze_width" : nullptr;
  }

  void finish_residual(std::size_t problems) {
    if (source_.given("convolutions"))
      source_.value("convolutions").error("a residual network has its own convolutions", "leave it out");
    if (model_.residual_layers.empty() || model_.residual_layers.size() > 8)
      source_.value("residual_layers")
          .error("expected a list of 1 to 8 numbers of blocks", "e.g. 'residual_layers: [3, 4, 6, 3]'");
    if (diagnostics_.list().size() == problems && model_.widths.size() != 1)
      source_.value("widths").error("a residual network has one linear layer, to the classes", "e.g. 'widths: [1000]'");
    if (model_.dropout > 0) source_.value("dropout").error("a residual network has no dropout", "leave it out");
    if (const char* key = given_group_key(); key != nullptr && model_.residual_block == model::ResidualBlock::basic)
      source_.value(key).error("a basic block has no groups", "residual_block: bottleneck, or leave it out");
    if (model_.squeeze_ratio > 0 && model_.squeeze_width > 0)
      source_.value("squeeze_width")
          .error("squeeze_ratio says already how many outputs the first linear layer has", "one of both");
    if (diagnostics_.list().size() != problems) return;
    model_.layer_list = model::residual_network({model_.residual_block, model_.residual_layers, model_.widths.front(),
                                                 model_.residual_groups, model_.residual_group_width,
                                                 model_.squeeze_ratio, model_.squeeze_width});
    if (model::extent_after(std::vector<model::Layer>(model_.layer_list.begin(), model_.layer_list.begin() + 4),
                            model_.input())
            .size < 1)
      source_.value("image").error(fmt::format("an image of {0}x{0} is too small for the stem", model_.image_size));
  }

  const ModelSource& source_;
  const FrameworkProfile& profile_;
  const Diagnostics& diagnostics_;
  Model model_;
};

// 1000000 -> "1,000,000".
std::string grouped(std::int64_t count) {
  std::string text = fmt::to_string(count);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

Model read_hf(const Node& node, const FrameworkProfile& profile, Diagnostics& diagnostics) {
  const Node said = node.get("hf");
  const std::size_t problems = diagnostics.list().size();
  const std::string text = node.text("hf");
  if (text.empty() && diagnostics.list().size() == problems)
    said.error("expected the path of a config.json or of its folder");
  if (node.has("preset"))
    node.get("preset").error("a model starts from a preset or from a configuration, not from both", "leave one out");
  if (diagnostics.list().size() != problems) return Model();
  try {
    const auto translated = hf::translate(detail::found_beside(said, text), node, diagnostics);
    if (!translated) return Model();
    Model model = ModelReader(ModelSource(node, translated->model.root()), profile, diagnostics).read(translated->name);
    if (diagnostics.list().size() != problems) return model;
    model.notes = translated->notes;
    model.notes.insert(model.notes.begin(),
                       fmt::format("Model of {}, of the kind {}: {} parameters. Read: {}.", text, translated->kind,
                                   grouped(model::parameter_count(model)), fmt::join(translated->read, ", ")));
    return model;
  } catch (const InputError& error) {
    for (Diagnostic problem : error.diagnostics()) {
      // A file that cannot be opened at all is the scenario's mistake.
      if (problem.line == 0)
        said.error(fmt::format("{} {}", problem.file, problem.message), problem.hint);
      else
        diagnostics.add(std::move(problem));
    }
    return Model();
  }
}

}  // namespace

Model read_model(const Node& node, const FrameworkProfile& profile, const std::string& data_root,
                 Diagnostics& diagnostics, ParsedFiles* files) {
  const auto read_source = [&](const ModelSource& source, const std::string& named) {
    return ModelReader(source, profile, diagnostics).read(named);
  };
  if (const auto name = node.as_text()) {
    const Node preset = open_preset(node, *name, data_root, diagnostics, files);
    return preset ? read_source(ModelSource(Node(), preset), *name) : Model();
  }
  if (node.kind() != Node::Kind::mapping) {
    node.error(node ? "expected the name of a model preset or a mapping" : "required key is missing",
               "e.g. 'model: gpt2-small' or 'model: {family: gpt, ...}'");
    return Model();
  }
  if (node.has("hf")) return read_hf(node, profile, diagnostics);
  if (!node.has("preset")) return read_source(ModelSource(node, Node()), "");
  const std::string name = node.text("preset");
  const Node preset = open_preset(node.get("preset"), name, data_root, diagnostics, files);
  return preset ? read_source(ModelSource(node, preset), name) : Model();
}

}  // namespace rehearse::plan
