// The keys of a model of the user's own, a list of layers; see key_table_model.cpp.
#include <fmt/format.h>

#include "sim/model/model.h"
#include "sim/plan/keys.h"
#include "sim/plan/read_layers.h"

namespace rehearse::plan::detail {

namespace {

std::string tables_text(const model::Layer& layer) {
  return fmt::format(", rows: [{}], lookups: [{}], pooling: {}", fmt::join(layer.rows, ", "),
                     fmt::join(layer.lookups, ", "), layer.pooling == model::Pooling::mean ? "mean" : "sum");
}

std::string list_text(const std::vector<model::Layer>& list) {
  std::string out;
  for (const model::Layer& layer : list) {
    const std::string_view word = layer_word(layer.kind);
    out += fmt::format("{}{{layer: {}", out.empty() ? "" : ", ", word);
    if (takes(layer.kind, "width")) out += fmt::format(", width: {}", layer.width);
    if (takes(layer.kind, "kernel"))
      out += fmt::format(", kernel: {}, stride: {}, pad: {}", layer.kernel, layer.stride, layer.pad);
    if (layer.groups > 1) out += fmt::format(", groups: {}", layer.groups);
    if (takes(layer.kind, "bias") && !layer.bias) out += ", bias: false";
    if (layer.kind == model::LayerKind::attention)
      out += fmt::format(", heads: {}, kv_heads: {}, causal: {}", layer.heads, layer.kv_heads, layer.causal);
    if (layer.kind == model::LayerKind::embedding)
      out += fmt::format(", vocab: {}, positions: {}", layer.vocab, layer.positions);
    if (layer.kind == model::LayerKind::tables) out += tables_text(layer);
    if (takes(layer.kind, "rate")) out += fmt::format(", rate: {}", layer.rate);
    if (!layer.body.empty()) out += ", body: " + list_text(layer.body);
    if (!layer.shortcut.empty()) out += ", shortcut: " + list_text(layer.shortcut);
    out += "}";
  }
  return "[" + out + "]";
}

Value layers_text(const model::Model& m) {
  return m.family == model::Family::custom ? list_text(m.layer_list) : std::string("[]");
}

}  // namespace

std::vector<Key> layer_keys() {
  constexpr double kMostTableRows = 2147483647;  // named by 32 bits
  const std::string_view custom = "custom";
  return {
      {.path = "model.features",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required without image and tokens",
       .min = 1,
       .max = 1 << 20,
       .families = custom,
       .meaning = "numbers of an example, where it is no image and no tokens",
       .example = "64",
       .related = "model.image model.layer_list",
       .field = &model::Model::features},
      {.path = "model.tokens",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required without image and features",
       .min = 1,
       .max = 1 << 20,
       .families = custom,
       .meaning = "tokens of an example, which a layer `embedding` reads; it has one target all the same",
       .example = "128",
       .related = "model.features model.layer_list",
       .field = &model::Model::tokens},
      {.path = "model.layer_list",
       .type = KeyType::mappings,
       .origin = Default::required,
       .families = custom,
       .meaning = "the layers, in their order; the last one's outputs are what `loss` is of. Each `linear`, "
                  "`convolution`, `residual`, `attention`, `embedding` or `tables` begins a part that a pipeline does "
                  "not cut",
       .example = "[{layer: linear, width: 128}, {layer: relu}, {layer: linear, width: 10}]",
       .related = "model.layer_list[].layer model.loss",
       .field = Field::shown<model::Model>(layers_text)},
      {.path = "model.layer_list[].layer",
       .type = KeyType::choice,
       .origin = Default::required,
       .values = {kLayerWords.begin(), kLayerWords.end()},
       .families = custom,
       .meaning =
           "`linear` (of features, or of each token; maps are flattened first), `convolution`, `batch_norm`, "
           "`layer_norm` (of features), `relu`, `gelu`, `tanh`, `sigmoid`, `silu`, `dropout`, `max_pool`, "
           "`average_pool` (the mean of each map, or of all tokens), `residual` (`body` and `shortcut`, added), "
           "`scale` (each map times the number that `body` makes for it of all maps: squeeze-and-excitation), "
           "`attention` (of tokens), `embedding` (a row of a table for each token), `tables` (behind the features, "
           "which are the first vector, one for each sparse feature: rows of its table, added), `pairs` (DLRM's "
           "interaction: the first vector and the products of every two), `flatten` (vectors in a row)",
       .example = "relu",
       .field = &model::Layer::kind},
      {.path = "model.layer_list[].width",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required of linear, convolution, embedding, tables",
       .min = 1,
       .max = 1 << 20,
       .families = custom,
       .meaning = "outputs of `linear`, output channels of `convolution`, columns of the tables of `embedding` and "
                  "`tables`",
       .example = "64",
       .field = &model::Layer::width},
      {.path = "model.layer_list[].kernel",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "3",
       .min = 1,
       .max = 63,
       .families = custom,
       .meaning = "width and height of the window of `convolution` and `max_pool`",
       .example = "5",
       .field = &model::Layer::kernel},
      {.path = "model.layer_list[].stride",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "1; max_pool: kernel",
       .min = 1,
       .max = 63,
       .families = custom,
       .meaning = "pixels from one window to the next",
       .example = "2",
       .field = &model::Layer::stride},
      {.path = "model.layer_list[].pad",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "kernel / 2, rounded down; max_pool: 0",
       .min = 0,
       .max = 63,
       .families = custom,
       .meaning = "pixels that windows reach beyond each side",
       .example = "0",
       .field = &model::Layer::pad},
      {.path = "model.layer_list[].groups",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "1",
       .min = 1,
       .max = 1 << 20,
       .families = custom,
       .meaning = "of `convolution`: equal groups of the maps that come in and of those that go out, each made of its "
                  "own alone; as many as maps is a depthwise one",
       .example = "32",
       .field = &model::Layer::groups},
      {.path = "model.layer_list[].bias",
       .type = KeyType::boolean,
       .origin = Default::derived,
       .fallback = "true",
       .families = custom,
       .meaning = "whether `linear`, `convolution` or the products of `attention` have one",
       .example = "false",
       .field = &model::Layer::bias},
      {.path = "model.layer_list[].rate",
       .type = KeyType::number,
       .origin = Default::derived,
       .fallback = "required of dropout",
       .min = 0,
       .max = 0.999,
       .families = custom,
       .meaning = "share of elements that `dropout` sets to zero",
       .example = "0.1",
       .field = &model::Layer::rate},
      {.path = "model.layer_list[].heads",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required of attention",
       .min = 1,
       .max = 1 << 16,
       .families = custom,
       .meaning = "of `attention`; divides the numbers of a token",
       .example = "8",
       .field = &model::Layer::heads},
      {.path = "model.layer_list[].kv_heads",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "heads",
       .min = 1,
       .max = 1 << 16,
       .families = custom,
       .meaning = "of `attention`: heads of keys and values",
       .example = "2",
       .field = &model::Layer::kv_heads},
      {.path = "model.layer_list[].causal",
       .type = KeyType::boolean,
       .origin = Default::derived,
       .fallback = "false",
       .families = custom,
       .meaning = "of `attention`: a token sees none behind it",
       .example = "true",
       .field = &model::Layer::causal},
      {.path = "model.layer_list[].vocab",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required of embedding",
       .min = 1,
       .max = kMostTableRows,
       .families = custom,
       .meaning = "different tokens, rows of the table of `embedding`",
       .example = "32000",
       .field = &model::Layer::vocab},
      {.path = "model.layer_list[].rows",
       .type = KeyType::integers,
       .origin = Default::derived,
       .fallback = "required of tables",
       .min = 1,
       .max = kMostTableRows,
       .families = custom,
       .item = "number of rows",
       .meaning = "of `tables`: rows of each sparse feature's table",
       .example = "[100000, 40, 7]",
       .field = &model::Layer::rows},
      {.path = "model.layer_list[].positions",
       .type = KeyType::boolean,
       .origin = Default::derived,
       .fallback = "false",
       .families = custom,
       .meaning = "whether `embedding` adds a row of a table of positions",
       .example = "true",
       .field = &model::Layer::positions},
      {.path = "model.layer_list[].lookups",
       .type = KeyType::integers,
       .origin = Default::derived,
       .fallback = "[1]",
       .min = 1,
       .max = 4096,
       .families = custom,
       .item = "number of look-ups",
       .meaning = "of `tables`: rows that an example looks up in each table; one number is that of all",
       .example = "[3, 1, 1]",
       .field = &model::Layer::lookups},
      {.path = "model.layer_list[].pooling",
       .type = KeyType::choice,
       .origin = Default::derived,
       .fallback = "sum",
       .values = {"sum", "mean"},
       .families = custom,
       .meaning = "of `tables`: what is made of the rows of one feature",
       .example = "mean",
       .field = &model::Layer::pooling},
      {.path = "model.layer_list[].body",
       .type = KeyType::free_list,
       .origin = Default::derived,
       .fallback = "required of residual, scale",
       .families = custom,
       .meaning = "layers whose output is added to the shortcut's; of `scale` those that make a number of each map",
       .example = "[{layer: relu}]"},
      {.path = "model.layer_list[].shortcut",
       .type = KeyType::free_list,
       .origin = Default::derived,
       .fallback = "what comes in",
       .families = custom,
       .meaning = "layers beside the body, such as a convolution where it changes the shape",
       .example = "[{layer: relu}]"},
  };
}

}  // namespace rehearse::plan::detail
