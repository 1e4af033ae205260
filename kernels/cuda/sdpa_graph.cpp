// Graphs of attention for cuDNN. The order of their operations is that of NVIDIA's cudnn-frontend
// (node/scaled_dot_product_flash_attention.h): engines recognise attention by it.
#if __has_include(<cudnn_graph.h>)
#include "kernels/cuda/sdpa_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cuda/runtime.h"

namespace rehearse::kernels::cuda {
namespace {

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

// Of a matrix, rows and columns exchanged.
std::vector<std::int64_t> turned(std::vector<std::int64_t> x) {
  std::swap(x[2], x[3]);
  return x;
}

}  // namespace

SdpaSizes::SdpaSizes(const AttentionShape& s, cudnnDataType_t type_of_elements)
    : batch(s.micro_batch * s.kv_heads),
      group(s.heads / s.kv_heads),
      seq(s.seq),
      width(s.head_dim),
      packed{(group + 2) * width, width, batch * (group + 2) * width, 1},
      out{group * width, width, batch * group * width, 1},
      rows{group, 1, batch * group, 1},
      type(type_of_elements),
      scale(1 / std::sqrt(static_cast<float>(s.head_dim))) {}

SdpaPlan::SdpaPlan(const SdpaApi& api, cudnnHandle_t handle, const SdpaDescriptor* properties, const SdpaSizes& sizes,
                   bool backward)
    : api_(api) {
  if (backward)
    build_backward(sizes);
  else
    build_forward(sizes);
  choose(handle, properties);
}

SdpaDescriptor& SdpaPlan::make(cudnnBackendDescriptorType_t type) {
  return descriptors_.emplace_back(api_, type);
}

SdpaPlan::Tensor SdpaPlan::tensor(std::vector<std::int64_t> sizes, const std::vector<std::int64_t>& strides,
                                  cudnnDataType_t type, bool is_virtual, bool by_value, std::int64_t* id) {
  constexpr std::int64_t kAlignment = 16;
  const std::int64_t own = ++ids_;
  SdpaDescriptor& d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(sizes.size()), sizes.data());
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, static_cast<std::int64_t>(strides.size()), strides.data());
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &own);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &kAlignment);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  d.finalize();
  if (id != nullptr) *id = own;
  return {d.get(), std::move(sizes)};
}

// One that lies in memory of the caller's.
SdpaPlan::Tensor SdpaPlan::kept(Place place, std::vector<std::int64_t> sizes, const std::vector<std::int64_t>& strides,
                                cudnnDataType_t type) {
  std::int64_t id = 0;
  const Tensor t = tensor(std::move(sizes), strides, type, false, false, &id);
  places_.emplace_back(id, place);
  return t;
}

// One that only the engine sees.
SdpaPlan::Tensor SdpaPlan::between(std::vector<std::int64_t> sizes, cudnnDataType_t type) {
  const std::vector<std::int64_t> strides = dense_strides(sizes);
  return tensor(std::move(sizes), strides, type, true, false, nullptr);
}

SdpaPlan::Tensor SdpaPlan::scalar(float value) {
  std::int64_t id = 0;
  const Tensor t = tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true, &id);
  scalars_.emplace_back(id, value);
  return t;
}

void SdpaPlan::finish_operation(SdpaDescriptor& operation) {
  operation.finalize();
  operations_.push_back(operation.get());
}

SdpaPlan::Tensor SdpaPlan::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b, const Tensor& y,
                                     const Tensor* select, std::int64_t axis) {
  constexpr cudnnDataType_t kMath = CUDNN_DATA_FLOAT;
  SdpaDescriptor& how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &kMath);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  how.finalize();
  SdpaDescriptor& d = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.descriptor);
  if (b != nullptr) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b->descriptor);
  if (select != nullptr)
    d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &select->descriptor);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.descriptor);
  finish_operation(d);
  return y;
}

void SdpaPlan::multiply(const Tensor& a, const Tensor& b, const Tensor& c) {
  constexpr cudnnDataType_t kMath = CUDNN_DATA_FLOAT;
  SdpaDescriptor& how = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kMath);
  how.finalize();
  SdpaDescriptor& d = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c.descriptor);
  finish_operation(d);
}

void SdpaPlan::reduce(cudnnReduceTensorOp_t operation, const Tensor& x, const Tensor& y) {
  constexpr cudnnDataType_t kMath = CUDNN_DATA_FLOAT;
  SdpaDescriptor& how = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operation);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kMath);
  how.finalize();
  SdpaDescriptor& d = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.descriptor);
  finish_operation(d);
}

