#include "calibrate/kernel_grid.h"

#include <algorithm>

#include "calibrate/lone_kernel.h"
#include "sim/cost/kernel_shape.h"
#include "sim/lower/lower.h"
#include "sim/program/work.h"

namespace rehearse::calibrate {
namespace {

using model::Family;
using plan::Scenario;

// One layer, or the smallest network; two ranks where something is split: their programs hold the ops of both.
Scenario transformer(Family family, std::int64_t hidden, std::int64_t seq_len, std::int64_t micro_batch) {
  Scenario s = one_layer(family, hidden, std::min<std::int64_t>(64, hidden / 4), seq_len, micro_batch);
  s.model.vocab = 256;
  s.training.precision = plan::Precision::fp32;
  return s;
}

Scenario network(Family family, std::vector<std::int64_t> widths, std::int64_t micro_batch) {
  Scenario s;
  s.model.family = family;
  s.model.name = "grid";
  s.model.widths = std::move(widths);
  if (family == Family::cnn) {
    s.model.image_channels = 3;
    s.model.image_size = 32;
    s.model.convolutions = {{32, 3, 2}, {64, 3, 2}, {128, 3, 2}};
    s.model.dropout = 0.5;
  }
  s.plan.layers_per_stage = {plan::unit_count(s.model)};
  s.plan.micro_batch = s.training.global_batch = micro_batch;
  s.training.precision = plan::Precision::fp32;
  s.training.optimizer = plan::OptimizerKind::sgd;
  s.training.momentum = 0.9;
  return s;
}

Scenario regression(Scenario s) {
  s.model.loss = model::LossKind::mse;
  return s;
}

// A layer of experts, with a capacity or as many rows as come (0).
Scenario with_experts(Scenario s, double capacity_factor) {
  model::Model& m = s.model;
  m.family = Family::moe;
  m.experts = 8, m.experts_per_token = 2;
  m.expert_ffn_hidden = m.hidden;
  m.aux_loss = 0.01;
  m.capacity_factor = capacity_factor;
  return s;
}

Scenario unfused(Scenario s) {
  s.model.attention = model::AttentionKind::unfused;
  s.model.dropout = 0.1;
  return s;
}
// Latent attention, with latents of a half and a fourth of the model's width and a third of each key rotated.
Scenario with_latents(Scenario s) {
  model::Model& m = s.model;
  m.kv_heads = m.heads;
  m.q_lora_rank = m.hidden / 2, m.kv_lora_rank = m.hidden / 4;
  m.qk_nope_head_dim = m.v_head_dim = m.head_dim, m.qk_rope_head_dim = m.head_dim / 2;
  m.head_dim += m.qk_rope_head_dim;
  return s;
}
Scenario tensor_parallel(Scenario s, bool sequence) {
  s.cluster.gpus = s.plan.tensor = 2;
  s.plan.sequence_parallel = sequence;
  return s;
}
Scenario zero(Scenario s, int stage) {
  s.cluster.gpus = s.plan.data = 2;
  s.training.global_batch *= 2;
  s.plan.zero = stage;
  return s;
}

// C = op(A) op(B), with what the layers of a program ask for: a weight [n, k] for y = x W^T, none for dx = dy W, and
// dW += dy^T x.
program::Program product(std::int64_t m, std::int64_t n, std::int64_t k, int form) {
  program::Gemm g{m, n, k};
  g.transpose_b = form == 0;
  g.transpose_a = g.accumulate = form == 2;
  program::Role role;
  role.name = "product";
  role.streams = {{"compute", program::StreamKind::compute}};
  const std::int64_t sizes[] = {m * k, k * n, m * n};
  for (const std::int64_t size : sizes) {
    program::Buffer b;
    b.shape = {size};
    role.buffers.push_back(b);
  }
  program::Op op;
  op.name = "product";
  op.shape = g;
  op.reads = {{0, 0}, {1, 0}};
  if (g.accumulate) op.reads.push_back({2, 0});
  op.writes = {{2, 0}};
  role.bodies = {{"product", {op}}};
  program::Program program;
  program.roles = {role};
  return program;
}

}  // namespace

Scenario one_layer(Family family, std::int64_t hidden, std::int64_t head_dim, std::int64_t seq_len,
                   std::int64_t micro_batch) {
  Scenario s;
  model::Model& m = s.model;
  m.family = family;
  m.name = s.name = "grid";
  m.layers = 1;
  m.hidden = hidden;
  m.head_dim = head_dim;
  m.heads = m.kv_heads = hidden / head_dim;
  m.ffn_hidden = 4 * hidden;
  m.max_seq_len = seq_len;
  if (family == Family::llama) {
    m.kv_heads = std::max<std::int64_t>(1, m.heads / 4);
    m.ffn_hidden = 7 * hidden / 2;
    m.activation = model::ActivationKind::swiglu;
    m.norm = model::NormKind::rmsnorm;
    m.position = model::Position::rope;
    m.tied_embeddings = m.bias = false;
  }
  s.plan.layers_per_stage = {1};
  s.plan.micro_batch = micro_batch;
  s.training.global_batch = 2 * micro_batch;
  s.training.seq_len = seq_len;
  return s;
}

KernelGrid::KernelGrid() {
  add_model(transformer(Family::gpt, 256, 128, 2));
  add_products({64, 256, 1024});
  add_model(transformer(Family::llama, 256, 128, 2));
  add_model(unfused(transformer(Family::gpt, 256, 128, 2)));
  add_model(network(Family::cnn, {256, 10}, 32));
  add_model(network(Family::mlp, {784, 512, 10}, 64));
  add_model(regression(network(Family::mlp, {64, 64, 1}, 64)));
  add_model(transformer(Family::gpt, 1024, 256, 4));
  add_model(tensor_parallel(transformer(Family::gpt, 256, 128, 2), true));
  add_model(zero(transformer(Family::gpt, 256, 128, 2), 3));
  add_model(transformer(Family::gpt, 64, 64, 1));
  add_model(transformer(Family::llama, 1024, 256, 4));
  add_products({64, 128, 256, 512, 1024, 2048});
  for (const std::int64_t hidden : {128, 512, 2048}) {
    add_model(transformer(Family::gpt, hidden, 512, 2));
    add_model(unfused(transformer(Family::gpt, hidden, 256, 1)));
    add_model(transformer(Family::llama, hidden, 256, 1));
  }
  add_model(zero(transformer(Family::gpt, 512, 128, 2), 1));
  add_model(tensor_parallel(transformer(Family::llama, 512, 128, 2), false));
  add_model(network(Family::cnn, {512, 10}, 8));
  add_model(network(Family::mlp, {1024, 2048, 100}, 512));
  for (const double capacity : {1.0, 0.0}) add_model(with_experts(transformer(Family::llama, 256, 128, 2), capacity));
  add_model(with_experts(transformer(Family::llama, 1024, 256, 4), 1));
  add_model(with_latents(transformer(Family::llama, 256, 128, 2)));
  add_model(with_latents(transformer(Family::llama, 1024, 256, 4)));
  for (const std::int64_t outputs : {16, 1024}) add_model(regression(network(Family::mlp, {64, outputs}, 512)));
  add_products({64, 256, 1024, 4096});
}

void KernelGrid::add_products(const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t m : sizes)
    for (const std::int64_t n : sizes)
      for (const std::int64_t k : sizes)
        for (const int form : {0, 1, 2}) {
          const program::Program& p = programs_.emplace_back(product(m, n, k, form));
          add({&scenarios_.front(), &p.roles.front(), &p.roles.front().bodies.front().ops.front()});
        }
}

