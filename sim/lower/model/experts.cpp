#include "sim/lower/model/experts.h"

#include "sim/lower/model/activation_fn.h"
#include "sim/lower/model/block_parameters.h"
#include "sim/lower/model/eager_passes.h"
#include "sim/plan/expert_loads.h"

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
  fp8_.set_row_groups(m_.experts / c_.plan().expert, [this] { return counted() ? group_loads() : -1; });
  if (m_.shared_experts > 0) shared_.emplace(scope, prefix, "shared", m_.shared_experts * m_.shared_ffn_hidden);
  if (m_.expert_latent > 0) latent_.emplace(c_, s_.builder, s_.parameters, scope.fp8, scope.restored(), ".latent");
}

void ExpertBranch::declare_parameters() {
  const std::int64_t h = columns(), f = m_.expert_ffn_hidden, e = m_.experts;
  ParamSpec router{
      name_ + ".router.weight", {e, m_.hidden}, -1, program::Init::Kind::normal, kWeightScale};  // in 16 bits
  router.matrices = 1;
  router_w_ = s_.parameters.add(s_.number, std::move(router));
  const auto add = [&](const char* what, std::vector<std::int64_t> shape, int tensor_dim, double scale) {
    ParamSpec spec{name_ + what, std::move(shape), tensor_dim, program::Init::Kind::normal, scale, false, true, s_.fp8};
    spec.matrices = e / c_.plan().expert * (spec.global_shape.size() == 4 ? 2 : 1);  // of this rank
    return s_.parameters.add(s_.number, std::move(spec));
  };
  const bool whole = c_.plan().whole_experts();
  up_w_ = m_.gated() ? add(".up.weight", {e, 2, f, h}, whole ? -1 : 2, kWeightScale)
                     : add(".up.weight", {e, f, h}, whole ? -1 : 1, kWeightScale);
  down_w_ = add(".down.weight", {e, h, f}, whole ? -1 : 2, residual_weight_scale(m_));
  if (latent_) {
    to_latent_ = {add_weight(s_, name_ + ".to_latent.weight", {h, m_.hidden}, -1, kWeightScale), h, m_.hidden};
    from_latent_ = {add_weight(s_, name_ + ".from_latent.weight", {m_.hidden, h}, -1, kWeightScale), m_.hidden, h};
  }
  declare_biases();
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
  if (weighs_inputs()) weighed_ = b.activation(name_ + ".weighed", c_.compute, {tokens(), m_.hidden}, Lifetime::slot);
  if (sorts_here()) {
    brought_ = expert_activation(name_ + ".rows", columns(), s_.of_product_input(saved, adapts_up()));
    out_ = expert_activation(name_ + ".out", columns(), adds_as_they_come() ? Lifetime::slot : saved);
    if (weighs_here()) row_weights_ = expert_activation(name_ + ".weights.rows", 1, saved, DType::f32);
  }
  up_ = expert_activation(name_ + ".up", up_width(), keeps_eight_bits() ? Lifetime::slot : saved);
  if (keeps_eight_bits())
    narrow_up_ =
        expert_activation(name_ + ".up.fp8", Fp8Format(c_).size(up_width(), up_width()), saved, Fp8Format(c_).operand);
  activation_ = expert_activation(name_ + ".activation", width(),
                                  remakes_activation() ? Lifetime::slot : s_.of_product_input(saved, adapts_down()));
  if (remakes_activation()) fp8_.made_again(activation_);
  if (latent_) declare_latent();
  if (shared_) shared_->declare_buffers(input);
}

Router ExpertBranch::router(RouterPart part) const {
  Router r{part, tokens(), m_.experts, m_.experts_per_token, capacity()};
  r.sigmoid = m_.router == model::Router::sigmoid;
  r.raw = weighs_inputs();
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
  if (gathers()) return {part, tokens() * exchange_.sources(), m_.experts_per_token, expert_rows(), columns()};
  return {part, tokens(), m_.experts_per_token, rows(), columns()};
}

