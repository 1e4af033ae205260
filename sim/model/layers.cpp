// Sums over a list of layers, and the residual networks as such lists.
#include "sim/model/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace rehearse::model {
namespace {

std::int64_t side_after(const Layer& layer, std::int64_t size) {
  return (size + 2 * layer.pad - layer.kernel) / layer.stride + 1;
}

bool is_product(LayerKind kind) {
  return kind == LayerKind::linear || kind == LayerKind::convolution || kind == LayerKind::residual ||
         kind == LayerKind::attention || kind == LayerKind::embedding || kind == LayerKind::tables;
}

// Calls `each` with every layer that has parameters or products and what comes into it.
template <class Each>
Extent over_layers(const std::vector<Layer>& list, Extent in, const Each& each) {
  for (const Layer& layer : list) {
    if (layer.kind == LayerKind::residual || layer.kind == LayerKind::scale) {
      over_layers(layer.body, in, each);
      over_layers(layer.shortcut, in, each);
    } else {
      each(layer, in);
    }
    in = extent_after(layer, in);
  }
  return in;
}

// Of queries, keys and values together.
std::int64_t qkv_width(const Layer& layer, Extent in) {
  return in.channels + 2 * layer.kv_heads * (in.channels / layer.heads);
}

// Attention's scores and their product with the values are counted in full, without a discount for the causal mask;
// pairs once each.
double multiply_adds_of(const Layer& layer, Extent in) {
  if (layer.kind == LayerKind::linear) return static_cast<double>(in.elements()) * static_cast<double>(layer.width);
  if (layer.kind == LayerKind::attention) {
    const auto tokens = static_cast<double>(in.vectors), width = static_cast<double>(in.channels);
    return tokens * width * (static_cast<double>(qkv_width(layer, in)) + width) + 2 * tokens * tokens * width;
  }
  if (layer.kind == LayerKind::pairs) {
    const std::int64_t pairs = in.vectors * (in.vectors - 1) / 2;
    return static_cast<double>(pairs) * static_cast<double>(in.channels);
  }
  if (layer.kind != LayerKind::convolution) return 0;
  const Extent out = extent_after(layer, in);
  const std::int64_t window = in.channels / layer.groups * layer.kernel * layer.kernel;
  return static_cast<double>(window) * static_cast<double>(out.elements());
}

std::string extent_text(Extent e) {
  if (e.ids) return fmt::format("the numbers of {} tokens", e.vectors);
  if (e.rows()) return fmt::format("{} vectors of {} numbers", e.vectors, e.channels);
  if (!e.maps()) return std::to_string(e.channels) + " features";
  return std::to_string(e.channels) + " maps of " + std::to_string(e.size) + "x" + std::to_string(e.size);
}

// Of the layers that read tokens or sparse features, or make vectors into features; and of all others before them.
std::string problem_of_vectors(const Layer& layer, Extent in) {
  const std::string comes = ", but what comes before gives " + extent_text(in);
  switch (layer.kind) {
    case LayerKind::embedding:
      return in.ids ? "" : "needs the numbers of tokens (model.tokens)" + comes;
    case LayerKind::attention:
      if (!in.rows() || in.ids) return "needs tokens, each with a vector" + comes;
      if (in.channels % layer.heads != 0)
        return fmt::format("{} numbers of a token do not divide by {} heads", in.channels, layer.heads);
      if (layer.heads % layer.kv_heads != 0)
        return fmt::format("{} heads do not divide by {} kv_heads", layer.heads, layer.kv_heads);
      return "";
    case LayerKind::tables:
      if (in.maps() || in.rows()) return "needs features" + comes;
      if (in.channels != layer.width)
        return fmt::format("needs {} features, as many as its vectors have (width){}", layer.width, comes);
      if (layer.lookups.size() != 1 && layer.lookups.size() != layer.rows.size())
        return fmt::format("{} numbers of look-ups are listed for {} tables: one, or one for each table",
                           layer.lookups.size(), layer.rows.size());
      return "";
    case LayerKind::pairs:
      return in.vectors > 1 && !in.ids ? "" : "needs two vectors or more" + comes;
    case LayerKind::flatten:
      return in.rows() && !in.ids ? "" : "needs vectors" + comes;
    case LayerKind::batch_norm:
      return in.rows() ? "needs maps or features" + comes : "";
    default:
      return in.ids ? "needs an embedding before it" + comes : "";
  }
}

// "; nearest that do: 4 and 8": numbers of groups that both divide into.
std::string nearest_groups(std::int64_t in, std::int64_t out, std::int64_t asked) {
  const std::int64_t most = std::gcd(in, out);
  std::int64_t below = 1, above = most;
  for (std::int64_t n = 1; n <= most; ++n) {
    if (most % n != 0) continue;
    if (n < asked) below = n;
    if (n > asked && n < above) above = n;
  }
  if (asked > most) below = most;
  return below == above || asked > most ? fmt::format("; nearest that do: {}", below)
                                        : fmt::format("; nearest that do: {} and {}", below, above);
}

std::string problem_of_scale(const Layer& layer, Extent in, const std::string& path) {
  if (layer.body.empty()) return path + ": a layer scale needs a body";
  if (const std::string inner = layers_problem(layer.body, in, path + ".body"); !inner.empty()) return inner;
  if (const Extent factors = extent_after(layer.body, in); factors != Extent{in.channels})
    return fmt::format("{}: the body gives {}; {} maps are scaled, by a number each", path, extent_text(factors),
                       in.channels);
  return "";
}

std::string problem_of(const Layer& layer, Extent in, const std::string& path) {
  if (const std::string problem = problem_of_vectors(layer, in); !problem.empty()) return path + ": " + problem;
  const bool maps_only = layer.kind == LayerKind::convolution || layer.kind == LayerKind::max_pool ||
                         layer.kind == LayerKind::scale || (layer.kind == LayerKind::average_pool && !in.rows());
  if (maps_only && !in.maps()) return path + ": needs maps, but what comes before gives " + extent_text(in);
  if (layer.kind == LayerKind::layer_norm && in.maps())
    return path + ": needs features, but what comes before gives " + std::to_string(in.channels) + " maps";
  if (layer.kind == LayerKind::convolution || layer.kind == LayerKind::max_pool) {
    if (layer.kernel > in.size + 2 * layer.pad)
      return path + ": a window of " + std::to_string(layer.kernel) + " is larger than the " + std::to_string(in.size) +
             "x" + std::to_string(in.size) + " map with its padding of " + std::to_string(layer.pad);
    if (layer.kind == LayerKind::max_pool && 2 * layer.pad > layer.kernel)
      return path + ": padding of " + std::to_string(layer.pad) + " is more than half of the window of " +
             std::to_string(layer.kernel);
  }
  if (layer.kind == LayerKind::convolution && (in.channels % layer.groups != 0 || layer.width % layer.groups != 0))
    return fmt::format("{}: {} maps to {} do not divide into {} groups{}", path, in.channels, layer.width, layer.groups,
                       nearest_groups(in.channels, layer.width, layer.groups));
  if (layer.kind == LayerKind::scale) return problem_of_scale(layer, in, path);
  if (layer.kind != LayerKind::residual) return "";
  if (layer.body.empty()) return path + ": a residual layer needs a body";
  if (const std::string inner = layers_problem(layer.body, in, path + ".body"); !inner.empty()) return inner;
  if (const std::string inner = layers_problem(layer.shortcut, in, path + ".shortcut"); !inner.empty()) return inner;
  const Extent body = extent_after(layer.body, in), shortcut = extent_after(layer.shortcut, in);
  if (body != shortcut)
    return path + ": the body gives " + extent_text(body) + ", the shortcut " + extent_text(shortcut) +
           "; they are added";
  if (tables_of(layer.body) != nullptr || tables_of(layer.shortcut) != nullptr)
    return path + ": sparse features are looked up in the list itself, not in a residual layer";
  return "";
}

}  // namespace

