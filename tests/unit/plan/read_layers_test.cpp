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
