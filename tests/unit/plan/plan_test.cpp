// What a plan derives from the model, and the framework profiles.
#include "sim/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/plan/layers_by_cost.h"

namespace rehearse::plan {
namespace {

using Layers = std::vector<std::int64_t>;

TEST(AutoLayers, SplitsEvenlyWhereItCan) {
  EXPECT_EQ(auto_layers(15, 3), (Layers{5, 5, 5}));
  EXPECT_EQ(auto_layers(7, 1), (Layers{7}));
}

TEST(AutoLayers, GivesTheRemainderToTheStagesAfterTheFirst) {
  EXPECT_EQ(auto_layers(10, 4), (Layers{2, 3, 3, 2}));
  EXPECT_EQ(auto_layers(11, 4), (Layers{2, 3, 3, 3})) << "the first stage holds the embedding and never gets one";
  Layers expected(64, 1);
  std::fill(expected.begin() + 1, expected.begin() + 33, 2);
  EXPECT_EQ(auto_layers(96, 64), expected) << "32 stages hold two layers, 32 hold one";
}

TEST(AutoLayers, PlacesEveryLayer) {
  for (std::int64_t layers = 1; layers <= 40; ++layers) {
    for (std::int64_t stages = 1; stages <= layers; ++stages) {
      const Layers split = auto_layers(layers, stages);
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), std::int64_t{0}), layers);
      const auto [least, most] = std::minmax_element(split.begin(), split.end());
      EXPECT_GE(*least, 1);
      EXPECT_LE(*most - *least, 1);
    }
  }
}

TEST(AutoLayers, MayCountEmbeddingAndHead) {
  EXPECT_EQ(auto_layers_with_embedding(6, 4), (Layers{1, 2, 2, 1}));
  EXPECT_EQ(auto_layers_with_embedding(2, 4), (Layers{0, 1, 1, 0}));
  Layers llama(128, 1);
  llama.front() = llama.back() = 0;
  EXPECT_EQ(auto_layers_with_embedding(126, 128), llama) << "Llama 3.1 405B on 16 stages of 8 chunks";
}

TEST(UnitCount, CountsWhatAPipelineCutsBetween) {
  model::Model m;
  m.family = model::Family::llama;
  m.layers = 32;
  EXPECT_EQ(unit_count(m), 32);
  m.family = model::Family::cnn;
  m.convolutions.resize(2);
  m.widths = {120, 84, 10};
  EXPECT_EQ(unit_count(m), 5) << "two convolutions, three linear layers";
  m.family = model::Family::mlp;
  m.widths = {784, 256, 10};
  EXPECT_EQ(unit_count(m), 2) << "the first width is the input";
}

TEST(PaddedVocab, IsAMultipleOfTheFrameworksAndOfTheTensorSize) {
  model::Model m;
  m.vocab = 50257;
  Plan plan;
  plan.tensor = 8;
  EXPECT_EQ(padded_vocab(m, plan, *find_framework("megatron-2021")), 51200) << "multiple of 128 * 8";
  EXPECT_EQ(padded_vocab(m, plan, *find_framework("rehearse")), 50264) << "multiple of 8";
  plan.tensor = 1;
  EXPECT_EQ(padded_vocab(m, plan, *find_framework("rehearse")), 50257);
}

TEST(Frameworks, AreFoundByNameAndNameTheirSources) {
  EXPECT_EQ(framework_names(), (std::vector<std::string>{"rehearse",
                                                         "megatron-2021",
                                                         "megatron-2022",
                                                         "megatron-core",
                                                         "megatron-deepspeed",
                                                         "nemo",
                                                         "nemo-2023",
                                                         "deepspeed",
                                                         "deepspeed-2021",
                                                         "torch-ddp",
                                                         "torch-fsdp",
                                                         "torch-fsdp2",
                                                         "torch-fsdp2-compile",
                                                         "torch-fsdp2-compile-2024",
                                                         "llm-foundry",
                                                         "llm-foundry-torch1",
                                                         "nanotron",
                                                         "accelerate",
                                                         "nvidia-bert",
                                                         "mxnet",
                                                         "tensorflow-xla"}));
  EXPECT_EQ(find_framework("megatron"), nullptr);
  for (const std::string& name : framework_names()) {
    const FrameworkProfile* profile = find_framework(name);
    ASSERT_NE(profile, nullptr);
    EXPECT_EQ(profile->name, name);
    EXPECT_FALSE(profile->sources.empty());
    EXPECT_GT(profile->launch_cost, Time());
    EXPECT_GT(profile->memory_reserve, Bytes());
  }
}

// What huggingface/nanotron's build_model does to two of its models, by hand.
TEST(LayersByCost, CountTheHeadAsTheLayersItIsWorth) {
  model::Model m;
  m.layers = 16, m.hidden = 2048, m.heads = 32, m.head_dim = 64, m.ffn_hidden = 8192, m.vocab = 131072;
  // A layer is 4 x 2048^2 + 3 x 8192 x 2048 = 67,108,864, the head exactly four of it: of 20 the first stage has more
  // than 10 after its 11th.
  EXPECT_EQ(layers_by_cost(m, 2), (Layers{11, 5}));
  EXPECT_EQ(layers_by_cost(m, 1), (Layers{16}));
  EXPECT_EQ(layers_by_cost(m, 16), (Layers{})) << "the last stages would have nothing but the head";
  m.layers = 28, m.hidden = 3072, m.head_dim = 96;
  // The head is 3.56 layers: 15.78 are half of 31.56, 7.89 a quarter.
  EXPECT_EQ(layers_by_cost(m, 2), (Layers{16, 12}));
  EXPECT_EQ(layers_by_cost(m, 4), (Layers{8, 8, 8, 4}));
}

TEST(MicroBatches, AreTheBatchOverReplicasAndMicroBatch) {
  Plan plan;
  plan.data = 16;
  plan.micro_batch = 2;
  Training training;
  training.global_batch = 1536;
  EXPECT_EQ(training.micro_batches(plan), 48);
}

}  // namespace
}  // namespace rehearse::plan
