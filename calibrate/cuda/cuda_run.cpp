#include "calibrate/cuda/cuda_run.h"

#include <algorithm>

#include "calibrate/statistics.h"
#include "kernels/cuda/algorithm_trial.h"
#include "kernels/cuda/gemm.h"
#include "sim/base/check.h"

namespace rehearse::calibrate::gpu {

using kernels::cuda::Fused;
using kernels::cuda::Graph;

Replays::Replays(kernels::cuda::Stream& stream, std::function<void(std::size_t)> call)
    : stream_(stream), call_(std::move(call)), timer_(stream) {
  call_(0);  // what is loaded and chosen at the first call is not to be recorded
  stream_.synchronize();
}

const Graph& Replays::graph(int launches) {
  const auto known = graphs_.find(launches);
  if (known != graphs_.end()) return known->second;
  if (graphs_.size() > 2) graphs_.clear();
  Graph made(stream_, [&] {
    for (int i = 0; i < launches; ++i) call_(static_cast<std::size_t>(i));
  });
  return graphs_.emplace(launches, std::move(made)).first->second;
}

double Replays::time(int launches) {
  const Graph& g = graph(launches);
  return std::max(timer_.time([&] { g.launch(stream_); }), 1e-9);
}

CudaRun::CudaRun(const Kernel& kernel, Operands operands, const Shared& shared)
    : kernel_(kernel),
      operands_(std::move(operands)),
      shared_(shared),
      replays_(shared.stream, [this](std::size_t i) { call(i % operands_.sets()); }) {
  if (shared_.measure_products) choice_ = choose();  // before the first graph holds an algorithm
}

void CudaRun::call(std::size_t set) {
  const execute::CallContext context{*kernel_.scenario, shared_.device, 0, 0, shared_.step, 0};
  execute::call_kernel(*kernel_.op, operands_.reads(set), operands_.writes(set), context);
}

Fused fused_of(program::Epilogue epilogue) {
  switch (epilogue) {
    case program::Epilogue::none:
      return Fused::none;
    case program::Epilogue::gelu:
      return Fused::gelu;
    case program::Epilogue::gelu_backward:
      return Fused::gelu_backward;
    case program::Epilogue::bias_gradient:
      return Fused::bias_gradient;
  }
  return Fused::none;
}

Choice CudaRun::choice() {
  if (!choice_) choice_ = choose();
  return *choice_;
}

// Each of the library's algorithms: the first is what is performed by default, the fastest what a search finds.
Choice CudaRun::choose() {
  const auto* g = std::get_if<program::Gemm>(&kernel_.op->shape);
  if (g == nullptr || g->batch != 1 || shared_.blas == nullptr) return {};
  const kernels::Gemm shape{g->m, g->n, g->k, g->transpose_a, g->transpose_b, g->accumulate};
  const auto& reads = operands_.reads(0);
  const kernels::Out c = operands_.writes(0).front();
  const bool bias = g->bias && reads[2].type == c.type;  // another type is cast first, into memory of the device's
  const auto with = [&](Fused fused) {
    return kernels::cuda::gemm_problem(shape, reads[0].type, reads[1].type, bias, c.type, false, fused);
  };
  auto problem = with(fused_of(g->epilogue));
  if (problem.fused == Fused::bias_gradient)
    REHEARSE_CHECK(size_of(operands_.writes(0)[1].type) >= size_of(c.type), "a bias gradient too small for its sums");
  if (!shared_.blas->supports(problem)) problem = with(Fused::none);  // and kernels of our own, as is performed
  return choice_of(shared_, problem, [&](std::size_t at) {
    const std::size_t set = at % operands_.sets();
    const auto &r = operands_.reads(set), &w = operands_.writes(set);
    kernels::cuda::MatmulOperands x;
    x.a = r[0].data, x.b = r[1].data, x.c = w[0].data;
    if (bias) x.bias = r[2].data;
    if (problem.fused == Fused::gelu) x.aux = w[1].data;
    if (problem.fused == Fused::gelu_backward) x.aux = r[2].data;
    if (problem.fused == Fused::bias_gradient) x.bias_gradient = w[1].data;
    return x;
  });
}

Choice choice_of(const Shared& shared, const kernels::cuda::MatmulProblem& problem,
                 const std::function<kernels::cuda::MatmulOperands(std::size_t)>& operands) {
  Choice choice;
  std::vector<double> seconds;
  const auto& algorithms = shared.blas->algorithms(problem);
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    Replays replays(shared.stream,
                    [&](std::size_t at) { shared.blas->run(problem, operands(at), i, shared.stream.get()); });
    const int launches = std::clamp(static_cast<int>(1e-3 / replays.time(1)), 1, 50);
    replays.time(launches);
    std::vector<double> samples;
    for (int repetition = 0; repetition < 5; ++repetition) samples.push_back(replays.time(launches) / launches);
    seconds.push_back(median(samples));
  }
  choice.first = seconds.front();
  choice.best = *std::min_element(seconds.begin(), seconds.end());
  const std::size_t index = shared.measure_products ? kernels::cuda::fastest_algorithm(seconds) : 0;
  shared.blas->prefer(problem, index);
  const auto& taken = algorithms[index];
  choice.tile = {taken.tile_rows, taken.tile_cols};
  choice.algorithm = taken.name();
  choice.stages = taken.stages_id, choice.split = std::max(1, taken.split_k), choice.waves = taken.waves;
  return choice;
}

}  // namespace rehearse::calibrate::gpu