GroupedGemm ExpertBranch::grouped(GroupedPart part, std::int64_t n, std::int64_t k) const {
  GroupedGemm product{part, m_.experts / c_.plan().expert, expert_rows(), n, k, false, counted()};
  if (exchange_.counts() && exchange_.expected() < expert_rows()) {
    product.rows = exchange_.expected();
    product.room = expert_rows();
  }
  if (c_.plan().forward_only && counted() && c_.plan().expert == 1) product.chosen = expected_experts();
  return product;
}

// Of what is performed nobody knows how it will be routed: evenly, as loads are.
double ExpertBranch::expected_experts() const {
  std::vector<double> shares(static_cast<std::size_t>(m_.experts), 1 / static_cast<double>(m_.experts));
  if (c_.scenario.purpose != plan::Purpose::perform)
    shares = plan::expert_shares(m_, c_.scenario.training.seed, exchange_.layer());
  return plan::expected_experts(shares, m_.experts_per_token, tokens() * exchange_.sources());
}

std::vector<Operand> ExpertBranch::with_loads(std::vector<Operand> reads) const {
  if (counted()) reads.push_back({group_loads()});
  return reads;
}

BufferId ExpertBranch::workspace(const std::string& name, std::vector<std::int64_t> shape) {
  return s_.builder.workspace(s_.builder.here(name), c_.compute, std::move(shape));
}

