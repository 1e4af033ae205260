// The keys of a model of the user's own, a list of layers; see key_table_model.cpp.
#include <fmt/format.h>

#include "sim/model/model.h"
#include "sim/plan/keys.h"
#include "sim/plan/read_layers.h"

namespace rehearse::plan::detail {

namespace {

std::string list_text(const std::vector<model::Layer>& list) {
  std::string out;
  for (const model::Layer& layer : list) {
    const std::string_view word = layer_word(layer.kind);
    out += fmt::format("{}{{layer: {}", out.empty() ? "" : ", ", word);
    if (takes(layer.kind, "width")) out += fmt::format(", width: {}", layer.width);
    if (takes(layer.kind, "kernel"))
      out += fmt::format(", kernel: {}, stride: {}, pad: {}", layer.kernel, layer.stride, layer.pad);
    if (takes(layer.kind, "bias") && !layer.bias) out += ", bias: false";
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
  const std::string_view custom = "custom";
  return {
      {.path = "model.features",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required without image",
       .min = 1,
       .max = 1 << 20,
       .families = custom,
       .meaning = "numbers of an example, where it is no image",
       .example = "64",
       .related = "model.image model.layer_list",
       .field = &model::Model::features},
      {.path = "model.layer_list",
       .type = KeyType::mappings,
       .origin = Default::required,
       .families = custom,
       .meaning = "the layers, in their order; the last one's outputs are what `loss` is of. Each `linear`, "
                  "`convolution` or `residual` begins a part that a pipeline does not cut",
       .example = "[{layer: linear, width: 128}, {layer: relu}, {layer: linear, width: 10}]",
       .related = "model.layer_list[].layer model.loss",
       .field = Field::shown<model::Model>(layers_text)},
      {.path = "model.layer_list[].layer",
       .type = KeyType::choice,
       .origin = Default::required,
       .values = {kLayerWords.begin(), kLayerWords.end()},
       .families = custom,
       .meaning =
           "`linear` (maps are flattened first), `convolution`, `batch_norm`, `layer_norm` (of features), `relu`, "
           "`gelu`, `tanh`, `dropout`, `max_pool`, `average_pool` (the mean of each map), `residual` (`body` and "
           "`shortcut`, added)",
       .example = "relu",
       .field = &model::Layer::kind},
      {.path = "model.layer_list[].width",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required of linear, convolution",
       .min = 1,
       .max = 1 << 20,
       .families = custom,
       .meaning = "outputs of `linear`, output channels of `convolution`",
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
      {.path = "model.layer_list[].bias",
       .type = KeyType::boolean,
       .origin = Default::derived,
       .fallback = "true",
       .families = custom,
       .meaning = "whether `linear` or `convolution` has one",
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
      {.path = "model.layer_list[].body",
       .type = KeyType::free_list,
       .origin = Default::derived,
       .fallback = "required of residual",
       .families = custom,
       .meaning = "layers whose output is added to the shortcut's",
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
