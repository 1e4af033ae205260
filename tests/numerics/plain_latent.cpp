// Latent attention of the plain GPT as DeepSeek-AI 2024 (arXiv 2405.04434) writes it, equations 9 to 19, a token at a
// time: latents c_q = norm(W_dq x), c_kv = norm(first rows of W_dkv x), and the rest of W_dkv x, which is rotated and
// ends the key of every head; W_uq c_q gives a head's query, whose last columns are rotated; W_ukv c_kv the rest of its
// key, and its value. Column i is rotated with column i + rope / 2 by token * 10000^(-2 i / rope) (Su et al. 2021,
// arXiv 2104.09864, in the order of columns that Llama has).
#include <cmath>

#include "tests/numerics/plain_gpt.h"

namespace rehearse::numerics {

template <typename Real>
void PlainGpt<Real>::add_latent(Block& block, const std::string& name, const Initial& initial) {
  const std::int64_t h = shape_.hidden, queries = shape_.heads * (shape_.nope + shape_.rope);
  if (shape_.q_rank > 0) {
    block.q_down = add_linear(name + "q_down", shape_.q_rank, h, initial, shape_.bias);
    block.q_norm = add_norm(name + "q_norm", shape_.q_rank, initial);
    block.q_up = add_linear(name + "q_up", queries, shape_.q_rank, initial, shape_.bias);
  } else {
    block.q_up = add_linear(name + "q", queries, h, initial, shape_.bias);
  }
  block.kv_down = add_linear(name + "kv_down", shape_.kv_rank + shape_.rope, h, initial, shape_.bias);
  block.kv_norm = add_norm(name + "kv_norm", shape_.kv_rank, initial);
  block.kv_up =
      add_linear(name + "kv_up", shape_.heads * (shape_.nope + shape_.value_dim), shape_.kv_rank, initial, shape_.bias);
}

// The `rope` values from `first` on, of a token; direction -1: back.
template <typename Real>
void PlainGpt<Real>::rotate(Values& values, std::int64_t token, std::int64_t first, int direction) const {
  const std::int64_t half = shape_.rope / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(shape_.rope));
    const double angle = direction * static_cast<double>(token) * frequency;
    Real& x = values[static_cast<std::size_t>(first + i)];
    Real& y = values[static_cast<std::size_t>(first + half + i)];
    const Real turned_x = x * Real(std::cos(angle)) - y * Real(std::sin(angle));
    y = x * Real(std::sin(angle)) + y * Real(std::cos(angle));
    x = turned_x;
  }
}

template <typename Real>
auto PlainGpt<Real>::latent_forward(const Block& block, const Values& x, BlockTrace& trace) const -> Values {
  const std::int64_t rank = shape_.kv_rank, rope = shape_.rope, nope = shape_.nope, value = shape_.value_dim;
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / shape_.hidden;
  const Values q =
      shape_.q_rank > 0
          ? linear_forward(block.q_up, norm_forward(block.q_norm, linear_forward(block.q_down, x), trace.q_norm))
          : linear_forward(block.q_up, x);
  const Values down = linear_forward(block.kv_down, x);
  Values latent, qkv(static_cast<std::size_t>(tokens * qkv_width()), 0);
  for (std::int64_t t = 0; t < tokens; ++t)
    latent.insert(latent.end(), down.begin() + t * (rank + rope), down.begin() + t * (rank + rope) + rank);
  const Values kv = linear_forward(block.kv_up, norm_forward(block.kv_norm, latent, trace.kv_norm));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const std::int64_t at = t * shape_.heads + head, packed = t * qkv_width();
      const auto copy = [&](const Values& from, std::int64_t first, std::int64_t n, std::int64_t to) {
        for (std::int64_t i = 0; i < n; ++i)
          qkv[static_cast<std::size_t>(packed + to + i)] = from[static_cast<std::size_t>(first + i)];
      };
      copy(q, at * (nope + rope), nope + rope, query_at(head));
      copy(kv, at * (nope + value), nope, key_at(head));
      copy(down, t * (rank + rope) + rank, rope, key_at(head) + nope);
      copy(kv, at * (nope + value) + nope, value, value_at(head));
      rotate(qkv, t, packed + query_at(head) + nope, 1);
      rotate(qkv, t, packed + key_at(head) + nope, 1);
    }
  }
  return qkv;
}

template <typename Real>
auto PlainGpt<Real>::latent_backward(const Block& block, const Values& d_qkv, const Values& x, const BlockTrace& trace)
    -> Values {
  const std::int64_t rank = shape_.kv_rank, rope = shape_.rope, nope = shape_.nope, value = shape_.value_dim;
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / shape_.hidden;
  const auto zeros = [&](std::int64_t width) { return Values(static_cast<std::size_t>(tokens * width), 0); };
  Values turned_back = d_qkv, d_q = zeros(shape_.heads * (nope + rope)), d_kv = zeros(shape_.heads * (nope + value)),
         d_down = zeros(rank + rope);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const std::int64_t at = t * shape_.heads + head, packed = t * qkv_width();
      rotate(turned_back, t, packed + query_at(head) + nope, -1);
      rotate(turned_back, t, packed + key_at(head) + nope, -1);
      const auto add = [&](Values& to, std::int64_t first, std::int64_t n, std::int64_t from) {
        for (std::int64_t i = 0; i < n; ++i)
          to[static_cast<std::size_t>(first + i)] += turned_back[static_cast<std::size_t>(packed + from + i)];
      };
      add(d_q, at * (nope + rope), nope + rope, query_at(head));
      add(d_kv, at * (nope + value), nope, key_at(head));
      add(d_down, t * (rank + rope) + rank, rope, key_at(head) + nope);
      add(d_kv, at * (nope + value) + nope, value, value_at(head));
    }
  }
  const Values d_latent =
      norm_backward(block.kv_norm, linear_backward(block.kv_up, d_kv, trace.kv_norm.out), trace.kv_norm);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < rank; ++i)
      d_down[static_cast<std::size_t>(t * (rank + rope) + i)] = d_latent[static_cast<std::size_t>(t * rank + i)];
  Values dx = linear_backward(block.kv_down, d_down, x);
  const Values of_queries =
      shape_.q_rank > 0
          ? linear_backward(
                block.q_down,
                norm_backward(block.q_norm, linear_backward(block.q_up, d_q, trace.q_norm.out), trace.q_norm), x)
          : linear_backward(block.q_up, d_q, x);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += of_queries[i];
  return dx;
}

#define REHEARSE_PLAIN_LATENT(Real)                                                                     \
  template void PlainGpt<Real>::add_latent(Block&, const std::string&, const Initial&);                 \
  template void PlainGpt<Real>::rotate(Values&, std::int64_t, std::int64_t, int) const;                 \
  template auto PlainGpt<Real>::latent_forward(const Block&, const Values&, BlockTrace&) const->Values; \
  template auto PlainGpt<Real>::latent_backward(const Block&, const Values&, const Values&, const BlockTrace&)->Values;
REHEARSE_PLAIN_LATENT(float)
REHEARSE_PLAIN_LATENT(double)
#undef REHEARSE_PLAIN_LATENT

}  // namespace rehearse::numerics