SdpaPlan::Tensor SdpaPlan::transposed(const Tensor& x, std::vector<std::int64_t> sizes,
                                      const std::vector<std::int64_t>& strides, cudnnDataType_t type) {
  const Tensor y = tensor(std::move(sizes), strides, type, true, false, nullptr);
  SdpaDescriptor& d = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.descriptor);
  finish_operation(d);
  return y;
}

// Q K^T / sqrt(width); `key` is K^T.
SdpaPlan::Tensor SdpaPlan::scores(const SdpaSizes& s, const Tensor& query, const Tensor& key) {
  const std::vector<std::int64_t> square{s.batch, s.group, s.seq, s.seq};
  const Tensor product = between(square), scale = scalar(s.scale);
  multiply(query, key, product);
  return pointwise(CUDNN_POINTWISE_MUL, product, &scale, between(square));
}

// Minus infinity where the column is behind the row.
SdpaPlan::Tensor SdpaPlan::masked(const SdpaSizes& s, const Tensor& x) {
  const std::vector<std::int64_t> square{s.batch, s.group, s.seq, s.seq};
  const Tensor row = pointwise(CUDNN_POINTWISE_GEN_INDEX, x, nullptr, between(square, CUDNN_DATA_INT32), nullptr, 2);
  const Tensor column = pointwise(CUDNN_POINTWISE_GEN_INDEX, x, nullptr, between(square, CUDNN_DATA_INT32), nullptr, 3);
  const Tensor seen = pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, between(square, CUDNN_DATA_BOOLEAN));
  const Tensor never = scalar(-std::numeric_limits<float>::infinity());
  return pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, &never, between(square), &seen);
}

void SdpaPlan::build_forward(const SdpaSizes& s) {
  const std::vector<std::int64_t> queries{s.batch, s.group, s.seq, s.width}, keys{s.batch, 1, s.seq, s.width},
      square{s.batch, s.group, s.seq, s.seq}, one{s.batch, s.group, s.seq, 1};
  const Tensor query = kept(&SdpaPointers::query, queries, s.packed, s.type);
  const Tensor key = kept(&SdpaPointers::key, turned(keys), turned(s.packed), s.type);
  const Tensor value = kept(&SdpaPointers::value, keys, s.packed, s.type);
  const Tensor out = kept(&SdpaPointers::out, queries, s.out, s.type);
  const Tensor logsumexp = kept(&SdpaPointers::logsumexp, one, s.rows, CUDNN_DATA_FLOAT);
  const Tensor x = masked(s, scores(s, query, key));
  const Tensor most = between(one), sum = between(one);
  reduce(CUDNN_REDUCE_TENSOR_MAX, x, most);
  const Tensor below = pointwise(CUDNN_POINTWISE_SUB, x, &most, between(square));
  const Tensor weights = pointwise(CUDNN_POINTWISE_EXP, below, nullptr, between(square));
  reduce(CUDNN_REDUCE_TENSOR_ADD, weights, sum);
  const Tensor log = pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, between(one));
  pointwise(CUDNN_POINTWISE_ADD, most, &log, logsumexp);
  multiply(pointwise(CUDNN_POINTWISE_DIV, weights, &sum, between(square, s.type)), value, out);
}

// d_value = P^T d_out; dP = d_out V^T; dS = P (dP - sum(d_out out)) / sqrt(width); d_key = dS^T Q; d_query = dS K.
void SdpaPlan::build_backward(const SdpaSizes& s) {
  const std::vector<std::int64_t> queries{s.batch, s.group, s.seq, s.width}, keys{s.batch, 1, s.seq, s.width},
      square{s.batch, s.group, s.seq, s.seq}, one{s.batch, s.group, s.seq, 1};
  const Tensor query = kept(&SdpaPointers::query, queries, s.packed, s.type);
  const Tensor key = kept(&SdpaPointers::key, turned(keys), turned(s.packed), s.type);
  const Tensor value = kept(&SdpaPointers::value, turned(keys), turned(s.packed), s.type);
  const Tensor out = kept(&SdpaPointers::out, queries, s.out, s.type);
  const Tensor d_out = kept(&SdpaPointers::d_out, queries, s.out, s.type);
  const Tensor logsumexp = kept(&SdpaPointers::logsumexp, one, s.rows, CUDNN_DATA_FLOAT);
  const Tensor d_query = kept(&SdpaPointers::d_query, queries, s.packed, s.type);
  const Tensor d_key = kept(&SdpaPointers::d_key, keys, s.packed, s.type);
  const Tensor d_value = kept(&SdpaPointers::d_value, keys, s.packed, s.type);
  const Tensor sums = kept(&SdpaPointers::row_sums, one, dense_strides(one), CUDNN_DATA_FLOAT);
  const Tensor query_sums = kept(&SdpaPointers::query_sums, queries, dense_strides(queries), CUDNN_DATA_FLOAT);

  const Tensor product = pointwise(CUDNN_POINTWISE_MUL, d_out, &out, between(queries));
  const Tensor row = between(one), unit = scalar(1);
  reduce(CUDNN_REDUCE_TENSOR_ADD, product, row);
  pointwise(CUDNN_POINTWISE_MUL, row, &unit, sums);

  const Tensor below = pointwise(CUDNN_POINTWISE_SUB, scores(s, query, key), &logsumexp, between(square));
  const Tensor weights = pointwise(CUDNN_POINTWISE_EXP, masked(s, below), nullptr, between(square));
  gradient_of_keys(s, weights, d_out, d_value);

  const Tensor d_weights = between(square), scale = scalar(s.scale);
  multiply(d_out, value, d_weights);
  const Tensor less = pointwise(CUDNN_POINTWISE_SUB, d_weights, &sums, between(square));
  const Tensor times = pointwise(CUDNN_POINTWISE_MUL, less, &weights, between(square));
  const Tensor d_scores = pointwise(CUDNN_POINTWISE_MUL, times, &scale, between(square, s.type));
  gradient_of_keys(s, d_scores, query, d_key);

  multiply(d_scores, transposed(key, keys, s.packed, s.type), query_sums);
  pointwise(CUDNN_POINTWISE_IDENTITY, query_sums, nullptr, d_query);
}

