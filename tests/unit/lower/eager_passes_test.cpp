// What PyTorch's eager kernels move, counted by hand from the models' own code: a kernel and a pass over memory for
// each operation of RMSNorm, rotary embedding and the loss, and copies that packed kernels do without.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

constexpr std::int64_t kTokens = 64, kHidden = 64, kHeads = 4, kKeyHeads = 2, kHeadDim = 16, kVocab = 512;
constexpr std::int64_t kElements = kTokens * kHidden, kKeys = kTokens * kKeyHeads * kHeadDim;
constexpr std::int64_t kTurned = kTokens * (kHeads + kKeyHeads) * kHeadDim;

constexpr char kModel[] =
    "rehearse: 1\nframework: torch-fsdp2\n"
    "model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 96, vocab: 512, max_seq_len: "
    "32}\n"
    "cluster: {gpus: 2}\nplan: {micro_batch: 2}\n"
    "training: {global_batch: 4, seq_len: 32, precision: bf16}\n";

class TorchStep {
 public:
  explicit TorchStep(const std::vector<std::string>& assignments)
      : program_(lower::lower(scenario_from(kModel, assignments))) {}

  // Bytes, and launches, of the step's ops whose names end with `part`.
  std::int64_t bytes(const std::string& part) const {
    return sum(part, [](const program::Role& role, const program::Op& op) {
      const program::Work w = program::work_of(role, op);
      return w.bytes_read + w.bytes_written;
    });
  }
  std::int64_t launches(const std::string& part) const {
    return sum(part, [](const program::Role&, const program::Op& op) { return op.launches; });
  }

  // How many of them are casts of one element at a time.
  std::int64_t unrolled(const std::string& part) const {
    return sum(part, [](const program::Role&, const program::Op& op) {
      const auto* e = std::get_if<program::Elementwise>(&op.shape);
      return std::int64_t{e != nullptr && e->unrolled};
    });
  }

  // How many buffers of `type` have so many elements.
  std::int64_t buffers(program::DType type, std::int64_t elements) const {
    const auto& all = program_.roles[0].buffers;
    return std::count_if(all.begin(), all.end(), [&](const program::Buffer& b) {
      return b.dtype == type && b.elements() == elements && !b.is_view();
    });
  }
  bool has(const std::string& name) const {
    const auto& all = program_.roles[0].buffers;
    return std::any_of(all.begin(), all.end(), [&](const program::Buffer& b) { return b.name == name; });
  }

 private:
  template <class F>
  std::int64_t sum(const std::string& part, F value) const {
    return sum_over_step(program_.roles[0], [&](const program::Role& r, const program::Op& op) {
      return op.name.ends_with(part) ? value(r, op) : std::int64_t{0};
    });
  }
  program::Program program_;
};

const TorchStep& eager() {
  static const TorchStep step({"plan.zero=3", "framework=torch-fsdp2"});
  return step;
}
const TorchStep& compiled() {
  static const TorchStep step({"plan.zero=3", "framework=torch-fsdp2-compile-2024"});
  return step;
}
constexpr std::int64_t kGamma = kHidden * 2, kStats = kTokens * 4;

TEST(EagerPasses, RmsNormIsAChainInFp32) {
  // float 2 + 4 bytes an element, square 4 + 4, mean 4, product with the rows' factor 4 + 4, cast 4 + 2, weight 2 + 2.
  EXPECT_EQ(eager().bytes("layer0.norm1.forward"), kElements * 36 + kGamma + kStats);
  EXPECT_EQ(eager().launches("layer0.norm1.forward"), 8);
  EXPECT_EQ(compiled().bytes("layer0.norm1.forward"), kElements * 4 + kGamma + kStats) << "one kernel";
  EXPECT_EQ(compiled().launches("layer0.norm1.forward"), 1);
}

TEST(EagerPasses, RmsNormsBackwardIsWhatAutogradMakesOfTheChain) {
  // Weight 2 + 2, cast 2 + 4, product 4 + 4, the factor's gradient 8 + 4 and its sum 4, the mean's 4, the square's 4 +
  // 4, 4 + 4 and 8 + 4, sum 8 + 4, cast 4 + 2.
  EXPECT_EQ(eager().bytes("final_norm.backward_input"), kElements * 84 + kGamma + kStats);
  // Product with the normed input 4 + 2, its sum over the rows 2; one kernel reads gradient and input, 2 + 2.
  EXPECT_EQ(eager().bytes("final_norm.backward_weight") - compiled().bytes("final_norm.backward_weight"),
            kElements * (8 - 4));
}

