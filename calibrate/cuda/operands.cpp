#include "calibrate/cuda/operands.h"

#include <algorithm>

#include "calibrate/cuda/load_kernels.h"
#include "calibrate/lone_kernel.h"

namespace rehearse::calibrate::gpu {

std::size_t sets_for(std::int64_t bytes, std::int64_t l2_bytes, std::int64_t free_bytes) {
  constexpr std::int64_t kCaches = 4, kMost = 64;
  const std::int64_t each = std::max<std::int64_t>(bytes, 1);
  return static_cast<std::size_t>(
      std::clamp(kCaches * l2_bytes / each + 1, std::int64_t{0}, std::min(kMost, free_bytes / 2 / each)));
}

std::int64_t index_range(const program::Op& op) {
  if (const auto* e = std::get_if<program::Embedding>(&op.shape)) return e->rows;
  if (const auto* c = std::get_if<program::CrossEntropy>(&op.shape)) return std::min(c->cols, c->valid_cols);
  if (const auto* p = std::get_if<program::Pool2d>(&op.shape)) return p->window * p->window;
  return 2;
}

Operands::Operands(const Kernel& kernel, std::int64_t l2_bytes, std::int64_t free_bytes,
                   kernels::cuda::Stream& stream) {
  const program::Op& op = *kernel.op;
  const std::size_t count = sets_for(operand_bytes(*kernel.role, op), l2_bytes, free_bytes);
  std::uint64_t seed = 1;
  for (std::size_t i = 0; i < count; ++i) {
    Set& set = sets_.emplace_back();
    std::map<program::BufferId, kernels::Out> made;
    const auto of = [&](const std::vector<program::Operand>& operands) {
      std::vector<kernels::Out> list;
      for (const program::Operand& o : operands) {
        const program::Buffer& b = kernel.role->buffers[static_cast<std::size_t>(o.buffer)];
        kernels::Out& out = made[o.buffer];
        if (!out) {
          set.memory.emplace_back(static_cast<std::size_t>(b.bytes()));
          out = {set.memory.back().data(), b.dtype};
          fill_random(out.data, b.dtype, b.elements(), index_range(op), seed++, stream);
        }
        list.push_back(out);
      }
      return list;
    };
    set.reads = of(op.reads);
    set.writes = of(op.writes);
  }
}

}  // namespace rehearse::calibrate::gpu
