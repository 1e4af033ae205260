#include "tests/gpu/emulator/blas.h"

#include <cuda_bf16.h>
#include <cuda_emulator.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numbers>
#include <thread>

namespace emulator {
namespace {

struct Desc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N, bias_type = -1;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  const void* aux = nullptr;
  std::int64_t aux_ld = 0;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  std::int8_t fast = 0;
};
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, cols;
  std::int64_t ld, batch_stride = 0;
  std::int32_t batch = 1;
};

template <class To, class From>
To* as(From* from) {
  return reinterpret_cast<To*>(from);
}
template <class T>
cublasStatus_t assign(T* to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of(cudaDataType_t t) {
  return t == CUDA_R_32F ? 4 : t == CUDA_R_16F || t == CUDA_R_16BF ? 2 : 1;
}
double read(const void* p, std::int64_t i, cudaDataType_t t) {
  const char* at = static_cast<const char*>(p) + i * static_cast<std::int64_t>(size_of(t));
  const auto value = [&]<class T>(T x) {
    std::memcpy(static_cast<void*>(&x), at, sizeof x);
    return static_cast<double>(static_cast<float>(x));
  };
  if (t == CUDA_R_32F) return value(0.0F);
  if (t == CUDA_R_16F) return value(__half());
  if (t == CUDA_R_16BF) return value(__nv_bfloat16());
  return t == CUDA_R_8F_E4M3 ? value(__nv_fp8_e4m3()) : value(__nv_fp8_e5m2());
}
void write(void* p, std::int64_t i, cudaDataType_t t, double x) {
  char* at = static_cast<char*>(p) + i * static_cast<std::int64_t>(size_of(t));
  const auto put = [&](const auto& value) { std::memcpy(at, &value, sizeof value); };
  if (t == CUDA_R_32F) put(static_cast<float>(x));
  if (t == CUDA_R_16F) put(__float2half_rn(static_cast<float>(x)));
  if (t == CUDA_R_16BF) put(__float2bfloat16_rn(static_cast<float>(x)));
}
// fp32 with 10 bits of mantissa, cut off.
double tf32(double x) {
  auto bits = __float_as_uint(static_cast<float>(x));
  return __uint_as_float(bits & ~0x1FFFU);
}

struct Product {
  Desc desc;
  Layout a, b, c;
  float alpha, beta;
  const void *left, *right;
  void* result;
};

bool adds_bias(const Desc& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_BIAS || d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_gelu(const Desc& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_aux(const Desc& d) {
  return has_gelu(d) || d.epilogue == CUBLASLT_EPILOGUE_DGELU;
}
bool has_vector(const Desc& d) {
  return adds_bias(d) || d.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

// The tanh form.
double gelu_tanh(double x) {
  return std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
}
double gelu(double x) {
  return 0.5 * x * (1 + gelu_tanh(x));
}
double gelu_slope(double x) {
  const double t = gelu_tanh(x), u = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * u;
}

void multiply(const Product& p) {
  const bool ta = p.desc.transpose_a == CUBLAS_OP_T, tb = p.desc.transpose_b == CUBLAS_OP_T;
  const auto depth = static_cast<std::int64_t>(ta ? p.a.rows : p.a.cols);
  const bool narrow = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type == CUDA_R_32F;
  const double scale = static_cast<double>(p.alpha) * (p.desc.scale_a ? *p.desc.scale_a : 1.0F) *
                       (p.desc.scale_b ? *p.desc.scale_b : 1.0F);
  for (std::int64_t batch = 0; batch < p.c.batch; ++batch) {
    for (std::int64_t col = 0; col < static_cast<std::int64_t>(p.c.cols); ++col) {
      for (std::int64_t row = 0; row < static_cast<std::int64_t>(p.c.rows); ++row) {
        double sum = 0, of_right = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          double x = read(p.left, batch * p.a.batch_stride + (ta ? row * p.a.ld + k : k * p.a.ld + row), p.a.type);
          double y = read(p.right, batch * p.b.batch_stride + (tb ? k * p.b.ld + col : col * p.b.ld + k), p.b.type);
          if (narrow) {
            x = tf32(x);
            y = tf32(y);
          }
          sum += x * y;
          of_right += y;
        }
        const std::int64_t at = batch * p.c.batch_stride + col * p.c.ld + row;
        sum *= scale;
        if (p.beta != 0) sum += static_cast<double>(p.beta) * read(p.result, at, p.c.type);
        const auto vector_type = static_cast<cudaDataType_t>(p.desc.bias_type);
        if (adds_bias(p.desc)) sum += read(p.desc.bias, row, vector_type);
        if (p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADB && row == 0)
          write(const_cast<void*>(p.desc.bias), col, vector_type, of_right);
        if (has_gelu(p.desc)) {
          write(const_cast<void*>(p.desc.aux), col * p.desc.aux_ld + row, p.c.type, sum);
          sum = gelu(sum);
        }
        if (p.desc.epilogue == CUBLASLT_EPILOGUE_DGELU)
          sum *= gelu_slope(read(p.desc.aux, col * p.desc.aux_ld + row, p.c.type));
        write(p.result, at, p.c.type, sum);
      }
    }
  }
}

bool supported(const Desc& d, const Layout& a, const Layout& b, const Layout& c) {
  const bool ta = d.transpose_a == CUBLAS_OP_T, tb = d.transpose_b == CUBLAS_OP_T;
  const bool shapes = (ta ? a.cols : a.rows) == c.rows && (tb ? b.rows : b.cols) == c.cols &&
                      (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows);
  for (const Layout& l : {a, b, c})
    if (l.ld < static_cast<std::int64_t>(l.rows) || l.batch != c.batch) return false;
  const bool eight = size_of(a.type) == 1 && size_of(b.type) == 1;
  const bool same = a.type == b.type && (c.type == a.type || (size_of(a.type) == 2 && c.type == CUDA_R_32F));
  if (eight && (!ta || tb || (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2))) return false;
  const bool plain = d.epilogue == CUBLASLT_EPILOGUE_DEFAULT || d.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (!plain && (blas_log().no_epilogues || c.batch != 1)) return false;
  if (!plain && !has_aux(d) && d.epilogue != CUBLASLT_EPILOGUE_BGRADB) return false;
  if (has_vector(d) && d.bias_type != static_cast<std::int32_t>(c.type)) return false;
  if (has_aux(d) && (d.aux_ld % 8 != 0 || d.aux_ld < static_cast<std::int64_t>(c.rows))) return false;
  return shapes && (eight || same) && d.scale == CUDA_R_32F;
}

// Of an address with these last bits.
std::uint32_t aux_alignment(std::uint64_t low_bits) {
  return low_bits == 0 ? 256 : static_cast<std::uint32_t>(low_bits & (~low_bits + 1));
}
bool aligned(const void* p, std::uint32_t to) {
  return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

using rehearse::kernels::cuda::BlasApi;

void create_and_destroy(BlasApi* api) {
  api->create = [](cublasLtHandle_t* h) {
    *h = as<cublasLtContext>(new int(0));
    ++blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
  api->destroy = [](cublasLtHandle_t h) {
    delete as<int>(h);
    --blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
  api->desc_create = [](cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType_t scale) {
    auto* made = new Desc;
    made->compute = compute;
    made->scale = scale;
    *d = as<cublasLtMatmulDescOpaque_t>(made);
    ++blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
  api->desc_destroy = [](cublasLtMatmulDesc_t d) {
    delete as<Desc>(d);
    --blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
  api->layout_create = [](cublasLtMatrixLayout_t* l, cudaDataType_t type, std::uint64_t rows, std::uint64_t cols,
                          std::int64_t ld) {
    *l = as<cublasLtMatrixLayoutOpaque_t>(new Layout{type, rows, cols, ld});
    ++blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
  api->layout_destroy = [](cublasLtMatrixLayout_t l) {
    delete as<Layout>(l);
    --blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
  api->preference_create = [](cublasLtMatmulPreference_t* p) {
    *p = as<cublasLtMatmulPreferenceOpaque_t>(new int(0));
    ++blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
  api->preference_destroy = [](cublasLtMatmulPreference_t p) {
    delete as<int>(p);
    --blas_log().live_objects;
    return CUBLAS_STATUS_SUCCESS;
  };
}

cublasStatus_t set_desc(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                        std::size_t bytes) {
  Desc& d = *as<Desc>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(&d.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(&d.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(&d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(&d.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(&d.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(&d.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(&d.aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return assign(&d.scale_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return assign(&d.scale_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return assign(&d.fast, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set_layout(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                          std::size_t bytes) {
  Layout& l = *as<Layout>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return assign(&l.batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return assign(&l.batch_stride, value, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t attribute,
                              const void* value, std::size_t bytes) {
  BlasLog& log = blas_log();
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(&log.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(&log.reduction_mask, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(&log.alignment_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(&log.alignment_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(&log.alignment_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(&log.alignment_d, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

// Three algorithms, the second of which needs more workspace than there is. An algorithm remembers its number and what
// it was proposed for.
cublasStatus_t propose(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int wanted,
                       cublasLtMatmulHeuristicResult_t* results, int* count) {
  BlasLog& log = blas_log();
  ++log.heuristics;
  *count = 0;
  const Desc& d = *as<Desc>(desc);
  if ((has_vector(d) && d.bias == nullptr) || (has_aux(d) && d.aux == nullptr))
    return CUBLAS_STATUS_NOT_SUPPORTED;  // some versions do
  if (!supported(d, *as<Layout>(a), *as<Layout>(b), *as<Layout>(c))) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (std::uint64_t i = 0; i < 3 && *count < wanted; ++i) {
    cublasLtMatmulHeuristicResult_t& r = results[(*count)++];
    r = {};
    r.algo.data[0] = i;
    if (has_aux(d)) r.algo.data[2] = reinterpret_cast<std::uintptr_t>(d.aux) & 0xFF;  // 0: aligned to 256 bytes
    r.algo.data[1] = log.alignment_a | static_cast<std::uint64_t>(log.alignment_b) << 16 |
                     static_cast<std::uint64_t>(log.alignment_c) << 32;
    r.workspaceSize = i == 1 ? log.workspace + 1 : 0;
    r.wavesCount = 0.5F + static_cast<float>(i);
    r.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get_config(const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                          std::size_t bytes, std::size_t* written) {
  std::uint32_t number = 0;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      number = 60 + static_cast<std::uint32_t>(algo->data[0]);
      break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      number = CUBLASLT_MATMUL_TILE_128x256;
      break;
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      number = CUBLASLT_MATMUL_STAGES_64x3;
      break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      number = 2;
      break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      number = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
      break;
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      number = CUBLASLT_CLUSTER_SHAPE_2x1x1;
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool half = attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  if (bytes != (half ? 2 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &number, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t run(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                   cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                   const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                   const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                   cudaStream_t stream) {
  Product p{*as<Desc>(desc), *as<Layout>(a_layout), *as<Layout>(b_layout), *as<Layout>(c_layout), 0, 0, a, b, d};
  std::memcpy(&p.alpha, alpha, sizeof p.alpha);
  std::memcpy(&p.beta, beta, sizeof p.beta);
  const std::uint64_t alignments = algo->data[1];
  const bool lies = c == d && c_layout == d_layout && aligned(a, alignments & 0xFFFF) &&
                    aligned(b, alignments >> 16 & 0xFFFF) && aligned(d, alignments >> 32 & 0xFFFF) &&
                    aligned(workspace, 256) && workspace_bytes > 0 &&
                    (!has_aux(p.desc) || aligned(p.desc.aux, aux_alignment(algo->data[2])));
  if (!lies || !supported(p.desc, p.a, p.b, p.c)) return CUBLAS_STATUS_INVALID_VALUE;
  ++blas_log().products;
  blas_log().epilogues.push_back(p.desc.epilogue);
  blas_log().algorithms.push_back(algo->data[0]);
  const std::chrono::milliseconds sleep{algo->data[0] == 0 ? blas_log().first_sleeps_ms : 0};
  const cudaError_t error = launch(reinterpret_cast<const void*>(&multiply), dim3(1), dim3(1), 0, stream, [p, sleep] {
    multiply(p);
    if (sleep.count() > 0) std::this_thread::sleep_for(sleep);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

BlasLog& blas_log() {
  static BlasLog log;
  return log;
}

const BlasApi& blas_api() {
  static const BlasApi api = [] {
    BlasApi a;
    create_and_destroy(&a);
    a.version = [] { return static_cast<std::size_t>(CUBLAS_VERSION); };
    a.status_string = [](cublasStatus_t s) { return s == CUBLAS_STATUS_NOT_SUPPORTED ? "NOT_SUPPORTED" : "INVALID"; };
    a.desc_set = set_desc;
    a.layout_set = set_layout;
    a.preference_set = set_preference;
    a.heuristic = propose;
    a.config_get = get_config;
    a.matmul = run;
    return a;
  }();
  return api;
}

}  // namespace emulator
