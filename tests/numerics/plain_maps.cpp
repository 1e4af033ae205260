// See plain_maps.h.
#include "tests/numerics/plain_maps.h"

#include <cmath>
#include <stdexcept>

namespace rehearse::numerics {
namespace maps {
namespace {

using model::Extent;
using model::Layer;
using model::LayerKind;

constexpr double kEps = 1e-5;

double relu(double x) {
  return x > 0 ? x : 0;
}
double relu_slope(double x) {
  return x > 0 ? 1 : 0;
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double sigmoid_slope(double x) {
  return sigmoid(x) * (1 - sigmoid(x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double silu_slope(double x) {
  return sigmoid(x) + x * sigmoid_slope(x);
}

// Every product of a convolution: each(column of x, column of w in its row, output map, column of y).
template <class Each>
void over_taps(const Layer& layer, Extent in, Extent out, const Each& each) {
  const std::int64_t k = layer.kernel, own = in.channels / layer.groups;
  for (std::int64_t o = 0; o < out.channels; ++o)
    for (std::int64_t y = 0; y < out.size; ++y)
      for (std::int64_t x = 0; x < out.size; ++x)
        for (std::int64_t c = 0; c < own; ++c)
          for (std::int64_t ky = 0; ky < k; ++ky)
            for (std::int64_t kx = 0; kx < k; ++kx) {
              const std::int64_t row = y * layer.stride + ky - layer.pad, col = x * layer.stride + kx - layer.pad;
              if (row < 0 || row >= in.size || col < 0 || col >= in.size) continue;
              const std::int64_t map = o / (out.channels / layer.groups) * own + c;
              each((map * in.size + row) * in.size + col, (c * k + ky) * k + kx, o, (o * out.size + y) * out.size + x);
            }
}

M convolution(PlainTape& tape, const Layer& layer, Extent in, const M& x, const M& w, const M& bias) {
  const Extent out = model::extent_after(layer, in);
  M y = tape.make(x->rows, out.elements());
  for (std::int64_t n = 0; n < x->rows; ++n) {
    for (std::int64_t i = 0; bias && i < y->cols; ++i) y->at(n, i) = bias->at(0, i / out.pixels());
    over_taps(layer, in, out, [&](std::int64_t from, std::int64_t tap, std::int64_t o, std::int64_t to) {
      y->at(n, to) += x->at(n, from) * w->at(o, tap);
    });
  }
  tape.record([=] {
    for (std::int64_t n = 0; n < x->rows; ++n) {
      for (std::int64_t i = 0; bias && i < y->cols; ++i) bias->d(0, i / out.pixels()) += y->d(n, i);
      over_taps(layer, in, out, [&](std::int64_t from, std::int64_t tap, std::int64_t o, std::int64_t to) {
        x->d(n, from) += y->d(n, to) * w->at(o, tap);
        w->d(o, tap) += y->d(n, to) * x->at(n, from);
      });
    }
  });
  return y;
}

// Over the batch and the pixels of each map.
M batch_norm(PlainTape& tape, Extent in, const M& x, const M& gamma, const M& beta) {
  M y = tape.make(x->rows, x->cols), hat = tape.make(x->rows, x->cols);
  const std::int64_t pixels = in.pixels();
  const auto n = static_cast<double>(x->rows * pixels);
  std::vector<double> inverse;
  const auto over = [rows = x->rows, pixels](std::int64_t map, const auto& each) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = map * pixels; i < (map + 1) * pixels; ++i) each(r, i);
  };
  for (std::int64_t c = 0; c < in.channels; ++c) {
    double mean = 0, variance = 0;
    over(c, [&](std::int64_t r, std::int64_t i) { mean += x->at(r, i) / n; });
    over(c, [&](std::int64_t r, std::int64_t i) { variance += std::pow(x->at(r, i) - mean, 2) / n; });
    inverse.push_back(1 / std::sqrt(variance + kEps));
    over(c, [&](std::int64_t r, std::int64_t i) {
      hat->at(r, i) = (x->at(r, i) - mean) * inverse.back();
      y->at(r, i) = hat->at(r, i) * gamma->at(0, c) + beta->at(0, c);
    });
  }
  tape.record([=] {
    for (std::int64_t c = 0; c < in.channels; ++c) {
      double sum = 0, along = 0;
      over(c, [&](std::int64_t r, std::int64_t i) { sum += y->d(r, i), along += y->d(r, i) * hat->at(r, i); });
      beta->d(0, c) += sum, gamma->d(0, c) += along;
      over(c, [&](std::int64_t r, std::int64_t i) {
        x->d(r, i) +=
            gamma->at(0, c) * inverse[static_cast<std::size_t>(c)] * (y->d(r, i) - sum / n - hat->at(r, i) * along / n);
      });
    }
  });
  return y;
}

M max_pool(PlainTape& tape, const Layer& layer, Extent in, const M& x) {
  const Extent out = model::extent_after(layer, in);
  M y = tape.make(x->rows, out.elements());
  std::vector<std::int64_t> from;
  for (std::int64_t n = 0; n < x->rows; ++n)
    for (std::int64_t i = 0; i < y->cols; ++i) {
      const std::int64_t top = i / out.size % out.size * layer.stride - layer.pad,
                         left = i % out.size * layer.stride - layer.pad;
      std::int64_t best = -1;
      for (std::int64_t row = top; row < top + layer.kernel; ++row)
        for (std::int64_t col = left; col < left + layer.kernel; ++col) {
          if (row < 0 || row >= in.size || col < 0 || col >= in.size) continue;
          const std::int64_t here = (i / out.pixels() * in.size + row) * in.size + col;
          if (best < 0 || x->at(n, here) > x->at(n, best)) best = here;
        }
      from.push_back(best);
      y->at(n, i) = x->at(n, best);
    }
  tape.record([=] {
    for (std::int64_t n = 0; n < x->rows; ++n)
      for (std::int64_t i = 0; i < y->cols; ++i) x->d(n, from[static_cast<std::size_t>(n * y->cols + i)]) += y->d(n, i);
  });
  return y;
}

M means(PlainTape& tape, Extent in, const M& x) {
  M y = tape.make(x->rows, in.channels);
  const auto pixels = static_cast<double>(in.pixels());
  const auto over = [=](const auto& each) {
    for (std::int64_t n = 0; n < x->rows; ++n)
      for (std::int64_t i = 0; i < x->cols; ++i) each(n, i, i / in.pixels());
  };
  over([&](std::int64_t n, std::int64_t i, std::int64_t c) { y->at(n, c) += x->at(n, i) / pixels; });
  tape.record(
      [=] { over([&](std::int64_t n, std::int64_t i, std::int64_t c) { x->d(n, i) += y->d(n, c) / pixels; }); });
  return y;
}

M scaled(PlainTape& tape, Extent in, const M& x, const M& f) {
  M y = tape.make(x->rows, x->cols);
  for (std::int64_t n = 0; n < x->rows; ++n)
    for (std::int64_t i = 0; i < x->cols; ++i) y->at(n, i) = x->at(n, i) * f->at(n, i / in.pixels());
  tape.record([=] {
    for (std::int64_t n = 0; n < x->rows; ++n)
      for (std::int64_t i = 0; i < x->cols; ++i) {
        x->d(n, i) += y->d(n, i) * f->at(n, i / in.pixels());
        f->d(n, i / in.pixels()) += y->d(n, i) * x->at(n, i);
      }
  });
  return y;
}

const char* word_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::linear:
      return "linear";
    case LayerKind::convolution:
      return "conv";
    case LayerKind::batch_norm:
      return "norm";
    case LayerKind::residual:
      return "residual";
    case LayerKind::scale:
      return "scale";
    default:
      return "";  // has no parameters
  }
}

std::string name_of(const std::string& list, std::size_t at, LayerKind kind) {
  return list + "." + std::to_string(at) + "." + word_of(kind);
}

}  // namespace
}  // namespace maps

PlainMaps::PlainMaps(const std::vector<model::Layer>& list, model::Extent in, const Draw& draw) : list_(list), in_(in) {
  model::Extent at = in;
  for (std::size_t unit = 0; unit < model::unit_starts(list).size(); ++unit) {
    const std::vector<model::Layer> layers = model::unit_layers(list, unit);
    declare(layers, at, "unit" + std::to_string(unit), draw);
    at = model::extent_after(layers, at);
  }
}

void PlainMaps::declare(const std::vector<model::Layer>& list, model::Extent in, const std::string& name,
                        const Draw& draw) {
  using Kind = program::Init::Kind;
  const auto parameter = [&](const std::string& own, std::int64_t rows, std::int64_t cols, Kind kind, double width) {
    const std::vector<float> values = draw(kind, width, own, rows * cols);
    add(own, rows, cols, [&](const std::string&, std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    const model::Layer& layer = list[i];
    const std::string own = maps::name_of(name, i, layer.kind);
    const bool convolves = layer.kind == model::LayerKind::convolution;
    if (convolves || layer.kind == model::LayerKind::linear) {
      const std::int64_t fan_in = convolves ? in.channels / layer.groups * layer.kernel * layer.kernel : in.elements();
      const double width = 1 / std::sqrt(static_cast<double>(fan_in));
      parameter(own + ".weight", layer.width, fan_in, Kind::uniform, width);
      if (layer.bias) parameter(own + ".bias", 1, layer.width, Kind::uniform, width);
    }
    if (layer.kind == model::LayerKind::batch_norm) {
      parameter(own + ".weight", 1, in.channels, Kind::ones, 0);
      parameter(own + ".bias", 1, in.channels, Kind::zeros, 0);
    }
    declare(layer.body, in, own + ".body", draw);
    declare(layer.shortcut, in, own + ".shortcut", draw);
    in = model::extent_after(layer, in);
  }
}

M PlainMaps::run(PlainTape& tape, Used& use, const std::vector<model::Layer>& list, model::Extent in, M x,
                 const std::string& name) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const model::Layer& layer = list[i];
    const std::string own = maps::name_of(name, i, layer.kind);
    const M bias = layer.bias && (layer.kind == model::LayerKind::convolution || layer.kind == model::LayerKind::linear)
                       ? use(own + ".bias")
                       : M();
    switch (layer.kind) {
      case model::LayerKind::convolution:
        x = maps::convolution(tape, layer, in, x, use(own + ".weight"), bias);
        break;
      case model::LayerKind::linear:
        x = tape.linear(x, use(own + ".weight"), bias);
        break;
      case model::LayerKind::batch_norm:
        x = maps::batch_norm(tape, in, x, use(own + ".weight"), use(own + ".bias"));
        break;
      case model::LayerKind::relu:
        x = tape.each(x, maps::relu, maps::relu_slope);
        break;
      case model::LayerKind::sigmoid:
        x = tape.each(x, maps::sigmoid, maps::sigmoid_slope);
        break;
      case model::LayerKind::silu:
        x = tape.each(x, maps::silu, maps::silu_slope);
        break;
      case model::LayerKind::max_pool:
        x = maps::max_pool(tape, layer, in, x);
        break;
      case model::LayerKind::average_pool:
        x = maps::means(tape, in, x);
        break;
      case model::LayerKind::residual:
        x = tape.add(run(tape, use, layer.body, in, x, own + ".body"),
                     run(tape, use, layer.shortcut, in, x, own + ".shortcut"));
        break;
      case model::LayerKind::scale:
        x = maps::scaled(tape, in, x, run(tape, use, layer.body, in, x, own + ".body"));
        break;
      default:
        throw std::logic_error("the plain model has no such layer");
    }
    in = model::extent_after(layer, in);
  }
  return x;
}

double PlainMaps::loss_and_gradients(const std::vector<std::vector<float>>& images,
                                     const std::vector<std::int32_t>& labels) {
  PlainTape tape;
  Used use = used(tape);
  M x = tape.make(static_cast<std::int64_t>(images.size()), in_.elements());
  for (std::size_t n = 0; n < images.size(); ++n)
    for (std::size_t i = 0; i < images[n].size(); ++i)
      x->value[n * images[n].size() + i] = static_cast<double>(images[n][i]);
  model::Extent in = in_;
  for (std::size_t unit = 0; unit < model::unit_starts(list_).size(); ++unit) {
    const std::vector<model::Layer> layers = model::unit_layers(list_, unit);
    x = run(tape, use, layers, in, x, "unit" + std::to_string(unit));
    in = model::extent_after(layers, in);
  }
  clear_gradients();
  const double loss = tape.cross_entropy(x, labels, 1 / static_cast<double>(labels.size()));
  tape.backward();
  add_gradients(use);
  return loss;
}

void PlainMaps::step(double lr, double momentum) {
  for (auto& [name, p] : parameters())
    for (std::size_t i = 0; i < p.value.size(); ++i) {
      p.exp_avg[i] = momentum * p.exp_avg[i] + p.gradient[i];
      p.value[i] -= lr * p.exp_avg[i];
    }
}

}  // namespace rehearse::numerics
