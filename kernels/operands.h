// Operands of a Device's calls that may be of half precision: where they lie, with their type.
#pragma once

#include <cstddef>

#include "kernels/fp8_layout.h"
#include "sim/base/dtype.h"

namespace rehearse::kernels {

// Elements of one type, only read; converts from float*. Null: operand not there. Those of 8 bits have a layout, and
// only products read them.
struct In {
  const void* data = nullptr;
  DType type = DType::f32;
  const Fp8Layout* layout = nullptr;

  constexpr In() = default;
  constexpr In(std::nullptr_t) {}
  constexpr In(const float* p) : data(p) {}
  constexpr In(const void* p, DType t) : data(p), type(t) {}
  constexpr In(const void* p, DType t, const Fp8Layout* l) : data(p), type(t), layout(l) {}
  explicit constexpr operator bool() const { return data != nullptr; }
};
// Elements of one type, written, or read and written.
struct Out {
  void* data = nullptr;
  DType type = DType::f32;

  constexpr Out() = default;
  constexpr Out(std::nullptr_t) {}
  constexpr Out(float* p) : data(p) {}
  constexpr Out(void* p, DType t) : data(p), type(t) {}
  constexpr operator In() const { return {data, type}; }
  explicit constexpr operator bool() const { return data != nullptr; }
};

}  // namespace rehearse::kernels
