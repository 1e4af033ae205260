// Low-rank adaptation of experts: see experts.h and lora.h. Each expert's A and B are its part of one tensor, so that
// the adapters of all of a rank's experts are two grouped products. Over a tensor group that splits experts they are
// split as a dense layer's are; where a matrix is whole, its gradients are summed over the group.
#include <cmath>

#include "sim/lower/model/experts.h"

namespace rehearse::lower {

using program::Elementwise;
using program::ElementwiseFn;
using program::GroupedPart;

void ExpertBranch::declare_adapters() {
  const std::int64_t rank = c_.scenario.training.lora_rank, e = m_.experts, h = columns(), f = m_.expert_ffn_hidden;
  const bool whole = c_.plan().whole_experts();
  const auto add = [&](Adapter& adapter, const std::string& what, std::int64_t in, int in_split,
                       std::vector<std::int64_t> out, int out_split) {
    const double width = 1 / std::sqrt(static_cast<double>(in));
    ParamSpec a{name_ + what + ".lora_a", {e, rank, in}, in_split, program::Init::Kind::uniform, width};
    ParamSpec b{name_ + what + ".lora_b", std::move(out), out_split, program::Init::Kind::zeros, 0};
    b.global_shape.push_back(rank);
    a.spread = b.spread = a.adapter = b.adapter = true;
    a.matrices = e / c_.plan().expert;
    b.matrices = a.matrices * (b.global_shape.size() == 4 ? 2 : 1);
    adapter.a = s_.parameters.add(s_.number, std::move(a));
    adapter.b = s_.parameters.add(s_.number, std::move(b));
  };
  const std::vector<std::int64_t> up = m_.gated() ? std::vector{e, std::int64_t{2}, f} : std::vector{e, f};
  if (adapts_up()) add(up_adapter_, ".up", h, -1, up, whole ? -1 : m_.gated() ? 2 : 1);
  if (adapts_down()) add(down_adapter_, ".down", f, whole ? -1 : 2, {e, h}, -1);
}

void ExpertBranch::product_in_16_bits(const std::string& name, BufferId in, ParamId weight, BufferId out,
                                      std::int64_t n, std::int64_t k) {
  s_.parameters.cast_weight(weight);
  s_.builder.op(name + ".forward", grouped(GroupedPart::forward, n, k), c_.compute,
                with_loads({{in}, {s_.parameters.value(weight)}}), {{out}});
  takes_launches();
}

BufferId ExpertBranch::scaled(const std::string& name, BufferId from, BufferId to, std::int64_t n) {
  const plan::Training& t = c_.scenario.training;
  Elementwise scale{ElementwiseFn::scale, expert_rows() * n};
  scale.value = t.lora_alpha / static_cast<double>(t.lora_rank);
  s_.builder.op(name, scale, c_.compute, {{from}}, {{to}});
  return to;
}

void ExpertBranch::adapter_forward(const std::string& what, Adapter& adapter, BufferId in, BufferId out, std::int64_t n,
                                   std::int64_t k) {
  if (adapter.a < 0) return;
  const std::string name = name_ + "." + what;
  const std::int64_t rank = c_.scenario.training.lora_rank;
  if (adapter.low < 0) adapter.low = expert_activation(name + ".lora_a.out", rank, s_.restored());
  product_in_16_bits(name + ".lora_a", in, adapter.a, adapter.low, rank, k);
  const BufferId added = expert_workspace(name + ".lora_b.out", n);
  product_in_16_bits(name + ".lora_b", adapter.low, adapter.b, added, n, rank);
  scaled(name + ".lora.scale", added, added, n);
  s_.builder.op(name + ".lora.add", Elementwise{ElementwiseFn::accumulate, expert_rows() * n}, c_.compute,
                {{added}, {out}}, {{out}});
}

void ExpertBranch::adapter_backward(const std::string& what, Adapter& adapter, BufferId d_out, BufferId in,
                                    BufferId d_in, std::int64_t n, std::int64_t k) {
  if (adapter.a < 0) return;
  RoleBuilder& b = s_.builder;
  const std::string name = name_ + "." + what;
  const std::int64_t rank = c_.scenario.training.lora_rank;
  const auto input_gradient = [&](const std::string& of, BufferId d, ParamId weight, BufferId to, std::int64_t cols,
                                  std::int64_t inner) {
    b.op(name + of + ".backward_input", grouped(GroupedPart::backward_input, cols, inner), c_.compute,
         with_loads({{d}, {s_.parameters.value(weight)}}), {{to}});
    takes_launches();
  };
  adapter.scaled_gradient =
      scaled(name + ".lora.scale_backward", d_out, expert_workspace("d_" + name + ".lora_b.out", n), n);
  adapter.low_gradient = expert_workspace("d_" + name + ".lora_a.out", rank);
  input_gradient(".lora_b", adapter.scaled_gradient, adapter.b, adapter.low_gradient, n, rank);
  if (d_in >= 0) {
    const BufferId part = expert_workspace("d_" + name + ".lora_a.in", k);
    input_gradient(".lora_a", adapter.low_gradient, adapter.a, part, rank, k);
    b.op(name + ".lora.backward_add", Elementwise{ElementwiseFn::accumulate, expert_rows() * k}, c_.compute,
         {{part}, {d_in}}, {{d_in}});
  }
  const auto weight_gradient = [&](const std::string& of, ParamId weight, BufferId d, BufferId x, std::int64_t cols,
                                   std::int64_t inner) {
    s_.parameters.weight_gradient(weight, name + of + ".backward_weight",
                                  grouped(GroupedPart::backward_weight, cols, inner), d, x, group_loads());
    s_.parameters.gradient_done(weight);
  };
  weight_gradient(".lora_b", adapter.b, adapter.scaled_gradient, adapter.low, n, rank);
  weight_gradient(".lora_a", adapter.a, adapter.low_gradient, in, rank, k);
}

}  // namespace rehearse::lower
