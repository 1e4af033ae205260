#include "sim/lower/model/mixer.h"

#include <algorithm>
#include <cmath>

#include "sim/lower/model/block_parameters.h"

namespace rehearse::lower {

using Part = StateSpacePart;
using program::Init;

MixerBranch::MixerBranch(const UnitScope& scope, const std::string& prefix)
    : s_(scope),
      c_(scope.context),
      m_(scope.context.model()),
      prefix_(prefix),
      name_(prefix + ".mixer"),
      tp_(scope.context, scope.builder, scope.parameters, scope.fp8, scope.restored()) {}

ParamId MixerBranch::add_heads(const char* name, Init::Kind init) {
  return s_.parameters.add(s_.number, {name_ + name, {m_.mamba_heads}, 0, init, 0});
}

// The global shapes keep together what one rank must hold together: a group.
void MixerBranch::declare_parameters() {
  const std::int64_t h = m_.hidden, groups = m_.mamba_groups, inner = m_.mamba_inner() / groups;
  const std::int64_t channels = inner + 2 * m_.mamba_state;
  const double width = 1 / std::sqrt(static_cast<double>(m_.mamba_conv));  // as torch.nn.Conv1d draws
  in_w_ = add_product(s_, tp_, name_ + ".in", {groups, m_.mamba_in() / groups, h}, 0, kWeightScale, false);
  conv_w_ = s_.parameters.add(
      s_.number, {name_ + ".conv.weight", {groups, channels, m_.mamba_conv}, 0, Init::Kind::uniform, width});
  conv_b_ = s_.parameters.add(s_.number, {name_ + ".conv.bias", {groups, channels}, 0, Init::Kind::uniform, width});
  dt_bias_ = add_heads(".dt_bias", Init::Kind::step);
  a_log_ = add_heads(".a_log", Init::Kind::decay);
  d_ = add_heads(".d", Init::Kind::ones);
  gamma_ = s_.parameters.add(s_.number, {name_ + ".norm.gamma", {groups, inner}, 0, Init::Kind::ones, 0});
  out_w_ = add_product(s_, tp_, name_ + ".out", {h, m_.mamba_inner()}, 1, residual_weight_scale(m_), false);
}

void MixerBranch::declare_buffers(BufferId input) {
  input_ = input;
  const Lifetime saved = s_.restored();
  const auto activation = [&](const char* name, std::int64_t width, Lifetime lifetime) {
    return s_.builder.activation(name_ + name, c_.compute, {c_.tokens, width}, lifetime);
  };
  in_ = activation(".in", in_width(), saved);
  raw_ = activation(".scan.raw", inner(), saved);
  y_ = activation(".scan", inner(), saved);
  normed_ = activation(".normed", inner(), s_.of_product_input(saved));
  stats_ = s_.builder.activation(name_ + ".norm.stats", DType::f32, {c_.tokens, m_.mamba_groups / c_.tensor}, saved);
}

StateSpace MixerBranch::shape(Part part) const {
  StateSpace s;
  s.part = part;
  s.micro_batch = c_.batch, s.seq = c_.seq;
  s.heads = m_.mamba_heads / c_.tensor, s.groups = m_.mamba_groups / c_.tensor;
  s.head_dim = m_.mamba_head_dim, s.state = m_.mamba_state;
  s.conv = m_.mamba_conv, s.chunk = std::min(m_.mamba_chunk, c_.seq);
  return s;
}

void MixerBranch::op(Part part, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
  s_.builder.op(name_ + "." + std::string(word_of(part)), shape(part), c_.compute, reads, writes);
}

BufferId MixerBranch::made(Part part, std::size_t which, const std::string& name, DType type) {
  return s_.builder.workspace(s_.builder.here(name_ + "." + name), type, {shape(part).writes()[which]});
}

BufferId MixerBranch::value(ParamId id) const {
  return s_.parameters.value(id);
}

MixerBranch::Chunks MixerBranch::chunks(const std::string& suffix) {
  Chunks of{made(Part::conv, 0, "xbc" + suffix, c_.compute), made(Part::steps, 0, "step" + suffix, DType::f32),
            made(Part::steps, 1, "l" + suffix, DType::f32), made(Part::passing, 0, "entering" + suffix, DType::f32),
            made(Part::scores, 0, "cb" + suffix, DType::f32)};
  op(Part::conv, {{in_}, {value(conv_w_)}, {value(conv_b_)}}, {{of.xbc}});
  op(Part::steps, {{in_}, {value(dt_bias_)}, {value(a_log_)}}, {{of.step}, {of.l}});
  const BufferId states = made(Part::states, 0, "states" + suffix, DType::f32);
  op(Part::states, {{of.xbc}, {of.step}, {of.l}}, {{states}});
  op(Part::passing, {{states}, {of.l}}, {{of.entering}});
  op(Part::scores, {{of.xbc}}, {{of.cb}});
  return of;
}

void MixerBranch::forward_to_activation(bool /*again*/) {
  for (const ParamId id : {conv_w_, conv_b_, dt_bias_, a_log_, d_, gamma_}) s_.parameters.cast_weight(id);
  const BufferId in = tp_.product_input(prefix_ + ".norm", input_, m_.hidden, in_w_);
  tp_.product(name_ + ".in.forward", in, in_w_, -1, in_, in_width(), m_.hidden);
  const Chunks of = chunks("");
  op(Part::scan, {{of.cb}, {of.xbc}, {of.step}, {of.l}, {of.entering}, {value(d_)}, {in_}}, {{y_}, {raw_}});
  op(Part::norm, {{y_}, {value(gamma_)}}, {{normed_}, {stats_}});
}

BufferId MixerBranch::forward_from_activation(bool /*again*/) {
  RoleBuilder& b = s_.builder;
  const bool here = output_ >= 0 && !c_.sequence_parallel;
  const BufferId projected =
      here ? output_ : b.workspace(b.here(name_ + ".projected"), c_.compute, {c_.tokens, m_.hidden});
  return tp_.reduced_product(name_ + ".out", normed_, out_w_, -1, projected, m_.hidden, inner(), output_);
}

void MixerBranch::norm_backward(BufferId d_out, BufferId d_y) {
  const BufferId d_gamma = gradient(gamma_);
  op(Part::norm_backward, {{d_out}, {y_}, {stats_}, {value(gamma_)}, {d_gamma}}, {{d_y}, {d_gamma}});
  s_.parameters.gradient_done(gamma_);
}

// In the order of mamba_ssm's _mamba_chunk_scan_combined_bwd.
void MixerBranch::scan_backward(const Chunks& of, BufferId d_raw, BufferId d_in) {
  const BufferId d_entering = made(Part::entering_backward, 0, "d_entering", DType::f32),
                 d_states = made(Part::passing_backward, 0, "d_states", DType::f32),
                 d_l_pass = made(Part::passing_backward, 1, "d_l_pass", DType::f32),
                 d_xbc = made(Part::x_backward, 0, "d_xbc", c_.compute),
                 d_step = made(Part::x_backward, 1, "d_step", DType::f32),
                 d_b = made(Part::b_backward, 0, "d_b", DType::f32),
                 d_l_state = made(Part::b_backward, 1, "d_l_state", DType::f32),
                 d_c = made(Part::c_backward, 0, "d_c", DType::f32),
                 d_l_read = made(Part::c_backward, 1, "d_l_read", DType::f32),
                 d_cb = made(Part::scores_backward, 0, "d_cb", DType::f32),
                 d_l_scan = made(Part::decay_backward, 0, "d_l_scan", DType::f32);
  op(Part::entering_backward, {{d_raw}, {of.xbc}, {of.l}}, {{d_entering}});
  op(Part::passing_backward, {{d_entering}, {of.entering}, {of.l}}, {{d_states}, {d_l_pass}});
  op(Part::x_backward, {{d_raw}, {of.cb}, {of.xbc}, {of.step}, {of.l}, {d_states}, {value(d_)}}, {{d_xbc}, {d_step}});
  op(Part::b_backward, {{of.xbc}, {of.step}, {of.l}, {d_states}}, {{d_b}, {d_l_state}});
  op(Part::c_backward, {{d_raw}, {of.l}, {of.entering}, {of.xbc}}, {{d_c}, {d_l_read}});
  op(Part::scores_backward, {{d_raw}, {of.xbc}, {of.step}, {of.l}}, {{d_cb}});
  op(Part::b_product, {{d_cb}, {of.xbc}, {d_b}}, {{d_xbc}});
  op(Part::c_product, {{d_cb}, {of.xbc}, {d_c}}, {{d_xbc}});
  op(Part::decay_backward, {{d_raw}, {of.cb}, {of.xbc}, {of.step}, {of.l}}, {{d_l_scan}});
  const BufferId dt_bias = gradient(dt_bias_), a_log = gradient(a_log_);
  op(Part::steps_backward,
     {{d_l_scan},
      {d_l_state},
      {d_l_read},
      {d_l_pass},
      {d_step},
      {of.step},
      {in_},
      {value(dt_bias_)},
      {value(a_log_)},
      {dt_bias},
      {a_log}},
     {{d_in}, {dt_bias}, {a_log}});
  s_.parameters.gradient_done(dt_bias_);
  s_.parameters.gradient_done(a_log_);
  const BufferId conv_w = gradient(conv_w_), conv_b = gradient(conv_b_);
  op(Part::conv_backward, {{d_xbc}, {in_}, {value(conv_w_)}, {value(conv_b_)}, {conv_w}, {conv_b}},
     {{d_in}, {conv_w}, {conv_b}});
  s_.parameters.gradient_done(conv_w_);
  s_.parameters.gradient_done(conv_b_);
}

BufferId MixerBranch::backward(BufferId out_gradient, bool input_gradient) {
  const BufferId d_normed =
      tp_.row_backward(name_ + ".out", out_gradient, normed_, out_w_, -1, m_.hidden, inner(), -1, true);
  const BufferId d_y = made(Part::norm_backward, 0, "d_scan", c_.compute);
  norm_backward(d_normed, d_y);
  const Chunks of = chunks(".again");
  const BufferId d_in = made(Part::gate_backward, 0, "d_in", c_.compute),
                 d_raw = made(Part::gate_backward, 1, "d_raw", c_.compute), d_d = gradient(d_);
  op(Part::gate_backward, {{d_y}, {in_}, {raw_}, {of.xbc}, {d_d}}, {{d_in}, {d_raw}, {d_d}});
  s_.parameters.gradient_done(d_);
  scan_backward(of, d_raw, d_in);
  return tp_.column_backward(name_ + ".in", d_in, input_, in_w_, -1, in_width(), m_.hidden, input_gradient);
}

}  // namespace rehearse::lower
