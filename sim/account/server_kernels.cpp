// See server_kernels.h.
#include "sim/account/server_kernels.h"

#include <fmt/format.h>

#include <utility>

namespace rehearse::account {

using program::DType;

std::int64_t server_moments(const plan::Training& t) {
  return t.optimizer == plan::OptimizerKind::adamw ? 2 : t.momentum > 0 ? 1 : 0;
}

std::array<std::int64_t, 2> server_calls(const plan::Plan& plan) {
  const bool synchronous = plan.consistency == plan::Consistency::synchronous;
  return {synchronous ? 1 : plan.counted(), synchronous ? plan.counted() : 0};
}

ServerKernels server_kernels(const plan::Scenario& scenario, std::int64_t elements, DType values, DType gradients) {
  const plan::Training& t = scenario.training;
  ServerKernels kernels;
  kernels.role.name = "server";
  kernels.role.streams.push_back({"compute", program::StreamKind::compute});
  const auto add = [&](DType type) {
    program::Buffer b;
    b.name = fmt::format("range{}", kernels.role.buffers.size()), b.dtype = type, b.shape = {elements};
    b.cls = program::BufferClass::optimizer, b.lifetime = program::Lifetime::persistent;
    kernels.role.buffers.push_back(std::move(b));
    return static_cast<program::BufferId>(kernels.role.buffers.size()) - 1;
  };
  const bool master = values != DType::f32;
  program::Optimizer step;
  step.adam = t.optimizer == plan::OptimizerKind::adamw;
  step.master = master, step.elements = elements, step.separate = !scenario.framework.fused_optimizer;
  program::Op& update = kernels.update;
  update.name = "server.update", update.shape = step, update.phase = program::Phase::optimizer;
  update.reads.push_back({add(gradients)});
  const auto state = [&](DType type) {
    update.reads.push_back({add(type)});
    update.writes.push_back(update.reads.back());
  };
  state(values);
  if (master) state(DType::f32);
  for (std::int64_t k = 0; k < server_moments(t); ++k) state(DType::f32);

  program::Elementwise accumulate;
  accumulate.fn = program::ElementwiseFn::accumulate, accumulate.elements = elements;
  program::Op& sum = kernels.sum;
  sum.name = "server.add", sum.shape = accumulate, sum.phase = program::Phase::optimizer;
  sum.reads = {{add(gradients)}, {add(DType::f32)}};
  sum.writes = {sum.reads.back()};
  return kernels;
}

}  // namespace rehearse::account
