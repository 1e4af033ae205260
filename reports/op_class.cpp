// See op_class.h. Kinds are program::kind_name's, which are stable.
#include "reports/op_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "sim/base/collective_words.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

struct Class {
  std::string_view prefix, name;
};
// The first prefix that fits decides.
constexpr Class kClasses[] = {
    {"gemm", "gemm"},
    {"flash_attention", "attention"},
    {"attention", "attention"},
    {"layer_norm", "norm"},
    {"rms_norm", "norm"},
    {"gelu", "activation"},
    {"relu", "activation"},
    {"squared_relu", "activation"},
    {"swiglu", "activation"},
    {"tanh", "activation"},
    {"sigmoid", "activation"},
    {"silu", "activation"},
    {"cast", "copies"},
    {"copy", "copies"},
    {"fill", "copies"},
    {"add_position", "embedding"},
    {"position_grad", "embedding"},
    {"add", "elementwise"},
    {"accumulate", "elementwise"},
    {"scale", "elementwise"},
    {"bias", "elementwise"},
    {"dropout", "elementwise"},
    {"rope", "elementwise"},
    {"embedding", "embedding"},
    {"cross_entropy", "cross-entropy"},
    {"mse", "mean squared error"},
    {"sgd", "optimizer"},
    {"adafactor", "optimizer"},
    {"adafactor_sums", "optimizer"},
    {"adafactor_squares", "optimizer"},
    {"adafactor_apply", "optimizer"},
    {"muon", "optimizer"},
    {"muon_apply", "optimizer"},
    {"muon_momentum", "optimizer"},
    {"compress", "elementwise"},
    {"decompress", "elementwise"},
    {"sum_squares", "optimizer"},
    {"clip_coefficient", "optimizer"},
    {"update_loss_scale", "optimizer"},
    {"conv2d", "convolution"},
    {"max_pool", "pooling"},
    {"average_pool", "pooling"},
    {"channel_scale", "elementwise"},
    {"batch_norm", "norm"},
    {"input", "input"},
};
constexpr std::array<std::string_view, 3> kMessages = {"send", "receive", "send_receive"};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The offset of the first leg of a shape as describe.h writes it: "receive pipeline-1 elements=..." -> -1; 0 if there
// is no such leg.
int offset_of(std::string_view shape, std::string_view leg) {
  const std::string start = std::string(leg) + " pipeline";
  std::size_t at = shape.find(start);
  if (at == std::string_view::npos) return 0;
  at += start.size();
  if (at < shape.size() && shape[at] == '+') ++at;
  int offset = 0;
  std::from_chars(shape.data() + at, shape.data() + shape.size(), offset);
  return offset;
}

}  // namespace

std::string_view kernel_class(std::string_view kind) {
  if (kind == "adamw") return "optimizer";
  if (is_one_of(kCollectiveKindWords, kind) || is_one_of(kMessages, kind) || kind == "host_sync") return "";
  for (const Class& c : kClasses)
    if (kind.starts_with(c.prefix)) return c.name;
  return "other kernels";
}

bool is_collective(const result::OpText& op) {
  return is_one_of(kCollectiveKindWords, op.kind);
}

bool is_message(const result::OpText& op) {
  return is_one_of(kMessages, op.kind);
}

std::string op_label(const result::OpText& op, int stages) {
  if (is_collective(op)) return fmt::format("{} {} {}", op.kind, op.group, format_bytes(Bytes(op.bytes)));
  if (is_message(op)) {
    for (const auto& [leg, preposition] : {std::pair("receive", "from"), std::pair("send", "to")}) {
      const int offset = offset_of(op.shape, leg);
      if (offset == 0 || stages <= 0) continue;
      const int other = ((op.stage + offset) % stages + stages) % stages;
      return fmt::format("stage {}: {} {} stage {}", op.stage, leg, preposition, other);
    }
    return fmt::format("{} {} {}", op.kind, op.group, format_bytes(Bytes(op.bytes)));
  }
  return op.shape.empty() ? op.kind : fmt::format("{} {}", op.kind, op.shape);
}

}  // namespace rehearse::reports