// Rows of this rank's experts, with room for those that the scenario's loads do not fill.
BufferId ExpertBranch::expert_activation(const std::string& name, std::int64_t cols, Lifetime lifetime, DType type) {
  RoleBuilder& b = s_.builder;
  const std::int64_t room = exchange_.counts() ? exchange_.room() : expert_rows();
  if (room <= expert_rows() && !c_.loads_vary()) return b.activation(name, type, {expert_rows(), cols}, lifetime);
  return b.view(name, b.activation(name + ".room", type, {room, cols}, lifetime), 0, {expert_rows(), cols});
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
  std::vector<Operand> reads{{input_}, {s_.parameters.value(router_w_)}};
  if (router_b_ >= 0) {
    s_.parameters.cast_weight(router_b_);
    reads.push_back({s_.parameters.value(router_b_)});
    product.bias = true;
  }
  b.op(name_ + ".router.forward", product, c_.compute, reads, {{logits_}});
  b.op(name_ + ".gate", router(RouterPart::gate), c_.compute, {{logits_}}, {{weights_}, {chosen_}});
  if (weighs_inputs())
    b.op(name_ + ".weigh", program::RowScale{false, tokens(), m_.hidden}, c_.compute, {{input_}, {weights_}},
         {{weighed_}});
  if (!gathers() || balanced())
    b.op(name_ + ".place", router(RouterPart::place), c_.compute, {{chosen_}}, {{places_}, {loads_}});
  if (all_loads_ != loads_ && !kept)
    loads_summed_ =
        b.op(name_ + ".loads.all_reduce", Collective{CollectiveKind::all_reduce, c_.groups.routing, m_.experts},
             DType::f32, {{loads_}}, {{all_loads_}}, c_.plan().context > 1 ? StreamKind::context : StreamKind::tensor);
  if (gathers()) {
    const std::int64_t k = m_.experts_per_token;
    if (!weighs_inputs()) all_weights_ = exchange_.gather_all(name_ + ".weights", weights_, k, s_.restored());
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
  std::vector<Operand> reads =
      with_loads({{in}, {fp8_.on() ? s_.parameters.fp8_row(weight) : s_.parameters.value(weight)}});
  s_.parameters.fp8_scales().of_product(reads);
  s_.builder.op(name_ + "." + what + ".forward", grouped(GroupedPart::forward, n, k),
                fp8_.on() ? s_.builder.buffer(in).dtype : c_.compute, reads, {{out}});
  takes_launches();
  add_bias(what, out, n);
}

BufferId ExpertBranch::as_sent(const std::string& name, BufferId rows) {
  if (!sends_eight_bits()) return rows;
  const Fp8Format format(c_);
  RoleBuilder& b = s_.builder;
  const std::int64_t elements = b.buffer(rows).elements();
  const BufferId copy =
      b.workspace(b.here(name + ".fp8"), format.operand, {elements / columns(), format.size(columns(), columns())});
  b.op(name + ".fp8_cast", Elementwise{ElementwiseFn::fp8_cast, elements, fp8_columns(c_, {columns()})}, format.operand,
       {{rows}}, {{copy}});
  return copy;
}

BufferId ExpertBranch::sorted(const std::string& name, BufferId tokens, Lifetime lifetime) {
  RoleBuilder& b = s_.builder;
  const program::Buffer from = b.buffer(tokens);
  Permute shape = permute(PermutePart::permute);
  shape.cols = from.shape.back();
  BufferId to = brought_;
  if (lifetime == Lifetime::slot)
    to = gathers() ? expert_workspace(name, columns()) : b.workspace(b.here(name), from.dtype, {rows(), shape.cols});
  b.op((b.phase() == Phase::backward ? name_ + ".unpermute.backward" : name_ + ".permute"), shape, from.dtype,
       {{tokens}, {places()}}, {{to}});
  return to;
}

// A choice is a token of its own here. Frameworks have it in the kernel that moves the rows.
void ExpertBranch::sort_weights() {
  RoleBuilder& b = s_.builder;
  const Permute rows = permute(PermutePart::permute);
  if (!sorts_here()) row_weights_ = b.workspace(b.here(name_ + ".weights.rows"), DType::f32, {rows.rows, 1});
  b.op(name_ + ".weights.permute", Permute{PermutePart::permute, rows.tokens * rows.top_k, 1, rows.rows, 1}, DType::f32,
       {{weights()}, {places()}}, {{row_weights_}});
  b.takes_no_kernel({});
}

BufferId ExpertBranch::weights_backward(BufferId d_row_weights) {
  RoleBuilder& b = s_.builder;
  const Permute rows = permute(PermutePart::permute);
  const BufferId d_weights =
      b.workspace(b.here("d_" + name_ + ".weights"), DType::f32, {rows.tokens, m_.experts_per_token});
  b.op(name_ + ".weights.permute.backward",
       Permute{PermutePart::permute_backward, rows.tokens * rows.top_k, 1, rows.rows, 1}, DType::f32,
       {{d_row_weights}, {places()}}, {{d_weights}});
  b.takes_no_kernel({});
  return d_weights;
}

void ExpertBranch::activate() {
  Activation shape{activation_fn(m_), false, expert_rows(), width(), !c_.profile().fused_elementwise};
  shape.weighted = weighs_here();
  std::vector<Operand> reads{{up_}};
  if (weighs_here()) reads.push_back({row_weights_});
  s_.builder.op(name_ + ".activation.forward", shape, c_.compute, reads, {{activation_}});
  clamps_apart(false);
  if (in_product()) s_.builder.takes_no_kernel({});  // of what the product has on the chip
}

void ExpertBranch::clamps_apart(bool backward) {
  if (m_.activation != model::ActivationKind::swiglu_oai || !c_.profile().clamps_apart || in_product()) return;
  const EagerKernels clamps = eager_clamps(expert_rows() * up_width(), backward);
  s_.builder.takes_kernels(1 + clamps.kernels, clamps.passes);
}

// What backward reads of the activation and was not kept. Frameworks widen in the kernel that reads it.
void ExpertBranch::restore_activation() {
  RoleBuilder& b = s_.builder;
  b.set_phase(Phase::recompute);
  if (narrow_up_ >= 0) {
    b.op(name_ + ".up.fp8_widen",
         Elementwise{ElementwiseFn::fp8_widen, b.buffer(up_).elements(), fp8_columns(c_, {up_width()})}, c_.compute,
         {{narrow_up_}}, {{up_}});
    if (c_.profile().fused_elementwise) b.takes_no_kernel({});
  }
  if (remakes_activation()) activate();
  b.set_phase(Phase::backward);
}

void ExpertBranch::forward_to_activation(bool again) {
  RoleBuilder& b = s_.builder;
  const bool kept = again && s_.keeps_some();
  route(again);
  BufferId own = weighs_inputs() ? weighed_ : input_;
  if (latent_) {
    own = workspace(name_ + ".to_latent", {tokens(), columns()});
    latent_->forward(name_ + ".to_latent", input_, to_latent_, own);
  }
  own = as_sent(name_ + ".input", own);
  const BufferId all = gathers() ? exchange_.gather_all(name_ + ".dispatch", own, columns()) : own;
  const BufferId rows = sorted(name_ + ".rows", all, sorts_here() ? Lifetime::micro_batch : Lifetime::slot);
  if (weighs_here()) sort_weights();
  if (exchange_.counts() && !gathers()) {
    if (kept)
      exchange_.receive();
    else
      exchange_.wait_for_counts();
  }
  std::function<void()> beside;
  if (overlaps_shared()) beside = [&] { shared_->forward_to_activation(again); };
  if (!sorts_here()) bring(rows, again, beside);
  product("up", brought_, up_w_, up_, up_width(), columns());
  adapter_forward("up", up_adapter_, brought_, up_, up_width(), columns());
  if (narrow_up_ >= 0)
    b.op(name_ + ".up.fp8_cast",
         Elementwise{ElementwiseFn::fp8_cast, b.buffer(up_).elements(), fp8_columns(c_, {up_width()})},
         b.buffer(narrow_up_).dtype, {{up_}}, {{narrow_up_}});
  activate();
  if (shared_ && !beside) shared_->forward_to_activation(again);
}

void ExpertBranch::bring(BufferId rows, bool again, const std::function<void()>& beside) {
  const std::string name = name_ + ".dispatch";
  const Lifetime lifetime = sends_eight_bits() ? s_.restored() : s_.of_product_input(s_.restored(), adapts_up());
  ExpertExchange::Along weights{row_weights_, -1, s_.restored()};
  ExpertExchange::Along* const along = weighs_here() ? &weights : nullptr;
  if (s_.keeps_some() && exchange_.trades()) {
    if (!again) {
      weights.lives = s_.kept();
      traded_ = exchange_.trade(name, rows, false, s_.kept(), along);
      traded_weights_ = weights.to;
    }
    if (beside) beside();
    weights = {traded_weights_, -1, s_.restored()};
    brought_ = exchange_.arrange(name, traded_, lifetime, along);
  } else {
    brought_ = exchange_.to_experts(name, rows, lifetime, beside, along);
  }
  row_weights_ = weights.to;
}

void ExpertBranch::bring_back(bool again) {
  const BufferId down = sorts_here() ? out_ : expert_workspace(name_ + ".down", columns());
  product("down", activation_, down_w_, down, columns(), width());
  adapter_forward("down", down_adapter_, activation_, down, columns(), width());
  if (sorts_here()) return;
  const std::string name = name_ + ".combine";
  if (!s_.keeps_some() || !exchange_.trades()) {
    out_ = exchange_.to_tokens(name, down, adds_as_they_come() ? Lifetime::slot : s_.restored());
  } else if (again) {
    exchange_.disarrange_again(name, down);
  } else {
    out_ = exchange_.trade(name, exchange_.disarrange(name, down, Lifetime::slot), true, s_.kept());
  }
}

// With the weights in the experts backward reads nothing behind the activation, but for the sum of a latent's rows.
void ExpertBranch::restore_output() {
  if (latent_ || !adds_as_they_come()) bring_back(true);
  if (latent_) summed_rows();
}

BufferId ExpertBranch::summed_rows() {
  RoleBuilder& b = s_.builder;
  const Permute shape = permute(adds_as_they_come() ? PermutePart::permute_backward : PermutePart::unpermute);
  BufferId out = latent_ && !gathers() ? latent_sum_ : workspace(name_ + ".summed", {shape.tokens, columns()});
  std::vector<Operand> reads{{out_}, {places()}};
  if (!adds_as_they_come()) reads.push_back({weights()});
  b.op(name_ + ".unpermute", shape, c_.compute, reads, {{out}});
  out = own_sums(name_ + ".combine", out, columns(), latent_ ? s_.of_product_input(s_.restored()) : Lifetime::slot);
  if (summed_over_tensor()) out = tp_.reduce_partial(name_ + ".summed", out, columns());
  if (latent_) latent_sum_ = out;
  return out;
}

BufferId ExpertBranch::forward_from_activation(bool again) {
  bring_back(again);
  const BufferId of_shared = overlaps_shared() ? shared_->forward_from_activation(again) : -1;
  BufferId out = summed_rows();
  if (latent_) out = from_latent();
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
  const BufferId d_sum = latent_ ? from_latent_backward(out_gradient) : out_gradient;
  BufferId d_out = adds_as_they_come() ? as_sent("d_" + name_ + ".combine", d_sum) : d_sum;
  if (gathers()) d_out = exchange_.gather_all("d_" + name_ + ".combine", d_out, columns());
  BufferId d_rows = -1, d_weights = -1;
  if (adds_as_they_come()) {
    d_rows = sorted("d_" + name_ + ".rows", d_out, Lifetime::slot);
  } else {
    const Permute unpermute = permute(PermutePart::unpermute_backward);
    d_rows = gathers() ? expert_workspace("d_" + name_ + ".rows", columns())
                       : workspace("d_" + name_ + ".rows", {rows(), columns()});
    d_weights = b.workspace(b.here("d_" + name_ + ".weights"), DType::f32, {unpermute.tokens, m_.experts_per_token});
    b.op(name_ + ".unpermute.backward", unpermute, c_.compute, {{d_out}, {out_}, {places()}, {weights()}},
         {{d_rows}, {d_weights}});
    d_rows = as_sent("d_" + name_ + ".combine", d_rows);
  }
  std::function<void()> beside, beside_back;
  if (overlaps) {
    beside = [&] { d_shared = shared_->backward_to_activation(out_gradient, input_gradient); };
    beside_back = [&] { d_shared = shared_->backward_from_activation(d_shared, input_gradient); };
  }
  BufferId of_router = -1, of_experts = -1;
  if (input_gradient && !adds_as_they_come()) of_router = backward_router(summed_weights(d_weights));
  of_experts = backward_experts(d_rows, input_gradient, beside, beside_back);
  if (!input_gradient) return -1;
  if (weighs_here()) of_router = backward_router(summed_weights(weights_backward(d_row_weights_)));
  if (latent_) of_experts = to_latent_backward(of_experts);
  if (weighs_inputs()) {
    const BufferId d_weighed = of_experts;
    of_experts = workspace("d_" + name_ + ".weighed", {tokens(), m_.hidden});
    d_weights = b.workspace(b.here("d_" + name_ + ".weights"), DType::f32, {tokens(), m_.experts_per_token});
    b.op(name_ + ".weigh.backward", program::RowScale{true, tokens(), m_.hidden}, c_.compute,
         {{d_weighed}, {input_}, {weights_}}, {{of_experts}, {d_weights}});
    of_router = backward_router(d_weights);
  }
  const BufferId d_input = sum("d_" + name_ + ".input", of_experts, of_router);
  return shared_ ? sum("d_" + name_ + ".with_shared", d_input, d_shared) : d_input;
}

// The weights' gradients that several ranks have terms of.
BufferId ExpertBranch::summed_weights(BufferId d_weights) {
  d_weights = own_sums("d_" + name_ + ".weights", d_weights, m_.experts_per_token);
  if (summed_over_tensor())
    s_.builder.op("d_" + name_ + ".weights.all_reduce",
                  Collective{CollectiveKind::all_reduce, c_.groups.tensor, choices()}, DType::f32, {{d_weights}},
                  {{d_weights}}, StreamKind::tensor);
  return d_weights;
}

BufferId ExpertBranch::product_backward(const std::string& what, ParamId weight, Adapter& adapter, BufferId d_out,
                                        BufferId in, std::int64_t n, std::int64_t k, bool input_gradient) {
  if (!input_gradient) {
    adapter_backward(what, adapter, d_out, in, -1, n, k);
    return -1;
  }
  RoleBuilder& b = s_.builder;
  const BufferId d_in = expert_workspace("d_" + name_ + "." + what, k);
  Fp8Operands::Pair out{d_out, d_out};
  BufferId by_columns = s_.parameters.value(weight);
  if (fp8_.on()) {
    out = fp8_.gradient("d_" + name_ + "." + what + ".out", d_out, false, n);
    if (what == "up" && in_product()) is_cast_in_product();
    fp8_.keep_input(in);
    by_columns = s_.parameters.fp8_column(weight);
  }
  std::vector<Operand> reads = with_loads({{out.row}, {by_columns}});
  s_.parameters.fp8_scales().of_product(reads);
  b.op(name_ + "." + what + ".backward_input", grouped(GroupedPart::backward_input, n, k),
       fp8_.on() ? b.buffer(out.row).dtype : c_.compute, reads, {{d_in}});
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
}

BufferId ExpertBranch::activation_backward(BufferId d_act) {
  RoleBuilder& b = s_.builder;
  const BufferId d_up = expert_workspace("d_" + name_ + (m_.gated() ? ".gate_up" : ".up.out"), up_width());
  Activation shape{activation_fn(m_), true, expert_rows(), width(), !c_.profile().fused_elementwise};
  std::vector<Operand> reads{{d_act}, {up_}}, writes{{d_up}};
  shape.weighted = weighs_here();
  if (weighs_here()) {
    d_row_weights_ =
        exchange_.rows_in("d_" + name_ + ".weights.rows", expert_rows(),
                          exchange_.counts() ? exchange_.room() : expert_rows(), 1, Lifetime::slot, DType::f32);
    reads.push_back({row_weights_}), writes.push_back({d_row_weights_});
  }
  b.op(name_ + ".activation.backward", shape, c_.compute, reads, writes);
  clamps_apart(true);
  if (in_product()) b.takes_no_kernel({b.buffer(up_).bytes(), 0});
  return d_up;
}

BufferId ExpertBranch::backward_experts(BufferId d_rows, bool input_gradient, const std::function<void()>& beside,
                                        const std::function<void()>& beside_back) {
  RoleBuilder& b = s_.builder;
  const BufferId d_down =
      sorts_here() ? d_rows : exchange_.to_experts("d_" + name_ + ".combine", d_rows, Lifetime::slot, beside);
  if (narrow_up_ >= 0 || remakes_activation()) restore_activation();
  const bool below = input_gradient || adapts_up();
  bias_backward("down", d_down, columns());
  const BufferId d_act =
      product_backward("down", down_w_, down_adapter_, d_down, activation_, columns(), width(), below);
  BufferId d_brought = -1;
  if (below) {
    const BufferId d_up = activation_backward(d_act);
    bias_weights_backward(d_down);
    bias_backward("up", d_up, up_width());
    d_brought = product_backward("up", up_w_, up_adapter_, d_up, brought_, up_width(), columns(), input_gradient);
  }
  if (!input_gradient) {
    if (beside_back) beside_back();
    return -1;
  }
  BufferId d_sorted = d_brought;
  if (!sorts_here()) {
    ExpertExchange::Along along{d_row_weights_};
    d_sorted =
        exchange_.to_tokens("d_" + name_ + ".dispatch", d_brought, Lifetime::slot, weighs_here() ? &along : nullptr);
    d_row_weights_ = along.to;
  }
  if (beside_back) beside_back();
  BufferId d_input = workspace("d_" + name_ + ".tokens", {permute(PermutePart::permute_backward).tokens, columns()});
  b.op(name_ + ".permute.backward", permute(PermutePart::permute_backward), c_.compute, {{d_sorted}, {places()}},
       {{d_input}});
  d_input = own_sums("d_" + name_ + ".dispatch", d_input, columns());
  return summed_over_tensor() ? tp_.reduce_partial("d_" + name_ + ".tokens", d_input, columns()) : d_input;
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
  tp_.bias_gradient(name_ + ".router", d_logits, router_b_, m_.experts);
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