// weights^T of, summed over the query heads.
void SdpaPlan::gradient_of_keys(const SdpaSizes& s, const Tensor& weights, const Tensor& of, const Tensor& gradient) {
  const std::vector<std::int64_t> square{s.batch, s.group, s.seq, s.seq};
  const Tensor turned_weights = transposed(weights, square, turned(dense_strides(square)), s.type);
  if (s.group == 1) return multiply(turned_weights, of, gradient);
  const Tensor heads = between({s.batch, s.group, s.seq, s.width}, s.type);
  multiply(turned_weights, of, heads);
  reduce(CUDNN_REDUCE_TENSOR_ADD, heads, gradient);
}

bool SdpaPlan::repeats(cudnnBackendDescriptor_t engine) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  std::int64_t count = 0;
  check_cudnn(api_,
              api_.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       static_cast<std::int64_t>(notes.size()), &count, notes.data()),
              "cudnnBackendGetAttribute");
  const auto end = notes.begin() + std::min<std::int64_t>(count, static_cast<std::int64_t>(notes.size()));
  return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == end;
}

void SdpaPlan::choose(cudnnHandle_t handle, const SdpaDescriptor* properties) {
  constexpr cudnnBackendHeurMode_t kMode = CUDNN_HEUR_MODE_A;
  SdpaDescriptor& graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(operations_.size()),
            operations_.data());
  graph.finalize();
  SdpaDescriptor& heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &kMode);
  if (properties != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties);
  heuristic.finalize();
  const auto get = [&](cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, std::int64_t count, void* to) {
    std::int64_t found = 0;
    check_cudnn(api_, api_.get(from, name, type, count, &found, to), "cudnnBackendGetAttribute");
    return found;
  };
  const std::int64_t count =
      get(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<cudnnBackendDescriptor_t> choices;
  for (std::int64_t i = 0; i < count; ++i) choices.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count > 0)
    get(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, choices.data());
  for (const cudnnBackendDescriptor_t choice : choices) {
    cudnnBackendDescriptor_t engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR).get();
    get(choice, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    if (!repeats(engine)) continue;
    SdpaDescriptor& plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &choice);
    if (handle != nullptr)
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    else
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties);
    if (!plan.try_finalize()) continue;
    std::int64_t bytes = 0;
    get(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine_);
    workspace_ = static_cast<std::size_t>(bytes);
    plan_ = plan.get();
    return;
  }
  throw DeviceError(fmt::format("cuDNN has no plan for this attention: {}", last_error(api_)));
}

void SdpaPlan::run(cudnnHandle_t handle, const SdpaPointers& p, void* workspace, cudaStream_t stream) const {
  std::vector<std::int64_t> ids;
  std::vector<const void*> pointers;
  for (const auto& [id, place] : places_) {
    ids.push_back(id);
    pointers.push_back(p.*place);
  }
  for (const auto& [id, value] : scalars_) {
    ids.push_back(id);
    pointers.push_back(&value);
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  SdpaDescriptor pack(api_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  check_cudnn(api_, api_.set_stream(handle, stream), "cudnnSetStream");
  check_cudnn(api_, api_.execute(handle, plan_, pack.get()), "cudnnBackendExecute");
}

}  // namespace rehearse::kernels::cuda
#endif
