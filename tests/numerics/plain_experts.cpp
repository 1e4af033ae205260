// The experts of the plain GPT, a token and an expert at a time: y = sum over a token's choices of weight *
// down(silu(gate x) * (up x)), or down(f(up x)), the weights being the chosen scores over their sum. Capacity and its
// order as GShard (Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1); the auxiliary loss as Switch Transformers
// (Fedus et al. 2021, arXiv 2101.03961, section 2.2) have it, for several choices a token: experts * sum over experts
// of share of the choices * mean score.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/numerics/plain_gpt.h"

namespace rehearse::numerics {
namespace {

using Size = std::size_t;

template <typename Real>
Real silu(Real x) {
  return x / (1 + std::exp(-x));
}
template <typename Real>
Real silu_slope(Real x) {
  const Real s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

// (min(u, L) from below too + 1) g sigmoid(1.702 g), g cut from above at L = 7 (gpt-oss), and its slopes.
template <typename Real>
struct OpenAi {
  Real y, by_gate, by_value;
  OpenAi(Real gate, Real value) {
    const Real g = gate > 7 ? Real(7) : gate, v = value > 7 ? Real(7) : value < -7 ? Real(-7) : value;
    const Real s = 1 / (1 + std::exp(Real(-1.702) * g));
    y = (v + 1) * g * s;
    by_gate = gate > 7 ? 0 : (v + 1) * s * (1 + Real(1.702) * g * (1 - s));
    by_value = v == value ? g * s : 0;
  }
};

// GELU's tanh form, or the square of ReLU, and its slope: apart from the plain GPT's.
template <typename Real>
struct Alone {
  Real y, slope;
  Alone(Real x, bool squared_relu) {
    if (squared_relu) {
      y = x > 0 ? x * x : 0, slope = x > 0 ? 2 * x : 0;
      return;
    }
    const Real root = std::sqrt(Real(2) / Real(3.14159265358979323846)), u = root * (x + Real(0.044715) * x * x * x);
    const Real t = std::tanh(u);
    y = x / 2 * (1 + t);
    slope = (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * Real(0.044715) * x * x);
  }
};

enum class Between : unsigned char { silu_gate, open_ai, gelu, squared_relu };

// One layer of width f on one row x [h]: up is [2, f, h], without a gate [f, h], down [h, f]; perhaps with biases.
template <typename Real>
struct Layer {
  struct Weights {
    const Real *up, *down;
    const Real *up_bias = nullptr, *down_bias = nullptr;
    Between between = Between::silu_gate;
    bool gated() const { return between == Between::silu_gate || between == Between::open_ai; }
  };
  struct Gradients {
    Real *up, *down;
    Real *up_bias = nullptr, *down_bias = nullptr;
  };
  Weights w;
  const Real* x;
  Size h, f;
  std::vector<Real> gate, value;

  Layer(const Weights& weights, const Real* row, Size hidden, Size width)
      : w(weights), x(row), h(hidden), f(width), gate(width, 0), value(width, 0) {
    for (Size j = 0; j < f; ++j) {
      if (w.up_bias != nullptr) gate[j] = w.up_bias[j];
      for (Size i = 0; i < h; ++i) gate[j] += w.up[j * h + i] * x[i];
      if (!w.gated()) continue;
      if (w.up_bias != nullptr) value[j] = w.up_bias[f + j];
      for (Size i = 0; i < h; ++i) value[j] += w.up[(f + j) * h + i] * x[i];
    }
  }
  Real activation(Size j) const {
    if (!w.gated()) return Alone<Real>(gate[j], w.between == Between::squared_relu).y;
    return w.between == Between::open_ai ? OpenAi<Real>(gate[j], value[j]).y : silu(gate[j]) * value[j];
  }
  std::vector<Real> out() const {
    std::vector<Real> y(h, 0);
    for (Size i = 0; i < h; ++i) {
      if (w.down_bias != nullptr) y[i] = w.down_bias[i];
      for (Size j = 0; j < f; ++j) y[i] += w.down[i * f + j] * activation(j);
    }
    return y;
  }
  // Adds to the gradients of weights, biases and the row.
  void backward(const std::vector<Real>& dy, const Gradients& to, Real* dx) const {
    for (Size i = 0; i < h && to.down_bias != nullptr; ++i) to.down_bias[i] += dy[i];
    for (Size j = 0; j < f; ++j) {
      Real d = 0;
      for (Size i = 0; i < h; ++i) d += dy[i] * w.down[i * f + j], to.down[i * f + j] += dy[i] * activation(j);
      if (!w.gated()) {
        const Real d_up = d * Alone<Real>(gate[j], w.between == Between::squared_relu).slope;
        if (to.up_bias != nullptr) to.up_bias[j] += d_up;
        for (Size i = 0; i < h; ++i) to.up[j * h + i] += d_up * x[i], dx[i] += d_up * w.up[j * h + i];
        continue;
      }
      const OpenAi<Real> other(gate[j], value[j]);
      const bool open_ai = w.between == Between::open_ai;
      const Real d_gate = d * (open_ai ? other.by_gate : value[j] * silu_slope(gate[j])),
                 d_value = d * (open_ai ? other.by_value : silu(gate[j]));
      if (to.up_bias != nullptr) to.up_bias[j] += d_gate, to.up_bias[f + j] += d_value;
      for (Size i = 0; i < h; ++i) {
        to.up[j * h + i] += d_gate * x[i], to.up[(f + j) * h + i] += d_value * x[i];
        dx[i] += d_gate * w.up[j * h + i] + d_value * w.up[(f + j) * h + i];
      }
    }
  }
};

Between between_of(const GptShape& shape) {
  if (shape.ungated) return shape.squared_relu ? Between::squared_relu : Between::gelu;
  return shape.swiglu_oai ? Between::open_ai : Between::silu_gate;
}

// y [rows, out] += x [rows, in] W^T, W [out, in].
template <typename Real>
void multiply(const std::vector<Real>& x, const std::vector<Real>& w, Size out, Size in, std::vector<Real>& y) {
  for (Size t = 0; t < x.size() / in; ++t)
    for (Size o = 0; o < out; ++o)
      for (Size i = 0; i < in; ++i) y[t * out + o] += w[o * in + i] * x[t * in + i];
}
// Of dy [rows, out]: dx [rows, in] += dy W, dw += dy^T x.
template <typename Real>
void multiply_backward(const std::vector<Real>& dy, const std::vector<Real>& x, const std::vector<Real>& w, Size out,
                       Size in, std::vector<Real>& dx, std::vector<Real>& dw) {
  for (Size t = 0; t < x.size() / in; ++t)
    for (Size o = 0; o < out; ++o)
      for (Size i = 0; i < in; ++i) {
        dx[t * in + i] += dy[t * out + o] * w[o * in + i];
        dw[o * in + i] += dy[t * out + o] * x[t * in + i];
      }
}

}  // namespace

template <typename Real>
auto PlainGpt<Real>::add_matrices(const std::string& name, std::int64_t count, std::int64_t out, std::int64_t in,
                                  bool adapted, const Initial& initial) -> Matrices {
  Matrices m{add(name + ".weight", count * out * in, initial), -1, -1, count, out, in};
  if (shape_.lora_rank == 0 || !adapted) return m;
  m.lora_a = add(name + ".lora_a", count * shape_.lora_rank * in, initial);
  m.lora_b = add(name + ".lora_b", count * out * shape_.lora_rank, initial);
  return m;
}

template <typename Real>
auto PlainGpt<Real>::merged(const Matrices& m) const -> Values {
  Values w = value(m.weight);
  if (m.lora_a < 0) return w;
  const auto rank = static_cast<Size>(shape_.lora_rank), out = static_cast<Size>(m.out), in = static_cast<Size>(m.in);
  for (Size e = 0; e < static_cast<Size>(m.count); ++e)
    for (Size o = 0; o < out; ++o)
      for (Size r = 0; r < rank; ++r)
        for (Size i = 0; i < in; ++i)
          w[(e * out + o) * in + i] += Real(shape_.lora_scale) * value(m.lora_b)[(e * out + o) * rank + r] *
                                       value(m.lora_a)[(e * rank + r) * in + i];
  return w;
}

template <typename Real>
void PlainGpt<Real>::add_gradient(const Matrices& m, const Values& of_merged) {
  if (m.lora_a < 0) {
    for (Size i = 0; i < of_merged.size(); ++i) gradient(m.weight)[i] += of_merged[i];
    return;
  }
  const auto rank = static_cast<Size>(shape_.lora_rank), out = static_cast<Size>(m.out), in = static_cast<Size>(m.in);
  for (Size e = 0; e < static_cast<Size>(m.count); ++e)
    for (Size o = 0; o < out; ++o)
      for (Size r = 0; r < rank; ++r)
        for (Size i = 0; i < in; ++i) {
          const Real d = Real(shape_.lora_scale) * of_merged[(e * out + o) * in + i];
          gradient(m.lora_b)[(e * out + o) * rank + r] += d * value(m.lora_a)[(e * rank + r) * in + i];
          gradient(m.lora_a)[(e * rank + r) * in + i] += d * value(m.lora_b)[(e * out + o) * rank + r];
        }
}

// Of each rank's tokens: first choices before second ones, each in the order of tokens, as far as there is room.
template <typename Real>
void PlainGpt<Real>::drop(ExpertTrace& trace, std::int64_t tokens) const {
  if (shape_.capacity_factor == 0) return;
  std::vector<std::vector<std::int64_t>> shards = shape_.shards;
  if (shards.empty()) {
    shards.emplace_back(static_cast<Size>(tokens));
    std::iota(shards[0].begin(), shards[0].end(), 0);
  }
  for (const auto& shard : shards) {
    const double mean = static_cast<double>(shard.size()) * static_cast<double>(shape_.experts_per_token) /
                        static_cast<double>(shape_.experts);
    std::vector<double> room(static_cast<Size>(shape_.experts), std::ceil(mean * shape_.capacity_factor));
    for (std::int64_t k = 0; k < shape_.experts_per_token; ++k)
      for (const std::int64_t token : shard) {
        Choice& c = trace.choices[static_cast<Size>(token * shape_.experts_per_token + k)];
        c.kept = room[static_cast<Size>(c.expert)]-- > 0;
      }
  }
}

// The groups a token's experts may be of; `order`: its experts, the best first.
template <typename Real>
std::vector<bool> PlainGpt<Real>::open_groups(const std::vector<std::size_t>& order, const Real* score) const {
  const auto groups = static_cast<Size>(shape_.expert_groups), size = order.size() / groups;
  std::vector<Real> sums(groups, 0);
  std::vector<Size> added(groups, 0);
  for (const Size e : order)
    if (added[e / size]++ < (shape_.sigmoid ? 2U : 1U)) sums[e / size] += score[e];
  std::vector<bool> open(groups, false);
  for (std::int64_t i = 0; i < shape_.groups_per_token; ++i) {
    Size best = groups;
    for (Size g = 0; g < groups; ++g)
      if (!open[g] && (best == groups || sums[g] > sums[best])) best = g;
    open[best] = true;
  }
  return open;
}

template <typename Real>
auto PlainGpt<Real>::experts_forward(const Block& block, const Values& x, ExpertTrace& trace) const -> Values {
  const auto h = static_cast<Size>(shape_.hidden), experts = static_cast<Size>(shape_.experts),
             top = static_cast<Size>(shape_.experts_per_token), f = static_cast<Size>(shape_.expert_ffn_hidden),
             shared = static_cast<Size>(block.router >= 0 ? shape_.shared_ffn_hidden : shape_.ffn_hidden),
             tokens = x.size() / h;
  trace.scores.assign(tokens * experts, 0);
  trace.loads.assign(experts, 0);
  trace.choices.clear();
  for (Size t = 0; t < tokens && block.router >= 0; ++t) {
    Real* score = trace.scores.data() + t * experts;
    Real total = 0;
    for (Size e = 0; e < experts; ++e) {
      Real logit = block.router_bias >= 0 ? value(block.router_bias)[e] : 0;
      for (Size i = 0; i < h; ++i) logit += x[t * h + i] * value(block.router)[e * h + i];
      score[e] = shape_.sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit);
      total += score[e];
    }
    if (!shape_.sigmoid)
      for (Size e = 0; e < experts; ++e) score[e] /= total;
    std::vector<Size> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](Size a, Size b) { return score[a] > score[b]; });
    const std::vector<bool> open = open_groups(order, score);
    const Size size = experts / open.size();
    order.erase(std::remove_if(order.begin(), order.end(), [&](Size e) { return !open[e / size]; }), order.end());
    Real chosen = 0;
    for (Size k = 0; k < top; ++k) chosen += score[order[k]];
    if (shape_.weigh_inputs) chosen = 1;
    for (Size k = 0; k < top; ++k) {
      trace.choices.push_back(
          {static_cast<std::int64_t>(t), static_cast<std::int64_t>(order[k]), score[order[k]] / chosen, true});
      trace.loads[order[k]] += 1;
    }
  }
  Values up, down, y(x.size(), 0), shared_up, shared_down;
  const bool latent = block.to_latent >= 0;
  const Size columns = latent ? static_cast<Size>(shape_.expert_latent) : h, in = shape_.ungated ? 1 : 2;
  trace.rows = x, trace.sums.assign(tokens * columns, 0);
  if (latent) {
    trace.rows.assign(tokens * columns, 0);
    multiply(x, value(block.to_latent), columns, h, trace.rows);
  }
  if (block.router >= 0) {
    drop(trace, static_cast<std::int64_t>(tokens));
    up = merged(block.experts_up), down = merged(block.experts_down);
  }
  if (shared > 0) shared_up = merged(block.shared_up), shared_down = merged(block.shared_down);
  const auto add = [](Values& to, Size t, const std::vector<Real>& part, Real weight) {
    for (Size i = 0; i < part.size(); ++i) to[t * part.size() + i] += weight * part[i];
  };
  for (const Choice& c : trace.choices) {
    const auto t = static_cast<Size>(c.token), e = static_cast<Size>(c.expert);
    if (!c.kept) continue;
    std::vector<Real> row(trace.rows.begin() + static_cast<std::ptrdiff_t>(t * columns),
                          trace.rows.begin() + static_cast<std::ptrdiff_t>((t + 1) * columns));
    for (Real& r : row) r *= shape_.weigh_inputs ? c.weight : 1;
    typename Layer<Real>::Weights w{up.data() + e * in * f * columns, down.data() + e * columns * f};
    if (block.up_bias >= 0)
      w.up_bias = value(block.up_bias).data() + e * in * f, w.down_bias = value(block.down_bias).data() + e * columns;
    w.between = between_of(shape_);
    add(trace.sums, t, Layer<Real>(w, row.data(), columns, f).out(), shape_.weigh_inputs ? 1 : c.weight);
  }
  if (latent)
    multiply(trace.sums, value(block.from_latent), h, columns, y);
  else
    y = trace.sums;
  typename Layer<Real>::Weights of_shared{shared_up.data(), shared_down.data()};
  if (shape_.ungated) of_shared.between = between_of(shape_);
  for (Size t = 0; t < tokens && shared > 0; ++t)
    add(y, t, Layer<Real>(of_shared, x.data() + t * h, h, shared).out(), 1);
  return y;
}

