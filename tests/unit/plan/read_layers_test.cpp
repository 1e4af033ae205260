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
  const auto network = model::residual_network({model::ResidualBlock::basic, {1, 1}, 10});
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
      "one of image, features and tokens");
  has(problem_of("features: 8", "{layer: linear, width: 1}"), "one class leaves nothing to learn");
}

// Of 6 tokens of 16 numbers: a table 50 x 16 and one of positions 6 x 16; queries 16, keys and values 2 heads of 4
// each: (16 + 1) 32, projection (16 + 1) 16; norm 2 x 16; to 3 classes (16 + 1) 3.
TEST(LayerList, ReadsTokensAndAttends) {
  const model::Model m =
      read(custom("tokens: 6",
                  "{layer: embedding, vocab: 50, width: 16, positions: true}, {layer: layer_norm}, {layer: attention, "
                  "heads: 4, kv_heads: 2, causal: true}, {layer: average_pool}, {layer: linear, width: 3}"))
          .model;
  EXPECT_EQ(model::parameter_count(m), 50 * 16 + 6 * 16 + 32 + 17 * 32 + 17 * 16 + 17 * 3);
  const double forward = 6 * 16 * (32 + 16) + 2 * 6 * 6 * 16 + 16 * 3;
  EXPECT_DOUBLE_EQ(model::model_flops(m, 5, 1), 2 * 5 * 3 * forward) << "the rows of the table need gradients too";
  EXPECT_TRUE(m.layer_list[2].causal);
  EXPECT_EQ(m.layer_list[2].kv_heads, 2);
}

// The tables of MLPerf's DLRM v2 and its widths, with pairs: 204,184,588 rows of 128; 27 vectors make 351 pairs, so
// that the upper layers read 479 numbers (arXiv 1906.00091).
TEST(LayerList, CountsARecommender) {
  const model::Model m =
      read_scenario(REHEARSE_SOURCE_DIR "/scenarios/dlrm-criteo-8xa100.yaml", {}, REHEARSE_SOURCE_DIR).model;
  const std::int64_t bottom = 14 * 512 + 513 * 256 + 257 * 128;
  const std::int64_t top = 480 * 1024 + 1025 * 1024 + 1025 * 512 + 513 * 256 + 257;
  EXPECT_EQ(model::parameter_count(m), 204184588LL * 128 + bottom + top);
  const double products =
      13 * 512 + 512 * 256 + 256 * 128 + 351 * 128 + 479 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256;
  EXPECT_DOUBLE_EQ(model::model_flops(m, 7, 1), 2 * 7 * (3 * products - 13 * 512));
}

// Squeeze-and-excitation and groups: parameters, and what is wrong with either.
TEST(LayerList, GroupsAndScales) {
  const std::string image = "image: {channels: 6, size: 8}", end = ", {layer: average_pool}, {layer: linear, width: 2}",
                    body = "{layer: average_pool}, {layer: linear, width: 3}, {layer: silu}, {layer: linear, width: ";
  const std::string conv = "{layer: convolution, width: 12, groups: 3, bias: false}, ",
                    scale = "{layer: scale, body: [" + body + "12}, {layer: sigmoid}]}";
  const model::Model m = read(custom(image, conv + scale + end)).model;
  ASSERT_EQ(m.layer_list.size(), 4u);
  EXPECT_EQ(m.layer_list[0].groups, 3);
  EXPECT_EQ(m.layer_list[1].body.size(), 5u);
  const std::int64_t products = 12 * 2 * 9 * 64, squeeze = 12 * 3 + 3 * 12;
  EXPECT_EQ(model::parameter_count(m), 12 * 2 * 9 + squeeze + 3 + 12 + 12 * 2 + 2);
  EXPECT_DOUBLE_EQ(model::layer_multiply_adds(m.layer_list, m.input()), products + squeeze + 12 * 2);
  EXPECT_EQ(model::unit_starts(m.layer_list), (std::vector<std::size_t>{0, 3})) << "a scale is no cut";
  const auto expect = [&](const std::string& list, const char* problem) {
    EXPECT_NE(problem_of(image, list + end).find(problem), std::string::npos) << problem_of(image, list + end);
  };
  expect("{layer: convolution, width: 12, groups: 4}",
         "layer_list[0]: 6 maps to 12 do not divide into 4 groups; nearest that do: 3 and 6");
  expect("{layer: convolution, width: 12, groups: 9}", "; nearest that do: 6");
  expect("{layer: scale, body: [" + body + "5}]}",
         "layer_list[0]: the body gives 5 features; 6 maps are scaled, by a number each");
  expect("{layer: scale, body: [{layer: convolution, width: 6}]}", "the body gives 6 maps of 8x8; 6 maps are scaled");
  expect("{layer: scale}", "required key is missing: of a layer scale");
  expect("{layer: relu, groups: 2}", "a layer relu has no groups");
  expect("{layer: scale, shortcut: [{layer: relu}], body: [" + body + "6}]}", "a layer scale has no shortcut");
}

