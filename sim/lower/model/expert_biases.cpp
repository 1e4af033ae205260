// Biases of experts' products (experts.h). Frameworks that multiply in Transformer Engine add the first one in the
// product's kernel (our Performer by one of its own); where weights multiply outputs within the experts, the second one
// is multiplied too and added by kernels of its own, an expert's each where products are (eager_passes.h).
#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/eager_passes.h"
#include "sim/lower/model/experts.h"

namespace rehearse::lower {

using program::GroupedBias;
using program::GroupedBiasPart;

void ExpertBranch::declare_biases() {
  if (!m_.bias) return;
  const std::int64_t h = columns(), f = m_.expert_ffn_hidden, e = m_.experts;
  router_b_ = lower::add_bias(s_, name_ + ".router.bias", {e}, -1, true);
  const auto add = [&](const char* what, std::vector<std::int64_t> shape, int tensor_dim) {
    ParamSpec spec{name_ + what, std::move(shape), tensor_dim, program::Init::Kind::zeros, 0};
    spec.spread = true;
    // Whole on each rank of a tensor group that splits experts, and so is the gradient of what it is added to.
    spec.complete = tensor_dim < 0 && c_.expert_tensor > 1;
    return s_.parameters.add(s_.number, std::move(spec));
  };
  const bool whole = c_.plan().whole_experts();
  up_b_ = m_.gated() ? add(".up.bias", {e, 2, f}, whole ? -1 : 2) : add(".up.bias", {e, f}, whole ? -1 : 1);
  down_b_ = add(".down.bias", {e, h}, -1);
}

GroupedBias ExpertBranch::grouped_bias(const std::string& what, GroupedBiasPart part, std::int64_t n) const {
  GroupedBias bias{part, m_.experts / c_.plan().expert, expert_rows(), n, counted()};
  if (what == "up") return bias;
  bias.shares = c_.expert_tensor;
  bias.weighted = weighs_here();
  return bias;
}

void ExpertBranch::add_bias(const std::string& what, BufferId y, std::int64_t n) {
  const ParamId b = bias_of(what);
  if (b < 0) return;
  const GroupedBias bias = grouped_bias(what, GroupedBiasPart::forward, n);
  s_.parameters.cast_weight(b);
  std::vector<Operand> reads = with_loads({{y}, {s_.parameters.value(b)}});
  if (bias.weighted) reads.push_back({row_weights_});
  s_.builder.op(name_ + "." + what + ".bias", bias, c_.compute, reads, {{y}});
  if (!c_.profile().measured_host && !bias.weighted) s_.builder.takes_no_kernel({});
  if (adds_each_bias(bias)) takes(eager_expert_bias(bias.rows * n, bias.groups));
}

bool ExpertBranch::adds_each_bias(const GroupedBias& bias) const {
  return bias.weighted && c_.profile().launches_each_expert && !in_product();
}

void ExpertBranch::takes(const EagerKernels& chain) {
  s_.builder.takes_kernels(chain.kernels, chain.passes);
}

void ExpertBranch::bias_backward(const std::string& what, BufferId dy, std::int64_t n) {
  const ParamId b = bias_of(what);
  if (b < 0 || !s_.parameters.trains(b)) return;
  const GroupedBias bias = grouped_bias(what, GroupedBiasPart::backward, n);
  const BufferId to = s_.parameters.accumulated_gradient(b);
  std::vector<Operand> reads = with_loads({{dy}});
  if (bias.weighted) reads.push_back({row_weights_});
  reads.push_back({to});
  s_.builder.op(name_ + "." + what + ".bias.backward", bias, c_.compute, reads, {{to}});
  if (adds_each_bias(bias)) takes(eager_expert_bias_backward(bias.rows * n, bias.groups));
  s_.parameters.gradient_done(b);
}

void ExpertBranch::bias_weights_backward(BufferId d_down) {
  if (down_b_ < 0 || !weighs_here()) return;
  GroupedBias bias = grouped_bias("down", GroupedBiasPart::weights_backward, columns());
  std::vector<Operand> reads = with_loads({{d_down}, {s_.parameters.value(down_b_)}});
  reads.push_back({d_row_weights_});
  s_.builder.op(name_ + ".down.bias.weights", bias, c_.compute, reads, {{d_row_weights_}});
  if (adds_each_bias(bias)) takes(eager_expert_bias_weights(bias.rows * columns(), bias.groups));
}

}  // namespace rehearse::lower