TEST(EagerPasses, GradientsOfProductsThatShareAnInputAreAdded) {
  // Queries, keys, values: two additions of 2 + 2 + 2 bytes; gate and up: one.
  const std::int64_t norm = kElements * 84 + kGamma + kStats;
  EXPECT_EQ(eager().bytes("layer1.norm1.backward_input"), norm + 2 * 6 * kElements);
  EXPECT_EQ(eager().bytes("layer1.norm2.backward_input"), norm + 6 * kElements);
  EXPECT_EQ(compiled().bytes("layer1.norm1.backward_input"), kElements * 8 + kGamma + kStats)
      << "one kernel, the residual's gradient too";
}

TEST(EagerPasses, RotaryEmbeddingIsComplexAndHeadsGetTheirOwnKeys) {
  // Cast 2 + 4, product 4 + 4, cast 4 + 2 bytes; keys and values, 2 bytes each, are read once and written for 2 heads.
  const std::int64_t copies = 2 * 2 * kKeys * (1 + 2);
  for (const TorchStep* step : {&eager(), &compiled()}) {
    EXPECT_EQ(step->bytes("layer0.attention.rope"), kTurned * 20 + copies);
    EXPECT_EQ(step->bytes("layer0.attention.rope.backward"), kTurned * 20 + copies) << "read for 2 heads, written once";
    EXPECT_EQ(step->launches("layer0.attention.rope"), 8);
  }
  const TorchStep own({"plan.zero=3", "framework=torch-fsdp2", "model.kv_heads=4"});
  EXPECT_EQ(own.bytes("layer0.attention.rope"), kTokens * 8 * kHeadDim * 20) << "a head's own keys are not copied";
}

// Megatron-Core's, where yarn scales what it turns; a kernel of its own elsewhere.
TEST(EagerPasses, WhatYarnScalesIsTurnedByAChainInMegatron) {
  const auto step = [](const std::string& framework, const std::string& scaling) {
    return TorchStep({"framework=" + framework, "model.rope_scaling=" + scaling, "model.rope_factor=8",
                      "model.rope_trained_len=16"});
  };
  const TorchStep chain = step("megatron-core", "yarn"), one = step("rehearse", "yarn");
  // Cosine 2 + 2 bytes, negation of a half 1 + 1, join 2 + 2, sine 2 + 2, sum 4 + 2, copy 2 + 2.
  EXPECT_EQ(chain.bytes("layer0.attention.rope"), kTurned * 24);
  EXPECT_EQ(one.bytes("layer0.attention.rope"), kTurned * 4);
  EXPECT_EQ(chain.launches("layer0.attention.rope"), 2 * 6);
  // Cosine, sine, negation, join, sum: 11 + 9; slices: copy 2 + 2, sum 4 + 2, zeros 2 and 2.
  EXPECT_EQ(chain.bytes("layer0.attention.rope.backward"), kTurned * (20 + 14));
  EXPECT_EQ(step("nemo", "yarn").bytes("layer0.attention.rope"), kTurned * 24);
  const TorchStep linear({"framework=megatron-core", "model.rope_scaling=linear", "model.rope_factor=8"});
  EXPECT_EQ(linear.bytes("layer0.attention.rope"), kTurned * 4) << "turned by other angles, not scaled";
}

// Behind the second product of each expert, times the rows' weights.
TEST(EagerPasses, BiasesOfExpertsAreAddedOneByOneInMegatron) {
  const auto step = [](const std::string& framework) {
    return TorchStep({"framework=" + framework, "model.family=moe", "model.experts=4", "model.experts_per_token=2",
                      "model.expert_ffn_hidden=32", "model.capacity_factor=1", "model.bias=true",
                      "plan.weigh_in_experts=true"});
  };
  const TorchStep chain = step("megatron-core"), one = step("rehearse");
  const std::int64_t rows = kTokens * 2 * kHidden;
  const auto more = [&](const std::string& op) { return chain.bytes(op) - one.bytes(op); };
  // Product 2 bytes, sum 4 + 2, join 2 + 2, where one kernel has 2 + 2.
  EXPECT_EQ(more("layer0.experts.down.bias"), rows * (12 - 4));
  // Product 2 + 2, its sum 2, join of the split's gradients 2 + 2, where one kernel reads 2; weights: 2 + 2 and 2.
  EXPECT_EQ(more("layer0.experts.down.bias.backward"), rows * (10 - 2));
  EXPECT_EQ(more("layer0.experts.down.bias.weights"), rows * (6 - 2));
  EXPECT_EQ(chain.bytes("layer0.experts.up.bias"), 0) << "in the product's kernel";
  EXPECT_EQ(chain.launches("layer0.experts.down.bias"), 2 * 4 + 1) << "of four experts, and the join";
}

