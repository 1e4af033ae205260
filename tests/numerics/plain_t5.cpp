// See plain_t5.h.
#include "tests/numerics/plain_t5.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rehearse::numerics {

std::int64_t t5_bucket(std::int64_t behind, std::int64_t buckets, std::int64_t farthest, bool both) {
  if (!both && behind >= 0) return 0;
  const std::int64_t own = both ? buckets / 2 : buckets, exact = own / 2, away = behind < 0 ? -behind : behind;
  std::int64_t bucket = away;
  if (away >= exact) {
    // The steps of the ratio away / exact up to farthest / exact, in own - exact equal ones of its logarithm.
    bucket = exact;
    while (bucket + 1 < own &&
           std::pow(static_cast<double>(away) / static_cast<double>(exact), static_cast<double>(own - exact)) >=
               std::pow(static_cast<double>(farthest) / static_cast<double>(exact),
                        static_cast<double>(bucket + 1 - exact)) *
                   (1 - 1e-9))
      ++bucket;
  }
  return both && behind > 0 ? own + bucket : bucket;
}

namespace {

// x / root of the mean of squares, times gamma.
M rms_norm(PlainTape& tape, const M& x, const M& gamma) {
  M y = tape.make(x->rows, x->cols);
  const auto n = static_cast<double>(x->cols);
  std::vector<double> inverse;
  for (std::int64_t r = 0; r < x->rows; ++r) {
    double squares = 0;
    for (std::int64_t c = 0; c < x->cols; ++c) squares += x->at(r, c) * x->at(r, c) / n;
    inverse.push_back(1 / std::sqrt(squares + 1e-5));
    for (std::int64_t c = 0; c < x->cols; ++c) y->at(r, c) = x->at(r, c) * inverse.back() * gamma->at(0, c);
  }
  tape.record([=] {
    for (std::int64_t r = 0; r < x->rows; ++r) {
      const double i = inverse[static_cast<std::size_t>(r)];
      double along = 0;
      for (std::int64_t c = 0; c < x->cols; ++c) {
        gamma->d(0, c) += y->d(r, c) * x->at(r, c) * i;
        along += y->d(r, c) * gamma->at(0, c) * x->at(r, c) * i / n;
      }
      for (std::int64_t c = 0; c < x->cols; ++c)
        x->d(r, c) += i * (y->d(r, c) * gamma->at(0, c) - x->at(r, c) * i * along);
    }
  });
  return y;
}

double relu(double x) {
  return std::max(0.0, x);
}
double relu_slope(double x) {
  return x > 0 ? 1 : 0;
}

// gelu of the first half of the columns, times the second.
M gated(PlainTape& tape, const M& x) {
  const std::int64_t half = x->cols / 2;
  M y = tape.make(x->rows, half);
  for (std::int64_t r = 0; r < y->rows; ++r)
    for (std::int64_t c = 0; c < half; ++c) y->at(r, c) = plain_gelu(x->at(r, c)) * x->at(r, half + c);
  tape.record([=] {
    for (std::int64_t r = 0; r < y->rows; ++r)
      for (std::int64_t c = 0; c < half; ++c) {
        x->d(r, c) += y->d(r, c) * x->at(r, half + c) * plain_gelu_slope(x->at(r, c));
        x->d(r, half + c) += y->d(r, c) * plain_gelu(x->at(r, c));
      }
  });
  return y;
}

}  // namespace

PlainT5::PlainT5(const T5Shape& shape, const Initial& initial) : shape_(shape) {
  const std::int64_t h = shape.hidden, a = shape.heads * shape.head_dim;
  const auto add_norm = [&](const std::string& name) {
    add(name + ".gamma", 1, h, initial);
    if (shape.layer_norms) add(name + ".beta", 1, h, initial);
  };
  const auto add_product = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    add(name + ".weight", rows, cols, initial);
    if (shape.biased) add(name + ".bias", 1, rows, initial);
  };
  add("embedding.word.weight", shape.vocab, h, initial);
  if (shape.positions > 0) add("embedding.position.weight", shape.positions, h, initial);
  if (!shape.tied) add("head.weight", shape.vocab, h, initial);
  if (shape.biased) add("head.bias", 1, shape.vocab, initial);
  for (std::int64_t l = 0; l < shape.encoder_layers + shape.decoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    for (const char* norm : {".norm1", ".norm2"}) add_norm(layer + norm);
    add_product(layer + ".attention.qkv", 3 * a, h);
    add_product(layer + ".attention.proj", h, a);
    add_product(layer + ".mlp.up", (shape.gated ? 2 : 1) * shape.ffn_hidden, h);
    add_product(layer + ".mlp.down", h, shape.ffn_hidden);
    if (l < shape.encoder_layers) continue;
    add_norm(layer + ".norm_cross");
    add_product(layer + ".cross.q", a, h);
    add_product(layer + ".cross.kv", 2 * a, h);
    add_product(layer + ".cross.proj", h, a);
  }
  for (const char* side : {"encoder", "decoder"})
    if (shape.positions == 0) add(std::string(side) + ".relative_bias.weight", shape.heads, shape.buckets, initial);
  add_norm("encoder.final_norm");
  add_norm("final_norm");
}

