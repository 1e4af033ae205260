// See library_attention.h.
#include "kernels/cuda/library_attention.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "sim/base/half.h"

namespace rehearse::kernels::cuda {
namespace {

// What the library is asked for at all.
bool may_be_the_librarys(const AttentionShape& s, const DropoutSite& dropout, std::initializer_list<In> operands) {
  const DType type = operands.begin()->type;
  for (const In& o : operands)
    if (o.type != type || reinterpret_cast<std::uintptr_t>(o.data) % 16 != 0) return false;
  return is_half(type) && dropout.probability == 0 && s.causal && s.window == 0 && s.document_starts == nullptr &&
         (s.value_dim == 0 || s.value_dim == s.head_dim) && s.head_dim % 8 == 0;
}

bool captured(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  REHEARSE_CUDA(cudaStreamIsCapturing(stream.get(), &status));
  return status != cudaStreamCaptureStatusNone;
}

std::int64_t tokens(const AttentionShape& s) {
  return s.seq * s.micro_batch;
}

}  // namespace

LibraryAttention::LibraryAttention(std::unique_ptr<Sdpa> library, std::string reason, Stream& stream)
    : library_(std::move(library)), reason_(std::move(reason)), stream_(stream) {}

std::vector<LibraryAttention::Performed> LibraryAttention::performed() const {
  std::vector<Performed> list;
  for (const auto& [key, decision] : decisions_) list.push_back(decision.performed);
  return list;
}

const LibraryAttention::Decision* LibraryAttention::decide(Sdpa::Pass pass, const AttentionShape& s, DType type,
                                                           const std::function<std::string()>& compare, bool* first) {
  const Key key{pass, s.micro_batch, s.heads, s.kv_heads, s.seq, s.head_dim, type};
  *first = false;
  if (const auto found = decisions_.find(key); found != decisions_.end()) return &found->second;
  if (captured(stream_)) return nullptr;
  std::string plan, problem = reason_;
  if (library_) try {
      plan = library_->prepare(pass, s, type);
      problem = compare();
    } catch (const DeviceError& error) {
      problem = error.what();
      (void)cudaGetLastError();  // of an allocation, say: told already
    }
  *first = true;
  const bool taken = problem.empty();
  const std::string by =
      taken ? fmt::format("cuDNN {} {}", library_->version(), plan) : fmt::format("own kernels: {}", problem);
  return &decisions_.emplace(key, Decision{{pass, s, type, by}, taken}).first->second;
}

std::string LibraryAttention::difference(const char* what, const void* library, const void* own, std::int64_t n,
                                         DType type, double most) const {
  const auto host = [&](const void* from) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(n * size_of(type)));
    copy(bytes.data(), from, bytes.size(), stream_);
    stream_.synchronize();
    std::vector<float> numbers(static_cast<std::size_t>(n));
    to_float(type, bytes.data(), n, numbers.data());
    return numbers;
  };
  const std::vector<float> x = host(library), y = host(own);
  double off = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - y[i];
    off += d * d;
    norm += static_cast<double>(y[i]) * y[i];
  }
  const double relative = norm > 0 ? std::sqrt(off / norm) : std::sqrt(off);
  return relative <= most ? "" : fmt::format("cuDNN's {} is {:.2g} off ours, {:.2g} may be", what, relative, most);
}

bool LibraryAttention::forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp,
                               const std::function<void()>& own) {
  if (!may_be_the_librarys(s, dropout, {qkv, out})) return false;
  const std::int64_t n = tokens(s) * s.heads * s.head_dim, rows = tokens(s) * s.heads;
  bool first = false;
  const Decision* decision = decide(
      Sdpa::Pass::forward, s, qkv.type,
      [&] {
        const DeviceMemory result(static_cast<std::size_t>(n * size_of(out.type)));
        const DeviceMemory sums(static_cast<std::size_t>(rows) * sizeof(float));
        own();
        library_->forward(s, qkv, {result.data(), out.type}, sums.as<float>(), stream_.get());
        std::string problem = difference("output", result.data(), out.data, n, out.type, kSame[out.type == DType::f16]);
        if (problem.empty()) problem = difference("logsumexp", sums.data(), logsumexp, rows, DType::f32, kSameRows);
        return problem;
      },
      &first);
  if (decision == nullptr || !decision->library) return false;
  if (!first) library_->forward(s, qkv, out, logsumexp, stream_.get());
  return true;
}

bool LibraryAttention::backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                                const float* logsumexp, Out d_qkv, const std::function<void()>& own) {
  if (!may_be_the_librarys(s, dropout, {qkv, d_out, out, d_qkv})) return false;
  const std::int64_t n = tokens(s) * (s.heads + 2 * s.kv_heads) * s.head_dim;
  bool first = false;
  const Decision* decision = decide(
      Sdpa::Pass::backward, s, qkv.type,
      [&] {
        const DeviceMemory result(static_cast<std::size_t>(n * size_of(d_qkv.type)));
        own();
        library_->backward(s, d_out, qkv, out, logsumexp, {result.data(), d_qkv.type}, stream_.get());
        return difference("gradient", result.data(), d_qkv.data, n, d_qkv.type, kSame[d_qkv.type == DType::f16]);
      },
      &first);
  if (decision == nullptr || !decision->library) return false;
  if (!first) library_->backward(s, d_out, qkv, out, logsumexp, d_qkv, stream_.get());
  return true;
}

}  // namespace rehearse::kernels::cuda
