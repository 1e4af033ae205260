#include "calibrate/gpu/kernels_to_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "calibrate/kernel_grid.h"
#include "calibrate/kernel_times.h"
#include "sim/lower/lower.h"
#include "sim/program/describe.h"
#include "sim/program/work.h"

namespace rehearse::calibrate::gpu {
namespace {

using program::Op;
using program::Role;

// Of any GPU of today, for the order alone.
constexpr double kRoughFlops = 5e14, kRoughBytes = 2e12, kRoughLaunch = 3e-6;
constexpr std::size_t kMostLines = 12;  // products whose neighbours are measured
constexpr std::size_t kMostHeldOut = 24;
constexpr std::int64_t kLeastTokens = 256;

double rough_seconds(const Role& role, const Op& op) {
  const program::Work work = program::work_of(role, op);
  const auto bytes = static_cast<double>(work.bytes_read + work.bytes_written);
  return kRoughLaunch + std::max(work.flops / kRoughFlops, bytes / kRoughBytes);
}

bool is_product(const Op& op) {
  const auto* g = std::get_if<program::Gemm>(&op.shape);
  return g != nullptr && g->batch == 1;
}

plan::Scenario grid_model(model::Family family, std::int64_t hidden, std::int64_t seq_len, std::int64_t micro_batch) {
  plan::Scenario s = one_layer(family, hidden, 128, seq_len, micro_batch);
  s.model.vocab = 32768;
  s.training.precision = plan::Precision::bf16;
  return s;
}

program::Buffer buffer_of(std::int64_t rows, std::int64_t cols, program::DType dtype) {
  program::Buffer b;
  b.shape = {rows, cols};
  b.dtype = dtype;
  return b;
}

}  // namespace

std::string key_of(const Role& role, const Op& op) {
  return fmt::format("{} {} {} {}", program::kind_name(op.shape), program::shape_text(role, op),
                     cost::operand_types(role, op), program::name_of(op.dtype));
}

double rough_step_seconds(const Role& role) {
  double seconds = 0;
  for (const program::Slot& slot : role.slots)
    for (const Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
      if (is_kernel(op) && !std::holds_alternative<program::Input>(op.shape)) seconds += rough_seconds(role, op);
  return seconds;
}

std::int64_t& tokens_of(cost::ProductKey& key) {
  return key.transpose_a ? key.k : key.m;
}

program::Program product_program(const cost::ProductKey& key) {
  program::Role role;
  role.name = "product";
  role.streams = {{"compute", program::StreamKind::compute}};
  role.buffers = {key.transpose_a ? buffer_of(key.k, key.m, key.dtype) : buffer_of(key.m, key.k, key.dtype),
                  key.transpose_b ? buffer_of(key.n, key.k, key.dtype) : buffer_of(key.k, key.n, key.dtype),
                  buffer_of(key.m, key.n, key.out)};
  program::Gemm g{key.m, key.n, key.k, 1, key.transpose_a, key.transpose_b, key.accumulate, key.bias, key.epilogue};
  Op op;
  op.name = "product";
  op.dtype = key.dtype;
  op.shape = g;
  op.reads = {{0, 0}, {1, 0}};
  if (key.bias) {
    role.buffers.push_back(buffer_of(1, key.n, key.dtype));
    op.reads.push_back({3, 0});
  }
  if (key.accumulate) op.reads.push_back({2, 0});
  op.writes = {{2, 0}};
  if (key.epilogue != program::Epilogue::none) {
    const bool gradient = key.epilogue == program::Epilogue::bias_gradient;
    const auto more = static_cast<program::BufferId>(role.buffers.size());
    role.buffers.push_back(gradient ? buffer_of(1, key.m, key.out) : buffer_of(key.m, key.n, key.out));
    if (key.epilogue != program::Epilogue::gelu) op.reads.push_back({more, 0});
    if (key.epilogue != program::Epilogue::gelu_backward) op.writes.push_back({more, 0});
  }
  role.bodies = {{"product", {op}}};
  program::Program program;
  program.roles = {role};
  return program;
}

KernelsToTime::KernelsToTime(const std::vector<plan::Scenario>& scenarios, bool grid)
    : scenarios_(scenarios.begin(), scenarios.end()) {
  add_programs();
  std::stable_sort(kernels_.begin(), kernels_.end(),
                   [](const Kernel& a, const Kernel& b) { return a.weight > b.weight; });
  for (std::size_t i = 0; i < kernels_.size(); ++i) known_[key_of(*kernels_[i].role, *kernels_[i].op)] = i;
  if (!grid) return;
  add_neighbours();
  add_held_out();
  add_grid();
}

void KernelsToTime::add(const Kernel& kernel) {
  const auto* attention = std::get_if<program::Attention>(&kernel.op->shape);
  // No kernels of GPUs for these yet.
  if (attention != nullptr &&
      (attention->keys > 0 || attention->values() != attention->head_dim || attention->window > 0 ||
       attention->document > 0 || attention->softcap > 0 || attention->score_scale > 0 || attention->sinks > 0))
    return;
  const auto& shape = kernel.op->shape;
  if (std::holds_alternative<program::Router>(shape) || std::holds_alternative<program::Permute>(shape) ||
      std::holds_alternative<program::GroupedGemm>(shape) || std::holds_alternative<program::LatentHeads>(shape) ||
      std::holds_alternative<program::Compress>(shape) || std::holds_alternative<program::LowRank>(shape) ||
      std::holds_alternative<program::OuterStep>(shape) || std::holds_alternative<program::HeadNorm>(shape) ||
      std::holds_alternative<program::GroupedBias>(shape) || std::holds_alternative<program::RowScale>(shape) ||
      std::holds_alternative<StateSpace>(shape))
    return;
  if (const auto* gated = std::get_if<program::Activation>(&shape);
      gated != nullptr && gated->fn == program::ActivationFn::swiglu_oai)
    return;
  if (const auto* norm = std::get_if<program::Norm>(&shape); norm != nullptr && norm->zero_centered) return;
  const auto [place, is_new] = known_.try_emplace(key_of(*kernel.role, *kernel.op), kernels_.size());
  if (is_new) {
    kernels_.push_back(kernel);
  } else {
    kernels_[place->second].weight += kernel.weight;
  }
}

// Each op as often as the slots of a step have it.
void KernelsToTime::add_programs() {
  for (const plan::Scenario& s : scenarios_) {
    const program::Program& p = programs_.emplace_back(lower::lower(s));
    for (const Role& role : p.roles) {
      std::vector<double> times(role.bodies.size());
      for (const program::Slot& slot : role.slots) times[static_cast<std::size_t>(slot.body)] += 1;
      for (std::size_t b = 0; b < role.bodies.size(); ++b)
        for (const Op& op : role.bodies[b].ops)
          if (is_kernel(op) && !std::holds_alternative<program::Input>(op.shape))
            add({&s, &role, &op, times[b] * rough_seconds(role, op), false});
    }
  }
}

const Kernel* KernelsToTime::add_product(const cost::ProductKey& key, const plan::Scenario& scenario, bool held_out) {
  const program::Program& p = programs_.emplace_back(product_program(key));
  const Role& role = p.roles.front();
  const std::size_t before = kernels_.size();
  add({&scenario, &role, &role.bodies.front().ops.front(), 0, held_out});
  return kernels_.size() > before ? &kernels_.back() : nullptr;
}

void KernelsToTime::add_neighbours() {
  const std::vector<Kernel> of_programs = kernels_;
  std::size_t lines = 0;
  for (const Kernel& k : of_programs) {
    if (!is_product(*k.op) || lines == kMostLines) continue;
    ++lines;
    for (const int factor : {-2, 2}) {
      cost::ProductKey key = cost::product_key(*k.role, *k.op);
      std::int64_t& tokens = tokens_of(key);
      tokens = factor < 0 ? tokens / 2 : tokens * 2;
      if (tokens >= kLeastTokens) add_product(key, *k.scenario, false);
    }
  }
}

// One between two neighbours of a line, at two thirds of the way, in whole 64s: the wave model must tell it. Lines in
// the order of what they weigh.
void KernelsToTime::add_held_out() {
  struct Line {
    cost::ProductKey key;
    std::map<std::int64_t, const plan::Scenario*> sizes;
  };
  std::vector<Line> lines;
  for (const Kernel& k : kernels_) {
    if (!is_product(*k.op)) continue;
    cost::ProductKey key = cost::product_key(*k.role, *k.op);
    const std::int64_t tokens = std::exchange(tokens_of(key), 0);
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.key == key; });
    if (line == lines.end()) line = lines.insert(lines.end(), {key, {}});
    line->sizes.emplace(tokens, k.scenario);
  }
  std::size_t count = 0;
  for (const Line& line : lines) {
    for (auto at = line.sizes.begin(); at != line.sizes.end() && std::next(at) != line.sizes.end(); ++at) {
      const std::int64_t low = at->first, high = std::next(at)->first;
      const std::int64_t between = (low + (high - low) * 2 / 3) / 64 * 64;
      if (between <= low || between >= high) continue;
      cost::ProductKey key = line.key;
      tokens_of(key) = between;
      if (add_product(key, *at->second, true) != nullptr && ++count == kMostHeldOut) return;
    }
  }
}

