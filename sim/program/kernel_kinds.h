// Which kernels of a program are alike: the same op on buffers of the same forms, whatever their names. A model has few
// kinds of kernels and many layers, on many stages: what is asked of a kernel alone need be asked once a kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::program {

// Alike are kernels with the same shape, type, phase, launches, passes and fusing, on streams of one kind, whose
// operands are buffers of the same types and shapes in the same memory. Kinds are numbered in the order in which they
// first come.
class KernelKinds {
 public:
  explicit KernelKinds(const Program& program);

  std::size_t count() const { return count_; }
  // kNone: a transfer or a sync.
  static constexpr std::int32_t kNone = -1;
  std::int32_t of(std::size_t role, BodyId body, std::int32_t op) const {
    return kinds_[first_op_[first_body_[role] + static_cast<std::size_t>(body)] + static_cast<std::size_t>(op)];
  }

 private:
  std::vector<std::size_t> first_body_;  // by role, in first_op_
  std::vector<std::size_t> first_op_;    // by role and body, in kinds_
  std::vector<std::int32_t> kinds_;
  std::size_t count_ = 0;
};

}  // namespace rehearse::program
