// Formulas: GPT-2 (Radford et al. 2019), LayerNorm (Ba et al. 2016, arXiv 1607.06450), GELU's tanh form (Hendrycks and
// Gimpel 2016, arXiv 1606.08415), AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) as torch.optim.AdamW computes
// it. Rows are tokens of one sequence in order; every matrix is row-major.
#include "tests/numerics/plain_gpt.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "tests/numerics/plain_moments.h"

namespace rehearse::numerics {
namespace {

using Index = std::int64_t;

template <typename Real>
Real& at(std::vector<Real>& values, Index i) {
  return values[static_cast<std::size_t>(i)];
}
template <typename Real>
const Real& at(const std::vector<Real>& values, Index i) {
  return values[static_cast<std::size_t>(i)];
}

template <typename Real>
Index size_of(const std::vector<Real>& values) {
  return static_cast<Index>(values.size());
}

template <typename Real>
std::vector<Real> zeros(Index n) {
  return std::vector<Real>(static_cast<std::size_t>(n), Real{0});
}

template <typename Real>
std::vector<Real> sum(const std::vector<Real>& a, const std::vector<Real>& b) {
  std::vector<Real> y = a;
  for (Index i = 0; i < size_of(y); ++i) at(y, i) += at(b, i);
  return y;
}

// To the 8 significant bits of a bf16, ties to even. Numbers below 2^-126 are not looked at.
template <typename Real>
Real bf16(Real x) {
  int exponent = 0;
  const Real significand = std::frexp(x, &exponent);  // 0, or from 1/2 to 1
  return std::ldexp(std::nearbyint(std::ldexp(significand, 8)), exponent - 8);
}

// gelu(x) = x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3).
template <typename Real>
struct Gelu {
  static constexpr Real kRoot = Real(std::numbers::sqrt2 * std::numbers::inv_sqrtpi), kCubic = Real(0.044715);
  static Real value(Real x) { return Real(0.5) * x * (1 + std::tanh(kRoot * (x + kCubic * x * x * x))); }
  static Real slope(Real x) {
    const Real t = std::tanh(kRoot * (x + kCubic * x * x * x));
    return Real(0.5) * (1 + t) + Real(0.5) * x * (1 - t * t) * kRoot * (1 + 3 * kCubic * x * x);
  }
};

// `values[first, first + n)` becomes its softmax. Returns the logarithm of the sum of exponentials.
template <typename Real>
Real softmax(std::vector<Real>& values, Index first, Index n) {
  Real largest = at(values, first), total = 0;
  for (Index i = 1; i < n; ++i) largest = std::max(largest, at(values, first + i));
  for (Index i = 0; i < n; ++i) total += std::exp(at(values, first + i) - largest);
  for (Index i = 0; i < n; ++i) at(values, first + i) = std::exp(at(values, first + i) - largest) / total;
  return largest + std::log(total);
}

// As the paper's section 3 has them: a geometric sequence that begins at its own ratio, 2^(-8 / n); of a number of
// heads that is no power of two that of the one below, and every second one of that above.
std::vector<double> plain_slopes(Index heads) {
  std::vector<double> slopes;
  Index power = 1;
  while (2 * power <= heads) power *= 2;
  const double ratio = std::pow(2.0, -8.0 / static_cast<double>(power));
  for (double slope = ratio; std::ssize(slopes) < power; slope *= ratio) slopes.push_back(slope);
  const double finer = std::sqrt(ratio);
  for (double slope = finer; std::ssize(slopes) < heads; slope *= ratio) slopes.push_back(slope);
  return slopes;
}

}  // namespace

template <typename Real>
PlainGpt<Real>::PlainGpt(const GptShape& shape, const Initial& initial) : shape_(shape) {
  const Index h = shape.hidden;
  words_ = add("embedding.word.weight", shape.vocab * h, initial);
  if (shape.rope == 0 && !shape.alibi) positions_ = add("embedding.position.weight", shape.max_seq_len * h, initial);
  if (shape.embedding_norm) embedding_norm_ = add_norm("embedding.norm", initial);
  for (Index l = 0; l < shape.layers; ++l) blocks_.push_back(add_block(l, initial));
  final_norm_ = add_norm("final_norm", initial);
  head_ = {shape.tied_embeddings ? words_ : add("head.weight", shape.vocab * h, initial), -1, shape.vocab, h};
  if (shape.head_bias) head_.bias = add("head.bias", shape.vocab, initial);
  add_modules(initial);
}

template <typename Real>
auto PlainGpt<Real>::add_block(Index l, const Initial& initial) -> Block {
  const GptShape& shape = shape_;
  const Index h = shape.hidden;
  const std::string name = "layer" + std::to_string(l) + ".";
  Block block;
  block.window = shape.full_every > 0 && l % shape.full_every == shape.full_every - 1 ? 0 : shape.window;
  block.rotates = shape.nope_every == 0 || (l + 1) % shape.nope_every != 0;
  block.chunk = block.rotates ? shape.chunk : 0;
  block.norm1 = add_norm(name + "norm1", initial);
  if (latent())
    add_latent(block, name + "attention.", initial);
  else
    block.qkv = add_linear(name + "attention.qkv", qkv_width(), h, initial, shape.bias || shape.qkv_bias);
  if (shape.head_norms) add_head_norms(block, name + "attention.", initial);
  if (shape.sinks) block.sinks = add(name + "attention.sinks", shape.heads, initial);
  block.proj = add_linear(name + "attention.proj", h, shape.heads * value_dim(), initial, shape.bias);
  block.norm2 = shape.parallel_norms == 1 ? block.norm1 : add_norm(name + "norm2", initial);
  block.gated = shape.experts > 0;
  if (shape.experts > 0) {
    const Index inputs = shape.ungated ? 1 : 2, columns = shape.expert_latent > 0 ? shape.expert_latent : h;
    const auto layer = [&](const std::string& of, Index count, Index f, Index k, Matrices& up, Matrices& down) {
      up = add_matrices(of + ".up", count, inputs * f, k, shape.lora_up, initial);
      down = add_matrices(of + ".down", count, k, f, shape.lora_down, initial);
    };
    const bool routed = (l + 1) % shape.experts_every == 0;
    if (routed) {
      block.router = add(name + "experts.router.weight", shape.experts * h, initial);
      if (shape.expert_latent > 0) {
        block.to_latent = add(name + "experts.to_latent.weight", columns * h, initial);
        block.from_latent = add(name + "experts.from_latent.weight", h * columns, initial);
      }
      if (shape.bias) {
        block.router_bias = add(name + "experts.router.bias", shape.experts, initial);
        block.up_bias = add(name + "experts.up.bias", shape.experts * inputs * shape.expert_ffn_hidden, initial);
        block.down_bias = add(name + "experts.down.bias", shape.experts * columns, initial);
      }
      layer(name + "experts", shape.experts, shape.expert_ffn_hidden, columns, block.experts_up, block.experts_down);
    } else {
      layer(name + "mlp", 1, shape.ffn_hidden, h, block.shared_up, block.shared_down);
    }
    if (routed && shape.shared_ffn_hidden > 0)
      layer(name + "shared", 1, shape.shared_ffn_hidden, h, block.shared_up, block.shared_down);
  } else {
    block.up = add_linear(name + "mlp.up", shape.ffn_hidden, h, initial, shape.bias || shape.mlp_bias);
    block.down = add_linear(name + "mlp.down", h, shape.ffn_hidden, initial, shape.bias || shape.mlp_bias);
  }
  const auto adapt = [&](bool adapted, Linear& linear, const char* product) {
    if (shape.lora_rank > 0 && adapted) add_adapter(linear, name + product, initial);
  };
  if (latent()) {
    const bool of_latent = shape.lora_qkv && shape.q_rank > 0;
    adapt(of_latent, block.q_down, "attention.q_down");
    adapt(shape.lora_qkv, block.q_up, shape.q_rank > 0 ? "attention.q_up" : "attention.q");
    adapt(shape.lora_qkv, block.kv_down, "attention.kv_down");
    adapt(shape.lora_qkv, block.kv_up, "attention.kv_up");
  }
  adapt(shape.lora_qkv && !latent(), block.qkv, "attention.qkv");
  adapt(shape.lora_proj, block.proj, "attention.proj");
  adapt(shape.lora_up && shape.experts == 0, block.up, "mlp.up");
  adapt(shape.lora_down && shape.experts == 0, block.down, "mlp.down");
  for (Linear* linear : {&block.qkv, &block.proj, &block.up, &block.down}) linear->eight_bits = shape.eight_bits;
  block.proj.adds_later = block.down.adds_later = true;
  return block;
}

template <typename Real>
int PlainGpt<Real>::add(const std::string& name, Index elements, const Initial& initial) {
  Parameter p;
  p.name = name;
  p.value = p.gradient = p.exp_avg = p.exp_avg_sq = zeros<Real>(elements);
  for (Index i = 0; i < elements; ++i) at(p.value, i) = static_cast<Real>(initial(name, i));
  parameters_.push_back(std::move(p));
  return static_cast<int>(parameters_.size()) - 1;
}

template <typename Real>
auto PlainGpt<Real>::add_norm(const std::string& name, Index cols, const Initial& initial) -> Norm {
  Norm norm;
  norm.gamma = add(name + ".gamma", cols, initial);
  if ((shape_.bias || shape_.norm_bias) && !rms_norms()) norm.beta = add(name + ".beta", cols, initial);
  return norm;
}

template <typename Real>
auto PlainGpt<Real>::add_linear(const std::string& name, Index out, Index in, const Initial& initial, bool bias)
    -> Linear {
  Linear linear{-1, -1, out, in};
  linear.weight = add(name + ".weight", out * in, initial);
  if (bias) linear.bias = add(name + ".bias", out, initial);
  return linear;
}

template <typename Real>
void PlainGpt<Real>::add_adapter(Linear& linear, const std::string& name, const Initial& initial) {
  linear.lora_a = add(name + ".lora_a", shape_.lora_rank * linear.in, initial);
  linear.lora_b = add(name + ".lora_b", linear.out * shape_.lora_rank, initial);
}

// Each row of x times an adapter's matrix [n, columns of x]: rank columns on the way in or out.
template <typename Real>
auto PlainGpt<Real>::low_rank(int matrix, const Values& x) const -> Values {
  const Values& m = value(matrix);
  const bool first = parameters_[static_cast<std::size_t>(matrix)].name.ends_with("a");
  const Index n = first ? shape_.lora_rank : size_of(m) / shape_.lora_rank, k = size_of(m) / n;
  Values y = zeros<Real>(size_of(x) / k * n);
  for (Index r = 0; r < size_of(x) / k; ++r)
    for (Index o = 0; o < n; ++o)
      for (Index i = 0; i < k; ++i) at(y, r * n + o) += at(m, o * k + i) * at(x, r * k + i);
  return y;
}

template <typename Real>
auto PlainGpt<Real>::parameter(const std::string& name) -> Parameter& {
  for (Parameter& p : parameters_)
    if (p.name == name) return p;
  throw std::out_of_range("no parameter '" + name + "'");
}

template <typename Real>
auto PlainGpt<Real>::norm_forward(const Norm& norm, const Values& x, NormTrace& trace) const -> Values {
  constexpr Real kEps = Real(1e-5);
  const Values gamma = kept(value(norm.gamma)), beta = norm.beta >= 0 ? kept(value(norm.beta)) : Values();
  const Index h = size_of(value(norm.gamma)), rows = size_of(x) / h;
  Values y = zeros<Real>(rows * h);
  trace.in = x;
  trace.mean = trace.inverse_deviation = zeros<Real>(rows);
  for (Index r = 0; r < rows; ++r) {
    Real mean = 0, variance = 0;
    if (!rms_norms())  // else RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467): the mean stays out
      for (Index i = 0; i < h; ++i) mean += at(x, r * h + i) / Real(h);
    for (Index i = 0; i < h; ++i) variance += (at(x, r * h + i) - mean) * (at(x, r * h + i) - mean) / Real(h);
    const Real inverse = 1 / std::sqrt(variance + kEps);
    for (Index i = 0; i < h; ++i) {
      at(y, r * h + i) = (at(x, r * h + i) - mean) * inverse * at(gamma, i);
      if (norm.beta >= 0) at(y, r * h + i) += at(beta, i);
    }
    at(trace.mean, r) = mean;
    at(trace.inverse_deviation, r) = inverse;
  }
  return trace.out = y;
}

// With n = (x - mean) / deviation and g = gamma dy: dx = (g - mean(g) - n mean(g n)) / deviation. RMSNorm has neither
// mean.
template <typename Real>
auto PlainGpt<Real>::norm_backward(const Norm& norm, const Values& dy, const NormTrace& trace) -> Values {
  const Index h = size_of(value(norm.gamma)), rows = size_of(dy) / h;
  const Values gamma = kept(value(norm.gamma));
  Values dx = zeros<Real>(rows * h);
  for (Index r = 0; r < rows; ++r) {
    const Real mean = at(trace.mean, r), inverse = at(trace.inverse_deviation, r);
    const auto normal = [&](Index i) { return (at(trace.in, r * h + i) - mean) * inverse; };
    const auto scaled = [&](Index i) { return at(dy, r * h + i) * at(gamma, i); };
    Real mean_scaled = 0, mean_product = 0;
    for (Index i = 0; i < h; ++i) {
      at(gradient(norm.gamma), i) += at(dy, r * h + i) * normal(i);
      if (norm.beta >= 0) at(gradient(norm.beta), i) += at(dy, r * h + i);
      if (!rms_norms()) mean_scaled += scaled(i) / Real(h);
      mean_product += scaled(i) * normal(i) / Real(h);
    }
    for (Index i = 0; i < h; ++i) at(dx, r * h + i) = (scaled(i) - mean_scaled - normal(i) * mean_product) * inverse;
  }
  return dx;
}

template <typename Real>
auto PlainGpt<Real>::linear_forward(const Linear& linear, const Values& x) const -> Values {
  const Index rows = size_of(x) / linear.in;
  const Values in = operand(linear, x, Sums::along_rows), weight = weight_operand(linear, Sums::along_rows);
  const Values bias = linear.bias >= 0 ? kept(value(linear.bias)) : Values();
  Values y = zeros<Real>(rows * linear.out);
  for (Index r = 0; r < rows; ++r) {
    for (Index o = 0; o < linear.out; ++o) {
      Real& total = at(y, r * linear.out + o);
      for (Index i = 0; i < linear.in; ++i) total += at(in, r * linear.in + i) * at(weight, o * linear.in + i);
    }
  }
  const auto add_bias = [&] {
    for (Index i = 0; i < size_of(y) && !bias.empty(); ++i) at(y, i) += at(bias, i % linear.out);
  };
  if (linear.lora_a >= 0) {
    const Values added = low_rank(linear.lora_b, low_rank(linear.lora_a, x));
    for (Index i = 0; i < size_of(y); ++i) at(y, i) += Real(shape_.lora_scale) * at(added, i);
  }
  if (!linear.adds_later) add_bias();
  y = kept(std::move(y));
  if (linear.adds_later) add_bias();
  return y;
}

template <typename Real>
auto PlainGpt<Real>::linear_backward(const Linear& linear, const Values& dy, const Values& x) -> Values {
  const Index rows = size_of(x) / linear.in;
  const Values in = operand(linear, x, Sums::down_columns), weight = weight_operand(linear, Sums::down_columns);
  const Values d_row = gradient_operand(linear, dy, Sums::along_rows);
  const Values d_column = gradient_operand(linear, dy, Sums::down_columns);
  Values dx = zeros<Real>(rows * linear.in);
  for (Index r = 0; r < rows; ++r) {
    for (Index o = 0; o < linear.out; ++o) {
      if (linear.bias >= 0) at(gradient(linear.bias), o) += at(dy, r * linear.out + o);
      const Real to_input = at(d_row, r * linear.out + o), to_weight = at(d_column, r * linear.out + o);
      for (Index i = 0; i < linear.in; ++i) {
        at(dx, r * linear.in + i) += to_input * at(weight, o * linear.in + i);
        at(gradient(linear.weight), o * linear.in + i) += to_weight * at(in, r * linear.in + i);
      }
    }
  }
  if (linear.lora_a < 0) return kept(std::move(dx));
  // With u = A x: dB = s dy u^T, du = s B^T dy, dA = du x^T, dx += A^T du.
  const Index rank = shape_.lora_rank;
  const Values u = low_rank(linear.lora_a, x);
  for (Index r = 0; r < rows; ++r)
    for (Index k = 0; k < rank; ++k) {
      Real du = 0;
      for (Index o = 0; o < linear.out; ++o) {
        const Real d = Real(shape_.lora_scale) * at(dy, r * linear.out + o);
        at(gradient(linear.lora_b), o * rank + k) += d * at(u, r * rank + k);
        du += d * at(value(linear.lora_b), o * rank + k);
      }
      for (Index i = 0; i < linear.in; ++i) {
        at(gradient(linear.lora_a), k * linear.in + i) += du * at(x, r * linear.in + i);
        at(dx, r * linear.in + i) += du * at(value(linear.lora_a), k * linear.in + i);
      }
    }
  return kept(std::move(dx));
}

// Each token attends to itself and those before it, with a window as many as that in all; probabilities are [heads,
// tokens, tokens], zero elsewhere.
template <typename Real>
auto PlainGpt<Real>::attention_forward(const Block& block, const Values& qkv, Values& probabilities) const -> Values {
  const Index d = shape_.head_dim, e = value_dim(), heads = shape_.heads, width = qkv_width();
  const Index tokens = size_of(qkv) / width;
  const Real scale = 1 / std::sqrt(Real(d));
  Values out = zeros<Real>(tokens * heads * e);
  probabilities = zeros<Real>(heads * tokens * tokens);
  for (Index head = 0; head < heads; ++head) {
    for (Index t = 0; t < tokens; ++t) {
      const Index row = (head * tokens + t) * tokens;
      Index first = block.window > 0 && t >= block.window ? t - block.window + 1 : 0;
      if (block.chunk > 0) first = t / block.chunk * block.chunk;
      for (Index s = first; s <= t; ++s)
        for (Index i = 0; i < d; ++i)
          at(probabilities, row + s) +=
              scale * at(qkv, t * width + query_at(head) + i) * at(qkv, s * width + key_at(head) + i);
      for (Index s = first; s <= t && shape_.alibi; ++s)
        at(probabilities, row + s) -= Real(at(plain_slopes(heads), head)) * Real(t - s);
      if (block.sinks >= 0) {
        Real total = std::exp(at(value(block.sinks), head));
        for (Index s = first; s <= t; ++s) total += at(probabilities, row + s) = std::exp(at(probabilities, row + s));
        for (Index s = first; s <= t; ++s) at(probabilities, row + s) /= total;
      } else {
        softmax(probabilities, row + first, t + 1 - first);
      }
      for (Index s = 0; s <= t; ++s)
        for (Index i = 0; i < e; ++i)
          at(out, (t * heads + head) * e + i) += at(probabilities, row + s) * at(qkv, s * width + value_at(head) + i);
    }
  }
  return out;
}

template <typename Real>
auto PlainGpt<Real>::attention_backward(const Block& block, const Values& d_out, const Values& qkv,
                                        const Values& probabilities, const Values& out) -> Values {
  const Index d = shape_.head_dim, e = value_dim(), heads = shape_.heads, width = qkv_width();
  const Index tokens = size_of(qkv) / width;
  const Real scale = 1 / std::sqrt(Real(d));
  Values d_qkv = zeros<Real>(tokens * width), d_probabilities = zeros<Real>(tokens);
  for (Index head = 0; head < heads; ++head) {
    for (Index t = 0; t < tokens; ++t) {
      const auto p = [&](Index s) { return at(probabilities, (head * tokens + t) * tokens + s); };
      Real mean = 0;  // of the probabilities' gradient, under the probabilities: the gradient's share of the output
      for (Index s = 0; s <= t; ++s) {
        at(d_probabilities, s) = 0;
        for (Index i = 0; i < e; ++i) {
          const Real gradient_out = at(d_out, (t * heads + head) * e + i);
          if (s == 0) mean += gradient_out * at(out, (t * heads + head) * e + i);
          at(d_probabilities, s) += gradient_out * at(qkv, s * width + value_at(head) + i);
          at(d_qkv, s * width + value_at(head) + i) += p(s) * gradient_out;
        }
      }
      Real left = 1;  // what the sink has of the softmax
      for (Index s = 0; s <= t; ++s) left -= p(s);
      if (block.sinks >= 0) at(gradient(block.sinks), head) -= left * mean;
      for (Index s = 0; s <= t; ++s) {
        const Real d_score = scale * p(s) * (at(d_probabilities, s) - mean);
        for (Index i = 0; i < d; ++i) {
          at(d_qkv, t * width + query_at(head) + i) += d_score * at(qkv, s * width + key_at(head) + i);
          at(d_qkv, s * width + key_at(head) + i) += d_score * at(qkv, t * width + query_at(head) + i);
        }
      }
    }
  }
  return d_qkv;
}

template <typename Real>
void PlainGpt<Real>::rotate_heads(Values& qkv, int direction) const {
  if (latent() || shape_.rope == 0) return;
  for (Index first = 0, t = 0; first < size_of(qkv); first += qkv_width(), ++t) {
    for (Index head = 0; head < shape_.heads; ++head) rotate(qkv, t, first + query_at(head), direction);
    for (Index head = 0; head < shape_.heads; head += group()) rotate(qkv, t, first + key_at(head), direction);
  }
}

template <typename Real>
auto PlainGpt<Real>::block_forward(const Block& block, const Values& x, BlockTrace& trace) const -> Values {
  const Values normed = norm_forward(block.norm1, x, trace.norm1);
  trace.qkv = latent() ? latent_forward(block, normed, trace) : linear_forward(block.qkv, normed);
  if (shape_.head_norms) norm_heads(block, trace.qkv, trace);
  if (block.rotates) rotate_heads(trace.qkv, 1);
  trace.attention = kept(attention_forward(block, trace.qkv, trace.probabilities));
  const Values middle = kept(sum(x, linear_forward(block.proj, trace.attention)));
  if (block.gated)
    return sum(middle, experts_forward(block, norm_forward(block.norm2, middle, trace.norm2), trace.experts));
  trace.up = linear_forward(block.up, norm_forward(block.norm2, shape_.parallel_norms > 0 ? x : middle, trace.norm2));
  trace.activation = trace.up;
  for (Real& a : trace.activation) a = shape_.squared_relu ? (a > 0 ? a * a : Real{0}) : Gelu<Real>::value(a);
  trace.activation = kept(std::move(trace.activation));
  return kept(sum(middle, linear_forward(block.down, trace.activation)));
}

template <typename Real>
auto PlainGpt<Real>::block_backward(const Block& block, const Values& dy, const BlockTrace& trace, Real scale)
    -> Values {
  Values d_norm2;
  if (block.gated) {
    d_norm2 = experts_backward(block, dy, trace.norm2.out, trace.experts, scale);
  } else {
    Values d_up = linear_backward(block.down, dy, trace.activation);
    for (Index i = 0; i < size_of(d_up); ++i) {
      const Real up = at(trace.up, i);
      at(d_up, i) *= shape_.squared_relu ? 2 * std::max(up, Real{0}) : Gelu<Real>::slope(up);
    }
    d_norm2 = linear_backward(block.up, kept(std::move(d_up)), trace.norm2.out);
  }
  // Side by side, what comes through the second norm passes by attention.
  const Values d_second = norm_backward(block.norm2, d_norm2, trace.norm2);
  const Values d_middle = shape_.parallel_norms > 0 ? dy : kept(sum(dy, d_second));
  const Values d_attention = linear_backward(block.proj, d_middle, trace.attention);
  Values d_qkv = attention_backward(block, d_attention, trace.qkv, trace.probabilities, trace.attention);
  if (block.rotates) rotate_heads(d_qkv, -1);
  if (shape_.head_norms) norm_heads_backward(block, d_qkv, trace);
  d_qkv = kept(std::move(d_qkv));
  const Values d_norm1 = latent() ? latent_backward(block, d_qkv, trace.norm1.out, trace)
                                  : linear_backward(block.qkv, d_qkv, trace.norm1.out);
  const Values dx = kept(sum(d_middle, norm_backward(block.norm1, d_norm1, trace.norm1)));
  return shape_.parallel_norms > 0 ? sum(dx, d_second) : dx;
}

// Returns each token's cross-entropy.
template <typename Real>
auto PlainGpt<Real>::forward(const Sequence& sequence, Trace& trace) const -> Values {
  const Index h = shape_.hidden, tokens = size_of(sequence.tokens);
  Values x = zeros<Real>(tokens * h);
  const Values words = kept(value(words_)), positions = positions_ >= 0 ? kept(value(positions_)) : Values();
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < h; ++i)
      at(x, t * h + i) =
          at(words, at(sequence.tokens, t) * h + i) + (positions.empty() ? Real{0} : at(positions, t * h + i));
  x = kept(std::move(x));
  if (shape_.embedding_norm) x = norm_forward(embedding_norm_, x, trace.embedding);
  trace.blocks.resize(blocks_.size());
  for (std::size_t l = 0; l < blocks_.size(); ++l) x = block_forward(blocks_[l], x, trace.blocks[l]);
  trace.probabilities = linear_forward(head_, norm_forward(final_norm_, x, trace.norm));
  Values losses = zeros<Real>(tokens);
  for (Index t = 0; t < tokens; ++t) {
    trace.first_logits.push_back(at(trace.probabilities, t * shape_.vocab));
    const Real target = at(trace.probabilities, t * shape_.vocab + at(sequence.targets, t));
    at(losses, t) = softmax(trace.probabilities, t * shape_.vocab, shape_.vocab) - target;
  }
  modules_forward(sequence, std::move(x), trace, losses);
  return losses;
}

