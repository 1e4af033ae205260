// FLOPs of a training step against published closed forms and counts by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/unit/model/preset.h"

namespace rehearse::model {
namespace {

// Of a token: twice the weights of products, and of each head's state two products, of the recurrence.
TEST(ModelFlops, OfMixersAreTheRecurrences) {
  const Model m = preset("mamba2-2.7b");
  const double layer = 2560.0 * (10'576 + 5'120) + 2.0 * 5'120 * 128;
  EXPECT_DOUBLE_EQ(model_flops(m, 3, 1000), 6.0 * 3 * 1000 * (64 * layer + 2560.0 * 50'288));
  EXPECT_DOUBLE_EQ(model_flops(m, 3, 2000), 2 * model_flops(m, 3, 1000)) << "nothing grows with the sequence's square";
}

// Every second layer of four has experts; a chunk that is felt in three of them counts its keys alone.
TEST(ModelFlops, OfLayersThatDifferAreTheSumOfTheirs) {
  Model m = preset("llama4-maverick");
  m.layers = 4;
  const std::int64_t h = 5120, attention = h * 7168 + h * h, expert = 3 * h * 8192;
  const double weights =
      static_cast<double>(4 * attention + 2 * 3 * h * 16384 + 2 * (h * 128 + 2 * expert) + h * m.vocab);
  EXPECT_EQ(model_flops(m, 1, 8192), 6 * 8192 * (weights + 4 * 8192.0 * 2 * h));
  EXPECT_EQ(model_flops(m, 1, 16384), 6 * 16384 * (weights + (3 * 8192.0 + 16384) * 2 * h));
  EXPECT_NE(flop_formula(m, 16384).find("layers with chunks of c"), std::string::npos);
  EXPECT_EQ(flop_formula(m, 8192).find("layers with chunks of c"), std::string::npos);
}

TEST(ModelFlops, OfAResidualNetworkLeaveOutTheImagesGradient) {
  const Model m = preset("resnet-50");
  const double forward = layer_multiply_adds(m.layer_list, m.input()), stem = 147.0 * 64 * 112 * 112;
  EXPECT_DOUBLE_EQ(model_flops(m, 8, 0), 2 * 8 * (3 * forward - stem));
}

// 96 B s L h^2 (...) of the paper has recomputation in it; a pass without it is 72 B s L h^2 (1 + s/6h + V/12Lh).
TEST(ModelFlops, OfGptIsThePublishedClosedForm) {
  for (const char* name : {"gpt3-175b", "gpt2-xl", "megatron-529.6b"}) {
    const Model m = preset(name);
    const double batch = 1536, s = static_cast<double>(m.max_seq_len), h = static_cast<double>(m.hidden);
    const double layers = static_cast<double>(m.layers), vocab = static_cast<double>(m.vocab);
    const double form = 72 * batch * s * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h));
    EXPECT_NEAR(model_flops(m, 1536, m.max_seq_len) / form, 1, 1e-12) << name;
  }
}

// One llama layer forward for one token, in multiply-adds: q 4096x4096, k and v 4096x1024, out 4096x4096,
// gate, up and down 4096x14336, scores and values 8192x4096 each; then the head 4096x128256.
TEST(ModelFlops, OfLlamaCountsGroupedQueriesAndTheGate) {
  const double layer = 2 * 4096.0 * 4096 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336 + 2 * 8192.0 * 4096;
  const double token = 32 * layer + 4096.0 * 128256;
  EXPECT_DOUBLE_EQ(model_flops(preset("llama3-8b"), 2, 8192), 6 * 2 * 8192 * token);
}

// As above, in multiply-adds of a token: products forward and for their inputs, attention forward and twice backward,
// the adapters' own products thrice; without what comes before the first adapter of the first layer.
TEST(ModelFlops, OfAdaptersHaveNoGradientsOfFrozenWeights) {
  const Model m = preset("llama3-8b");
  const double qkv = 4096.0 * 6144, proj = 4096.0 * 4096, up = 4096.0 * 28672, down = 4096.0 * 14336;
  const double scores = 2 * 8192.0 * 4096, head = 4096.0 * 128256;
  const double all = 2 * (32 * (qkv + proj + up + down) + head) + 3 * 32 * scores;
  const auto flops = [&](const Adapters& adapters) { return model_flops(m, 2, 8192, adapters) / (2 * 2 * 8192); };
  const auto own = [&](const Adapters& a) { return 3 * static_cast<double>(adapter_parameter_count(m, a)); };
  for (const Adapters a : {Adapters{16}, Adapters{16, true, true, false, false}})
    EXPECT_DOUBLE_EQ(flops(a), all + own(a) - qkv - 16 * 4096.0);
  const Adapters mlp{16, false, false, true, true};
  EXPECT_DOUBLE_EQ(flops(mlp), all + own(mlp) - qkv - proj - up - 2 * scores - 16 * 4096.0);
  const Adapters last{16, false, false, false, true}, proj_alone{16, false, true, false, false};
  EXPECT_DOUBLE_EQ(flops(last), all + own(last) - qkv - proj - up - down - 2 * scores - 16 * 14336.0);
  EXPECT_DOUBLE_EQ(flops(proj_alone), all + own(proj_alone) - qkv - proj - 2 * scores - 16 * 4096.0);
  EXPECT_EQ(model_flops(m, 2, 8192, {}), model_flops(m, 2, 8192));
  EXPECT_NE(flop_formula(m, 8192, mlp).find("no gradients of frozen weights"), std::string::npos);
}

// Mixtral 8x7B: a token goes through the router and two of eight experts of 4096 to 28672 and 14336 to 4096, and
// through these experts' adapters.
TEST(ModelFlops, OfAdaptersOfExpertsAreOfThoseThatATokenChooses) {
  const Model m = preset("mixtral-8x7b");
  const double qkv = 4096.0 * 6144, proj = 4096.0 * 4096, router = 4096.0 * 8, up = 2 * 4096.0 * 28672,
               down = 2 * 4096.0 * 14336, scores = 2 * 8192.0 * 4096, head = 4096.0 * 32000;
  const double all = 2 * (32 * (qkv + proj + router + up + down) + head) + 3 * 32 * scores;
  const auto flops = [&](const Adapters& adapters) { return model_flops(m, 2, 8192, adapters) / (2 * 2 * 8192); };
  const double attention = 4096 + 6144 + 4096 + 4096, experts = 2 * (4096.0 + 28672 + 14336 + 4096);
  EXPECT_DOUBLE_EQ(flops({16}), all + 3 * 32 * 16 * (attention + experts) - qkv - 16 * 4096.0);
  EXPECT_DOUBLE_EQ(flops({16, false, false, true, true}),
                   all + 3 * 32 * 16 * experts - qkv - proj - router - up - 2 * scores - 2 * 16 * 4096.0);
}

TEST(ModelFlops, OfTheConvolutionalNetworkFollowsTheMapSizes) {
  const double image = 27.0 * 64 * 32 * 32 + 576.0 * 128 * 16 * 16 + 1152.0 * 256 * 8 * 8 + 4096.0 * 512 + 512.0 * 10;
  EXPECT_DOUBLE_EQ(model_flops(preset("cnn-cifar"), 8, 0), 2 * 8 * (3 * image - 27.0 * 64 * 32 * 32))
      << "nothing needs the images' gradient";
}

TEST(ModelFlops, OfAPerceptronLeaveOutTheInputsGradient) {
  const double first = 784.0 * 512, others = 512.0 * 512 + 512.0 * 10;
  EXPECT_DOUBLE_EQ(model_flops(preset("mlp-mnist"), 8, 0), 2 * 8 * (2 * first + 3 * others));
}

// Mistral 7B: layers of 32 heads of 128 columns; of 16,384 tokens each attends to 4,096 and not to all. By hand: 2
// products of s w (32 x 128), times 2 FLOPs, times 3 for backward.
TEST(ModelFlops, OfAWindowAreOfItsKeys) {
  Model m = preset("mistral-7b");
  EXPECT_EQ(parameter_count(m), 7'241'732'096);
  Model whole = m;
  whole.sliding_window = 0;
  const double s = 16384, w = 4096, all = model_flops(whole, 2, 16384);
  const auto attention = [&](double keys) { return 2.0 * 6 * s * 2 * keys * 4096; };
  EXPECT_DOUBLE_EQ(model_flops(m, 2, 16384), all - 32 * (attention(s) - attention(w)));
  m.full_attention_every = 2;
  EXPECT_DOUBLE_EQ(model_flops(m, 2, 16384), all - 16 * (attention(s) - attention(w)));
  m.full_attention_every = 6;  // of 32 layers 5 see all
  EXPECT_DOUBLE_EQ(model_flops(m, 2, 16384), all - 27 * (attention(s) - attention(w)));
  EXPECT_NE(flop_formula(m, 16384).find("in layers with a window of w"), std::string::npos);
  // As long as the sequence, or longer, it changes nothing.
  for (const std::int64_t seq_len : {2048, 4096}) {
    EXPECT_EQ(model_flops(m, 2, seq_len), model_flops(whole, 2, seq_len));
    EXPECT_EQ(flop_formula(m, seq_len), flop_formula(whole));
  }
}

// Sequences packed of documents of 1,000 tokens: as ones of 4,096 whose tokens attend to 1,000.
TEST(ModelFlops, OfPackedSequencesAreOfTheDocumentsKeys) {
  Model m = preset("llama3-8b");
  const double all = model_flops(m, 2, 4096), attention = 6.0 * 2 * 4096 * 32 * 2 * 4096;  // of a key
  EXPECT_DOUBLE_EQ(model_flops(m, 2, 4096, {}, 1000), all - attention * (4096 - 1000));
  EXPECT_EQ(model_flops(m, 2, 4096, {}, 4096), all);
  EXPECT_NE(flop_formula(m, 4096, {}, 1000).find("in attention s = 1000"), std::string::npos);
  EXPECT_EQ(flop_formula(m, 4096, {}, 0), flop_formula(m, 4096));
}

// Each family's formula speaks of that family; gpt's closed form is stated where it holds.
TEST(ModelFlops, TheFormulaIsTheFamilys) {
  const auto has = [](const char* name, const char* part) {
    return flop_formula(preset(name)).find(part) != std::string::npos;
  };
  EXPECT_TRUE(has("gpt3-175b", "72 B s L h^2 (1 + s/6h + V/12Lh), arXiv 2104.04473"));
  EXPECT_TRUE(has("llama3-8b", "6 B s (L (2 h a + 2 h k + 2 s a + 3 h f) + h V)"));
  EXPECT_TRUE(has("cnn-cifar", "2 B (3 S - S1), S = sum of Cin K^2 Cout H W over convolutions"));
  EXPECT_TRUE(has("mlp-mnist", "2 B (3 S - S1), S = sum of in x out over layers"));
  for (const char* name : {"llama3-8b", "cnn-cifar", "mlp-mnist"}) EXPECT_FALSE(has(name, "72 B")) << name;
  for (const char* name : {"cnn-cifar", "mlp-mnist"}) EXPECT_FALSE(has(name, "attention")) << name;
  Model wide = preset("gpt2-small");
  wide.ffn_hidden = 5 * wide.hidden;
  EXPECT_EQ(flop_formula(wide).find("72 B"), std::string::npos);
  EXPECT_NE(flop_formula(wide).find("2 h f"), std::string::npos);
}

// The general form printed for llama, worked out: L = 32, h = a = 4096, k = 1024, f = 14336, s = 8192, V = 128256.
TEST(ModelFlops, TheGeneralFormulaGivesTheNumber) {
  const double h = 4096, k = 1024, f = 14336, s = 8192;
  EXPECT_DOUBLE_EQ(model_flops(preset("llama3-8b"), 3, 8192),
                   6 * 3 * s * (32 * (2 * h * h + 2 * h * k + 2 * s * h + 3 * h * f) + h * 128256));
}

}  // namespace
}  // namespace rehearse::model
