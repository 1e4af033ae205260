// Operands of kernels: elements of f32, bf16 or f16, eight at a time. Kernels are templates over the type that all
// their large operands have, T; AnyType stands for operands of different types, told apart when the kernel runs (the
// branch is the same for all threads), so that a kernel has four instances and not one for each mix.
//
// Eight elements from a multiple of eight are a chunk. Chunks that lie whole in an operand at a multiple of 16 bytes
// are read and written 16 bytes at a time; what is left (the ends of rows and ranges, operands at odd addresses) one by
// one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace rehearse::kernels::cuda {

struct AnyType {};
inline constexpr int kChunk = 8;

template <class T>
constexpr DType type_of() {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return DType::bf16;
  if constexpr (std::is_same_v<T, __half>) return DType::f16;
  return DType::f32;
}

// Eight elements as they lie in memory; those of 16 bits use the first half.
template <class T>
struct Words {
  uint4 part[sizeof(T) == 2 ? 1 : 2];
};

template <class To, class From>
__device__ inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), static_cast<const void*>(&from), sizeof to);
  return to;
}
__device__ inline float bits_to_float(unsigned x) {
  return __uint_as_float(x);
}
__device__ inline float2 unpack_bf16(unsigned pair) {
  return {bits_to_float(pair << 16), bits_to_float(pair & 0xFFFF0000U)};
}
__device__ inline float2 unpack_f16(unsigned pair) {
  return __half22float2(bits_as<__half2>(pair));
}
__device__ inline unsigned pack_bf16(float a, float b) {
  return bits_as<unsigned>(__floats2bfloat162_rn(a, b));
}
__device__ inline unsigned pack_f16(float a, float b) {
  return bits_as<unsigned>(__floats2half2_rn(a, b));
}

// Read and, as a Target, written. `aligned`: data is at a multiple of 16 bytes.
template <class T>
struct Source {
  const void* data = nullptr;
  DType runtime_type = DType::f32;
  bool aligned = true;

  Source() = default;
  Source(In in) : data(in.data), runtime_type(in.type), aligned(reinterpret_cast<std::uintptr_t>(in.data) % 16 == 0) {}

  __device__ bool there() const { return data != nullptr; }
  __device__ DType type() const {
    if constexpr (std::is_same_v<T, AnyType>) return runtime_type;
    return type_of<T>();
  }
  __device__ float get(std::int64_t i) const {
    switch (type()) {
      case DType::bf16:
        return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
      case DType::f16:
        return __half2float(static_cast<const __half*>(data)[i]);
      default:
        return static_cast<const float*>(data)[i];
    }
  }

  using Raw = Words<std::conditional_t<std::is_same_v<T, AnyType>, float, T>>;
  // A whole chunk of an aligned operand, not converted yet: so that several are on their way before the first is used.
  __device__ Raw raw(std::int64_t at) const {
    Raw w;
    if (type() == DType::f32) {
      const auto* p = reinterpret_cast<const uint4*>(static_cast<const float*>(data) + at);
      w.part[0] = p[0];
      w.part[sizeof(Raw) / 16 - 1] = p[1];
    } else {
      w.part[0] = *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(data) + at);
    }
    return w;
  }
  __device__ void convert(const Raw& w, float (&v)[kChunk]) const {
    const uint4& a = w.part[0];
    if (type() == DType::f32) {
      const uint4& b = w.part[sizeof(Raw) / 16 - 1];
      const unsigned words[kChunk] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = bits_to_float(words[i]);
      return;
    }
    const unsigned pairs[kChunk / 2] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const float2 two = type() == DType::bf16 ? unpack_bf16(pairs[i]) : unpack_f16(pairs[i]);
      v[2 * i] = two.x;
      v[2 * i + 1] = two.y;
    }
  }
};

template <class T>
struct Target : Source<T> {
  Target() = default;
  Target(Out out) : Source<T>(In(out)) {}