// Adds the gradients of scale * (sum of the sequence's losses).
template <typename Real>
void PlainGpt<Real>::backward(const Sequence& sequence, const Trace& trace, Real scale) {
  const Index h = shape_.hidden, tokens = size_of(sequence.tokens);
  Values d_logits = trace.probabilities;
  for (Index t = 0; t < tokens; ++t) at(d_logits, t * shape_.vocab + at(sequence.targets, t)) -= 1;
  for (Real& d : d_logits) d *= scale;
  for (std::size_t i = 0; i < d_logits.size() && !sequence.factors.empty(); ++i)
    d_logits[i] *= Real(sequence.factors[i / static_cast<std::size_t>(shape_.vocab)]);
  if (!sequence.slopes.empty()) {
    std::fill(d_logits.begin(), d_logits.end(), Real{0});
    for (Index t = 0; t < tokens; ++t) at(d_logits, t * shape_.vocab) = Real(at(sequence.slopes, t));
  }
  Values dx = kept(norm_backward(final_norm_, linear_backward(head_, d_logits, trace.norm.out), trace.norm));
  if (!modules_.empty()) dx = sum(dx, modules_backward(sequence, trace, scale));
  for (std::size_t l = blocks_.size(); l-- > 0;) dx = block_backward(blocks_[l], dx, trace.blocks[l], scale);
  if (shape_.embedding_norm) dx = norm_backward(embedding_norm_, dx, trace.embedding);
  for (Index t = 0; t < tokens; ++t) {
    for (Index i = 0; i < h; ++i) {
      at(gradient(words_), at(sequence.tokens, t) * h + i) += at(dx, t * h + i);
      if (positions_ >= 0) at(gradient(positions_), t * h + i) += at(dx, t * h + i);
    }
  }
}