double PlainT5::example(const T5Example& e, double weight) {
  PlainTape tape;
  Used p = used(tape);
  const std::int64_t heads = shape_.heads, width = shape_.head_dim;
  const HeadPlaces packed{3 * width, 3 * width, width, 2 * width}, apart{width, 2 * width, 0, width};
  const bool distances = shape_.positions == 0;
  const double scale = distances ? 1 : 1 / std::sqrt(static_cast<double>(width));
  const auto linear = [&](const std::string& name, const M& x) {
    return tape.linear(x, p(name + ".weight"), shape_.biased ? p(name + ".bias") : nullptr);
  };
  const auto norm = [&](const std::string& name, const M& x) {
    return shape_.layer_norms ? tape.layer_norm(x, p(name + ".gamma"), p(name + ".beta"))
                              : rms_norm(tape, x, p(name + ".gamma"));
  };
  const auto embed = [&](const std::vector<std::int32_t>& tokens) {
    const M words = tape.rows(p("embedding.word.weight"), tokens);
    if (distances) return words;
    std::vector<std::int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    return tape.add(words, tape.rows(p("embedding.position.weight"), order));
  };
  const auto self = [&](const std::string& layer, const M& x, bool decoder) {
    const M qkv = linear(layer + ".attention.qkv", norm(layer + ".norm1", x));
    const M bias = distances ? p(decoder ? "decoder.relative_bias.weight" : "encoder.relative_bias.weight") : nullptr;
    const M y = tape.attention(qkv, qkv, heads, width, packed, scale, bias,
                               [this, decoder, distances](std::int64_t i, std::int64_t j) -> std::int64_t {
                                 if (decoder && j > i) return -1;
                                 return distances ? t5_bucket(j - i, shape_.buckets, shape_.distance, !decoder) : 0;
                               });
    return tape.add(x, linear(layer + ".attention.proj", y));
  };
  const auto feed_forward = [&](const std::string& layer, const M& x) {
    const M up = linear(layer + ".mlp.up", norm(layer + ".norm2", x));
    return tape.add(x, linear(layer + ".mlp.down", shape_.gated ? gated(tape, up) : tape.each(up, relu, relu_slope)));
  };
  M x = embed(e.tokens);
  std::int64_t l = 0;
  for (; l < shape_.encoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    x = feed_forward(layer, self(layer, x, false));
  }
  const M memory = norm("encoder.final_norm", x);
  x = embed(e.decoder_tokens);
  for (; l < shape_.encoder_layers + shape_.decoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    x = self(layer, x, true);
    const M q = linear(layer + ".cross.q", norm(layer + ".norm_cross", x));
    const M y = tape.attention(q, linear(layer + ".cross.kv", memory), heads, width, apart, scale, nullptr,
                               [](std::int64_t, std::int64_t) -> std::int64_t { return 0; });
    x = feed_forward(layer, tape.add(x, linear(layer + ".cross.proj", y)));
  }
  x = norm("final_norm", x);
  if (shape_.tied && distances) x = tape.scale(x, std::pow(static_cast<double>(shape_.hidden), -0.5));
  const M logits = tape.linear(x, p(shape_.tied ? "embedding.word.weight" : "head.weight"),
                               shape_.biased ? p("head.bias") : nullptr);
  const double loss = tape.cross_entropy(logits, e.targets, weight);
  tape.backward();
  add_gradients(p);
  return loss;
}

double PlainT5::loss_and_gradients(const std::vector<T5Example>& batch) {
  return mean_over_targets(batch, [this](const T5Example& e, double weight) { return example(e, weight); });
}

std::vector<double> PlainT5::train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                                   const Data& data) {
  return train_on<PlainT5, T5Example>(*this, steps, global_batch, settings, data);
}

}  // namespace rehearse::numerics
