// The operations on images and their maps: convolutions, pooling, scales and normalisations of channels. As op.h has
// them: reads -> writes.
#pragma once

#include <cstdint>

namespace rehearse::program {

// Images [batch, channels, height, width]. forward {x, w [c_out, c_in / groups, kernel, kernel], bias?} -> {y};
// backward_input {dy, w} -> {dx}; backward_weight {dy, x, dw, dbias?} -> {dw, dbias?} (accumulates). With groups the
// outputs of group g, [g c_out / groups, ...), are made of its inputs alone, [g c_in / groups, ...).
enum class ConvPart : unsigned char { forward, backward_input, backward_weight };
struct Conv2d {
  ConvPart part = ConvPart::forward;
  std::int64_t batch = 0, c_in = 0, c_out = 0, height = 0, width = 0, kernel = 3, stride = 1, pad = 1;  // input size
  bool bias = true;
  bool channels_first = false;  // in memory, which tensor cores do not read (costs; the result is the same)
  std::int64_t groups = 1;

  std::int64_t group_in() const { return c_in / groups; }
  std::int64_t group_out() const { return c_out / groups; }
  std::int64_t out_height() const { return (height + 2 * pad - kernel) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * pad - kernel) / stride + 1; }
  friend bool operator==(const Conv2d&, const Conv2d&) = default;
};
// Max pooling; padding never is the largest. forward {x} -> {y, argmax i32}; backward {dy, argmax} -> {dx}.
struct Pool2d {
  bool backward = false;
  std::int64_t batch = 0, channels = 0, height = 0, width = 0, window = 2;  // input size
  std::int64_t stride = 0, pad = 0;                                         // stride 0: window

  std::int64_t step() const { return stride > 0 ? stride : window; }
  bool plain() const { return step() == window && pad == 0; }
  std::int64_t out_height() const { return (height + 2 * pad - window) / step() + 1; }
  std::int64_t out_width() const { return (width + 2 * pad - window) / step() + 1; }
  friend bool operator==(const Pool2d&, const Pool2d&) = default;
};
// The mean of each channel's pixels. forward {x [batch, channels, pixels]} -> {y [batch, channels]}; backward {dy} ->
// {dx}.
struct AveragePool {
  bool backward = false;
  std::int64_t batch = 0, channels = 0, pixels = 0;
  friend bool operator==(const AveragePool&, const AveragePool&) = default;
};
// Each channel times a number of its own, f [batch, channels] (squeeze-and-excitation). forward {x [batch, channels,
// pixels], f} -> {y}; backward {dy, x, f} -> {dx, df}. `separate`: backward is a product for dx, one for dy x and its
// sum, kernels of their own (costs; the result is the same).
struct ChannelScale {
  bool backward = false;
  std::int64_t batch = 0, channels = 0, pixels = 0;
  bool separate = false;
  friend bool operator==(const ChannelScale&, const ChannelScale&) = default;
};
// Batch normalisation (Ioffe and Szegedy 2015, arXiv 1502.03167, algorithm 1) of x [batch, channels, pixels], by the
// mean and the variance (divided by `count`) of each channel. sums f32 [2, channels]: the sum of its elements and of
// their squares; d_sums f32 [2, channels]: the sum of dy, and of dy times normalised x. gamma, beta [channels].
//   forward {x, gamma, beta} -> {y, sums}; backward {dy, x, sums, gamma, dgamma, dbeta} -> {dx, dgamma, dbeta, d_sums}
// of one rank's examples alone. Over the examples of several ranks, whose sums are added between:
//   sums {x} -> {sums}; normalise {x, sums, gamma, beta} -> {y}; backward_sums {dy, x, sums} -> {d_sums};
//   backward_weight {d_sums, dgamma, dbeta} -> {dgamma, dbeta} (accumulates), of the rank's own d_sums;
//   backward_input {dy, x, sums, gamma, d_sums} -> {dx}.
enum class BatchNormPart : unsigned char {
  forward,
  backward,
  sums,
  normalise,
  backward_sums,
  backward_weight,
  backward_input
};
struct BatchNorm {
  BatchNormPart part = BatchNormPart::forward;
  std::int64_t batch = 0, channels = 0, pixels = 1;
  std::int64_t count = 0;  // elements of a channel on all ranks whose sums are added
  double eps = 1e-5;
  // forward, backward: a kernel that keeps what of this many channels fits on the chip, and reads only the rest of them
  // again; 0: reads all again.
  std::int64_t kept_channels = 0;
  friend bool operator==(const BatchNorm&, const BatchNorm&) = default;
};

}  // namespace rehearse::program
