// The masks of kernels/dropout.h on the device: bit for bit those of the CPU. A chunk of eight columns is one draw.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/device.h"
#include "kernels/dropout.h"
#include "sim/base/random.h"

namespace rehearse::kernels::cuda {

// Bit i: whether column 8 * group + i of a row is kept (dropout_counter, dropout_keep): the one place that draws.
__device__ __forceinline__ unsigned kept_of_group(std::uint64_t key, std::uint64_t sequence, std::int64_t position,
                                                  std::int64_t group, unsigned threshold) {
  const auto counter = (static_cast<std::uint64_t>(position) << 32) + static_cast<std::uint64_t>(group);
  const auto words = Philox::draw(key, counter, sequence);
  unsigned bits = 0;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    bits |= static_cast<unsigned>((words[i] & 0xFFFFU) >= threshold) << 2 * i;
    bits |= static_cast<unsigned>((words[i] >> 16) >= threshold) << (2 * i + 1);
  }
  return bits;
}

struct DropoutDraw {
  unsigned threshold = 0;  // 0: everything is kept
  float kept_scale = 1;    // 1 / (1 - probability)
  std::uint64_t seed = 0, site = 0;
  const StepValues* step = nullptr;  // read by the kernel
  std::int64_t first_sequence = 0, micro_batch = 1, first_position = 0, first_head = 0;

  explicit DropoutDraw(const DropoutSite& s)
      : threshold(dropout_threshold(s.probability)),
        kept_scale(static_cast<float>(1 / (1 - s.probability))),
        seed(s.seed),
        site(s.site),
        step(s.step),
        first_sequence(s.first_sequence),
        micro_batch(s.micro_batch),
        first_position(s.first_position),
        first_head(s.first_head) {}

  __device__ std::uint64_t key() const { return mix_key(mix_key(seed, static_cast<std::uint64_t>(step->step)), site); }
  // `sequence` of the micro-batch, as one of the whole run.
  __device__ std::int64_t global_sequence(std::int64_t sequence) const {
    return step->first_sequence + first_sequence + sequence;
  }
  // Bit i: whether column 8 * group + i is kept.
  __device__ unsigned kept(std::uint64_t of_key, std::int64_t sequence, std::int64_t position,
                           std::int64_t group) const {
    return kept_of_group(of_key, static_cast<std::uint64_t>(sequence), position, group, threshold);
  }
};

}  // namespace rehearse::kernels::cuda