template <typename Real>
auto PlainGpt<Real>::token_losses(const Sequence& sequence) const -> Values {
  Trace trace;
  return forward(sequence, trace);
}

template <typename Real>
auto PlainGpt<Real>::first_logits(const std::vector<std::int32_t>& tokens) const -> Values {
  Trace trace;
  forward({tokens, std::vector<std::int32_t>(tokens.size())}, trace);
  return trace.first_logits;
}

template <typename Real>
auto PlainGpt<Real>::next_probabilities(const std::vector<std::int32_t>& tokens) const -> Values {
  Trace trace;
  forward({tokens, std::vector<std::int32_t>(tokens.size())}, trace);
  return {trace.probabilities.end() - shape_.vocab, trace.probabilities.end()};
}

template <typename Real>
double PlainGpt<Real>::loss(const std::vector<Sequence>& batch) const {
  double total = 0, tokens = 0;
  for (const Sequence& sequence : batch) {
    for (const Real l : token_losses(sequence)) total += static_cast<double>(l);
    tokens += static_cast<double>(sequence.tokens.size());
  }
  return total / tokens;
}

template <typename Real>
double PlainGpt<Real>::loss_and_gradients(const std::vector<Sequence>& batch) {
  for (Parameter& p : parameters_) std::fill(p.gradient.begin(), p.gradient.end(), Real{0});
  double tokens = 0, total = 0;
  for (const Sequence& sequence : batch) tokens += static_cast<double>(sequence.tokens.size());
  for (const Sequence& sequence : batch) {
    Trace trace;
    for (const Real l : forward(sequence, trace)) total += static_cast<double>(l);
    backward(sequence, trace, Real(1 / tokens));
  }
  return total / tokens;
}

