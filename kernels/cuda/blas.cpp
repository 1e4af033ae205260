// Descriptors, algorithms and calls of cuBLASLt. See blas.h.
#include "kernels/cuda/blas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/cuda/algorithm_trial.h"
#include "kernels/cuda/blas_tiles.h"
#include "kernels/cuda/runtime.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cuda {
namespace {

#define REHEARSE_BLAS(call) check_status(api_, (call), #call, __LINE__)

void check_status(const BlasApi& api, cublasStatus_t status, const char* expression, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const char* name = api.status_string ? api.status_string(status) : "?";
  throw DeviceError(
      fmt::format("{} failed: {} ({}) at {}:{}", expression, name, static_cast<int>(status), __FILE__, line),
      static_cast<int>(status));
}

cudaDataType_t data_type(MatrixType t) {
  switch (t) {
    case MatrixType::f32:
      return CUDA_R_32F;
    case MatrixType::bf16:
      return CUDA_R_16BF;
    case MatrixType::f16:
      return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

const char* name_of(MatrixType t) {
  constexpr std::array<const char*, 3> kNames = {"f32", "bf16", "f16"};
  return kNames[static_cast<std::size_t>(t)];
}

const char* suffix_of(Fused f) {
  constexpr std::array<const char*, 4> kSuffixes = {"", " gelu", " gelu_backward", " bias_gradient"};
  return kSuffixes[static_cast<std::size_t>(f)];
}

std::string describe(const MatmulProblem& p) {
  return fmt::format("C[{}, {}] {} {}{} {}{} -> {}, k {}, batch {}{}{}", p.m, p.n, p.accumulate ? "+=" : "=",
                     name_of(p.a.type), p.transpose_a ? "^T" : "", name_of(p.b.type), p.transpose_b ? "^T" : "",
                     name_of(p.c.type), p.k, p.batch, p.bias ? ", bias" : "", suffix_of(p.fused));
}

int alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return address == 0 ? 256 : static_cast<int>(std::min<std::uintptr_t>(256, address & (~address + 1)));
}

void check(const MatmulProblem& p) {
  REHEARSE_CHECK(p.m > 0 && p.n > 0 && p.k > 0 && p.batch > 0, "an empty product: {}", describe(p));
  REHEARSE_CHECK(
      p.a.stride >= (p.transpose_a ? p.m : p.k) && p.b.stride >= (p.transpose_b ? p.k : p.n) && p.c.stride >= p.n,
      "rows overlap: {}", describe(p));
  REHEARSE_CHECK(!p.bias || p.fused == Fused::none || p.fused == Fused::gelu, "a bias in {}", describe(p));
  REHEARSE_CHECK(!p.accumulate || p.fused == Fused::none || p.fused == Fused::bias_gradient, "a sum in {}",
                 describe(p));
}

// A bias, or the gradient of one.
bool has_vector(const MatmulProblem& p) {
  return p.bias || p.fused == Fused::bias_gradient;
}

DeviceError none_for(const MatmulProblem& p) {
  return DeviceError("cuBLASLt has no algorithm for " + describe(p));
}

bool has_aux(Fused f) {
  return f == Fused::gelu || f == Fused::gelu_backward;
}

cublasLtEpilogue_t epilogue_of(const MatmulProblem& p) {
  switch (p.fused) {
    case Fused::none:
      return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Fused::gelu:
      return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Fused::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Fused::bias_gradient:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// The stride that the library asks for, and the alignment of a vector load, of which its documentation says nothing.
constexpr std::int64_t kAuxStride = 8;
constexpr int kAuxAlignment = 16;

bool aux_fits(const MatmulProblem& p) {
  return !has_aux(p.fused) || (p.aux.type == p.c.type && p.aux.stride >= p.n && p.aux.stride % kAuxStride == 0 &&
                               p.aux.alignment >= kAuxAlignment && p.batch == 1);
}

}  // namespace

MatrixType matrix_type(DType t) {
  switch (t) {
    case DType::bf16:
      return MatrixType::bf16;
    case DType::f16:
      return MatrixType::f16;
    default:
      REHEARSE_CHECK(t == DType::f32, "a matrix of {}", rehearse::name_of(t));
      return MatrixType::f32;
  }
}

std::int64_t size_of(MatrixType t) {
  return t == MatrixType::f32 ? 4 : 2;
}

double MatmulProblem::flops() const {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(batch);
}

MatmulProblem dense_problem(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b,
                            MatrixType ab, MatrixType c) {
  MatmulProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.transpose_a = transpose_a;
  p.transpose_b = transpose_b;
  p.a = {ab, transpose_a ? m : k, m * k};
  p.b = {ab, transpose_b ? k : n, k * n};
  p.c = {c, n, m * n};
  return p;
}

std::string form_text(const MatmulProblem& p) {
  return fmt::format("{}{} {}>{}{}{}{}", p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n', name_of(p.a.type),
                     name_of(p.c.type), p.accumulate ? " accumulate" : "", p.bias ? " bias" : "", suffix_of(p.fused));
}

MatmulProblem aligned_problem(MatmulProblem p, const MatmulOperands& operands) {
  p.a.alignment = alignment_of(operands.a);
  p.b.alignment = alignment_of(operands.b);
  p.c.alignment = alignment_of(operands.c);
  if (has_aux(p.fused)) p.aux.alignment = alignment_of(operands.aux);
  return p;
}

std::string Algorithm::name() const {
  std::string text = fmt::format("id {} tile {}x{} stages {} split-k {} cluster {}", id, tile_rows, tile_cols,
                                 stages_id, split_k, cluster_id);
  for (const auto& [what, value] : {std::pair{"swizzle", swizzle}, {"custom", custom}, {"reduction", reduction_scheme}})
    if (value != 0) text += fmt::format(" {} {}", what, value);
  return text;
}

std::string Algorithm::describe() const {
  return fmt::format("{} waves {:.2f}", name(), waves);
}

TileShape tile_of(int tile_id) {
  if (tile_id < 0 || static_cast<std::size_t>(tile_id) >= kTileRows.size()) return {};
  const auto i = static_cast<std::size_t>(tile_id);
  return {kTileRows[i], kTileCols[i]};
}

std::size_t blas_workspace_bytes(int compute_capability_major) {
  return std::size_t{compute_capability_major >= 9 ? 32U : 4U} << 20;
}

// What is made once for a problem. Layouts are of the swapped, transposed product: `left` is our B, `right` our A.
struct Blas::Plan {
  explicit Plan(const BlasApi& functions) : api_(functions) {}
  ~Plan() {
    if (desc) api_.desc_destroy(desc);
    for (cublasLtMatrixLayout_t layout : {left, right, result})
      if (layout) api_.layout_destroy(layout);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void make_desc(const MatmulProblem& p);
  cublasLtMatrixLayout_t make_layout(const MatrixLayout& l, std::int64_t rows, std::int64_t cols, std::int64_t batch);
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    REHEARSE_BLAS(api_.desc_set(desc, attribute, &value, sizeof value));
  }

  const BlasApi& api_;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  std::vector<Algorithm> algorithms;
  std::size_t chosen = 0;  // by run()
  bool performed = false;
  std::optional<AlgorithmTrial> trial;
};

void Blas::Plan::make_desc(const MatmulProblem& p) {
  REHEARSE_BLAS(api_.desc_create(&desc, p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue_of(p)));
  if (has_vector(p)) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(data_type(p.c.type)));
  if (has_aux(p.fused)) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux.stride);
  left = make_layout(p.b, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.batch);
  right = make_layout(p.a, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.batch);
  result = make_layout(p.c, p.n, p.m, p.batch);
}

cublasLtMatrixLayout_t Blas::Plan::make_layout(const MatrixLayout& l, std::int64_t rows, std::int64_t cols,
                                               std::int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  REHEARSE_BLAS(api_.layout_create(&layout, data_type(l.type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), l.stride));
  if (batch == 1) return layout;
  const auto count = static_cast<std::int32_t>(batch);
  REHEARSE_BLAS(api_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  REHEARSE_BLAS(
      api_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &l.batch_stride, sizeof l.batch_stride));
  return layout;
}

Blas::Blas(const BlasApi& api, void* workspace, std::size_t workspace_bytes)
    : api_(api), workspace_(workspace), workspace_bytes_(workspace_bytes) {
  REHEARSE_CHECK(alignment_of(workspace) == 256, "a workspace that is not aligned to 256 bytes");
  REHEARSE_BLAS(api_.create(&handle_));
}

Blas::~Blas() {
  kept_.clear();
  api_.destroy(handle_);
}

std::size_t Blas::version() const {
  return api_.version();
}

bool Blas::supports(const MatmulProblem& p) {
  return !plan_of(p).algorithms.empty();
}

const std::vector<Algorithm>& Blas::algorithms(const MatmulProblem& p) {
  const Plan& plan = plan_of(p);
  if (plan.algorithms.empty()) throw none_for(p);
  return plan.algorithms;
}

std::vector<Blas::Performed> Blas::performed() const {
  std::vector<Performed> list;
  for (const auto& [problem, plan] : kept_)
    if (plan->performed) list.push_back({problem, plan->algorithms[plan->chosen], plan->chosen});
  return list;
}

void Blas::measure_with(Timer timer) {
  timer_ = std::move(timer);
}

void Blas::settle() {
  timer_ = nullptr;
  for (const auto& [problem, plan] : kept_)
    if (plan->trial) {
      plan->chosen = plan->trial->fastest();
      plan->trial.reset();
    }
}

void Blas::prefer(const MatmulProblem& p, std::size_t index) {
  Plan& plan = plan_of(p);
  REHEARSE_CHECK(index < plan.algorithms.size(), "algorithm {} of {}", index, plan.algorithms.size());
  plan.chosen = index;
}

void Blas::run(MatmulProblem p, const MatmulOperands& operands, cudaStream_t stream) {
  p = aligned_problem(p, operands);
  Plan& plan = plan_of(p);
  if (plan.algorithms.empty()) throw none_for(p);
  plan.performed = true;
  if (timer_ && try_algorithms(&plan, p, operands, stream)) return;
  multiply(&plan, p, operands, plan.chosen, stream);
}

// False if nothing was run.
bool Blas::try_algorithms(Plan* plan, const MatmulProblem& p, const MatmulOperands& operands, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  REHEARSE_CUDA(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) return false;
  if (!plan->trial) plan->trial.emplace(plan->algorithms.size());
  bool ran = false;
  while (const std::optional<AlgorithmTrial::Turn> turn = plan->trial->next()) {
    const auto queue = [&] { multiply(plan, p, operands, turn->algorithm, stream); };
    double seconds = 0;
    if (turn->timed)
      seconds = timer_(queue);
    else
      queue();
    plan->trial->add(*turn, seconds);
    ran = true;
    if (p.accumulate) break;
  }
  return ran;
}

void Blas::run(const MatmulProblem& p, const MatmulOperands& operands, std::size_t index, cudaStream_t stream) {
  const MatmulProblem actual = aligned_problem(p, operands);
  REHEARSE_CHECK(
      actual.a.alignment >= p.a.alignment && actual.b.alignment >= p.b.alignment && actual.c.alignment >= p.c.alignment,
      "operands less aligned than the problem says");
  Plan& plan = plan_of(p);
  REHEARSE_CHECK(index < plan.algorithms.size(), "algorithm {} of {}", index, plan.algorithms.size());
  multiply(&plan, p, operands, index, stream);
}

Blas::Plan& Blas::plan_of(const MatmulProblem& p) {
  if (const auto found = kept_.find(p); found != kept_.end()) return *found->second;
  check(p);
  auto plan = std::make_unique<Plan>(api_);
  plan->make_desc(p);
  if (aux_fits(p)) propose(plan.get(), p);
  if (plan->algorithms.empty() && p.fused == Fused::none) throw none_for(p);
  return *kept_.emplace(p, std::move(plan)).first->second;
}

namespace {

// A preference that is destroyed.
class Preference {
 public:
  explicit Preference(const BlasApi& api) : api_(api) { REHEARSE_BLAS(api_.preference_create(&preference_)); }
  ~Preference() { api_.preference_destroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    REHEARSE_BLAS(api_.preference_set(preference_, attribute, &value, sizeof value));
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  const BlasApi& api_;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

template <class T>
int config(const BlasApi& api, const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value = 0;
  std::size_t written = 0;  // older libraries know fewer attributes: those stay 0
  if (api.config_get(&algo, attribute, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS) return 0;
  return static_cast<int>(value);
}

Algorithm read_algorithm(const BlasApi& api, const cublasLtMatmulHeuristicResult_t& proposal) {
  Algorithm a;
  a.opaque = proposal.algo;
  a.workspace = proposal.workspaceSize;
  a.waves = proposal.wavesCount;
  a.id = config<std::int32_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_ID);
  a.tile_id = config<std::uint32_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_TILE_ID);
  a.stages_id = config<std::uint32_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_STAGES_ID);
  a.cluster_id = config<std::uint16_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  a.swizzle = config<std::uint32_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  a.custom = config<std::uint32_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  a.split_k = config<std::int32_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  a.reduction_scheme = config<std::uint32_t>(api, a.opaque, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  const TileShape tile = tile_of(a.tile_id);
  a.tile_rows = tile.cols;  // the library's C is our C^T
  a.tile_cols = tile.rows;
  return a;
}

}  // namespace

void Blas::propose(Plan* plan, const MatmulProblem& p) const {
  Preference preference(api_);
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes_));
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(p.b.alignment));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(p.a.alignment));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(p.c.alignment));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(p.c.alignment));
  // Some versions propose nothing for a pointer that is not there, and read its alignment off it; run() sets the real
  // one.
  if (has_vector(p)) plan->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(workspace_));
  if (has_aux(p.fused))
    plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
              static_cast<const void*>(static_cast<const char*>(workspace_) + p.aux.alignment));
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> proposals{};
  int count = 0;
  const cublasStatus_t status = api_.heuristic(handle_, plan->desc, plan->left, plan->right, plan->result, plan->result,
                                               preference.get(), kProposals, proposals.data(), &count);
  const bool refused = status == CUBLAS_STATUS_INVALID_VALUE && p.fused != Fused::none;  // as older versions say it
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || refused)
    count = 0;
  else
    check_status(api_, status, "cublasLtMatmulAlgoGetHeuristic", __LINE__);
  for (int i = 0; i < count; ++i) {
    const auto& proposal = proposals[static_cast<std::size_t>(i)];
    if (proposal.state == CUBLAS_STATUS_SUCCESS && proposal.workspaceSize <= workspace_bytes_)
      plan->algorithms.push_back(read_algorithm(api_, proposal));
  }
}

void Blas::multiply(Plan* plan, const MatmulProblem& p, const MatmulOperands& operands, std::size_t index,
                    cudaStream_t stream) {
  REHEARSE_CHECK(p.bias == (operands.bias != nullptr), "a bias that the problem does not say, or none that it says");
  REHEARSE_CHECK(has_aux(p.fused) == (operands.aux != nullptr) &&
                     (p.fused == Fused::bias_gradient) == (operands.bias_gradient != nullptr),
                 "operands of {} and no others", describe(p));
  if (p.bias) plan->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  if (operands.bias_gradient) plan->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias_gradient);
  if (operands.aux) plan->set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  const float alpha = 1, beta = p.accumulate ? 1 : 0;
  const Algorithm& algorithm = plan->algorithms[index];
  REHEARSE_BLAS(api_.matmul(handle_, plan->desc, &alpha, operands.b, plan->left, operands.a, plan->right, &beta,
                            operands.c, plan->result, operands.c, plan->result, &algorithm.opaque, workspace_,
                            workspace_bytes_, stream));
}

}  // namespace rehearse::kernels::cuda