template <typename Real>
auto PlainGpt<Real>::experts_backward(const Block& block, const Values& dy, const Values& x, const ExpertTrace& trace,
                                      Real scale) -> Values {
  const auto h = static_cast<Size>(shape_.hidden), experts = static_cast<Size>(shape_.experts),
             top = static_cast<Size>(shape_.experts_per_token), f = static_cast<Size>(shape_.expert_ffn_hidden),
             shared = static_cast<Size>(block.router >= 0 ? shape_.shared_ffn_hidden : shape_.ffn_hidden),
             tokens = x.size() / h;
  Values up, down;
  if (block.router >= 0) up = merged(block.experts_up), down = merged(block.experts_down);
  Values dx(x.size(), 0), d_scores(trace.scores.size(), 0), d_up(up.size(), 0), d_down(down.size(), 0);
  Values shared_up, shared_down;
  if (shared > 0) shared_up = merged(block.shared_up), shared_down = merged(block.shared_down);
  Values d_shared_up(shared_up.size(), 0), d_shared_down(shared_down.size(), 0);
  const bool latent = block.to_latent >= 0;
  const Size columns = latent ? static_cast<Size>(shape_.expert_latent) : h, in = shape_.ungated ? 1 : 2;
  Values d_sums = dy, d_rows(tokens * columns, 0);
  if (latent) {
    d_sums.assign(tokens * columns, 0);
    multiply_backward(dy, trace.sums, value(block.from_latent), h, columns, d_sums, gradient(block.from_latent));
  }
  typename Layer<Real>::Weights of_shared{shared_up.data(), shared_down.data()};
  if (shape_.ungated) of_shared.between = between_of(shape_);
  for (Size t = 0; t < tokens; ++t) {
    const std::vector<Real> whole(dy.begin() + static_cast<std::ptrdiff_t>(t * h),
                                  dy.begin() + static_cast<std::ptrdiff_t>((t + 1) * h)),
        d(d_sums.begin() + static_cast<std::ptrdiff_t>(t * columns),
          d_sums.begin() + static_cast<std::ptrdiff_t>((t + 1) * columns));
    std::vector<Real> d_weight(top, 0);
    Real chosen = 0, mean = 0;
    for (Size k = 0; k < top && block.router >= 0; ++k) {
      const Choice& c = trace.choices[t * top + k];
      const auto e = static_cast<Size>(c.expert);
      chosen += trace.scores[t * experts + e];
      if (!c.kept) continue;
      const Real before = shape_.weigh_inputs ? c.weight : 1, behind = shape_.weigh_inputs ? 1 : c.weight;
      std::vector<Real> row(trace.rows.begin() + static_cast<std::ptrdiff_t>(t * columns),
                            trace.rows.begin() + static_cast<std::ptrdiff_t>((t + 1) * columns)),
          d_row(columns, 0), weighted = d;
      for (Real& r : row) r *= before;
      typename Layer<Real>::Weights w{up.data() + e * in * f * columns, down.data() + e * columns * f};
      typename Layer<Real>::Gradients to{d_up.data() + e * in * f * columns, d_down.data() + e * columns * f};
      if (block.up_bias >= 0) {
        w.up_bias = value(block.up_bias).data() + e * in * f;
        w.down_bias = value(block.down_bias).data() + e * columns;
        to.up_bias = gradient(block.up_bias).data() + e * in * f;
        to.down_bias = gradient(block.down_bias).data() + e * columns;
      }
      w.between = between_of(shape_);
      const Layer<Real> expert(w, row.data(), columns, f);
      const std::vector<Real> y = expert.out();
      for (Real& r : weighted) r *= behind;
      expert.backward(weighted, to, d_row.data());
      for (Size i = 0; i < columns; ++i) {
        d_weight[k] += shape_.weigh_inputs ? d_row[i] * x[t * h + i] : d[i] * y[i];
        d_rows[t * columns + i] += before * d_row[i];
      }
      mean += d_weight[k] * c.weight;
    }
    if (shape_.weigh_inputs) mean = 0, chosen = 1;
    for (Size k = 0; k < top && block.router >= 0; ++k)
      d_scores[t * experts + static_cast<Size>(trace.choices[t * top + k].expert)] += (d_weight[k] - mean) / chosen;
    if (shared > 0)
      Layer<Real>(of_shared, x.data() + t * h, h, shared)
          .backward(whole, {d_shared_up.data(), d_shared_down.data()}, dx.data() + t * h);
  }
  if (latent)
    multiply_backward(d_rows, x, value(block.to_latent), columns, h, dx, gradient(block.to_latent));
  else
    for (Size i = 0; i < dx.size(); ++i) dx[i] += d_rows[i];
  if (block.router >= 0) add_gradient(block.experts_up, d_up), add_gradient(block.experts_down, d_down);
  if (shared > 0) add_gradient(block.shared_up, d_shared_up), add_gradient(block.shared_down, d_shared_down);
  if (block.router < 0) return dx;
  // scale is of a token; the auxiliary loss of a sequence weighs as all of its tokens.
  const Real aux = scale * Real(shape_.aux_loss) * Real(experts) / Real(top * tokens);
  for (Size t = 0; t < tokens; ++t) {
    const Real* score = trace.scores.data() + t * experts;
    Real* d = d_scores.data() + t * experts;
    Real total = 0, mean = 0;
    for (Size e = 0; e < experts; ++e) total += score[e];
    for (Size e = 0; e < experts; ++e) mean += aux * trace.loads[e] * score[e] / total;
    for (Size e = 0; e < experts; ++e) d[e] += (aux * trace.loads[e] - mean) / total;
    Real inside = 0;  // of a softmax
    for (Size e = 0; e < experts; ++e) inside += d[e] * score[e];
    for (Size e = 0; e < experts; ++e) {
      const Real d_logit = shape_.sigmoid ? d[e] * score[e] * (1 - score[e]) : score[e] * (d[e] - inside);
      if (block.router_bias >= 0) gradient(block.router_bias)[e] += d_logit;
      for (Size i = 0; i < h; ++i) {
        gradient(block.router)[e * h + i] += d_logit * x[t * h + i];
        dx[t * h + i] += d_logit * value(block.router)[e * h + i];
      }
    }
  }
  return dx;
}

#define REHEARSE_PLAIN_EXPERTS(Real)                                                                                   \
  template auto PlainGpt<Real>::experts_forward(const Block&, const Values&, ExpertTrace&) const->Values;              \
  template auto PlainGpt<Real>::experts_backward(const Block&, const Values&, const Values&, const ExpertTrace&, Real) \
      ->Values;                                                                                                        \
  template auto PlainGpt<Real>::add_matrices(const std::string&, std::int64_t, std::int64_t, std::int64_t, bool,       \
                                             const Initial&)                                                           \
      ->Matrices;                                                                                                      \
  template auto PlainGpt<Real>::merged(const Matrices&) const->Values;                                                 \
  template void PlainGpt<Real>::add_gradient(const Matrices&, const Values&);                                          \
  template std::vector<bool> PlainGpt<Real>::open_groups(const std::vector<std::size_t>&, const Real*) const;          \
  template void PlainGpt<Real>::drop(ExpertTrace&, std::int64_t) const;
REHEARSE_PLAIN_EXPERTS(float)
REHEARSE_PLAIN_EXPERTS(double)
#undef REHEARSE_PLAIN_EXPERTS

}  // namespace rehearse::numerics