// gpt-oss's activation of experts: Megatron-Core clamps before its kernel.
TEST(EagerPasses, ClampsOfGatesAreKernelsOfTheirOwnInMegatron) {
  const auto step = [](const std::string& framework, const std::string& activation) {
    return TorchStep({"framework=" + framework, "model.family=moe", "model.experts=4", "model.experts_per_token=2",
                      "model.expert_ffn_hidden=32", "model.capacity_factor=1", "model.activation=" + activation});
  };
  const TorchStep apart = step("megatron-core", "swiglu_oai"), one = step("rehearse", "swiglu_oai"),
                  other = step("megatron-core", "swiglu");
  const std::int64_t gates = kTokens * 2 * 2 * 32;
  const auto more = [&](const std::string& op) { return apart.bytes(op) - other.bytes(op); };
  // Clamped 2 + 2 bytes and joined 2 + 2; back masked by what was clamped 4 + 2 and joined 2 + 2.
  EXPECT_EQ(more("layer0.experts.activation.forward"), gates * 8);
  EXPECT_EQ(more("layer0.experts.activation.backward"), gates * 10);
  EXPECT_EQ(apart.launches("layer0.experts.activation.forward") - other.launches("layer0.experts.activation.forward"),
            3);
  EXPECT_EQ(one.launches("layer0.experts.activation.forward"), 1);
}

TEST(EagerPasses, CompiledBlocksFuseWhatLiesBetweenProducts) {
  const std::int64_t gate = kTokens * 96 * 2;
  EXPECT_EQ(eager().bytes("layer0.mlp.activation.forward"), gate * 5);
  EXPECT_EQ(compiled().bytes("layer0.mlp.activation.forward"), gate * 3);
  EXPECT_EQ(compiled().bytes("loss.forward"), eager().bytes("loss.forward")) << "the loss is in no block";
  const TorchStep with_loss({"plan.zero=3", "framework=torch-fsdp2-compile"});
  EXPECT_EQ(with_loss.bytes("loss.forward"), kTokens * (kVocab * 2 + 12) + 8) << "one kernel over 16-bit logits";
  EXPECT_EQ(with_loss.bytes("logits.cast"), 0);
}

// Halves of one product: backward writes a gradient of each, and joins them by a copy of both.
TEST(EagerPasses, GradientsOfASplitGateAreJoined) {
  const TorchStep nanotron({"framework=nanotron"});
  const std::int64_t gate = kTokens * 96 * 2;
  EXPECT_EQ(eager().bytes("layer0.mlp.activation.backward"), gate * 9);
  EXPECT_EQ(nanotron.bytes("layer0.mlp.activation.backward"), gate * (9 + 2 * 2));
  EXPECT_EQ(nanotron.launches("layer0.mlp.activation.backward"),
            eager().launches("layer0.mlp.activation.backward") + 1);
  EXPECT_EQ(nanotron.bytes("layer0.mlp.activation.forward"), eager().bytes("layer0.mlp.activation.forward"));
}

TEST(EagerPasses, RotaryEmbeddingIsAChainIn16BitsInMostModels) {
  const TorchStep step({"framework=torch-ddp"});
  // Cosine 2 + 2 bytes, negation of a half 1 + 1, join 2 + 2, sine 2 + 2, sum 4 + 2.
  EXPECT_EQ(step.bytes("layer0.attention.rope"), kTurned * 20);
  EXPECT_EQ(step.launches("layer0.attention.rope"), 2 * 5);
  // Cosine, sine, negation; of either half zeros 2, copy 1 + 1; their sum and that of both ways, 4 + 2 each.
  EXPECT_EQ(step.bytes("layer0.attention.rope.backward"), kTurned * (10 + 2 * 4 + 12));
  EXPECT_EQ(step.launches("layer0.attention.rope.backward"), 2 * 9);
}