Extent extent_after(const Layer& layer, Extent in) {
  switch (layer.kind) {
    case LayerKind::linear:
    case LayerKind::embedding:
      return {layer.width, 0, in.vectors};
    case LayerKind::tables:
      return {layer.width, 0, 1 + static_cast<std::int64_t>(layer.rows.size())};
    case LayerKind::pairs:
      return {in.channels + in.vectors * (in.vectors - 1) / 2, 0};
    case LayerKind::flatten:
      return {in.elements(), 0};
    case LayerKind::convolution:
      return {layer.width, side_after(layer, in.size)};
    case LayerKind::max_pool:
      return {in.channels, side_after(layer, in.size)};
    case LayerKind::average_pool:
      return {in.channels, 0};
    case LayerKind::residual:
      return extent_after(layer.body, in);
    case LayerKind::batch_norm:
    case LayerKind::layer_norm:
    case LayerKind::relu:
    case LayerKind::gelu:
    case LayerKind::tanh:
    case LayerKind::dropout:
    case LayerKind::attention:
    case LayerKind::sigmoid:
    case LayerKind::silu:
    case LayerKind::scale:
      return in;
  }
  return in;
}

Extent extent_after(const std::vector<Layer>& list, Extent in) {
  for (const Layer& layer : list) in = extent_after(layer, in);
  return in;
}

