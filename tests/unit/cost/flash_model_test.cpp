// Attention whose values are not as wide as queries and keys: the rate of its fused kernels, and its unfused products.
#include "sim/cost/flash_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "sim/cost/cost.h"
#include "sim/cost/device_file.h"
#include "sim/cost/kernel_shape.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

program::Attention attention(std::int64_t head_dim, std::int64_t value_dim) {
  program::Attention a;
  a.micro_batch = 1, a.heads = a.kv_heads = 16, a.seq = 4096, a.head_dim = head_dim, a.value_dim = value_dim;
  return a;
}

// Rate 1e14, half of it with heads of 64 columns: 192 and 128 columns have the rate of 128, 96 and 64 (80 on average)
// that of 80 alike, 1 - 48 / 64 / 2 of it.
TEST(FlashModel, TheRateIsThatOfTheMeanWidth) {
  FlashRate rate;
  rate.rate = 1e14, rate.tail = 1, rate.ramp = 50, rate.head_dim_64 = 0.5;
  const auto seconds = [&](std::int64_t head_dim, std::int64_t value_dim) {
    return flash_compute_seconds(attention(head_dim, value_dim), rate, 1, 1e12, 132, 132);
  };
  EXPECT_DOUBLE_EQ(seconds(192, 128), seconds(128, 0));
  EXPECT_DOUBLE_EQ(seconds(96, 64), seconds(80, 80));
  EXPECT_DOUBLE_EQ(seconds(96, 64), seconds(128, 128) / (1 - 0.5 * 48 / 64));
}

// Against a count of pairs of tiles one by one: tile q of queries takes tile k of keys if any of its queries sees any.
TEST(FlashModel, ATileTakesTheTilesThatItsWindowTouches) {
  for (const std::int64_t seq : {128, 500, 1024, 1153})
    for (const std::int64_t window : {1, 2, 100, 128, 129, 130, 256, 257, 258, 1000, 5000}) {
      std::int64_t visited = 0;
      for (std::int64_t q = 0; q < seq; q += 128)
        for (std::int64_t k = 0; k <= q; k += 128) visited += k + 127 > q - window ? 1 : 0;
      EXPECT_EQ(visited_tiles(seq, window), visited) << seq << " " << window;
    }
  EXPECT_EQ(visited_tiles(1024, 0), 36);
}