void KernelsToTime::add_grid() {
  using model::Family;
  for (const auto& [family, hidden, seq_len, micro_batch] : {std::tuple{Family::gpt, 1024, 1024, 4},
                                                             {Family::llama, 2048, 2048, 2},
                                                             {Family::gpt, 4096, 2048, 1},
                                                             {Family::llama, 512, 512, 8}}) {
    const plan::Scenario& s = scenarios_.emplace_back(grid_model(family, hidden, seq_len, micro_batch));
    const program::Program& p = programs_.emplace_back(lower::lower(s));
    for (const Role& role : p.roles)
      for (const program::Body& body : role.bodies)
        for (const Op& op : body.ops)
          if (is_kernel(op) && !std::holds_alternative<program::Input>(op.shape)) add({&s, &role, &op, 0, false});
  }
  const plan::Scenario& any = scenarios_.back();
  for (const std::int64_t m : {8192, 1024, 4096, 512})
    for (const std::int64_t n : {8192, 1024, 4096, 512})
      for (const std::int64_t k : {8192, 1024, 4096, 512})
        add_product({program::DType::bf16, program::DType::bf16, false, true, false, false, m, n, k}, any, false);
  // Other sizes, for f16 and bf16 stand in one table of shapes.
  for (const program::DType type : {program::DType::f16, program::DType::f32})
    for (const std::int64_t m : {6144, 1536})
      for (const std::int64_t n : {6144, 1536})
        for (const std::int64_t k : {6144, 1536})
          add_product({type, type, false, true, false, false, m, n, k}, any, false);
}

}  // namespace rehearse::calibrate::gpu
