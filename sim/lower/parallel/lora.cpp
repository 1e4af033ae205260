#include "sim/lower/parallel/lora.h"

#include <cmath>

namespace rehearse::lower {

using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;

double LoraAdapters::scale() const {
  const plan::Training& t = context_.scenario.training;
  return t.lora_alpha / static_cast<double>(t.lora_rank);
}

BufferId LoraAdapters::temporary(const std::string& name, std::int64_t tokens, std::int64_t width) {
  return builder_.workspace(builder_.here(name), context_.compute, {tokens, width});
}

void LoraAdapters::add(int unit, const std::string& name, ParamId weight, const ParamSpec& spec) {
  const std::int64_t rank = context_.scenario.training.lora_rank, in = spec.global_shape.back();
  const int last = static_cast<int>(spec.global_shape.size()) - 1;
  const bool row_parallel = spec.tensor_dim == last;
  const double width = 1 / std::sqrt(static_cast<double>(in));
  ParamSpec a{name + ".lora_a", {rank, in}, row_parallel ? 1 : -1, program::Init::Kind::uniform, width};
  ParamSpec b{name + ".lora_b", spec.global_shape, row_parallel ? -1 : spec.tensor_dim, program::Init::Kind::zeros, 0};
  b.global_shape.back() = rank;
  a.adapter = b.adapter = true;
  a.matrices = 1;
  b.matrices = spec.matrices, b.packed_qkv = spec.packed_qkv;
  a.complete = b.complete = spec.tensor_dim < 0 && !context_.sequence_parallel;
  std::int64_t out = 1;
  for (int i = 0; i < last; ++i) out *= spec.global_shape[static_cast<std::size_t>(i)];
  Adapter adapter;
  adapter.in = row_parallel ? in / context_.tensor : in;
  adapter.out = row_parallel || spec.tensor_dim < 0 ? out : out / context_.tensor;
  adapter.a = parameters_.add(unit, std::move(a));
  adapter.b = parameters_.add(unit, std::move(b));
  adapters_.emplace(weight, adapter);
}

void LoraAdapters::add_to(const std::string& name, BufferId part, BufferId sum) {
  builder_.op(name, Elementwise{ElementwiseFn::accumulate, builder_.buffer(sum).elements()}, context_.compute,
              {{part}, {sum}}, {{sum}});
}

void LoraAdapters::forward(const std::string& name, ParamId weight, BufferId in, BufferId out) {
  const auto found = adapters_.find(weight);
  if (found == adapters_.end()) return;
  Adapter& a = found->second;
  const std::int64_t tokens = rows_of(in, a.in), rank = context_.scenario.training.lora_rank;
  if (a.low < 0) a.low = builder_.activation(name + ".lora_a.out", context_.compute, {tokens, rank}, saved_);
  const auto product = [&](const std::string& op, ParamId matrix, BufferId from, BufferId to, std::int64_t n,
                           std::int64_t k) {
    parameters_.cast_weight(matrix);
    Gemm gemm{tokens, n, k, 1};
    gemm.transpose_b = true;
    builder_.op(op, gemm, context_.compute, {{from}, {parameters_.value(matrix)}}, {{to}});
  };
  product(name + ".lora_a.forward", a.a, in, a.low, rank, a.in);
  const BufferId added = temporary(name + ".lora_b.out", tokens, a.out);
  product(name + ".lora_b.forward", a.b, a.low, added, a.out, rank);
  Elementwise scaled{ElementwiseFn::scale, tokens * a.out};
  scaled.value = scale();
  builder_.op(name + ".lora.scale", scaled, context_.compute, {{added}}, {{added}});
  add_to(name + ".lora.add", added, out);
}

void LoraAdapters::backward(const std::string& name, ParamId weight, BufferId out_gradient, BufferId in_gradient) {
  const auto found = adapters_.find(weight);
  if (found == adapters_.end()) return;
  Adapter& a = found->second;
  const std::int64_t tokens = rows_of(out_gradient, a.out), rank = context_.scenario.training.lora_rank;
  a.scaled_gradient = temporary("d_" + name + ".lora_b.out", tokens, a.out);
  Elementwise scaled{ElementwiseFn::scale, tokens * a.out};
  scaled.value = scale();
  builder_.op(name + ".lora.scale_backward", scaled, context_.compute, {{out_gradient}}, {{a.scaled_gradient}});
  a.low_gradient = temporary("d_" + name + ".lora_a.out", tokens, rank);
  builder_.op(name + ".lora_b.backward_input", Gemm{tokens, rank, a.out, 1}, context_.compute,
              {{a.scaled_gradient}, {parameters_.value(a.b)}}, {{a.low_gradient}});
  if (in_gradient < 0) return;
  const BufferId part = temporary("d_" + name + ".lora_a.in", tokens, a.in);
  builder_.op(name + ".lora_a.backward_input", Gemm{tokens, a.in, rank, 1}, context_.compute,
              {{a.low_gradient}, {parameters_.value(a.a)}}, {{part}});
  add_to(name + ".lora.backward_add", part, in_gradient);
}

void LoraAdapters::weight_gradients(const std::string& name, ParamId weight, BufferId in) {
  const auto found = adapters_.find(weight);
  if (found == adapters_.end()) return;
  const Adapter& a = found->second;
  const std::int64_t tokens = rows_of(in, a.in), rank = context_.scenario.training.lora_rank;
  Gemm b{a.out, rank, tokens, 1}, first{rank, a.in, tokens, 1};
  b.transpose_a = first.transpose_a = true;
  parameters_.weight_gradient(a.b, name + ".lora_b.backward_weight", b, a.scaled_gradient, a.low);
  parameters_.gradient_done(a.b);
  parameters_.weight_gradient(a.a, name + ".lora_a.backward_weight", first, a.low_gradient, in);
  parameters_.gradient_done(a.a);
}

}  // namespace rehearse::lower