void KernelGrid::add_model(const plan::Scenario& scenario) {
  const plan::Scenario& s = scenarios_.emplace_back(scenario);
  const program::Program& p = programs_.emplace_back(lower::lower(s));
  for (const program::Role& role : p.roles)
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops)
        // Inputs are the data's work, not a kernel's; only profile runs time them.
        if (is_kernel(op) && !std::holds_alternative<program::Input>(op.shape)) add({&s, &role, &op});
}

void KernelGrid::add(GridKernel kernel) {
  if (known_.emplace(key_of(*kernel.role, *kernel.op, 1, 1), true).second) kernels_.push_back(kernel);
}

std::vector<int> thread_counts(int cores) {
  std::vector<int> counts;
  for (int n = 1; n < cores; n *= 2) counts.push_back(n);
  counts.push_back(std::max(1, cores));
  return counts;
}

void measure_grid(const KernelGrid& grid, int cores, const Budget& budget, KernelTimes& times) {
  constexpr double kSlowFlops = 1e10, kSlowBytes = 1e9;  // a core manages more
  const auto counts = thread_counts(cores);
  std::size_t left = grid.kernels().size() * counts.size();
  for (const GridKernel& k : grid.kernels()) {
    for (const int threads : counts) {
      budget.poll();
      if (budget.spent() && times.size() > 0) return;
      const double share = std::clamp(budget.left() / static_cast<double>(left--), 1e-3, 0.1);
      const program::Work work = program::work_of(*k.role, *k.op);
      const double bytes = static_cast<double>(work.bytes_read + work.bytes_written);
      // Three calls, and filling the operands.
      const double worst = 3 * work.flops / kSlowFlops + 4 * bytes / kSlowBytes;
      if (worst > budget.left() + 0.5 && times.size() > 0) continue;
      times.add(key_of(*k.role, *k.op, threads, threads), cost::comparable_flops(*k.op, work.flops), bytes,
                measure({*k.scenario, *k.role, *k.op}, threads, share));
    }
  }
}

}  // namespace rehearse::calibrate