// GPT's are one product; Llama's and BERT's three, whose input's gradients are added.
TEST(EagerPasses, GradientsOfQueriesKeysAndValuesAreJoined) {
  const auto joined = [&](const std::string& framework, const std::string& family) {
    std::vector<std::string> settings = {"framework=" + framework, "model.family=" + family};
    if (family != "llama") settings.insert(settings.end(), {"model.kv_heads=4", "model.ffn_hidden=256"});
    return TorchStep(settings).bytes("d_layer0.attention.qkv.join");
  };
  const std::int64_t qkv = 3 * kElements * 2;
  EXPECT_EQ(joined("torch-ddp", "gpt"), 2 * qkv) << "read and written";
  EXPECT_EQ(joined("torch-ddp", "llama"), 0);
  EXPECT_EQ(joined("torch-ddp", "bert"), 0);
  EXPECT_EQ(joined("rehearse", "gpt"), 0);
}

// Of several micro-batches the first's gradients are cast into what is reduced, the others' cast and added. Nothing is
// filled but tables, whose gradients backward scatters into a tensor of its own each time.
TEST(EagerPasses, TheFirstGradientIsNotAdded) {
  const TorchStep one({"framework=torch-ddp"}), three({"framework=torch-ddp", "training.global_batch=12"});
  const std::int64_t up = 2 * 96 * kHidden, table = kVocab * kHidden;
  const std::int64_t cast = up * (2 + 4), sum = 4 + 4 + 4;
  EXPECT_EQ(one.bytes("layer0.mlp.up.backward_weight.widen"), cast);
  EXPECT_EQ(one.bytes("layer0.mlp.up.backward_weight.accumulate"), 0);
  EXPECT_EQ(three.bytes("layer0.mlp.up.backward_weight.widen"), 3 * cast);
  EXPECT_EQ(three.bytes("layer0.mlp.up.backward_weight.accumulate"), 2 * up * sum);
  EXPECT_EQ(one.bytes("zero_grad"), table * 4);
  EXPECT_EQ(three.bytes("zero_grad"), 3 * table * 4);
  EXPECT_EQ(three.launches("zero_grad"), 3) << "what gives norms' gradients writes them";
  EXPECT_EQ(three.bytes("embedding.word.weight.accumulate"), 2 * table * sum);
  EXPECT_EQ(TorchStep({"framework=torch-ddp", "plan.fused_weight_gradient=true"}).bytes(".widen"), 0);
}

// Of 16 bits to fp32, where PyTorch's kernel makes them and no compiler.
TEST(EagerPasses, CastsToFp32LoadOneElementAtATime) {
  const auto unrolled = [](const std::string& framework, const std::string& name) {
    return TorchStep({"framework=" + framework, "plan.zero=0"}).unrolled(name);
  };
  EXPECT_EQ(unrolled("torch-ddp", "logits.cast"), 1);
  EXPECT_EQ(unrolled("torch-ddp", "layer0.mlp.up.backward_weight.widen"), 1);
  EXPECT_EQ(unrolled("torch-ddp", "layer0.norm1.cast"), 0) << "to 16 bits";
  EXPECT_EQ(unrolled("megatron-core", "logits.cast"), 1);
  EXPECT_EQ(unrolled("nemo", "logits.cast"), 0) << "in the compiled loss";
}

// Once a step, whatever the order in which the backwards' bodies were made.
TEST(EagerPasses, DistributedDataParallelReducesEachBucketOnce) {
  const auto reduced = [](std::int64_t batch) {
    const TorchStep step({"framework=torch-ddp", "training.global_batch=" + std::to_string(batch)});
    std::int64_t launches = 0;
    for (int bucket = 0; bucket < 8; ++bucket) launches += step.launches("all_reduce.bucket" + std::to_string(bucket));
    return launches;
  };
  EXPECT_GT(reduced(4), 0);
  for (const std::int64_t batch : {8, 12, 16, 20}) EXPECT_EQ(reduced(batch), reduced(4)) << batch;
}

