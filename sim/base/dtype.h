// Element types of buffers and operands.
#pragma once

#include <cstdint>
#include <string_view>

namespace rehearse {

enum class DType : unsigned char { f32, bf16, f16, i32, u8 };
constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[] = {"f32", "bf16", "f16", "i32", "u8"};
  return names[static_cast<int>(t)];
}

}  // namespace rehearse
