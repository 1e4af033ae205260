// Matrix products on the GPU by cuBLASLt, in row-major terms. What an algorithm depends on is a MatmulProblem; for
// each, descriptors and the algorithms that the library proposes (best first by its heuristic) are made once and kept.
// run() takes the first of them, as frameworks do, or with measure_with() the fastest. The heuristic depends on the
// size of the workspace, so whoever calibrates and whoever performs must give the same (blas_workspace_bytes); a
// calibration also times the others, to say what the first costs.
//
// cuBLASLt is column-major: row-major C = op(A) op(B) is asked for as C^T = op(B)^T op(A)^T, that is with the operands
// swapped, each row stride as a leading dimension; its bias, one value for each row of C^T, is then ours for each
// column. A product may end with more (Fused); the names of the library's epilogues that this takes are those of the
// swapped product: the weight gradient dW[out, in] = dY^T X has A = dY^T, which is the library's operand B, and sums
// dY's columns, one value for each row of dW, each column of the library's D: CUBLASLT_EPILOGUE_BGRADB.
//
// Deterministic: split-K partial sums only through the workspace, in the compute type (no other reduction scheme is
// allowed). One Blas is for one stream: its workspace is used by one product at a time. Not thread-safe.
// cuBLAS documentation, "Using the cuBLASLt API" (CUDA 13.0).
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/blas_api.h"
#include "sim/base/dtype.h"

namespace rehearse::kernels::cuda {

enum class MatrixType : unsigned char { f32, bf16, f16 };

MatrixType matrix_type(DType t);
std::int64_t size_of(MatrixType t);

// One matrix of a product as it lies in memory: rows `stride` elements apart, batches `batch_stride` elements apart.
struct MatrixLayout {
  MatrixType type = MatrixType::f32;
  std::int64_t stride = 0, batch_stride = 0;
  int alignment = 256;  // of the first element: bytes, a power of two, 256 at most

  auto operator<=>(const MatrixLayout&) const = default;
};

// What a product does besides. gelu: C = gelu(X) of X = op(A) op(B) (+ bias), which is stored as `aux`; gelu_backward:
// C = op(A) op(B) times gelu's slope at `aux`; bias_gradient: the sums of op(A)'s rows, m of C's type, are stored (not
// added). The library's gelu is the tanh form, as kernels/cuda/activations.h has it (the same form is PyTorch's
// _addmm_activation, pull request 104061 of pytorch/pytorch). `aux` is of C's type, and its stride a multiple of 8
// (cublasLt.h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
enum class Fused : unsigned char { none, gelu, gelu_backward, bias_gradient };

// C[m, n] (+)= op(A)[m, k] op(B)[k, n] (+ bias[n]) for each of `batch`. A is stored [m, k], or [k, m] if transposed; B
// [k, n] or [n, k].
struct MatmulProblem {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  bool bias = false;  // of C's type
  bool tf32 = false;  // f32 operands are multiplied with 10 bits of mantissa
  Fused fused = Fused::none;
  MatrixLayout a, b, c, aux;

  auto operator<=>(const MatmulProblem&) const = default;
  double flops() const;
};

// A, B of one type, dense matrices, aligned as allocations are.
MatmulProblem dense_problem(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b,
                            MatrixType ab, MatrixType c);

// Device memory.
struct MatmulOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
  void* aux = nullptr;            // Fused: gelu writes it, gelu_backward reads it
  void* bias_gradient = nullptr;  // aligned to 256 bytes
};

// "nt bf16>f32 accumulate bias gelu": what a product is besides its sizes, as cost::form_text has it of a calibrated
// one.
std::string form_text(const MatmulProblem& p);

// `p` with the alignments that these pointers have.
MatmulProblem aligned_problem(MatmulProblem p, const MatmulOperands& operands);

// One of the library's ways to do a problem. Ids are cublasLt.h's; tiles are as we see C: rows along m, cols along n.
struct Algorithm {
  cublasLtMatmulAlgo_t opaque = {};
  std::size_t workspace = 0;  // bytes
  float waves = 0;            // full turns of all multiprocessors, as the library reckons
  int id = -1, tile_id = 0, stages_id = 0, cluster_id = 0, swizzle = 0, custom = 0;
  int split_k = 1, reduction_scheme = 0;
  int tile_rows = 0, tile_cols = 0;  // 0: of a library newer than our table
  // What tells one algorithm from another: "id 66 tile 128x256 stages 37 split-k 1 cluster 3".
  std::string name() const;
  std::string describe() const;  // with its waves: "... waves 0.97"
};

// Rows and columns of C^T that a CUBLASLT_MATMUL_TILE_... id means; zeros if unknown.
struct TileShape {
  int rows = 0, cols = 0;
};
TileShape tile_of(int tile_id);

// Bytes to give a Blas: 32 MiB from compute capability 9.0 on, 4 MiB before (cuBLAS documentation, cublasSetWorkspace).
// The limit under which its heuristic chooses; a CudaDevice gets device_workspace_bytes (cuda_device.h), which holds
// it.
std::size_t blas_workspace_bytes(int compute_capability_major);

class Blas {
 public:
  static constexpr int kProposals = 8;

  // `workspace` is device memory aligned to 256 bytes that outlives this; `api` too.
  Blas(const BlasApi& api, void* workspace, std::size_t workspace_bytes);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // Whether the library has an algorithm for it; asked once for a problem. Of what is Fused it refuses some.
  bool supports(const MatmulProblem& p);
  // At most kProposals, never empty. Throws DeviceError for what the library cannot do.
  const std::vector<Algorithm>& algorithms(const MatmulProblem& p);
  // The alignments of `p` are taken from the pointers.
  void run(MatmulProblem p, const MatmulOperands& operands, cudaStream_t stream);
  // For timing each: `p` must hold for the pointers.
  void run(const MatmulProblem& p, const MatmulOperands& operands, std::size_t index, cudaStream_t stream);

  // Until settle() the first run() finds out which algorithm of each problem is the fastest (algorithm_trial.h), on the
  // operands it is given: at once, again and again, where the result does not depend on how often it is done; of a
  // problem that accumulates one run a call. So results are right from the first call on, but steps are slower until
  // settle(). `timer` says how many seconds what is queued by its argument takes on the stream of run(), and may wait
  // for it; on a stream that is captured nothing is found out.
  using Timer = std::function<double(const std::function<void()>& queue)>;
  void measure_with(Timer timer);
  // From now on each problem keeps the fastest of what was timed, and problems that come later the first.
  void settle();
  // What the first run() takes for `p` from now on.
  void prefer(const MatmulProblem& p, std::size_t index);

  // Every problem that the first run() did, and by which algorithm; index: among algorithms().
  struct Performed {
    MatmulProblem problem;
    Algorithm algorithm;
    std::size_t index = 0;
  };
  std::vector<Performed> performed() const;

  std::size_t version() const;  // of the library, as CUBLAS_VERSION
  std::size_t problems_kept() const { return kept_.size(); }

 private:
  struct Plan;

  Plan& plan_of(const MatmulProblem& p);
  void propose(Plan* plan, const MatmulProblem& p) const;
  bool try_algorithms(Plan* plan, const MatmulProblem& p, const MatmulOperands& operands, cudaStream_t stream);
  void multiply(Plan* plan, const MatmulProblem& p, const MatmulOperands& operands, std::size_t index,
                cudaStream_t stream);

  const BlasApi& api_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_;
  std::size_t workspace_bytes_;
  Timer timer_;  // null: nothing is to be found out
  std::map<MatmulProblem, std::unique_ptr<Plan>> kept_;
};

}  // namespace rehearse::kernels::cuda
