#include "tests/gpu/emulator/sdpa.h"

#include <cuda_bf16.h>
#include <cuda_emulator.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emulator {
namespace {

struct SdpaDesc {
  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<char>> attributes;
  bool finalized = false;
  const SdpaDesc* graph = nullptr;  // of engines and what is made of them
  int engine = 0;

  template <class T>
  std::vector<T> values(int name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> list(found->second.size() / sizeof(T));
    std::memcpy(list.data(), found->second.data(), list.size() * sizeof(T));
    return list;
  }
  template <class T>
  T value(int name) const {
    const std::vector<T> list = values<T>(name);
    return list.empty() ? T{} : list.front();
  }
  const SdpaDesc* desc(int name) const { return static_cast<const SdpaDesc*>(value<void*>(name)); }
};
struct SdpaHandle {
  cudaStream_t stream = nullptr;
};
constexpr std::int64_t kWorkspace = 512;
constexpr int kNotRepeating = 3, kGood = 6;  // the engines there are, in the order they are proposed

std::size_t size_of(int attribute_type) {
  switch (attribute_type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

// A tensor's numbers: in memory of the caller's, a scalar, or what was computed before.
struct Numbers {
  cudnnDataType_t type;
  std::array<std::int64_t, 4> sizes{}, strides{};
  char* memory = nullptr;
  std::shared_ptr<std::vector<float>> own;  // of a virtual tensor; transpositions share it

  std::int64_t place(const std::array<std::int64_t, 4>& i) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < 4; ++d) at += (sizes[d] == 1 ? 0 : i[d]) * strides[d];
    return at;
  }
  float read(const std::array<std::int64_t, 4>& i) const {
    const std::int64_t at = place(i);
    if (own) return (*own)[static_cast<std::size_t>(at)];
    const auto value = [&]<class T>(T x) {
      std::memcpy(static_cast<void*>(&x), memory + at * static_cast<std::int64_t>(sizeof x), sizeof x);
      return static_cast<float>(x);
    };
    if (type == CUDNN_DATA_FLOAT) return value(0.0F);
    return type == CUDNN_DATA_HALF ? value(__half()) : value(__nv_bfloat16());
  }
  void write(const std::array<std::int64_t, 4>& i, float x) const {
    const std::int64_t at = place(i);
    const __half half = __float2half_rn(x);
    const __nv_bfloat16 brain = __float2bfloat16_rn(x);
    if (own) {
      (*own)[static_cast<std::size_t>(at)] = type == CUDNN_DATA_HALF       ? __half2float(half)
                                             : type == CUDNN_DATA_BFLOAT16 ? __bfloat162float(brain)
                                                                           : x;
      return;
    }
    const auto put = [&](const auto& value) {
      std::memcpy(memory + at * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
    };
    if (type == CUDNN_DATA_FLOAT) put(x);
    if (type == CUDNN_DATA_HALF) put(half);
    if (type == CUDNN_DATA_BFLOAT16) put(brain);
  }
};

using Index = std::array<std::int64_t, 4>;
template <class F>
void each(const Index& sizes, F&& f) {
  for (Index i{}; i[0] < sizes[0]; ++i[0])
    for (i[1] = 0; i[1] < sizes[1]; ++i[1])
      for (i[2] = 0; i[2] < sizes[2]; ++i[2])
        for (i[3] = 0; i[3] < sizes[3]; ++i[3]) f(i);
}

class Interpreter {
 public:
  Interpreter(const SdpaDesc& graph, const SdpaDesc& pack) : graph_(graph) {
    const auto ids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (std::size_t i = 0; i < ids.size(); ++i) pointers_[ids[i]] = static_cast<char*>(pointers[i]);
  }
  void run() {
    for (const void* o : graph_.values<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
      const auto& op = *static_cast<const SdpaDesc*>(o);
      if (op.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) pointwise(op);
      if (op.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) multiply(op);
      if (op.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) reduce(op);
      if (op.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        (void)numbers(op.desc(CUDNN_ATTR_OPERATION_RESHAPE_YDESC),
                      &numbers(op.desc(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)));
    }
  }

 private:
  // `as`: what it is another view of.
  Numbers& numbers(const SdpaDesc* t, const Numbers* as = nullptr) {
    const auto id = t->value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    if (const auto found = known_.find(id); found != known_.end()) return found->second;
    Numbers n;
    n.type = t->value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    const auto sizes = t->values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
               strides = t->values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    std::copy(sizes.begin(), sizes.end(), n.sizes.begin());
    std::copy(strides.begin(), strides.end(), n.strides.begin());
    if (as != nullptr) {
      n.memory = as->memory;
      n.own = as->own;
      if (n.own && n.type != as->type) {  // and rounded
        n.own = std::make_shared<std::vector<float>>(*as->own);
        each(n.sizes, [&](const Index& i) { n.write(i, n.read(i)); });
      }
    } else if (t->value<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0) {
      std::int64_t last = 0;
      for (std::size_t d = 0; d < 4; ++d) last += (n.sizes[d] - 1) * n.strides[d];
      n.own = std::make_shared<std::vector<float>>(static_cast<std::size_t>(last + 1), NAN);
    } else {
      n.memory = pointers_.at(id);
    }
    return known_.emplace(id, std::move(n)).first->second;
  }

  void pointwise(const SdpaDesc& op) {
    const SdpaDesc& how = *op.desc(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = how.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const auto axis = static_cast<std::size_t>(how.value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
    const Numbers x = numbers(op.desc(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    const SdpaDesc* second = op.desc(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const SdpaDesc* third = op.desc(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const Numbers b = second != nullptr ? numbers(second) : x, t = third != nullptr ? numbers(third) : x;
    const Numbers y = numbers(op.desc(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    each(y.sizes, [&](const Index& i) {
      const float value = x.read(i), other = b.read(i);
      switch (mode) {
        case CUDNN_POINTWISE_ADD:
          return y.write(i, value + other);
        case CUDNN_POINTWISE_SUB:
          return y.write(i, value - other);
        case CUDNN_POINTWISE_MUL:
          return y.write(i, value * other);
        case CUDNN_POINTWISE_DIV:
          return y.write(i, value / other);
        case CUDNN_POINTWISE_EXP:
          return y.write(i, std::exp(value));
        case CUDNN_POINTWISE_LOG:
          return y.write(i, std::log(value));
        case CUDNN_POINTWISE_IDENTITY:
          return y.write(i, value);
        case CUDNN_POINTWISE_GEN_INDEX:
          return y.write(i, static_cast<float>(i[axis]));
        case CUDNN_POINTWISE_CMP_GE:
          return y.write(i, value >= other ? 1.0F : 0.0F);
        case CUDNN_POINTWISE_BINARY_SELECT:
          return y.write(i, t.read(i) != 0 ? value : other);
        default:
          return y.write(i, NAN);
      }
    });
  }
  void multiply(const SdpaDesc& op) {
    const Numbers a = numbers(op.desc(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
                  b = numbers(op.desc(CUDNN_ATTR_OPERATION_MATMUL_BDESC)),
                  c = numbers(op.desc(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    each(c.sizes, [&](const Index& i) {
      double sum = sdpa_log().wrong_by;
      for (std::int64_t k = 0; k < a.sizes[3]; ++k)
        sum += static_cast<double>(a.read({i[0], i[1], i[2], k})) * b.read({i[0], i[1], k, i[3]});
      c.write(i, static_cast<float>(sum));
    });
  }
  void reduce(const SdpaDesc& op) {
    const SdpaDesc& how = *op.desc(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const bool most = how.value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    const Numbers x = numbers(op.desc(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
                  y = numbers(op.desc(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    Index over;  // of x, what one number of y is of
    for (std::size_t d = 0; d < 4; ++d) over[d] = y.sizes[d] == 1 ? x.sizes[d] : 1;
    each(y.sizes, [&](const Index& i) {
      double result = most ? -INFINITY : 0;
      each(over, [&](const Index& j) {
        const double value = x.read({i[0] + j[0], i[1] + j[1], i[2] + j[2], i[3] + j[3]});
        result = most ? std::max(result, value) : result + value;
      });
      y.write(i, static_cast<float>(result));
    });
  }

  const SdpaDesc& graph_;
  std::map<std::int64_t, char*> pointers_;
  std::map<std::int64_t, Numbers> known_;
};

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  auto& d = *static_cast<SdpaDesc*>(descriptor);
  if (d.finalized) return CUDNN_STATUS_BAD_PARAM;
  const auto* bytes = static_cast<const char*>(values);
  d.attributes[name].assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  auto& d = *static_cast<SdpaDesc*>(descriptor);
  for (const auto& [name, bytes] : d.attributes) {
    const bool pointer = bytes.size() == 8 && d.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
                         d.type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && name != CUDNN_ATTR_POINTWISE_AXIS &&
                         name != CUDNN_ATTR_OPERATIONGRAPH_HANDLE && name != CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
    if (pointer && name != CUDNN_ATTR_POINTWISE_MODE && !static_cast<const SdpaDesc*>(d.value<void*>(name))->finalized)
      return CUDNN_STATUS_BAD_PARAM;
  }
  if (d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    if (sdpa_log().no_plan) return CUDNN_STATUS_NOT_SUPPORTED;
    const SdpaDesc& choice = *d.desc(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    d.graph = choice.graph;
    d.engine = choice.engine;
  }
  if (d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) d.graph = d.desc(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  d.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, std::int64_t wanted, std::int64_t* count, void* values) {
  const auto& d = *static_cast<const SdpaDesc*>(descriptor);
  *count = 1;
  const auto give = [&](const auto& value) {
    std::memcpy(values, &value, sizeof value);
    return CUDNN_STATUS_SUCCESS;
  };
  const auto become = [&](int at, int engine) {
    auto* made = static_cast<SdpaDesc*>(static_cast<void**>(values)[at]);
    made->graph = d.graph;
    made->engine = engine;
    made->finalized = true;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      *count = 2;
      for (int i = 0; i < std::min<std::int64_t>(wanted, 2); ++i) become(i, i == 0 ? kNotRepeating : kGood);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      become(0, d.engine);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give(d.engine == kNotRepeating ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return give(std::int64_t{d.engine});
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(kWorkspace);
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const SdpaDesc& graph = *static_cast<const SdpaDesc*>(plan)->graph;
  ++sdpa_log().executed;
  const SdpaDesc kept = *static_cast<const SdpaDesc*>(pack);  // the caller's goes with the call
  const cudaError_t error =
      launch(reinterpret_cast<const void*>(&execute), dim3(1), dim3(1), 0,
             reinterpret_cast<SdpaHandle*>(handle)->stream, [&graph, kept] { Interpreter(graph, kept).run(); });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

SdpaLog& sdpa_log() {
  static SdpaLog log;
  return log;
}

const rehearse::kernels::cuda::SdpaApi& sdpa_api() {
  static const rehearse::kernels::cuda::SdpaApi api = [] {
    rehearse::kernels::cuda::SdpaApi a;
    a.version = [] { return static_cast<std::size_t>(91900); };
    a.last_error = [](char* text, std::size_t) { std::strcpy(text, "emulated"); };
    a.create = [](cudnnHandle_t* h) {
      *h = reinterpret_cast<cudnnHandle_t>(new SdpaHandle);
      ++sdpa_log().live_objects;
      return CUDNN_STATUS_SUCCESS;
    };
    a.destroy = [](cudnnHandle_t h) {
      delete reinterpret_cast<SdpaHandle*>(h);
      --sdpa_log().live_objects;
      return CUDNN_STATUS_SUCCESS;
    };
    a.set_stream = [](cudnnHandle_t h, cudaStream_t stream) {
      reinterpret_cast<SdpaHandle*>(h)->stream = stream;
      return CUDNN_STATUS_SUCCESS;
    };
    a.desc_create = [](cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* d) {
      *d = new SdpaDesc{type, {}, false, nullptr, 0};
      ++sdpa_log().live_objects;
      return CUDNN_STATUS_SUCCESS;
    };
    a.desc_destroy = [](cudnnBackendDescriptor_t d) {
      delete static_cast<SdpaDesc*>(d);
      --sdpa_log().live_objects;
      return CUDNN_STATUS_SUCCESS;
    };
    a.set = set_attribute;
    a.get = get_attribute;
    a.finalize = finalize;
    a.execute = execute;
    return a;
  }();
  return api;
}

}  // namespace emulator