std::string layers_problem(const std::vector<Layer>& list, Extent in, const std::string& path) {
  bool tables = false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind == LayerKind::tables && std::exchange(tables, true))
      return path + "[" + std::to_string(i) + "]: a list has its sparse features in one layer";
    const std::string problem = problem_of(list[i], in, path + "[" + std::to_string(i) + "]");
    if (!problem.empty()) return problem;
    in = extent_after(list[i], in);
  }
  return "";
}

std::int64_t table_parameters(const std::vector<Layer>& list, Extent in) {
  std::int64_t sum = 0;
  over_layers(list, in, [&](const Layer& layer, Extent x) {
    if (layer.kind == LayerKind::embedding) sum += (layer.vocab + (layer.positions ? x.vectors : 0)) * layer.width;
    for (const std::int64_t rows : layer.rows) sum += rows * layer.width;
  });
  return sum;
}

std::int64_t layer_parameters(const std::vector<Layer>& list, Extent in) {
  std::int64_t sum = table_parameters(list, in);
  over_layers(list, in, [&](const Layer& layer, Extent x) {
    const std::int64_t bias = layer.bias ? layer.width : 0, in_a_row = x.rows() ? x.channels : x.elements();
    if (layer.kind == LayerKind::linear) sum += in_a_row * layer.width + bias;
    if (layer.kind == LayerKind::attention)
      sum += (x.channels + (layer.bias ? 1 : 0)) * (qkv_width(layer, x) + x.channels);
    if (layer.kind == LayerKind::convolution)
      sum += x.channels / layer.groups * layer.kernel * layer.kernel * layer.width + bias;
    if (layer.kind == LayerKind::batch_norm || layer.kind == LayerKind::layer_norm) sum += 2 * x.channels;
  });
  return sum;
}

double layer_multiply_adds(const std::vector<Layer>& list, Extent in) {
  double sum = 0;
  over_layers(list, in, [&](const Layer& layer, Extent x) { sum += multiply_adds_of(layer, x); });
  return sum;
}

double first_multiply_adds(const std::vector<Layer>& list, Extent in) {
  double first = 0;
  bool table = false;  // whose rows' gradients are asked for
  over_layers(list, in, [&](const Layer& layer, Extent x) {
    table = table || layer.kind == LayerKind::embedding || layer.kind == LayerKind::tables;
    if (first == 0 && !table) first = multiply_adds_of(layer, x);
  });
  return first;
}

