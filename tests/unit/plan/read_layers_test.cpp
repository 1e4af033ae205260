// A model of the user's own: what a list of layers says, its defaults, and what is wrong with one.
#include "sim/plan/read_layers.h"

#include <gtest/gtest.h>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using model::LayerKind;

std::string custom(const std::string& input, const std::string& list) {
  return "rehearse: 1\nname: n\nmodel: {family: custom, " + input + ", layer_list: [" + list + "]}\n";
}

std::string problem_of(const std::string& input, const std::string& list) {
  try {
    read(custom(input, list));
  } catch (const InputError& error) {
    return error.diagnostics().front().text();
  }
  return "";
}

TEST(LayerList, DefaultsAreThoseOfTorch) {
  const model::Model m = read(custom("image: {channels: 3, size: 32}",
                                     "{layer: convolution, width: 8, stride: 2}, {layer: max_pool, kernel: 2}, "
                                     "{layer: linear, width: 10, bias: false}"))
                             .model;
  ASSERT_EQ(m.layer_list.size(), 3u);
  const model::Layer &conv = m.layer_list[0], &pool = m.layer_list[1];
  EXPECT_EQ(std::tie(conv.kernel, conv.stride, conv.pad, conv.bias), std::make_tuple(3, 2, 1, true));
  EXPECT_EQ(std::tie(pool.kernel, pool.stride, pool.pad), std::make_tuple(2, 2, 0));
  EXPECT_EQ(model::parameter_count(m), 8 * 27 + 8 + 8 * 8 * 8 * 10);
}

// A residual network written out is the network.
TEST(LayerList, WrittenOutIsTheResidualNetwork) {
  const std::string block =
      "{layer: convolution, width: W, stride: S, bias: false}, {layer: batch_norm}, {layer: relu}, "
      "{layer: convolution, width: W, bias: false}, {layer: batch_norm}";
  const auto with = [&](const char* width, const char* stride) {
    std::string text = block;
    for (const auto& [from, to] : {std::pair{"W", width}, {"S", stride}})
      for (std::size_t i; (i = text.find(std::string(": ") + from)) != std::string::npos;) text.replace(i + 2, 1, to);
    return text;
  };
  const model::Model m =
      read(
          custom(
              "image: {channels: 3, size: 32}",
              "{layer: convolution, width: 64, kernel: 7, stride: 2, bias: false}, {layer: batch_norm}, {layer: relu}, "
              "{layer: max_pool, stride: 2, pad: 1}, {layer: residual, body: [" +
                  with("64", "1") + "]}, {layer: relu}, {layer: residual, body: [" + with("128", "2") +
                  "], shortcut: [{layer: convolution, width: 128, kernel: 1, stride: 2, bias: false}, {layer: "
                  "batch_norm}]}, {layer: relu}, {layer: average_pool}, {layer: linear, width: 10}"))
          .model;
  const auto network = model::residual_network(model::ResidualBlock::basic, {1, 1}, 10);
  ASSERT_EQ(m.layer_list.size(), network.size());
  EXPECT_EQ(model::unit_starts(m.layer_list), model::unit_starts(network));
  EXPECT_EQ(model::unit_starts(network).size(), 4u);
  EXPECT_EQ(model::parameter_count(m), model::layer_parameters(network, {3, 32}));
  EXPECT_EQ(model::layer_multiply_adds(m.layer_list, {3, 32}), model::layer_multiply_adds(network, {3, 32}));
}

TEST(LayerList, SaysWhatIsWrongAndWhere) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << ": " << part;
  };
  has(problem_of("features: 8", "{layer: linaer, width: 8}"), "did you mean 'linear'?");
  has(problem_of("features: 8", "{layer: linear}"), "layer_list[0].width: required key is missing");
  has(problem_of("features: 8", "{layer: relu, width: 8}"), "a layer relu has no width");
  has(problem_of("features: 8", "{layer: convolution, width: 8}"),
      "needs maps, but what comes before gives 8 features");
  has(problem_of("image: {channels: 1, size: 4}", "{layer: max_pool, kernel: 5}"), "larger than the 4x4 map");
  has(problem_of("image: {channels: 1, size: 4}", "{layer: convolution, width: 3}"), "gives maps");
  has(problem_of("features: 8", "{layer: residual, body: [{layer: linear, width: 4}]}"),
      "the body gives 4 features, the shortcut 8 features");
  has(problem_of("features: 8", "{layer: relu}"), "none of the layers multiplies");
  has(problem_of("features: 8, image: {channels: 1, size: 4}", "{layer: linear, width: 4}"),
      "one of image and features");
  has(problem_of("features: 8", "{layer: linear, width: 1}"), "one class leaves nothing to learn");
}

}  // namespace
}  // namespace rehearse::plan