// The 3x3 convolution of a block of the second stage: 8 groups of 2 x 4 maps; the scale behind its last convolution.
TEST(ResidualNetwork, HasGroupsAndScalesBehindItsBlocks) {
  const auto of = [](const std::string& more) {
    return "rehearse: 1\nname: n\nmodel: {family: cnn, image: {channels: 3, size: 32}, widths: [10], " + more + "}\n";
  };
  const auto problem = [&](const std::string& more) -> std::string {
    try {
      read(of(more));
    } catch (const InputError& error) {
      return error.diagnostics().front().text();
    }
    return "";
  };
  const std::string blocks = "residual_block: bottleneck, residual_layers: [1, 1], ";
  const model::Model m = read(of(blocks + "residual_groups: 8, residual_group_width: 4, squeeze_ratio: 16")).model;
  const model::Layer& second = m.layer_list[6];
  ASSERT_EQ(second.body.size(), 9u);
  EXPECT_EQ(std::tie(second.body[3].width, second.body[3].groups), std::make_tuple(64, 8));
  EXPECT_EQ(std::tie(second.body[0].groups, second.body[6].groups), std::make_tuple(1, 1));
  ASSERT_EQ(second.body[8].kind, LayerKind::scale);
  EXPECT_EQ(second.body[8].body[1].width, 512 / 16);
  EXPECT_EQ(second.body[8].body[3].width, 512);
  const model::Model fixed = read(of(blocks + "squeeze_width: 16")).model;
  EXPECT_EQ(fixed.layer_list[4].body.back().body[1].width, 16);
  const auto expect = [&](const std::string& more, const char* text) {
    EXPECT_NE(problem(more).find(text), std::string::npos) << problem(more);
  };
  expect("convolutions: [{channels: 8}], residual_groups: 2", "residual_groups: this model has no residual blocks");
  expect("convolutions: [{channels: 8}], squeeze_width: 2", "squeeze_width: this model has no residual blocks");
  expect("residual_block: basic, residual_layers: [1], residual_group_width: 4", "a basic block has no groups");
  expect(blocks + "squeeze_ratio: 16, squeeze_width: 16", "squeeze_ratio says already how many outputs");
}

TEST(LayerList, VectorsWithoutALayerForThemAreProblems) {
  const std::string tables = "{layer: tables, width: 8, rows: [4, 5]}", linear = "{layer: linear, width: 1}";
  EXPECT_NE(
      problem_of("features: 7", tables + ", {layer: pairs}, " + linear)
          .find("layer_list[0]: needs 8 features, as many as its vectors have (width), but what comes before gives "
                "7 features"),
      std::string::npos)
      << problem_of("features: 7", tables + ", {layer: pairs}, " + linear);
  EXPECT_NE(problem_of("features: 8", tables + ", " + linear).find("the last layer gives vectors, which no loss is of"),
            std::string::npos);
  EXPECT_NE(problem_of("features: 8", tables + ", {layer: flatten}, {layer: linear, width: 8}, " + tables +
                                          ", {layer: pairs}, " + linear)
                .find("layer_list[3]: a list has its sparse features in one layer"),
            std::string::npos);
  EXPECT_NE(problem_of("features: 8",
                       "{layer: tables, width: 8, rows: [4, 5], lookups: [1, 2, 3]}, {layer: pairs}, " + linear)
                .find("3 numbers of look-ups are listed for 2 tables"),
            std::string::npos);
  EXPECT_NE(problem_of("tokens: 6", linear).find("layer_list[0]: needs an embedding before it"), std::string::npos);
  EXPECT_NE(problem_of("features: 6", "{layer: embedding, vocab: 9, width: 4}, " + linear)
                .find("needs the numbers of tokens (model.tokens), but what comes before gives 6 features"),
            std::string::npos);
  EXPECT_NE(problem_of("tokens: 6",
                       "{layer: embedding, vocab: 9, width: 6}, {layer: attention, heads: 4}, "
                       "{layer: average_pool}, " +
                           linear)
                .find("6 numbers of a token do not divide by 4 heads"),
            std::string::npos);
  EXPECT_NE(problem_of("features: 8, tokens: 4", linear).find("one of image, features and tokens"), std::string::npos);
  EXPECT_NE(
      problem_of("features: 8", "{layer: attention, heads: 2}, " + linear).find("needs tokens, each with a vector"),
      std::string::npos);
  EXPECT_NE(problem_of("features: 8", "{layer: relu, lookups: [1]}, " + linear).find("a layer relu has no lookups"),
            std::string::npos);
}

}  // namespace
}  // namespace rehearse::plan
