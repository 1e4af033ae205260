#include "sim/base/state_space.h"

#include <array>

namespace rehearse {
namespace {

using Part = StateSpacePart;
using Sizes = std::vector<std::int64_t>;

// Elements of what op comments name.
struct Elements {
  std::int64_t in, xbc, w, b, token, states, cb, y, groups, pass, heads;

  explicit Elements(const StateSpace& s)
      : in(s.tokens() * s.groups * s.group_in()),
        xbc(s.tokens() * s.groups * s.group_conv()),
        w(s.groups * s.group_conv() * s.conv),
        b(s.groups * s.group_conv()),
        token(s.tokens() * s.heads),
        states(s.micro_batch * s.chunks() * s.inner() * s.state),
        cb(s.micro_batch * s.chunks() * s.groups * s.chunk * s.chunk),
        y(s.tokens() * s.inner()),
        groups(s.tokens() * s.groups),
        pass(s.micro_batch * s.chunks() * s.heads),
        heads(s.heads) {}
};

}  // namespace

Sizes StateSpace::reads() const {
  const Elements e(*this);
  const std::int64_t bc = e.groups * state;
  switch (part) {
    case Part::conv:
      return {e.in, e.w, e.b};
    case Part::conv_backward:
      return {e.xbc, e.in, e.w, e.b, e.w, e.b};
    case Part::steps:
      return {e.in, e.heads, e.heads};
    case Part::steps_backward:
      return {e.token, e.token, e.token, e.pass, e.token, e.token, e.in, e.heads, e.heads, e.heads, e.heads};
    case Part::states:
      return {e.xbc, e.token, e.token};
    case Part::passing:
      return {e.states, e.token};
    case Part::passing_backward:
      return {e.states, e.states, e.token};
    case Part::scores:
      return {e.xbc};
    case Part::scan:
      return {e.cb, e.xbc, e.token, e.token, e.states, e.heads, e.in};
    case Part::gate_backward:
      return {e.y, e.in, e.y, e.xbc, e.heads};
    case Part::entering_backward:
      return {e.y, e.xbc, e.token};
    case Part::x_backward:
      return {e.y, e.cb, e.xbc, e.token, e.token, e.states, e.heads};
    case Part::b_backward:
      return {e.xbc, e.token, e.token, e.states};
    case Part::c_backward:
      return {e.y, e.token, e.states, e.xbc};
    case Part::scores_backward:
      return {e.y, e.xbc, e.token, e.token};
    case Part::b_product:
    case Part::c_product:
      return {e.cb, e.xbc, bc};
    case Part::decay_backward:
      return {e.y, e.cb, e.xbc, e.token, e.token};
    case Part::norm:
      return {e.y, inner()};
    case Part::norm_backward:
      return {e.y, e.y, e.groups, inner(), inner()};
  }
  return {};
}

Sizes StateSpace::writes() const {
  const Elements e(*this);
  const std::int64_t bc = e.groups * state;
  switch (part) {
    case Part::conv:
      return {e.xbc};
    case Part::conv_backward:
      return {e.in, e.w, e.b};
    case Part::steps:
      return {e.token, e.token};
    case Part::steps_backward:
      return {e.in, e.heads, e.heads};
    case Part::states:
    case Part::passing:
    case Part::entering_backward:
      return {e.states};
    case Part::passing_backward:
      return {e.states, e.pass};
    case Part::scores:
    case Part::scores_backward:
      return {e.cb};
    case Part::scan:
      return {e.y, e.y};
    case Part::gate_backward:
      return {e.in, e.y, e.heads};
    case Part::x_backward:
      return {e.xbc, e.token};
    case Part::b_backward:
    case Part::c_backward:
      return {bc, e.token};
    case Part::b_product:
    case Part::c_product:
      return {e.xbc};
    case Part::decay_backward:
      return {e.token};
    case Part::norm:
      return {e.y, e.groups};
    case Part::norm_backward:
      return {e.y, inner()};
  }
  return {};
}

Sizes StateSpace::touched_reads() const {
  Sizes sizes = reads();
  const Elements e(*this);
  const std::int64_t bc = e.groups * state;
  switch (part) {
    case Part::conv:
      sizes[0] = e.xbc;
      break;
    case Part::conv_backward:
      sizes[1] = e.xbc;
      break;
    case Part::steps:
      sizes[0] = e.token;
      break;
    case Part::steps_backward:
      sizes[6] = e.token;
      break;
    case Part::states:
      sizes[0] = e.y + bc;
      break;
    case Part::scores:
      sizes[0] = 2 * bc;
      break;
    case Part::passing:
    case Part::passing_backward:
      sizes.back() = e.pass;  // the last token's of each chunk
      break;
    case Part::scan:
      sizes[1] = e.y + bc, sizes[6] = e.y;
      break;
    case Part::gate_backward:
      sizes[1] = e.y, sizes[3] = e.y;
      break;
    case Part::entering_backward:
    case Part::b_product:
    case Part::c_product:
      sizes[1] = bc;
      break;
    case Part::c_backward:
      sizes[3] = bc;
      break;
    case Part::x_backward:
    case Part::b_backward:
      sizes[part == Part::x_backward ? 2 : 0] = e.y + bc;
      break;
    case Part::scores_backward:
      sizes[1] = e.y;
      break;
    case Part::decay_backward:
      sizes[2] = e.y;
      break;
    case Part::norm:
    case Part::norm_backward:
      break;
  }
  return sizes;
}

Sizes StateSpace::touched_writes() const {
  Sizes sizes = writes();
  const Elements e(*this);
  switch (part) {
    case Part::conv_backward:
      sizes[0] = e.xbc;
      break;
    case Part::steps_backward:
      sizes[0] = e.token;
      break;
    case Part::gate_backward:
    case Part::x_backward:
      sizes[0] = e.y;
      break;
    case Part::b_product:
    case Part::c_product:
      sizes[0] = e.groups * state;
      break;
    default:
      break;
  }
  return sizes;
}

// One product of T tokens' heads is 2 T H P N with a state, 2 T H P Q within a chunk; of groups 2 T G N Q.
double StateSpace::flops() const {
  const auto token = 2.0 * static_cast<double>(tokens());
  const double with_state = token * static_cast<double>(inner()) * static_cast<double>(state);
  const double within = token * static_cast<double>(inner()) * static_cast<double>(chunk);
  const double of_groups = token * static_cast<double>(groups * state) * static_cast<double>(chunk);
  switch (part) {
    case Part::states:
    case Part::entering_backward:
    case Part::b_backward:
    case Part::c_backward:
      return with_state;
    case Part::scores:
    case Part::b_product:
    case Part::c_product:
      return of_groups;
    case Part::scan:
    case Part::x_backward:
      return with_state + within;
    case Part::scores_backward:
    case Part::decay_backward:
      return within;
    default:
      return 0;
  }
}

std::string_view name_of(StateSpacePart part) {
  static constexpr std::array names = {"mamba_conv",
                                       "mamba_conv_backward",
                                       "mamba_steps",
                                       "mamba_steps_backward",
                                       "mamba_states",
                                       "mamba_passing",
                                       "mamba_passing_backward",
                                       "mamba_scores",
                                       "mamba_scan",
                                       "mamba_gate_backward",
                                       "mamba_entering_backward",
                                       "mamba_x_backward",
                                       "mamba_b_backward",
                                       "mamba_c_backward",
                                       "mamba_scores_backward",
                                       "mamba_b_product",
                                       "mamba_c_product",
                                       "mamba_decay_backward",
                                       "mamba_norm",
                                       "mamba_norm_backward"};
  return names[static_cast<std::size_t>(part)];
}

std::string_view word_of(StateSpacePart part) {
  constexpr std::string_view kMamba = "mamba_";
  return name_of(part).substr(kMamba.size());
}

}  // namespace rehearse
