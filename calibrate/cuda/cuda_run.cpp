#include "calibrate/cuda/cuda_run.h"

#include <algorithm>

#include "calibrate/cuda/load_kernels.h"
#include "calibrate/statistics.h"
#include "kernels/cuda/gemm.h"

namespace rehearse::calibrate::gpu {

using kernels::cuda::Event;
using kernels::cuda::Graph;

Replays::Replays(kernels::cuda::Stream& stream, std::function<void(std::size_t)> call)
    : stream_(stream), call_(std::move(call)), begin_(Event::Use::timing), end_(Event::Use::timing) {
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
  stream_.record(begin_);
  g.launch(stream_);
  stream_.record(end_);
  end_.synchronize();
  return std::max(Event::elapsed_ms(begin_, end_) * 1e-3, 1e-9);
}

void Replays::queue(int launches) {
  graph(launches).launch(stream_);
}

CudaRun::CudaRun(const Kernel& kernel, Operands operands, const Shared& shared)
    : kernel_(kernel),
      operands_(std::move(operands)),
      shared_(shared),
      replays_(shared.stream, [this](std::size_t i) { call(i % operands_.sets()); }) {}

void CudaRun::call(std::size_t set) {
  const execute::CallContext context{*kernel_.scenario, shared_.device, 0, 0, shared_.step, 0};
  execute::call_kernel(*kernel_.op, operands_.reads(set), operands_.writes(set), context);
}

// Each of the library's algorithms, as frameworks choose among them: the first is what `execute` runs.
Choice CudaRun::choice() {
  const auto* g = std::get_if<program::Gemm>(&kernel_.op->shape);
  if (g == nullptr || g->batch != 1 || shared_.blas == nullptr) return {};
  const kernels::Gemm shape{g->m, g->n, g->k, g->transpose_a, g->transpose_b, g->accumulate};
  const auto& reads = operands_.reads(0);
  const kernels::Out c = operands_.writes(0).front();
  const bool bias = g->bias && reads[2].type == c.type;  // another type is cast first, into memory of the device's
  const auto problem = kernels::cuda::gemm_problem(shape, reads[0].type, reads[1].type, bias, c.type, false);
  return choice_of(shared_, problem, [&](std::size_t at) {
    const std::size_t set = at % operands_.sets();
    const auto &r = operands_.reads(set), &w = operands_.writes(set);
    kernels::cuda::MatmulOperands x;
    x.a = r[0].data, x.b = r[1].data, x.c = w[0].data;
    if (bias) x.bias = r[2].data;
    return x;
  });
}

Choice choice_of(const Shared& shared, const kernels::cuda::MatmulProblem& problem,
                 const std::function<kernels::cuda::MatmulOperands(std::size_t)>& operands) {
  Choice choice;
  const auto& algorithms = shared.blas->algorithms(problem);
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    Replays replays(shared.stream,
                    [&](std::size_t at) { shared.blas->run(problem, operands(at), i, shared.stream.get()); });
    const int launches = std::clamp(static_cast<int>(1e-3 / replays.time(1)), 1, 50);
    replays.time(launches);
    std::vector<double> samples;
    for (int repetition = 0; repetition < 5; ++repetition) samples.push_back(replays.time(launches) / launches);
    const double seconds = median(samples);
    if (i == 0) choice.first = choice.best = seconds;
    choice.best = std::min(choice.best, seconds);
  }
  const auto& first = algorithms.front();
  choice.tile = {first.tile_rows, first.tile_cols};
  choice.stages = first.stages_id, choice.split = std::max(1, first.split_k), choice.waves = first.waves;
  return choice;
}

namespace {

std::vector<kernels::cuda::DeviceMemory> random_matrices(const kernels::cuda::MatmulProblem& p, std::uint64_t seed,
                                                         kernels::cuda::Stream& stream) {
  using kernels::cuda::MatrixType;
  std::vector<kernels::cuda::DeviceMemory> made;
  for (const auto& [type, elements] : {std::pair{p.a.type, p.m * p.k}, {p.b.type, p.n * p.k}, {p.c.type, p.m * p.n}}) {
    made.emplace_back(static_cast<std::size_t>(elements * kernels::cuda::size_of(type)));
    if (type == MatrixType::e4m3) {
      fill_random_e4m3(made.back().data(), elements, seed++, stream);
    } else {
      const DType as = type == MatrixType::bf16 ? DType::bf16 : type == MatrixType::f16 ? DType::f16 : DType::f32;
      fill_random(made.back().data(), as, elements, 0, seed++, stream);
    }
  }
  return made;
}

}  // namespace

ProductRun::ProductRun(const kernels::cuda::MatmulProblem& problem, std::int64_t l2_bytes, std::int64_t free_bytes,
                       const Shared& shared)
    : problem_(problem),
      shared_(shared),
      sets_([&] {
        using kernels::cuda::size_of;
        const std::int64_t bytes = problem.m * problem.k * size_of(problem.a.type) +
                                   problem.n * problem.k * size_of(problem.b.type) +
                                   problem.m * problem.n * size_of(problem.c.type);
        const std::size_t count = sets_for(bytes, l2_bytes, free_bytes);
        if (count == 0) throw kernels::cuda::DeviceError("no memory for its operands");
        std::vector<Set> sets;
        for (std::size_t i = 0; i < count; ++i) {
          auto made = random_matrices(problem, 3 * i + 1, shared.stream);
          sets.push_back({std::move(made[0]), std::move(made[1]), std::move(made[2])});
        }
        return sets;
      }()),
      replays_(shared.stream,
               [this](std::size_t i) { shared_.blas->run(problem_, operands(i), shared_.stream.get()); }) {}

kernels::cuda::MatmulOperands ProductRun::operands(std::size_t set) const {
  const Set& s = sets_[set % sets_.size()];
  kernels::cuda::MatmulOperands x;
  x.a = s.a.data(), x.b = s.b.data(), x.c = s.c.data();
  return x;
}

Choice ProductRun::choice() {
  return choice_of(shared_, problem_, [this](std::size_t i) { return operands(i); });
}

}  // namespace rehearse::calibrate::gpu
