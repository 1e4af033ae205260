// See plain_t5.h.
#include "tests/numerics/plain_t5.h"

#include <algorithm>
#include <cmath>

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
  add("embedding.word.weight", shape.vocab, h, initial);
  if (!shape.tied) add("head.weight", shape.vocab, h, initial);
  for (std::int64_t l = 0; l < shape.encoder_layers + shape.decoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    for (const char* norm : {".norm1.gamma", ".norm2.gamma"}) add(layer + norm, 1, h, initial);
    add(layer + ".attention.qkv.weight", 3 * a, h, initial);
    add(layer + ".attention.proj.weight", h, a, initial);
    add(layer + ".mlp.up.weight", (shape.gated ? 2 : 1) * shape.ffn_hidden, h, initial);
    add(layer + ".mlp.down.weight", h, shape.ffn_hidden, initial);
    if (l < shape.encoder_layers) continue;
    add(layer + ".norm_cross.gamma", 1, h, initial);
    add(layer + ".cross.q.weight", a, h, initial);
    add(layer + ".cross.kv.weight", 2 * a, h, initial);
    add(layer + ".cross.proj.weight", h, a, initial);
  }
  for (const char* side : {"encoder", "decoder"})
    add(std::string(side) + ".relative_bias.weight", shape.heads, shape.buckets, initial);
  add("encoder.final_norm.gamma", 1, h, initial);
  add("final_norm.gamma", 1, h, initial);
}

double PlainT5::example(const T5Example& e, double weight) {
  PlainTape tape;
  Used p = used(tape);
  const std::int64_t heads = shape_.heads, width = shape_.head_dim;
  const HeadPlaces packed{3 * width, 3 * width, width, 2 * width}, apart{width, 2 * width, 0, width};
  const auto self = [&](const std::string& layer, const M& x, bool decoder) {
    const M qkv = tape.linear(rms_norm(tape, x, p(layer + ".norm1.gamma")), p(layer + ".attention.qkv.weight"));
    const M y = tape.attention(qkv, qkv, heads, width, packed, 1,
                               p(decoder ? "decoder.relative_bias.weight" : "encoder.relative_bias.weight"),
                               [this, decoder](std::int64_t i, std::int64_t j) -> std::int64_t {
                                 if (decoder && j > i) return -1;
                                 return t5_bucket(j - i, shape_.buckets, shape_.distance, !decoder);
                               });
    return tape.add(x, tape.linear(y, p(layer + ".attention.proj.weight")));
  };
  const auto feed_forward = [&](const std::string& layer, const M& x) {
    const M up = tape.linear(rms_norm(tape, x, p(layer + ".norm2.gamma")), p(layer + ".mlp.up.weight"));
    return tape.add(x, tape.linear(shape_.gated ? gated(tape, up) : tape.each(up, relu, relu_slope),
                                   p(layer + ".mlp.down.weight")));
  };
  M x = tape.rows(p("embedding.word.weight"), e.tokens);
  std::int64_t l = 0;
  for (; l < shape_.encoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    x = feed_forward(layer, self(layer, x, false));
  }
  const M memory = rms_norm(tape, x, p("encoder.final_norm.gamma"));
  x = tape.rows(p("embedding.word.weight"), e.decoder_tokens);
  for (; l < shape_.encoder_layers + shape_.decoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    x = self(layer, x, true);
    const M q = tape.linear(rms_norm(tape, x, p(layer + ".norm_cross.gamma")), p(layer + ".cross.q.weight"));
    const M kv = tape.linear(memory, p(layer + ".cross.kv.weight"));
    const M y = tape.attention(q, kv, heads, width, apart, 1, nullptr,
                               [](std::int64_t, std::int64_t) -> std::int64_t { return 0; });
    x = feed_forward(layer, tape.add(x, tape.linear(y, p(layer + ".cross.proj.weight"))));
  }
  x = rms_norm(tape, x, p("final_norm.gamma"));
  if (shape_.tied) x = tape.scale(x, std::pow(static_cast<double>(shape_.hidden), -0.5));
  const M logits = tape.linear(x, p(shape_.tied ? "embedding.word.weight" : "head.weight"));
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
