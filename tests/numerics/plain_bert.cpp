// See plain_bert.h.
#include "tests/numerics/plain_bert.h"

#include <cmath>

namespace rehearse::numerics {
namespace {

double tanh_of(double x) {
  return std::tanh(x);
}
double tanh_slope(double x) {
  const double t = std::tanh(x);
  return 1 - t * t;
}

}  // namespace

PlainBert::PlainBert(const BertShape& shape, const Initial& initial) : shape_(shape) {
  const std::int64_t h = shape.hidden, a = shape.heads * shape.head_dim;
  const auto norm = [&](const std::string& name) {
    add(name + ".gamma", 1, h, initial);
    add(name + ".beta", 1, h, initial);
  };
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", out, in, initial);
    add(name + ".bias", 1, out, initial);
  };
  add("embedding.word.weight", shape.vocab, h, initial);
  add("embedding.position.weight", shape.max_seq_len, h, initial);
  add("embedding.segment.weight", shape.segments, h, initial);
  norm("embedding.norm");
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    linear(layer + ".attention.qkv", 3 * a, h);
    linear(layer + ".attention.proj", h, a);
    norm(layer + ".norm1");
    linear(layer + ".mlp.up", shape.ffn_hidden, h);
    linear(layer + ".mlp.down", h, shape.ffn_hidden);
    norm(layer + ".norm2");
  }
  linear("head.transform", h, h);
  norm("head.norm");
  add("head.bias", 1, shape.vocab, initial);
  linear("pooler", h, h);
  linear("next", 2, h);
}

double PlainBert::example(const BertExample& e, double token_weight, double sequence_weight) {
  PlainTape tape;
  Used p = used(tape);
  const auto linear = [&](const std::string& name, const M& x) {
    return tape.linear(x, p(name + ".weight"), p(name + ".bias"));
  };
  const auto norm = [&](const std::string& name, const M& x) {
    return tape.layer_norm(x, p(name + ".gamma"), p(name + ".beta"));
  };
  // Every token to every token; a head's query, key and value lie side by side.
  const std::int64_t width = shape_.head_dim;
  const auto attention = [&](const M& qkv) {
    return tape.attention(qkv, qkv, shape_.heads, width, {3 * width, 3 * width, width, 2 * width},
                          1 / std::sqrt(static_cast<double>(width)), nullptr,
                          [](std::int64_t, std::int64_t) -> std::int64_t { return 0; });
  };
  std::vector<std::int32_t> order;
  for (std::size_t t = 0; t < e.tokens.size(); ++t) order.push_back(static_cast<std::int32_t>(t));
  M x = tape.add(
      tape.add(tape.rows(p("embedding.word.weight"), e.tokens), tape.rows(p("embedding.position.weight"), order)),
      tape.rows(p("embedding.segment.weight"), e.segments));
  x = norm("embedding.norm", x);
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    const M heads = attention(linear(layer + ".attention.qkv", x));
    x = norm(layer + ".norm1", tape.add(x, linear(layer + ".attention.proj", heads)));
    const M up = tape.each(linear(layer + ".mlp.up", x), plain_gelu, plain_gelu_slope);
    x = norm(layer + ".norm2", tape.add(x, linear(layer + ".mlp.down", up)));
  }
  const M found =
      norm("head.norm", tape.each(linear("head.transform", tape.rows(x, e.places)), plain_gelu, plain_gelu_slope));
  double loss =
      tape.cross_entropy(tape.linear(found, p("embedding.word.weight"), p("head.bias")), e.targets, token_weight);
  const M pooled = tape.each(linear("pooler", tape.rows(x, {0})), tanh_of, tanh_slope);
  loss += tape.cross_entropy(linear("next", pooled), {e.label}, sequence_weight);
  tape.backward();
  add_gradients(p);
  return loss;
}

double PlainBert::loss_and_gradients(const std::vector<BertExample>& batch) {
  std::size_t tokens = 0;
  for (const BertExample& e : batch) tokens += e.places.size();
  clear_gradients();
  double loss = 0;
  for (const BertExample& e : batch)
    loss += example(e, 1 / static_cast<double>(tokens), 1 / static_cast<double>(batch.size()));
  return loss;
}

std::vector<double> PlainBert::train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                                     const Data& data) {
  return train_on<PlainBert, BertExample>(*this, steps, global_batch, settings, data);
}

}  // namespace rehearse::numerics
