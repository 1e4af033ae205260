// Attention that a device performs by cuDNN (sdpa.h) in place of our own kernels, once it has shown that it computes
// the same: at the first call of each pass and shape both do it, and the library's numbers, in memory of their own, are
// held against ours, which stay. Outputs may differ by kSame of their norm, by type; logsumexp by kSameRows. From then
// on the library performs that pass of that shape, or ours does for good. With dropout, whose masks are the CPU's, ours
// always does.
//
// The first call waits for the stream and takes memory of the device's for as long; what the library needs stays. A
// call on a stream that is captured decides nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sdpa.h"
#include "kernels/device.h"

namespace rehearse::kernels::cuda {

class LibraryAttention {
 public:
  // As for the results of kernels that round once (docs/gpu-kernels.md): bf16, f16.
  static constexpr double kSame[] = {1e-2, 2e-3}, kSameRows = 1e-4;

  // `library` null: there is none, for `reason`.
  LibraryAttention(std::unique_ptr<Sdpa> library, std::string reason, Stream& stream);

  // `own` computes the same by our own kernels. False: nothing was done.
  bool forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp,
               const std::function<void()>& own);
  bool backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out, const float* logsumexp,
                Out d_qkv, const std::function<void()>& own);

  // Each pass of each shape that was asked for, and by what it is done: "cuDNN 9.19.0 engine 6, 256 bytes", or "own
  // kernels: ..." and why.
  struct Performed {
    Sdpa::Pass pass;
    AttentionShape shape;
    DType type;
    std::string by;
  };
  std::vector<Performed> performed() const;

 private:
  struct Decision {
    Performed performed;
    bool library = false;
  };
  using Key = std::tuple<Sdpa::Pass, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, DType>;

  // Null: not to be decided now. `compare` says what is wrong with the library's numbers; empty: nothing.
  const Decision* decide(Sdpa::Pass pass, const AttentionShape& s, DType type,
                         const std::function<std::string()>& compare, bool* first);
  std::string difference(const char* what, const void* library, const void* own, std::int64_t n, DType type,
                         double most) const;

  std::unique_ptr<Sdpa> library_;
  std::string reason_;
  Stream& stream_;
  std::map<Key, Decision> decisions_;
};

}  // namespace rehearse::kernels::cuda