// Tables of kernels know causal attention, half of whose counted FLOPs are computed: 917,760 pairs through a window of
// 512, of 2,098,176 that 2,048 queries see in all.
TEST(FlashModel, FlopsOfAWindowAreComparedByPairs) {
  test::OneOp one = test::attention(program::AttentionPart::flash_forward, 1, 16, 2048);
  EXPECT_EQ(comparable_flops(one.op, 1e12), 1e12);
  auto& a = std::get<program::Attention>(one.op.shape);
  a.window = 512;
  EXPECT_DOUBLE_EQ(comparable_flops(one.op, 1e12 / 4), 1e12 * 917'760 / 2'098'176);
  a.part = program::AttentionPart::scores;  // all are computed
  EXPECT_EQ(comparable_flops(one.op, 1e12), 1e12);
}

// One SM, no ramp and no tail: the time is the FLOPs of the tiles taken, half of all keys' for causal attention. 32
// tiles of 4,096 tokens take 528 of themselves, and through a window of 1,024, which reaches 8 tiles back, 252.
TEST(FlashModel, AWindowTakesTheTimeOfItsTiles) {
  FlashRate rate;
  rate.rate = 1e12;
  program::Attention a = attention(128, 128);
  const double causal = flash_compute_seconds(a, rate, 1, 1e12, 1, 1);
  a.window = 1024;
  EXPECT_DOUBLE_EQ(flash_compute_seconds(a, rate, 1, 1e12 / 4, 1, 1), causal * 252 / 528);
  // Every tile of queries is as long as any other, but for the first: half the tail, more or less.
  rate.tail = 1;
  const double whole = flash_compute_seconds(a, rate, 1, 1e12 / 4, 100, 100);
  EXPECT_DOUBLE_EQ(whole, causal * 252 / 528 * (1 + 0.625 * 100 / 512));
  // A window of all but one token is causal attention, but for a rounding of the tail.
  a.window = 4095;
  rate.ramp = 50;
  const double almost = flash_compute_seconds(a, rate, 1, 1e12 * 4095 / 4096, 100, 100);
  a.window = 0;
  EXPECT_NEAR(almost / flash_compute_seconds(a, rate, 1, 1e12, 100, 100), 1, 1e-4);
}

// Of two ranks that gather keys each has half of the queries, and of the window's pairs and tiles.
TEST(FlashModel, AWindowOfGatheredKeysIsSharedEvenly) {
  FlashRate rate;
  rate.rate = 1e12;
  program::Attention whole = attention(128, 128);
  whole.window = 3072;  // more than a rank has queries
  program::Attention part = whole;
  part.seq = 2048, part.keys = 4096, part.key_steps = -1;
  EXPECT_DOUBLE_EQ(2 * flash_compute_seconds(part, rate, 1, 0.5e12, 1, 1),
                   flash_compute_seconds(whole, rate, 1, 1e12, 1, 1));
  test::OneOp one = test::attention(program::AttentionPart::flash_forward, 1, 16, 4096);
  auto& a = std::get<program::Attention>(one.op.shape);
  a.window = 3072;
  const double of_whole = comparable_flops(one.op, 1e12);
  a.seq = 2048, a.keys = 4096;
  EXPECT_DOUBLE_EQ(2 * comparable_flops(one.op, 0.5e12), of_whole);
}

// Queries of which each rank has half of a sequence, or whole sequences of half of the heads: packed documents through
// a window take as long.
TEST(FlashModel, AWindowOfPackedDocumentsIsSharedEvenly) {
  const auto flops = [](std::int64_t seq, std::int64_t keys) {
    test::OneOp one = test::attention(program::AttentionPart::flash_forward, 1, 16, 4096);
    auto& a = std::get<program::Attention>(one.op.shape);
    a.seq = seq, a.keys = keys, a.document = 3072, a.window = 512;
    return comparable_flops(one.op, 1e12);
  };
  EXPECT_DOUBLE_EQ(flops(2048, 4096), flops(4096, 0));
  FlashRate rate;
  rate.rate = 1e12;
  program::Attention whole = attention(128, 128);
  whole.document = 3072, whole.window = 512;
  program::Attention part = whole;
  part.seq = 2048, part.keys = 4096, part.key_steps = -1;
  EXPECT_DOUBLE_EQ(flash_compute_seconds(part, rate, 1, 1e12, 1, 1), flash_compute_seconds(whole, rate, 1, 1e12, 1, 1));
}

// A kernel of variable lengths takes 8 documents of 512 tokens as a batch of 8 sequences of 512.
TEST(FlashModel, PackedSequencesAreAsManyShortOnes) {
  FlashRate rate;
  rate.rate = 1e12, rate.tail = 1, rate.ramp = 50;
  program::Attention packed = attention(128, 128), apart = packed;
  packed.document = 512;
  apart.seq = 512, apart.micro_batch *= packed.seq / 512;
  const double flops = 1e12;
  EXPECT_DOUBLE_EQ(flash_compute_seconds(packed, rate, 1, flops, 100, 100),
                   flash_compute_seconds(apart, rate, 1, flops, 100, 100));
  packed.window = apart.window = 200;
  EXPECT_DOUBLE_EQ(flash_compute_seconds(packed, rate, 1, flops, 100, 100),
                   flash_compute_seconds(apart, rate, 1, flops, 100, 100));
  packed.document = packed.seq, packed.window = 0;
  EXPECT_DOUBLE_EQ(flash_compute_seconds(packed, rate, 1, flops, 100, 100),
                   flash_compute_seconds(attention(128, 128), rate, 1, flops, 100, 100));
}

TEST(FlashModel, UnfusedProductsHaveTheWidthOfWhatTheyMultiply) {
  using program::AttentionPart;
  const auto shape = [](AttentionPart part) {
    test::OneOp one;
    program::Attention a = attention(192, 128);
    a.part = part;
    one.op.shape = a;
    one.op.dtype = program::DType::bf16;
    return product_of(one.role, one.op).value();
  };
  for (const AttentionPart part : {AttentionPart::scores, AttentionPart::scores_backward_query}) {
    const GemmShape s = shape(part);
    EXPECT_EQ(part == AttentionPart::scores ? s.k : s.n, 192);
  }
  EXPECT_EQ(shape(AttentionPart::scores_backward_key).n, 192);
  EXPECT_EQ(shape(AttentionPart::context).n, 128);
  EXPECT_EQ(shape(AttentionPart::context_backward_value).n, 128);
  EXPECT_EQ(shape(AttentionPart::context_backward_probs).k, 128);
}

// 16 heads of 4096 x 4096 / 2 scores on 100 multiprocessors of 1 GHz: 0.025 cycles each forward, 0.2 backward.
TEST(FlashModel, DropoutTakesCyclesForEachScoreWhateverTheColumns) {
  program::Attention a = attention(128, 0);
  a.dropout = 0.1;
  const double scores = 16 * 4096.0 * 4096;
  const auto seconds = [&](double flops) { return flash_dropout_seconds(a, flops, 100, 1e9); };
  EXPECT_DOUBLE_EQ(seconds(scores * 4 * 128), scores / 2 * 0.025 / 100e9);
  a.causal = false;
  EXPECT_DOUBLE_EQ(seconds(scores * 4 * 128), scores * 0.025 / 100e9);
  a.head_dim = 192, a.value_dim = 128;
  EXPECT_DOUBLE_EQ(seconds(scores * 2 * (192 + 128)), scores * 0.025 / 100e9);
  a.part = program::AttentionPart::flash_backward;
  EXPECT_DOUBLE_EQ(seconds(scores * 2 * (3 * 192 + 2 * 128)), scores * 0.2 / 100e9);
  a.dropout = 0;
  EXPECT_EQ(seconds(scores * 4 * 128), 0);
}

// 16 heads on 108 multiprocessors have 7 blocks each, 112 in all, which all have the same number of 7 tiles: two waves.
TEST(FlashModel, ADeterministicBackwardTakesWavesOfBlocks) {
  program::Attention a = attention(128, 128);
  a.causal = false, a.seq = 7 * 128 * 2;
  const SplitBackward split = split_backward(a, 108, 108);
  EXPECT_EQ(split.blocks, 7);
  EXPECT_DOUBLE_EQ(split.makespan, 2.0 * 108 / 112);
  // With 112 multiprocessors one wave, in which none idles; but still 7 blocks a head, by the device's own 108.
  EXPECT_DOUBLE_EQ(split_backward(a, 108, 112).makespan, 1);
  FlashRate rate;
  rate.rate = 1e14, rate.tail = 3, rate.ramp = 50;
  FlashRate busy = rate;
  busy.tail = 0;
  EXPECT_DOUBLE_EQ(flash_split_seconds(a, rate, 1, 1e12, 108, 108),
                   flash_compute_seconds(a, busy, 1, 1e12, 108, 108) * 2 * 108 / 112);
}

// A causal head's first tile of keys is multiplied with all tiles of queries, its last with one: of 4 tiles two blocks
// have 4 + 2 and 3 + 1. On two multiprocessors the longer one decides.
TEST(FlashModel, BlocksOfACausalHeadHaveUnlikeWork) {
  program::Attention a = attention(128, 128);
  a.heads = a.kv_heads = 1, a.seq = 4 * 128;
  const SplitBackward split = split_backward(a, 2, 2);
  EXPECT_EQ(split.blocks, 2);
  EXPECT_DOUBLE_EQ(split.makespan, 6.0 * 2 / 10);
}

double backward_seconds(const char* device, program::AttentionKernel kernel, bool deterministic, bool filled) {
  test::OneOp one = test::attention(program::AttentionPart::flash_backward, 2, 8, 8192);
  auto& a = std::get<program::Attention>(one.op.shape);
  a.kernel = kernel, a.deterministic = deterministic, a.filled = filled;
  const std::string file = find_device_file(device, REHEARSE_SOURCE_DIR);
  return load_costs({file})->kernel(one.role, one.op, {}).duration.seconds();
}

// 16 heads of 8,192 tokens. On an A100 FlashAttention-2, whichever was asked for, takes two waves of blocks; on an H100
// cuDNN's gradients of all scores, 2 bytes each, are filled first; on a B200 its backward takes 1.15 times as long.
TEST(FlashModel, DevicesHaveTheirDeterministicBackward) {
  using program::AttentionKernel;
  const auto ratio = [](const char* device, AttentionKernel kernel) {
    return backward_seconds(device, kernel, true, false) / backward_seconds(device, kernel, false, false);
  };
  for (const AttentionKernel kernel : {AttentionKernel::cudnn, AttentionKernel::flash2, AttentionKernel::sdpa_flash}) {
    EXPECT_GT(ratio("a100-sxm-80g", kernel), 1.8);
    EXPECT_LT(ratio("a100-sxm-80g", kernel), 2.2);
  }
  EXPECT_NEAR(ratio("b200-sxm", AttentionKernel::cudnn), 1.15, 1e-9);
  EXPECT_NEAR(ratio("h100-sxm", AttentionKernel::flash3), 1.21, 1e-9);
  const double filled = backward_seconds("h100-sxm", AttentionKernel::cudnn, true, true) -
                        backward_seconds("h100-sxm", AttentionKernel::cudnn, true, false);
  EXPECT_NEAR(filled, 16.0 * 8192 * 8192 * 2 / (3350e9 * 0.83), 1e-9);
}

// 16 heads of 8,192 tokens and 128 columns. On an A100 (108 multiprocessors) 7 blocks a head have gradients of queries
// in fp32 each, on an H100 cuDNN writes the gradients of all scores in 16 bits; what has a factor, and what need not
// give the same bits, takes nothing.
TEST(FlashModel, ADeterministicBackwardTakesMemory) {
  using program::AttentionKernel;
  const auto bytes = [](const char* device, AttentionKernel kernel, bool deterministic) {
    test::OneOp one = test::attention(program::AttentionPart::flash_backward, 2, 8, 8192);
    auto& a = std::get<program::Attention>(one.op.shape);
    a.kernel = kernel, a.deterministic = deterministic;
    EXPECT_EQ(a.head_dim, 128);
    const auto costs = load_costs({find_device_file(device, REHEARSE_SOURCE_DIR)});
    const auto blocking = with_blocking_launches(load_costs({find_device_file(device, REHEARSE_SOURCE_DIR)}), Time());
    EXPECT_EQ(blocking->own_memory(one.op), costs->own_memory(one.op));
    return costs->own_memory(one.op);
  };
  EXPECT_EQ(bytes("a100-sxm-80g", AttentionKernel::cudnn, true), std::int64_t{7} * 4 * 16 * 8192 * 128);
  EXPECT_EQ(bytes("a100-sxm-80g", AttentionKernel::flash2, true), std::int64_t{7} * 4 * 16 * 8192 * 128);
  EXPECT_EQ(bytes("h100-sxm", AttentionKernel::cudnn, true), std::int64_t{2} * 16 * 8192 * 8192);
  EXPECT_EQ(bytes("h100-sxm", AttentionKernel::flash3, true), 0);
  EXPECT_EQ(bytes("b200-sxm", AttentionKernel::cudnn, true), 0);
  EXPECT_EQ(bytes("h100-sxm", AttentionKernel::cudnn, false), 0);
}

// PyTorch's scaled_dot_product_attention with its flash backend on an H200 whose clock was held at 1980 MHz, TFLOP/s
// (NVIDIA/cudnn-frontend@505fcfeb benchmark/benchmark_results.csv): 16 heads of 128 columns. The device's rates are
// those of its bursts, times the scale of long runs. Where a device file has no such rates, flash2's are taken.
TEST(FlashModel, PytorchsOwnBuildOfFlashAttention2) {
  struct Timed {
    std::int64_t batch, seq;
    bool causal;
    double forward, backward;
  };
  constexpr Timed kTimed[] = {{4, 4096, false, 354.24, 287.36},  {2, 8192, false, 355.40, 303.29},
                              {1, 16384, false, 357.15, 308.87}, {1, 32768, false, 349.25, 312.49},
                              {1, 65536, false, 353.12, 321.91}, {4, 4096, true, 314.06, 248.76},
                              {2, 8192, true, 325.14, 277.44},   {1, 16384, true, 324.77, 305.18},
                              {1, 32768, true, 345.30, 317.28},  {1, 65536, true, 342.65, 323.16}};
  const auto costs = load_costs({find_device_file("h200-sxm", REHEARSE_SOURCE_DIR)});
  const auto tflops = [&](const Timed& t, program::AttentionPart part, program::AttentionKernel kernel) {
    test::OneOp one = test::attention(part, t.batch, 16, t.seq);
    auto& a = std::get<program::Attention>(one.op.shape);
    a.kernel = kernel, a.causal = t.causal;
    const double products = part == program::AttentionPart::flash_backward ? 5 : 2;
    const double flops = 2.0 * products * static_cast<double>(t.batch * 16 * t.seq) * static_cast<double>(t.seq) * 128;
    return flops * (t.causal ? 0.5 : 1) / costs->kernel(one.role, one.op, {}).duration.seconds() / 0.96e12;
  };
  double own = 0, flash2 = 0;
  for (const Timed& t : kTimed) {
    for (const auto& [part, measured] : {std::pair(program::AttentionPart::flash_forward, t.forward),
                                         std::pair(program::AttentionPart::flash_backward, t.backward)}) {
      own += std::fabs(std::log(tflops(t, part, program::AttentionKernel::sdpa_flash) / measured)) / 20;
      flash2 += std::fabs(std::log(tflops(t, part, program::AttentionKernel::flash2) / measured)) / 20;
    }
  }
  EXPECT_LT(own, 0.025);
  EXPECT_GT(flash2, 0.05);
  EXPECT_EQ(backward_seconds("a100-sxm-80g", program::AttentionKernel::sdpa_flash, false, false),
            backward_seconds("a100-sxm-80g", program::AttentionKernel::flash2, false, false));
}

// Of each device that has timings of 192 and 128 columns the rates lie within 4.5% of them in the mean, 13% at worst.
TEST(FlashModel, WideHeadsTakeWhatWasTimedOfThem) {
  for (const std::string name : {"gb200", "gb300", "b300-sxm"}) {
    const DeviceData data = read_device_files({find_device_file(name, REHEARSE_SOURCE_DIR)});
    const FlashKernel& kernel = data.flash.fastest;
    ASSERT_EQ(kernel.wide_points.size(), 20U) << name;
    const int sms = name == "b300-sxm" ? 152 : data.device.sms;  // of the device that was timed
    double sum = 0;
    for (const FlashPoint& p : kernel.wide_points) {
      program::Attention a;
      a.micro_batch = p.batch, a.heads = p.heads, a.kv_heads = p.kv_heads, a.seq = p.seq, a.causal = p.causal;
      a.head_dim = p.head_dim, a.value_dim = p.value_dim;
      const FlashRate& rate = p.backward ? *kernel.wide_backward : *kernel.wide_forward;
      const double flops = flash_flops(p), measured = flops / p.flops_per_second;
      const double off =
          std::log(measured / (data.kernel_time.seconds() + flash_compute_seconds(a, rate, 1, flops, sms, sms)));
      EXPECT_LT(std::fabs(off), 0.13) << name << " " << p.seq << " " << p.backward << p.causal;
      sum += std::fabs(off) / 20;
    }
    EXPECT_LT(sum, 0.045) << name;
  }
}

// A file's own scale of wide heads, and its timing of the very shape.
TEST(FlashModel, WideHeadsHaveTheirOwnScale) {
  const DeviceData data = read_device_files({find_device_file("gb200", REHEARSE_SOURCE_DIR)});
  EXPECT_NE(data.flash.fastest.wide_scale.value, data.flash.fastest.scale.value);
  const auto costs = load_costs({find_device_file("gb200", REHEARSE_SOURCE_DIR)});
  test::OneOp one = test::attention(program::AttentionPart::flash_forward, 2, 128, 4096);
  one.op.dtype = program::DType::bf16;
  auto& a = std::get<program::Attention>(one.op.shape);
  a.head_dim = 192, a.value_dim = 128;
  const double seconds = costs->kernel(one.role, one.op, {}).duration.seconds();
  EXPECT_NEAR(seconds, 0.977e-3 / data.flash.fastest.wide_scale.value, 1e-6);
}

}  // namespace
}  // namespace rehearse::cost
