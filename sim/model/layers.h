// Layers of a model that is given as a list of them: shapes, parameters and multiply-adds of one example. A list is run
// in its order; a residual layer adds two lists' outputs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::model {

enum class LayerKind : unsigned char {
  linear,        // of features, or of each token; maps are flattened before it
  convolution,   // of maps
  batch_norm,    // of each channel of maps, over examples and pixels; of each feature, over examples
  layer_norm,    // of each example's features
  relu,          // these act on every element
  gelu,          // tanh form
  tanh,          //
  dropout,       // of each feature or pixel
  max_pool,      // of maps; padding never is the largest
  average_pool,  // of maps, over all of their pixels: features
  residual,      // body(x) + shortcut(x); without a shortcut body(x) + x
  attention,     // of tokens: queries, keys and values, heads, projection
  embedding,     // a row of a table for each token, perhaps with a learned position added
  tables,        // features before the vectors that sparse features look up
  pairs,         // of an example's vectors: the first, and the products of every two
  flatten,       // of an example's vectors or tokens: all of them in a row, features
  sigmoid,       // these two act on every element
  silu,          // x sigmoid(x)
  scale          // each map times a number of its own, which the body makes of all maps
};

// What is made of the rows that a sparse feature looks up.
enum class Pooling : unsigned char { sum, mean };

// How maps lie in memory: the channels of a pixel together, or the pixels of a channel; or the first in 16 bits alone.
// What it costs is the framework's and the library's; the result is the same.
enum class MapLayout : unsigned char { channels_last, channels_first, channels_last_16bit };
inline constexpr std::array<std::string_view, 3> kMapLayoutNames = {"channels_last", "channels_first",
                                                                    "channels_last_16bit"};

struct Layer {
  LayerKind kind = LayerKind::linear;
  std::int64_t width = 0;                        // linear: outputs; convolution: output channels
  std::int64_t kernel = 1, stride = 1, pad = 0;  // convolution, max_pool
  bool bias = true;                              // linear, convolution
  double rate = 0;                               // dropout: share of elements set to zero
  std::vector<Layer> body = {}, shortcut = {};   // residual; body: scale too
  std::int64_t heads = 0, kv_heads = 0;          // attention
  bool causal = false;                           // attention: a token sees none behind it
  std::int64_t vocab = 0;                        // embedding: rows of its table
  bool positions = false;                        // embedding: a table of positions is added
  // tables: rows of each sparse feature's table, and how many of them an example looks up (one number: as many of
  // each).
  std::vector<std::int64_t> rows = {}, lookups = {1};
  Pooling pooling = Pooling::sum;
  // convolution: the maps that come in and those that go out are in so many equal groups, each made of its own alone.
  std::int64_t groups = 1;

  std::int64_t lookups_of(std::size_t feature) const { return lookups[lookups.size() == 1 ? 0 : feature]; }
};

// What one example is between layers: maps of channels x size x size, or with size = 0 `channels` features, or with
// `vectors` as many vectors (or tokens) of `channels`; or of as many tokens their numbers alone.
struct Extent {
  std::int64_t channels = 0, size = 0, vectors = 0;
  bool ids = false;

  bool maps() const { return size > 0; }
  bool rows() const { return vectors > 0; }
  std::int64_t pixels() const { return maps() ? size * size : rows() ? vectors : 1; }
  std::int64_t elements() const { return channels * pixels(); }
  friend bool operator==(const Extent&, const Extent&) = default;
};

// What a layer, or a list of them, makes of `in`. Outputs of a convolution or pooling along a side:
// floor((size + 2 pad - kernel) / stride) + 1.
Extent extent_after(const Layer& layer, Extent in);
Extent extent_after(const std::vector<Layer>& list, Extent in);
// Why layers cannot take what comes before them: "layer_list[2].body[0]: ..." with `path` in front; "" if they can.
std::string layers_problem(const std::vector<Layer>& list, Extent in, const std::string& path);

std::int64_t layer_parameters(const std::vector<Layer>& list, Extent in);
// Of these, those of embeddings and sparse features' tables.
std::int64_t table_parameters(const std::vector<Layer>& list, Extent in);
// Of the forward pass of one example: products of convolutions and linear layers.
double layer_multiply_adds(const std::vector<Layer>& list, Extent in);
// Of the first product of the list, whose input asks for no gradient where the list is a whole model.
double first_multiply_adds(const std::vector<Layer>& list, Extent in);

// The layer of sparse features, of which a list has one at most; nullptr: it has none.
const Layer* tables_of(const std::vector<Layer>& list);

// A residual layer whose body's last layer is batch normalisation.
bool ends_in_batch_norm(const Layer& layer);

// Of a list: where each unit begins that a pipeline cuts between. A unit is a product or a residual layer and what
// follows it of the others.
std::vector<std::size_t> unit_starts(const std::vector<Layer>& list);
// The layers of unit `unit`.
std::vector<Layer> unit_layers(const std::vector<Layer>& list, std::size_t unit);

// Residual networks (He et al. 2015, arXiv 1512.03385, table 1), with the stride of a bottleneck in its 3x3 convolution
// as torchvision's resnet.py and NVIDIA's "v1.5" have it. basic: two 3x3 convolutions of `width` channels (ResNet-18,
// -34); bottleneck: 1x1, 3x3, 1x1 of four times as many channels (-50, -101, -152). A shortcut is a 1x1 convolution
// where size or channels change. Convolutions have no bias; each is followed by batch normalisation.
enum class ResidualBlock : unsigned char { none, basic, bottleneck };
struct ResidualShape {
  ResidualBlock block = ResidualBlock::none;
  std::vector<std::int64_t> blocks = {};  // of each stage
  std::int64_t classes = 0;
  // The 3x3 convolution of a bottleneck is of so many groups and of groups * group_width * width / 64 channels (Xie et
  // al. 2017, arXiv 1611.05431, table 1; torchvision's groups and width_per_group).
  std::int64_t groups = 1, group_width = 64;
  // Squeeze-and-excitation (Hu et al. 2018, arXiv 1709.01507, figure 3) behind the last convolution of a block: two
  // linear layers with ReLU between, the first of as many outputs as there are maps over squeeze_ratio, or of
  // squeeze_width; both 0: there is none.
  std::int64_t squeeze_ratio = 0, squeeze_width = 0;
};
// The stem (7x7 of stride 2, max pooling 3x3 of stride 2), `blocks[i]` blocks of width 64 x 2^i each, the first of
// every stage but the first with stride 2, the mean of each channel, and one linear layer to `classes`.
std::vector<Layer> residual_network(const ResidualShape& shape);

}  // namespace rehearse::model
