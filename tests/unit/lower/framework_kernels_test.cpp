// What frameworks launch, and what memory it moves: normalisation, sum and ReLU of a residual network as one kernel or
// as many; what NVIDIA's BERT has around attention; what 8-bit products ask of the host.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

// Sums over the ops of a step of the first role whose names have `part` in them.
class LaunchedStep {
 public:
  LaunchedStep(const std::string& text, const std::vector<std::string>& assignments)
      : program_(lower::lower(scenario_from(text, assignments))) {}

  std::int64_t bytes(const std::string& part) const {
    return sum(part, [](const program::Role& role, const program::Op& op) {
      const program::Work w = program::work_of(role, op);
      return w.bytes_read + w.bytes_written;
    });
  }
  std::int64_t launches(const std::string& part) const {
    return sum(part, [](const program::Role&, const program::Op& op) { return op.launches; });
  }

 private:
  template <class F>
  std::int64_t sum(const std::string& part, F value) const {
    return sum_over_step(program_.roles[0], [&](const program::Role& r, const program::Op& op) {
      return op.name.find(part) < op.name.size() ? value(r, op) : std::int64_t{0};
    });
  }
  program::Program program_;
};

LaunchedStep residual(const std::string& framework, const std::string& precision) {
  return {
      "rehearse: 1\n"
      "model: {family: cnn, image: {channels: 3, size: 32}, residual_block: basic, residual_layers: [1, 1], "
      "widths: [8]}\n"
      "cluster: {gpus: 2}\nplan: {micro_batch: 4}\n"
      "training: {global_batch: 8, optimizer: sgd, clip: 0}\n",
      {"framework=" + framework, "training.precision=" + precision}};
}

// The first block's sum is of 4 images of 64 maps of 8 x 8, in 16 bits: ReLU in the normalisation's kernel moves
// nothing, the sum reads the other branch, the ReLU behind it leaves a bit an element and, in backward, reads that and
// writes the other branch's gradient.
TEST(FusedNorm, MakesTheSumAndReluInItsKernels) {
  constexpr std::int64_t kSummed = 4 * 64 * 8 * 8;
  const LaunchedStep mxnet = residual("mxnet", "fp16"), plain = residual("rehearse", "fp16");
  EXPECT_EQ(mxnet.bytes("unit1.0.residual.body.2.relu"), 0);
  EXPECT_EQ(plain.bytes("unit1.0.residual.body.2.relu.forward"), 4 * kSummed);
  EXPECT_EQ(mxnet.bytes("unit1.0.residual.add"), 2 * 2 * kSummed) << "forward, and where gradients meet";
  EXPECT_EQ(mxnet.bytes("unit1.1.relu.forward"), kSummed / 8);
  EXPECT_EQ(mxnet.bytes("unit1.1.relu.backward"), kSummed / 8 + 2 * kSummed);
  EXPECT_EQ(mxnet.launches("relu"), 0);
  EXPECT_EQ(plain.launches("relu"), 2 * 5) << "of the stem, and two of each block";
  EXPECT_EQ(mxnet.bytes("norm.forward"), plain.bytes("norm.forward"));
}

TEST(FusedNorm, IsOfSixteenBitsInMxnetAndOfBothInXla) {
  EXPECT_EQ(residual("mxnet", "fp32").launches("relu"), 10);
  EXPECT_EQ(residual("tensorflow-xla", "fp32").launches("relu"), 0);
  EXPECT_EQ(residual("torch-ddp", "fp16").launches("relu"), 10);
}

// 2 sequences of 32 tokens, 4 heads of 16: 8,192 scores of 2 bytes a layer.
TEST(NvidiaBert, ScalesScoresApartAndCopiesTheContext) {
  const std::string text =
      "rehearse: 1\nmodel: {family: bert, layers: 1, hidden: 64, heads: 4, vocab: 104, max_seq_len: 32}\n"
      "cluster: {gpus: 1}\nplan: {micro_batch: 2}\ntraining: {global_batch: 2, seq_len: 32, precision: fp16}\n";
  const LaunchedStep bert(text, {"framework=nvidia-bert"});
  const LaunchedStep fused(text, {"framework=rehearse", "model.attention=unfused", "model.dropout=0.1"});
  constexpr std::int64_t kScores = 2 * 4 * 32 * 32 * 2, kRows = 2 * 32 * 64 * 2;
  for (const char* op : {"attention.softmax", "attention.softmax.backward"}) {
    const bool both = std::string(op) == "attention.softmax";  // its name is in the other's
    EXPECT_EQ(bert.bytes(op) - fused.bytes(op), (both ? 2 : 1) * 2 * kScores) << "read and written once more";
    EXPECT_EQ(bert.launches(op) - fused.launches(op), both ? 2 : 1);
  }
  EXPECT_EQ(bert.launches("attention.context") - fused.launches("attention.context"), 1);
  EXPECT_EQ(bert.bytes("attention.context") - fused.bytes("attention.context"), 2 * kRows);
  EXPECT_EQ(bert.launches("d_layer0.attention.branches"), 3) << "and two sums of three products' gradients";
  EXPECT_EQ(bert.bytes("d_layer0.attention.branches"), 3 * 3 * kRows);
}