template <typename Real>
double PlainGpt<Real>::update(const AdamWSettings& s) {
  double squares = 0;
  for (const Parameter& p : parameters_)
    for (const Real g : trained(p) ? p.gradient : Values()) squares += static_cast<double>(g) * static_cast<double>(g);
  const double norm = std::sqrt(squares);
  const Real clip = s.clip > 0 ? Real(std::min(1.0, s.clip / (norm + 1e-6))) : Real{1};
  const auto step = static_cast<double>(++updates_);
  const Real lr = Real(s.lr), beta1 = Real(s.beta1), beta2 = Real(s.beta2);
  const Real correction1 = Real(1 - std::pow(s.beta1, step)),
             correction2 = Real(std::sqrt(1 - std::pow(s.beta2, step)));
  for (Parameter& p : parameters_) {
    if (!trained(p)) continue;
    for (Index i = 0; i < size_of(p.value); ++i) {
      const Real g = clip * at(p.gradient, i);
      at(p.value, i) *= 1 - lr * Real(s.weight_decay);
      at(p.exp_avg, i) = beta1 * at(p.exp_avg, i) + (1 - beta1) * g;
      at(p.exp_avg_sq, i) = beta2 * at(p.exp_avg_sq, i) + (1 - beta2) * g * g;
      const Real denominator = std::sqrt(at(p.exp_avg_sq, i)) / correction2 + Real(s.eps);
      at(p.value, i) -= lr / correction1 * at(p.exp_avg, i) / denominator;
      if (!s.bf16_moments) continue;
      at(p.exp_avg, i) = bf16(at(p.exp_avg, i));
      at(p.exp_avg_sq, i) = bf16(at(p.exp_avg_sq, i));
    }
    if (s.moment_block > 0 && stored_in_8_bits(p.name, p.value.size())) {
      store_in_8_bits(p.exp_avg, true, s.moment_block);
      store_in_8_bits(p.exp_avg_sq, false, s.moment_block);
    }
  }
  return norm;
}

template <typename Real>
std::vector<double> PlainGpt<Real>::train(Index steps, Index global_batch, const AdamWSettings& settings,
                                          const Data& data) {
  std::vector<double> losses;
  for (Index step = 0; step < steps; ++step) {
    std::vector<Sequence> batch;
    for (Index i = 0; i < global_batch; ++i) batch.push_back(data(step, i));
    losses.push_back(loss_and_gradients(batch));
    update(settings);
  }
  return losses;
}

template class PlainGpt<float>;
template class PlainGpt<double>;

}  // namespace rehearse::numerics