  __device__ void put(std::int64_t i, float v) const {
    void* p = const_cast<void*>(this->data);
    switch (this->type()) {
      case DType::bf16:
        static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(v);
        return;
      case DType::f16:
        static_cast<__half*>(p)[i] = __float2half_rn(v);
        return;
      default:
        static_cast<float*>(p)[i] = v;
    }
  }
  // A whole chunk of an aligned operand.
  __device__ void put_chunk(std::int64_t at, const float (&v)[kChunk]) const {
    void* p = const_cast<void*>(this->data);
    if (this->type() == DType::f32) {
      auto* to = reinterpret_cast<float4*>(static_cast<float*>(p) + at);
      to[0] = {v[0], v[1], v[2], v[3]};
      to[1] = {v[4], v[5], v[6], v[7]};
      return;
    }
    auto* to = reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(p) + at);
    if (this->type() == DType::bf16) {
      *to = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
    } else {
      *to = {pack_f16(v[0], v[1]), pack_f16(v[2], v[3]), pack_f16(v[4], v[5]), pack_f16(v[6], v[7])};
    }
  }
};

// Elements [first, last) of the eight from `at` on: what one thread works on.
struct Chunk {
  std::int64_t at = 0;
  int first = 0, last = kChunk;
};
// The part of the chunk from `at` that lies in [begin, end).
__device__ inline Chunk clip(std::int64_t at, std::int64_t begin, std::int64_t end) {
  Chunk c{at, 0, kChunk};
  if (at < begin) c.first = begin - at < kChunk ? static_cast<int>(begin - at) : kChunk;
  if (at + kChunk > end) c.last = end > at ? static_cast<int>(end - at) : 0;
  return c;
}
__device__ inline bool whole(const Chunk& c) {
  return c.first == 0 && c.last == kChunk;
}

// Two ways to reach a chunk: Whole for whole chunks of aligned operands, Piecewise for any (what lies outside reads as
// `outside` and is not written). Kernels take one as a template argument, so that loads of several operands stand
// together, with no branch between.
struct Whole {
  template <class T>
  using Loaded = typename Source<T>::Raw;
  template <class T>
  __device__ static Loaded<T> load(const Source<T>& s, const Chunk& c) {
    return s.raw(c.at);
  }
  template <class T>
  __device__ static void values(const Source<T>& s, const Loaded<T>& l, float (&v)[kChunk]) {
    s.convert(l, v);
  }
  template <class T>
  __device__ static void store(const Target<T>& t, const Chunk& c, const float (&v)[kChunk]) {
    t.put_chunk(c.at, v);
  }
};
struct Piecewise {
  struct Values {
    float v[kChunk];
  };
  template <class T>
  using Loaded = Values;
  template <class T>
  __device__ static Values load(const Source<T>& s, const Chunk& c) {
    Values l;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) l.v[i] = i >= c.first && i < c.last ? s.get(c.at + i) : 0.0F;
    return l;
  }
  template <class T>
  __device__ static void values(const Source<T>&, const Values& l, float (&v)[kChunk]) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = l.v[i];
  }
  template <class T>
  __device__ static void store(const Target<T>& t, const Chunk& c, const float (&v)[kChunk]) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i >= c.first && i < c.last) t.put(c.at + i, v[i]);
  }
};

// --- of the host

// f.operator()<T>() for the type of all operands that are there, or for AnyType.
template <class F>
void by_type(std::initializer_list<In> operands, F&& f) {
  bool same = true;
  DType type = DType::f32;
  bool found = false;
  for (const In& o : operands) {
    if (!o) continue;
    same = same && (!found || o.type == type);
    type = o.type;
    found = true;
  }
  if (!same) return f.template operator()<AnyType>();
  if (type == DType::bf16) return f.template operator()<__nv_bfloat16>();
  if (type == DType::f16) return f.template operator()<__half>();
  f.template operator()<float>();
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
// A grid of one dimension; more blocks than a launch can have is an error of it.
inline dim3 grid_of(std::int64_t blocks) {
  return dim3(blocks > 0x7FFFFFFF ? 0xFFFFFFFFU : static_cast<unsigned>(blocks));
}

}  // namespace rehearse::kernels::cuda