TEST(EagerPasses, SequenceShardsAreCopiedIntoOrder) {
  const auto step = [](const std::string& recompute) {
    return TorchStep({"plan.tensor=2", "plan.sequence_parallel=true", "training.global_batch=2",
                      "plan.recompute=" + recompute, "framework=torch-fsdp2"});
  };
  const TorchStep all = step("full"), none = step("none");
  // Each reads and writes all tokens. Gathered: what attention and MLP read, in forward and again, and their outputs'
  // gradients; scattered: their outputs, the MLP's not again, and what they read's gradients.
  constexpr std::int64_t kCopy = kElements * 4;
  EXPECT_EQ(all.bytes("layer0.norm1.gathered.in_order"), 2 * kCopy) << "kept for the weight's gradient";
  EXPECT_EQ(all.bytes("layer0.attention.qkv.input_again.all_gather"), 0);
  EXPECT_EQ(all.bytes("d_layer0.mlp.down.gathered.in_order"), kCopy);
  EXPECT_EQ(all.bytes("layer0.attention.proj.by_rank"), 2 * kCopy);
  EXPECT_EQ(all.bytes("layer0.mlp.down.by_rank"), kCopy);
  EXPECT_EQ(all.bytes("d_layer0.mlp.up.by_rank"), kCopy);
  EXPECT_EQ(none.bytes("layer0.norm1.gathered.in_order"), kCopy);
  EXPECT_EQ(none.launches("layer0.attention.qkv.input_again.all_gather"), 0) << "lives from forward on";
  const TorchStep megatron(
      {"plan.tensor=2", "plan.sequence_parallel=true", "training.global_batch=2", "framework=megatron-core"});
  EXPECT_EQ(megatron.bytes("layer0.norm1.gathered.in_order"), 0);
  EXPECT_EQ(megatron.launches("layer0.attention.qkv.input_again.all_gather"), 1);
}

TEST(EagerPasses, NanotronCopiesHeadsApartAndTogether) {
  const TorchStep step({"plan.tensor=2", "framework=nanotron", "training.global_batch=2"});
  // A rank has half of the heads. Forward: the three apart, keys and values joined, then put beside each other, the
  // result of two sequences in the order of tokens; backward: keys and values joined, all three joined, the result.
  const std::int64_t queries = kElements / 2, keys = kKeys / 2, three = queries + 2 * keys;
  EXPECT_EQ(step.bytes("layer0.attention.rope"), kTurned / 2 * 4 + (three + 2 * 2 * keys + queries) * 4);
  EXPECT_EQ(step.bytes("layer0.attention.rope.backward"), kTurned / 2 * 4 + (three + 2 * keys + queries) * 4);
  const TorchStep one({"plan.tensor=2", "framework=nanotron", "plan.micro_batch=1", "training.global_batch=1"});
  EXPECT_EQ(one.bytes("layer0.attention.rope"), (kTurned / 2 * 4 + (three + 2 * 2 * keys) * 4) / 2)
      << "one sequence's result lies as tokens do";
}

TEST(EagerPasses, TheLossOfASplitVocabularyIsPassesOverFp32Logits) {
  for (const std::string framework : {"nanotron", "megatron-2021"}) {
    const TorchStep step({"plan.tensor=2", "framework=" + framework, "training.global_batch=2"});
    const std::int64_t logits = kTokens * kVocab / 2, row = kTokens * 4;
    EXPECT_EQ(step.bytes("logits.cast"), logits * (2 + 4)) << framework;
    EXPECT_EQ(step.bytes("loss.max"), logits * 4 + row) << framework;
    // Less the maximum 4 + 4, exp 4 + 4, sum 4, over the sum 4 + 4; targets, maxima, two sums a row.
    EXPECT_EQ(step.bytes("loss.exp_sum"), logits * 28 + 4 * row) << framework;
    EXPECT_EQ(step.bytes("logits.backward_cast"), logits * (4 + 2)) << framework;
  }
}

// PyTorch's: logits, what log_softmax gives, zeros and gradient; DTensor's: logits, shifted ones and exp of these,
// zeros and exp of what was kept, their sum and gradient, of which forward's and backward's scratch are two each.
TEST(EagerPasses, TheLossHoldsWhatItsKernelsHandOn) {
  const auto tensors = [](const std::string& framework, std::int64_t tensor) {
    const TorchStep step({"plan.tensor=" + std::to_string(tensor), "framework=" + framework,
                          "training.global_batch=" + std::to_string(4 / tensor)});
    return step.buffers(program::DType::f32, kTokens * kVocab / tensor);
  };
  EXPECT_EQ(tensors("torch-fsdp2", 1), 4);
  EXPECT_EQ(tensors("torch-fsdp2", 2), 6);
  EXPECT_EQ(tensors("torch-fsdp2-compile", 1), 0) << "16 bits alone";
  EXPECT_EQ(tensors("megatron-2021", 2), 1) << "in place";
  EXPECT_EQ(tensors("nanotron", 2), 2) << "shifted ones apart";
  EXPECT_EQ(tensors("nemo", 2), 1) << "one kernel";
}