// 8 experts on 2 ranks. A heuristic and a product, in mxfp8 two kernels for scales; a kernel and tensors for a cast.
TEST(Fp8Host, IsAskedForMoreThanAProductAnExpert) {
  const std::string text =
      "rehearse: 1\nframework: nemo\n"
      "model: {family: moe, layers: 1, hidden: 64, heads: 4, ffn_hidden: 64, vocab: 128, max_seq_len: 32, experts: 8, "
      "experts_per_token: 2, expert_ffn_hidden: 64, capacity_factor: 1}\n"
      "cluster: {gpus: 2}\nplan: {expert: 2, micro_batch: 1}\ntraining: {global_batch: 2, seq_len: 32}\n";
  const auto launches = [&](const std::vector<std::string>& precision, const char* op) {
    return LaunchedStep(text, precision).launches(op);
  };
  const std::vector<std::string> bf16{"training.precision=bf16"}, delayed{"training.precision=fp8"},
      mxfp8{"training.precision=fp8", "training.fp8_recipe=mxfp8"};
  for (const char* op : {"experts.up.forward", "experts.up.backward_input", "experts.up.backward_weight"}) {
    EXPECT_EQ(launches(bf16, op), 4);
    EXPECT_EQ(launches(delayed, op), 4 * 2);
    EXPECT_EQ(launches(mxfp8, op), 4 * (2 + 2));
  }
  EXPECT_EQ(launches(mxfp8, "attention.proj.forward"), 4);
  EXPECT_EQ(launches(mxfp8, "d_layer0.experts.up.out.fp8_cast"), 4 * 2);
}

// How many of forward's partial sums live when the body ends, after whose last op they are released: two a layer.
TEST(HeldSums, LiveUntilForwardHasEnded) {
  const std::string text =
      "rehearse: 1\nmodel: {family: llama, layers: 3, hidden: 64, heads: 4, ffn_hidden: 128, vocab: 128, max_seq_len: "
      "32}\ncluster: {gpus: 2}\nplan: {tensor: 2, micro_batch: 1}\ntraining: {global_batch: 2, seq_len: 32}\n";
  const auto held = [&](const char* framework) {
    const program::Program program = lower::lower(scenario_from(text, {std::string("framework=") + framework}));
    std::ptrdiff_t most = 0;
    for (const program::Body& body : program.roles[0].bodies) {
      const auto& freed = body.ops.back().releases;
      most = std::max(most, std::count_if(freed.begin(), freed.end(), [&](const program::Operand& o) {
                        return program.roles[0].buffers[static_cast<std::size_t>(o.buffer)].name.find("projected") !=
                               std::string::npos;
                      }));
    }
    return most;
  };
  EXPECT_EQ(held("nanotron"), 3 * 2);
  EXPECT_EQ(held("megatron-core"), 0);
}

LaunchedStep deterministic(const std::string& framework, const std::string& rest) {
  return {
      "rehearse: 1\n"
      "model: {family: gpt, layers: 2, hidden: 64, heads: 4, ffn_hidden: 256, vocab: 128, max_seq_len: 32}\n"
      "cluster: {gpus: 1, topology: dgx-h100}\nplan: {micro_batch: 2}\n"
      "training: {global_batch: 2, deterministic: true" +
          rest + "}\n",
      {"framework=" + framework}};
}

// 64 tokens of 64 columns in 16 bits. With Transformer Engine the results of a layer's products are filled, with
// PyTorch's own not; norms, attention and casts of logits are with both, and the head's product with neither.
TEST(FillsNewTensors, AreOfWhatAllocatesByEmpty) {
  constexpr std::int64_t kWidth = 64 * 64 * 2;
  const LaunchedStep megatron = deterministic("megatron-core", ""), torch = deterministic("torch-fsdp", "");
  EXPECT_EQ(megatron.bytes("layer0.attention.qkv.forward.fill"), 3 * kWidth);
  EXPECT_EQ(megatron.bytes("layer0.mlp.up.forward.fill"), 4 * kWidth);
  EXPECT_EQ(megatron.bytes("layer0.mlp.down.backward_input.fill"), 4 * kWidth);
  EXPECT_EQ(torch.bytes("layer0.mlp.up.forward.fill"), 0);
  for (const LaunchedStep* step : {&megatron, &torch}) {
    EXPECT_EQ(step->bytes("head.backward_input.fill") + step->bytes("head.forward.fill"), 0);
    EXPECT_GT(step->bytes("head.forward"), 0);
    EXPECT_EQ(step->bytes("layer0.norm1.backward_input.fill"), kWidth);
    EXPECT_EQ(step->bytes("layer0.attention.flash_backward.fill"), 3 * kWidth);
  }
  EXPECT_EQ(megatron.bytes("logits.cast.fill"), 64 * 128 * 4) << "fp32 logits of 128 words";
  EXPECT_EQ(deterministic("megatron-core", ", fill_uninitialized: false").launches(".fill"), 0);
  EXPECT_EQ(deterministic("rehearse", "").launches(".fill"), 0);
}

// What adds to a tensor finds what is there: the gradients of a step.
TEST(FillsNewTensors, AreNotOfWhatIsAddedTo) {
  const LaunchedStep step = deterministic("megatron-core", "");
  EXPECT_EQ(step.launches("backward_weight.fill"), 0) << "weight gradients accumulate in the product";
  EXPECT_EQ(step.launches("accumulate.fill"), 0);
}

}  // namespace
}  // namespace rehearse
