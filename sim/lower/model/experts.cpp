#include "sim/lower/model/experts.h"

#include "sim/lower/model/block_parameters.h"

namespace rehearse::lower {

using program::Activation;
using program::ActivationFn;
using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;
using program::GroupedGemm;
using program::GroupedPart;
using program::Permute;
using program::PermutePart;
using program::Router;
using program::RouterPart;
using program::StreamKind;

ExpertBranch::ExpertBranch(const UnitScope& scope, const std::string& prefix, std::int64_t layer)
    : s_(scope),
      c_(scope.context),
      m_(scope.context.model()),
      prefix_(prefix),
      name_(prefix + ".experts"),
      tp_(scope.context, scope.builder, scope.parameters),
      fp8_(scope.context, scope.builder, scope.parameters, scope.fp8, scope.restored(), "",
           scope.context.launches_each_expert(scope.fp8) ? scope.context.model().experts / scope.context.plan().expert
                                                         : 1),
      exchange_(scope.context, scope.builder, name_, layer) {
  if (m_.shared_experts > 0) shared_.emplace(scope, prefix, "shared", m_.shared_experts * m_.shared_ffn_hidden);
}

void ExpertBranch::declare_parameters() {
  const std::int64_t h = m_.hidden, f = m_.expert_ffn_hidden, e = m_.experts;
  ParamSpec router{name_ + ".router.weight", {e, h}, -1, program::Init::Kind::normal, kWeightScale};  // in 16 bits
  router.matrices = 1;
  router_w_ = s_.parameters.add(s_.number, std::move(router));
  const auto add = [&](const char* what, std::vector<std::int64_t> shape, int tensor_dim, double scale) {
    ParamSpec spec{name_ + what, std::move(shape), tensor_dim, program::Init::Kind::normal, scale, false, true, s_.fp8};
    spec.matrices = e / c_.plan().expert * (spec.global_shape.size() == 4 ? 2 : 1);  // of this rank
    return s_.parameters.add(s_.number, std::move(spec));
  };
  const int split = c_.plan().whole_experts() ? -1 : 2;
  up_w_ = add(".up.weight", {e, 2, f, h}, split, kWeightScale);
  down_w_ = add(".down.weight", {e, h, f}, split, residual_weight_scale(m_));
  declare_adapters();
  if (shared_) shared_->declare_parameters();
}

void ExpertBranch::declare_buffers(BufferId input) {
  RoleBuilder& b = s_.builder;
  const Lifetime saved = s_.restored();
  const std::vector<std::int64_t> each{tokens(), m_.experts_per_token};
  input_ = input;
  logits_ = b.activation(name_ + ".logits", c_.compute, {tokens(), m_.experts}, saved);
  weights_ = b.activation(name_ + ".weights", DType::f32, each, saved);
  chosen_ = b.activation(name_ + ".chosen", DType::i32, each, saved);
  if (!gathers() || balanced()) {
    places_ = b.activation(name_ + ".places", DType::i32, each, gathers() ? Lifetime::slot : saved);
    loads_ = all_loads_ = b.activation(name_ + ".loads", DType::f32, {m_.experts}, saved);
  }
  if (balanced() && c_.groups.routing >= 0)
    all_loads_ = b.activation(name_ + ".loads.all", DType::f32, {m_.experts}, s_.kept());
  if (exchange_.counts()) exchange_.declare_buffers(saved, s_.kept());
  if (sorts_here()) {
    brought_ = expert_activation(name_ + ".rows", m_.hidden, s_.of_product_input(saved, adapts_up()));
    out_ = expert_activation(name_ + ".out", m_.hidden, saved);
  }
  up_ = expert_activation(name_ + ".up", 2 * width(), saved);
  activation_ = expert_activation(name_ + ".activation", width(), s_.of_product_input(saved, adapts_down()));
  if (shared_) shared_->declare_buffers(input);
}

Router ExpertBranch::router(RouterPart part) const {
  Router r{part, tokens(), m_.experts, m_.experts_per_token, capacity()};
  r.sigmoid = m_.router == model::Router::sigmoid;
  r.groups = m_.expert_groups, r.groups_per_token = m_.groups_per_token;
  if (part == RouterPart::gate) r.layer = exchange_.layer();
  if (part != RouterPart::gate_backward || !balanced()) return r;
  // Of experts * sum over experts (loads / choices of the micro-batch * mean score), weighted as its tokens' losses.
  const std::int64_t all = c_.batch * c_.seq;
  r.aux = m_.aux_loss * static_cast<double>(m_.experts) / static_cast<double>(all * m_.experts_per_token) *
          c_.gradient_weight();
  r.scaled = c_.scales_loss();
  return r;
}

Permute ExpertBranch::permute(PermutePart part) const {
  if (gathers()) return {part, tokens() * exchange_.sources(), m_.experts_per_token, expert_rows(), m_.hidden};
  return {part, tokens(), m_.experts_per_token, rows(), m_.hidden};
}

GroupedGemm ExpertBranch::grouped(GroupedPart part, std::int64_t n, std::int64_t k) const {
  GroupedGemm product{part, m_.experts / c_.plan().expert, expert_rows(), n, k, false, counted()};
  if (exchange_.counts() && exchange_.expected() < expert_rows()) {
    product.rows = exchange_.expected();
    product.room = expert_rows();
  }
  return product;
}

std::vector<Operand> ExpertBranch::with_loads(std::vector<Operand> reads) const {
  if (counted()) reads.push_back({group_loads()});
  return reads;
}

BufferId ExpertBranch::workspace(const std::string& name, std::vector<std::int64_t> shape) {
  return s_.builder.workspace(s_.builder.here(name), c_.compute, std::move(shape));
}

// Rows of this rank's experts, with room for those that the scenario's loads do not fill.
BufferId ExpertBranch::expert_activation(const std::string& name, std::int64_t cols, Lifetime lifetime) {
  RoleBuilder& b = s_.builder;
  const std::int64_t room = exchange_.counts() ? exchange_.room() : expert_rows();
  if (room <= expert_rows() && !c_.loads_vary()) return b.activation(name, c_.compute, {expert_rows(), cols}, lifetime);
  return b.view(name, b.activation(name + ".room", c_.compute, {room, cols}, lifetime), 0, {expert_rows(), cols});
}

BufferId ExpertBranch::expert_workspace(const std::string& name, std::int64_t cols) {
  return exchange_.rows_in(name, expert_rows(), exchange_.counts() ? exchange_.room() : expert_rows(), cols,
                           Lifetime::slot);
}

// The cast that was added last is made of what a product has on the chip: its copies are all that moves.
void ExpertBranch::is_cast_in_product() {
  s_.builder.takes_no_kernel({0, s_.builder.written_last()});
}

void ExpertBranch::takes_launches() {
  if (c_.launches_each_expert(fp8_.on())) s_.builder.takes_launches_each(m_.experts / c_.plan().expert);
}

void ExpertBranch::route(bool again) {
  const bool kept = again && s_.keeps_some();
  RoleBuilder& b = s_.builder;
  Gemm product{tokens(), m_.experts, m_.hidden, 1};
  product.transpose_b = true;
  s_.parameters.cast_weight(router_w_);
  b.op(name_ + ".router.forward", product, c_.compute, {{input_}, {s_.parameters.value(router_w_)}}, {{logits_}});
  b.op(name_ + ".gate", router(RouterPart::gate), c_.compute, {{logits_}}, {{weights_}, {chosen_}});
  if (!gathers() || balanced())
    b.op(name_ + ".place", router(RouterPart::place), c_.compute, {{chosen_}}, {{places_}, {loads_}});
  if (all_loads_ != loads_ && !kept)
    loads_summed_ =
        b.op(name_ + ".loads.all_reduce", Collective{CollectiveKind::all_reduce, c_.groups.routing, m_.experts},
             DType::f32, {{loads_}}, {{all_loads_}}, c_.plan().context > 1 ? StreamKind::context : StreamKind::tensor);
  if (gathers()) {
    const std::int64_t k = m_.experts_per_token;
    all_weights_ = exchange_.gather_all(name_ + ".weights", weights_, k, s_.restored());
    all_places_ = exchange_.place_own(exchange_.gather_all(name_ + ".chosen", chosen_, k));
  } else if (exchange_.counts()) {
    exchange_.gather_counts(loads_, kept);
  }
}

void ExpertBranch::product(const std::string& what, BufferId in, ParamId weight, BufferId out, std::int64_t n,
                           std::int64_t k) {
  s_.parameters.cast_weight(weight);
  if (fp8_.on()) in = fp8_.input(name_ + "." + what, in, false, k);
  if (what == "down" && in_product()) is_cast_in_product();
  s_.builder.op(name_ + "." + what + ".forward", grouped(GroupedPart::forward, n, k),
                fp8_.on() ? s_.builder.buffer(in).dtype : c_.compute,
                with_loads({{in}, {fp8_.on() ? s_.parameters.fp8_row(weight) : s_.parameters.value(weight)}}), {{out}});
  takes_launches();
}

void ExpertBranch::forward_to_activation(bool again) {
  RoleBuilder& b = s_.builder;
  const bool kept = again && s_.keeps_some();
  route(again);
  const BufferId sorted = sorts_here() ? brought_ : workspace(name_ + ".rows", {rows(), m_.hidden});
  const BufferId all = gathers() ? exchange_.gather_all(name_ + ".dispatch", input_, m_.hidden) : input_;
  b.op(name_ + ".permute", permute(PermutePart::permute), c_.compute, {{all}, {places()}}, {{sorted}});
  if (exchange_.counts() && !gathers()) {
    if (kept)
      exchange_.receive();
    else
      exchange_.wait_for_counts();
  }
  std::function<void()> beside;
  if (overlaps_shared()) beside = [&] { shared_->forward_to_activation(again); };
  if (!sorts_here()) bring(sorted, again, beside);
  product("up", brought_, up_w_, up_, 2 * width(), m_.hidden);
  adapter_forward("up", up_adapter_, brought_, up_, 2 * width(), m_.hidden);
  b.op(name_ + ".activation.forward",
       Activation{ActivationFn::swiglu, false, expert_rows(), width(), !c_.profile().fused_elementwise}, c_.compute,
       {{up_}}, {{activation_}});
  if (in_product()) b.takes_no_kernel({});  // of what the product has on the chip
  if (shared_ && !beside) shared_->forward_to_activation(again);
}

void ExpertBranch::bring(BufferId sorted, bool again, const std::function<void()>& beside) {
  const Lifetime lifetime = s_.of_product_input(s_.restored(), adapts_up());
  if (!s_.keeps_some() || !exchange_.trades()) {
    brought_ = exchange_.to_experts(name_ + ".dispatch", sorted, lifetime, beside);
    return;
  }
  if (!again) traded_ = exchange_.trade(name_ + ".dispatch", sorted, false, s_.kept());
  if (beside) beside();
  brought_ = exchange_.arrange(name_ + ".dispatch", traded_, lifetime);
}

void ExpertBranch::bring_back(bool again) {
  const BufferId down = sorts_here() ? out_ : expert_workspace(name_ + ".down", m_.hidden);
  product("down", activation_, down_w_, down, m_.hidden, width());
  adapter_forward("down", down_adapter_, activation_, down, m_.hidden, width());
  if (sorts_here()) return;
  if (!s_.keeps_some() || !exchange_.trades()) {
    out_ = exchange_.to_tokens(name_ + ".combine", down, s_.restored());
    return;
  }
  const BufferId to_trade = exchange_.disarrange(name_ + ".combine", down, Lifetime::slot, again);
  if (!again) out_ = exchange_.trade(name_ + ".combine", to_trade, true, s_.kept());
}

BufferId ExpertBranch::forward_from_activation(bool again) {
  RoleBuilder& b = s_.builder;
  bring_back(again);
  const BufferId of_shared = overlaps_shared() ? shared_->forward_from_activation(again) : -1;
  BufferId out = workspace(name_ + ".summed", {permute(PermutePart::unpermute).tokens, m_.hidden});
  b.op(name_ + ".unpermute", permute(PermutePart::unpermute), c_.compute, {{out_}, {places()}, {weights()}}, {{out}});
  out = own_sums(name_ + ".combine", out, m_.hidden);
  if (summed_over_tensor()) out = tp_.reduce_partial(name_ + ".summed", out, m_.hidden);
  if (!shared_) return out;
  return sum(name_ + ".with_shared", out, of_shared >= 0 ? of_shared : shared_->forward_from_activation(again));
}

BufferId ExpertBranch::sum(const std::string& name, BufferId a, BufferId b) {
  const BufferId y = workspace(name, {tokens(), m_.hidden});
  s_.builder.op(name, Elementwise{ElementwiseFn::add, tokens() * m_.hidden}, c_.compute, {{a}, {b}}, {{y}});
  return y;
}

BufferId ExpertBranch::backward(BufferId out_gradient, bool input_gradient) {
  RoleBuilder& b = s_.builder;
  const bool overlaps = overlaps_shared();
  BufferId d_shared = shared_ && !overlaps ? shared_->backward(out_gradient, input_gradient) : -1;
  const Permute unpermute = permute(PermutePart::unpermute_backward);
  const BufferId d_out =
      gathers() ? exchange_.gather_all("d_" + name_ + ".combine", out_gradient, m_.hidden) : out_gradient;
  const BufferId d_rows = gathers() ? expert_workspace("d_" + name_ + ".rows", m_.hidden)
                                    : workspace("d_" + name_ + ".rows", {rows(), m_.hidden});
  BufferId d_weights =
      b.workspace(b.here("d_" + name_ + ".weights"), DType::f32, {unpermute.tokens, m_.experts_per_token});
  b.op(name_ + ".unpermute.backward", unpermute, c_.compute, {{d_out}, {out_}, {places()}, {weights()}},
       {{d_rows}, {d_weights}});
  if (input_gradient) {
    d_weights = own_sums("d_" + name_ + ".weights", d_weights, m_.experts_per_token);
    if (summed_over_tensor())
      b.op("d_" + name_ + ".weights.all_reduce", Collective{CollectiveKind::all_reduce, c_.groups.tensor, choices()},
           DType::f32, {{d_weights}}, {{d_weights}}, StreamKind::tensor);
  }
  std::function<void()> beside, beside_back;
  if (overlaps) {
    beside = [&] { d_shared = shared_->backward_to_activation(out_gradient, input_gradient); };
    beside_back = [&] { d_shared = shared_->backward_from_activation(d_shared, input_gradient); };
  }
  const BufferId of_router = input_gradient ? backward_router(d_weights) : -1;
  const BufferId of_experts = backward_experts(d_rows, input_gradient, beside, beside_back);
  if (!input_gradient) return -1;
  const BufferId d_input = sum("d_" + name_ + ".input", of_experts, of_router);
  return shared_ ? sum("d_" + name_ + ".with_shared", d_input, d_shared) : d_input;
}

BufferId ExpertBranch::backward_experts(BufferId d_rows, bool input_gradient, const std::function<void()>& beside,
                                        const std::function<void()>& beside_back) {
  RoleBuilder& b = s_.builder;
  // `below`: whether somebody asks for the gradient of `in`.
  const auto product = [&](const std::string& what, ParamId weight, Adapter& adapter, BufferId d_out, BufferId in,
                           std::int64_t n, std::int64_t k, bool below) {
    if (!below) {
      adapter_backward(what, adapter, d_out, in, -1, n, k);
      return BufferId{-1};
    }
    const BufferId d_in = expert_workspace("d_" + name_ + "." + what, k);
    Fp8Operands::Pair out{d_out, d_out};
    BufferId by_columns = s_.parameters.value(weight);
    if (fp8_.on()) {
      out = fp8_.gradient("d_" + name_ + "." + what + ".out", d_out, false, n);
      if (what == "up" && in_product()) is_cast_in_product();
      fp8_.keep_input(in);
      by_columns = s_.parameters.fp8_column(weight);
    }
    b.op(name_ + "." + what + ".backward_input", grouped(GroupedPart::backward_input, n, k),
         fp8_.on() ? b.buffer(out.row).dtype : c_.compute, with_loads({{out.row}, {by_columns}}), {{d_in}});
    takes_launches();
    if (!s_.parameters.trains(weight)) {
      adapter_backward(what, adapter, d_out, in, d_in, n, k);
      return d_in;
    }
    b.weight_part([&] {
      const std::string input = name_ + "." + what + ".input";
      if (fp8_.on()) in = fp8_.by_columns(input, in, false, fp8_.kept_input(input, in, false, k));
      s_.parameters.weight_gradient(weight, name_ + "." + what + ".backward_weight",
                                    grouped(GroupedPart::backward_weight, n, k), out.column, in, group_loads());
      s_.parameters.gradient_done(weight);
    });
    return d_in;
  };
  const BufferId d_down =
      sorts_here() ? d_rows : exchange_.to_experts("d_" + name_ + ".combine", d_rows, Lifetime::slot, beside);
  const bool below = input_gradient || adapts_up();
  const BufferId d_act = product("down", down_w_, down_adapter_, d_down, activation_, m_.hidden, width(), below);
  if (!below) {
    if (beside_back) beside_back();
    return -1;
  }
  const BufferId d_up = expert_workspace("d_" + name_ + ".gate_up", 2 * width());
  b.op(name_ + ".activation.backward",
       Activation{ActivationFn::swiglu, true, expert_rows(), width(), !c_.profile().fused_elementwise}, c_.compute,
       {{d_act}, {up_}}, {{d_up}});
  if (in_product()) b.takes_no_kernel({b.buffer(up_).bytes(), 0});
  const BufferId d_brought = product("up", up_w_, up_adapter_, d_up, brought_, 2 * width(), m_.hidden, input_gradient);
  if (!input_gradient) {
    if (beside_back) beside_back();
    return -1;
  }
  const BufferId d_sorted =
      sorts_here() ? d_brought : exchange_.to_tokens("d_" + name_ + ".dispatch", d_brought, Lifetime::slot);
  if (beside_back) beside_back();
  BufferId d_input = workspace("d_" + name_ + ".tokens", {permute(PermutePart::permute_backward).tokens, m_.hidden});
  b.op(name_ + ".permute.backward", permute(PermutePart::permute_backward), c_.compute, {{d_sorted}, {places()}},
       {{d_input}});
  d_input = own_sums("d_" + name_ + ".dispatch", d_input, m_.hidden);
  return summed_over_tensor() ? tp_.reduce_partial("d_" + name_ + ".tokens", d_input, m_.hidden) : d_input;
}

BufferId ExpertBranch::backward_router(BufferId d_weights) {
  RoleBuilder& b = s_.builder;
  const Router gate = router(RouterPart::gate_backward);
  const BufferId d_logits = workspace("d_" + name_ + ".logits", {tokens(), m_.experts});
  std::vector<Operand> reads{{d_weights}, {logits_}, {chosen_}};
  if (gate.aux > 0) reads.push_back({all_loads_});
  if (gate.scaled) reads.push_back({s_.parameters.loss_scale()});
  const OpRef backward = b.op(name_ + ".gate.backward", gate, c_.compute, reads, {{d_logits}});
  // Nothing in forward waits for that sum.
  b.after(backward, loads_summed_);
  const BufferId d_input = workspace("d_" + name_ + ".router", {tokens(), m_.hidden});
  b.op(name_ + ".router.backward_input", Gemm{tokens(), m_.hidden, m_.experts, 1}, c_.compute,
       {{d_logits}, {s_.parameters.value(router_w_)}}, {{d_input}});
  b.weight_part([&] {
    Gemm product{m_.experts, m_.hidden, tokens(), 1};
    product.transpose_a = true;
    s_.parameters.weight_gradient(router_w_, name_ + ".router.backward_weight", product, d_logits, input_);
    s_.parameters.gradient_done(router_w_);
  });
  return d_input;
}

}  // namespace rehearse::lower