const Layer* tables_of(const std::vector<Layer>& list) {
  for (const Layer& layer : list) {
    if (layer.kind == LayerKind::tables) return &layer;
    for (const auto* inner : {&layer.body, &layer.shortcut})
      if (const Layer* found = tables_of(*inner); found != nullptr) return found;
  }
  return nullptr;
}

bool ends_in_batch_norm(const Layer& layer) {
  return layer.kind == LayerKind::residual && !layer.body.empty() && layer.body.back().kind == LayerKind::batch_norm;
}

std::vector<std::size_t> unit_starts(const std::vector<Layer>& list) {
  std::vector<std::size_t> starts;
  bool product = false;  // in the unit that is open
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool another = is_product(list[i].kind);
    if (i == 0 || (another && product)) starts.push_back(i);
    product = i == 0 ? another : product || another;
  }
  return starts;
}

std::vector<Layer> unit_layers(const std::vector<Layer>& list, std::size_t unit) {
  const std::vector<std::size_t> starts = unit_starts(list);
  const auto at = [&](std::size_t i) {
    return list.begin() + static_cast<std::ptrdiff_t>(i < starts.size() ? starts[i] : list.size());
  };
  return {at(unit), at(unit + 1)};
}

namespace {

Layer conv(std::int64_t width, std::int64_t kernel, std::int64_t stride, std::int64_t groups = 1) {
  Layer layer{LayerKind::convolution, width, kernel, stride, kernel / 2, false};
  layer.groups = groups;
  return layer;
}

// Of `maps`, with biases; the scale's body.
Layer squeeze_and_excitation(std::int64_t maps, std::int64_t width) {
  Layer layer{LayerKind::scale};
  layer.body = {{LayerKind::average_pool},
                {LayerKind::linear, width},
                {LayerKind::relu},
                {LayerKind::linear, maps},
                {LayerKind::sigmoid}};
  return layer;
}

Layer residual_block(const ResidualShape& shape, std::int64_t in, std::int64_t width, std::int64_t stride) {
  const Layer norm{LayerKind::batch_norm}, relu{LayerKind::relu};
  Layer layer{LayerKind::residual};
  const bool basic = shape.block == ResidualBlock::basic;
  const std::int64_t out = basic ? width : 4 * width, inner = shape.groups * (shape.group_width * width / 64);
  if (basic)
    layer.body = {conv(width, 3, stride), norm, relu, conv(width, 3, 1), norm};
  else
    layer.body = {conv(inner, 1, 1), norm, relu, conv(inner, 3, stride, shape.groups), norm, relu,
                  conv(out, 1, 1),   norm};
  if (shape.squeeze_ratio > 0 || shape.squeeze_width > 0)
    layer.body.push_back(squeeze_and_excitation(
        out, shape.squeeze_width > 0 ? shape.squeeze_width : std::max<std::int64_t>(1, out / shape.squeeze_ratio)));
  if (stride != 1 || in != out) layer.shortcut = {conv(out, 1, stride), norm};
  return layer;
}

}  // namespace

std::vector<Layer> residual_network(const ResidualShape& shape) {
  const Layer relu{LayerKind::relu};
  std::vector<Layer> list = {conv(64, 7, 2), {LayerKind::batch_norm}, relu, {LayerKind::max_pool, 0, 3, 2, 1}};
  std::int64_t in = 64, width = 64;
  for (std::size_t stage = 0; stage < shape.blocks.size(); ++stage, width *= 2) {
    for (std::int64_t i = 0; i < shape.blocks[stage]; ++i) {
      list.push_back(residual_block(shape, in, width, stage > 0 && i == 0 ? 2 : 1));
      list.push_back(relu);
      in = shape.block == ResidualBlock::basic ? width : 4 * width;
    }
  }
  list.push_back({LayerKind::average_pool});
  list.push_back({LayerKind::linear, shape.classes});
  return list;
}

}  // namespace rehearse::model
