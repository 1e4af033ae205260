// See read_layers.h.
#include "sim/plan/read_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/plan/read_keys.h"

namespace rehearse::plan::detail {
namespace {

using model::Layer;
using model::LayerKind;

constexpr int kDeepest = 8;
constexpr std::size_t kMostLayers = 1000;
constexpr const char* kListExample = "e.g. '[{layer: linear, width: 128}, {layer: relu}, {layer: linear, width: 10}]'";

// Which kinds have which keys.
struct KeyOfKinds {
  std::string_view key;
  std::vector<LayerKind> kinds;
  bool required;
};
const std::vector<KeyOfKinds>& keys_of_kinds() {
  static const std::vector<KeyOfKinds> all = {
      {"width", {LayerKind::linear, LayerKind::convolution, LayerKind::embedding, LayerKind::tables}, true},
      {"kernel", {LayerKind::convolution, LayerKind::max_pool}, false},
      {"stride", {LayerKind::convolution, LayerKind::max_pool}, false},
      {"pad", {LayerKind::convolution, LayerKind::max_pool}, false},
      {"bias", {LayerKind::linear, LayerKind::convolution, LayerKind::attention}, false},
      {"rate", {LayerKind::dropout}, true},
      {"groups", {LayerKind::convolution}, false},
      {"body", {LayerKind::residual, LayerKind::scale}, true},
      {"shortcut", {LayerKind::residual}, false},
      {"heads", {LayerKind::attention}, true},
      {"kv_heads", {LayerKind::attention}, false},
      {"causal", {LayerKind::attention}, false},
      {"vocab", {LayerKind::embedding}, true},
      {"rows", {LayerKind::tables}, true},
      {"positions", {LayerKind::embedding}, false},
      {"lookups", {LayerKind::tables}, false},
      {"pooling", {LayerKind::tables}, false},
  };
  return all;
}

Layer read_layer(const Node& item, int depth) {
  Layer layer;
  layer.kernel = 3;
  layer.stride = layer.pad = -1;
  if (item.kind() != Node::Kind::mapping) {
    item.error("expected a mapping", "e.g. '{layer: relu}'");
    return layer;
  }
  read_keys(item, "model.layer_list[].", layer);
  const bool pools = layer.kind == LayerKind::max_pool;
  if (layer.stride < 0) layer.stride = pools ? layer.kernel : 1;
  if (layer.pad < 0) layer.pad = pools ? 0 : layer.kernel / 2;
  if (layer.kv_heads == 0) layer.kv_heads = layer.heads;
  const Node body = item.get("body"), shortcut = item.get("shortcut");
  if (body && takes(layer.kind, "body")) layer.body = read_layers(body, depth + 1);
  if (shortcut && takes(layer.kind, "shortcut")) layer.shortcut = read_layers(shortcut, depth + 1);
  item.finish();
  // Of a layer nobody knows, no key can be called wrong.
  const std::string word = item.get("layer").as_text().value_or("");
  if (std::find(kLayerWords.begin(), kLayerWords.end(), word) == kLayerWords.end()) return layer;
  for (const KeyOfKinds& each : keys_of_kinds()) {
    const bool its = takes(layer.kind, each.key);
    if (item.has(each.key) && !its)
      item.get(each.key).error(fmt::format("a layer {} has no {}", layer_word(layer.kind), each.key), "leave it out");
    if (!item.has(each.key) && its && each.required)
      item.get(each.key).error(fmt::format("required key is missing: of a layer {}", layer_word(layer.kind)));
  }
  return layer;
}

}  // namespace

std::string_view layer_word(LayerKind kind) {
  return kLayerWords[static_cast<std::size_t>(kind)];
}

bool takes(LayerKind kind, std::string_view key) {
  const auto found = std::find_if(keys_of_kinds().begin(), keys_of_kinds().end(),
                                  [&](const KeyOfKinds& each) { return each.key == key; });
  return found != keys_of_kinds().end() &&
         std::find(found->kinds.begin(), found->kinds.end(), kind) != found->kinds.end();
}

std::vector<Layer> read_layers(const Node& list, int depth) {
  std::vector<Layer> out;
  if (list.kind() != Node::Kind::sequence || list.size() < 1 || list.size() > kMostLayers) {
    list.error(fmt::format("expected a list of 1 to {} layers", kMostLayers), kListExample);
    return out;
  }
  if (depth > kDeepest) {
    list.error(fmt::format("lists of layers within layers more than {} deep", kDeepest));
    return out;
  }
  for (std::size_t i = 0; i < list.size(); ++i) out.push_back(read_layer(list.at(i), depth));
  return out;
}

void read_convolutions(const Node& list, model::Model& model) {
  if (list.size() < 1 || list.size() > kMostLayers) {
    list.error(fmt::format("expected a list of 1 to {} convolutions", kMostLayers),
               "e.g. 'convolutions: [{channels: 64, kernel: 3, pool: 2}]'");
    return;
  }
  std::int64_t size = model.image_size;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node item = list.at(i);
    model::ConvLayer layer;
    read_keys(item, "model.convolutions[].", layer);
    item.finish();
    if (layer.kernel % 2 == 0) {
      item.get("kernel").error(
          fmt::format("{} is even; only an odd kernel can be padded to keep the size", layer.kernel));
    }
    if (size > 0 && layer.pool > size) {
      item.get("pool").error(
          fmt::format("the window of {} is larger than the {}x{} map it pools", layer.pool, size, size));
    }
    size /= layer.pool;
    model.convolutions.push_back(layer);
  }
}

}  // namespace rehearse::plan::detail