TEST(EagerPasses, SilusResultIsKeptWhereItIsAKernelsOwn) {
  EXPECT_TRUE(eager().has("layer0.mlp.silu"));
  EXPECT_FALSE(compiled().has("layer0.mlp.silu"));
  // Silu's gradient and the product's, as before: the kept result is one of the reads.
  const std::int64_t gate = kTokens * 96 * 2;
  EXPECT_EQ(eager().bytes("layer0.mlp.activation.backward"), gate * (5 + 4));
}

TEST(EagerPasses, DistributedDataParallelKeepsBucketsOfAllGradients) {
  EXPECT_TRUE(TorchStep({"framework=torch-ddp"}).has("buckets.copies"));
  EXPECT_FALSE(TorchStep({"framework=torch-ddp", "cluster.gpus=1", "training.global_batch=2"}).has("buckets.copies"));
  EXPECT_FALSE(TorchStep({"framework=megatron-core"}).has("buckets.copies"));
}

TEST(EagerPasses, AWholeVocabularyGoesThroughTheFunctionOfASplitOne) {
  const std::int64_t fused = kTokens * (kVocab * 4 + 12) + 8;
  EXPECT_EQ(TorchStep({"framework=nemo", "plan.zero=0"}).bytes("loss.forward"), fused) << "one kernel";
  for (const std::string framework : {"nanotron", "megatron-2021", "megatron-core"}) {
    const TorchStep one({"framework=" + framework, "plan.zero=0"});
    const std::int64_t logits = kTokens * kVocab, row = kTokens * 4;
    // As loss.max and loss.exp_sum above; targets, two statistics a row and the sum.
    EXPECT_EQ(one.bytes("loss.forward"), logits * (4 + 28) + 3 * row + 8) << framework;
    EXPECT_EQ(one.bytes("loss.backward"), logits * (4 + 4) + 3 * row) << framework << ": in place";
  }
}

TEST(EagerPasses, LayerNormReadsItsInputForTheStatisticsAndAgain) {
  const auto norm = [](const std::string& framework) {
    return TorchStep({"plan.zero=3", "model.norm=layernorm", "framework=" + framework}).bytes("layer0.norm1.forward");
  };
  EXPECT_EQ(norm("torch-fsdp") - norm("rehearse"), kElements * 2);
}

TEST(EagerPasses, LongRowsOfLogitsAreReadAgainForTheirSumAndForTheResult) {
  const auto loss = [](std::int64_t vocab) {
    const TorchStep step({"plan.zero=3", "framework=torch-fsdp2", "model.vocab=" + std::to_string(vocab)});
    const std::int64_t rows = kTokens * (4 + 8), elements = kTokens * vocab;
    return std::pair((step.bytes("loss.forward") - rows - 8) / elements,
                     (step.bytes("loss.backward") - rows) / elements);
  };
  EXPECT_EQ(loss(16384), std::pair(4L + 4, 8L + 8)) << "64 KiB of fp32 stay on the chip";
  EXPECT_EQ(loss(32768), std::pair(12L + 4, 12L + 8));
  const TorchStep metrics({"plan.zero=3", "framework=llm-foundry", "model.vocab=32768"});
  EXPECT_EQ(metrics.bytes("metric0.log_softmax"), kTokens * 32768 * (12 + 4));
}

TEST(EagerPasses, BeforePyTorch2Point1AWholeLayerIsComputedAgain) {
  const auto products = [](const std::string& framework) {
    const TorchStep step({"plan.zero=3", "plan.recompute=full", "framework=" + framework});
    EXPECT_EQ(step.launches("mlp.up.forward"), 4) << framework << ": of two layers, each again";
    return step.launches("mlp.down.forward");
  };
  EXPECT_EQ(products("llm-foundry"), 2) << "nothing in backward reads what the layer's last product gives";
  EXPECT_EQ(products("llm-foundry-torch1"), 4);
}

TEST(EagerPasses, DTensorReducesTheInputsGradientBehindTheWeightsGradient) {
  for (const auto& [framework, overlaps] : {std::pair{"torch-fsdp2", false}, {"megatron-core", true}})
    EXPECT_EQ(
        scenario_from(kModel, {"plan.tensor=2", std::string("framework=") + framework}).plan.overlap_tensor_backward,
        overlaps)
        << framework;
}

}  // namespace
}  // namespace rehearse
