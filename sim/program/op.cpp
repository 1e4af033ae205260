// The class of an op, as reports, calibration files and coverage tables group by it. Names are stable: they are keys of
// files on disk.
#include "sim/program/op.h"

#include <algorithm>

namespace rehearse::program {
namespace {

template <typename Enum, std::size_t N>
std::string_view pick(const std::string_view (&names)[N], Enum value) {
  return names[static_cast<std::size_t>(value)];
}

struct KindName {
  std::string_view operator()(const Gemm&) const { return "gemm"; }
  std::string_view operator()(const Attention& a) const {
    static constexpr std::string_view names[] = {"flash_attention_forward",
                                                 "flash_attention_backward",
                                                 "attention_scores",
                                                 "attention_softmax",
                                                 "attention_dropout",
                                                 "attention_context",
                                                 "attention_context_backward_probs",
                                                 "attention_context_backward_value",
                                                 "attention_dropout_backward",
                                                 "attention_softmax_backward",
                                                 "attention_scores_backward_query",
                                                 "attention_scores_backward_key",
                                                 "attention_bias_gradient",
                                                 "attention_sinks",
                                                 "attention_sink_gradient"};
    return pick(names, a.part);
  }
  std::string_view operator()(const LatentHeads& l) const {
    return l.backward ? "latent_heads_backward" : "latent_heads";
  }
  std::string_view operator()(const StateSpace& s) const { return name_of(s.part); }
  std::string_view operator()(const Norm& n) const {
    static constexpr std::string_view layer[] = {"layer_norm_forward", "layer_norm_backward_input",
                                                 "layer_norm_backward_weight"};
    static constexpr std::string_view rms[] = {"rms_norm_forward", "rms_norm_backward_input",
                                               "rms_norm_backward_weight"};
    return n.rms ? pick(rms, n.part) : pick(layer, n.part);
  }
  std::string_view operator()(const HeadNorm& n) const {
    static constexpr std::string_view names[] = {"head_norm_forward", "head_norm_backward_input",
                                                 "head_norm_backward_weight"};
    return pick(names, n.part);
  }
  std::string_view operator()(const Activation& a) const {
    static constexpr std::string_view forward[] = {"gelu_forward",         "relu_forward",    "swiglu_forward",
                                                   "squared_relu_forward", "tanh_forward",    "geglu_forward",
                                                   "swiglu_oai_forward",   "sigmoid_forward", "silu_forward"};
    static constexpr std::string_view backward[] = {"gelu_backward",         "relu_backward",    "swiglu_backward",
                                                    "squared_relu_backward", "tanh_backward",    "geglu_backward",
                                                    "swiglu_oai_backward",   "sigmoid_backward", "silu_backward"};
    return a.backward ? pick(backward, a.fn) : pick(forward, a.fn);
  }
  std::string_view operator()(const Elementwise& e) const {
    static constexpr std::string_view names[] = {"add",
                                                 "accumulate",
                                                 "cast",
                                                 "copy",
                                                 "fill",
                                                 "scale",
                                                 "bias_dropout_add",
                                                 "dropout",
                                                 "dropout_backward",
                                                 "bias_grad",
                                                 "add_position",
                                                 "position_grad",
                                                 "rope",
                                                 "rope_backward",
                                                 "fp8_amax",
                                                 "fp8_cast",
                                                 "fp8_cast_transpose",
                                                 "fp8_transpose",
                                                 "fp8_scale_update",
                                                 "hadamard_cast",
                                                 "fp8_widen"};
    return pick(names, e.fn);
  }
  std::string_view operator()(const StridedCopy&) const { return "strided_copy"; }
  std::string_view operator()(const Router& r) const {
    static constexpr std::string_view names[] = {"router_gate", "router_place", "router_receive",
                                                 "router_gate_backward"};
    return pick(names, r.part);
  }
  std::string_view operator()(const Permute& p) const {
    static constexpr std::string_view names[] = {"expert_permute", "expert_unpermute", "expert_unpermute_backward",
                                                 "expert_permute_backward"};
    return pick(names, p.part);
  }
  std::string_view operator()(const GroupedGemm& g) const {
    static constexpr std::string_view names[] = {"grouped_gemm", "grouped_gemm_backward_input",
                                                 "grouped_gemm_backward_weight"};
    return pick(names, g.part);
  }
  std::string_view operator()(const GroupedBias& g) const {
    static constexpr std::string_view names[] = {"grouped_bias", "grouped_bias_backward", "grouped_bias_weights"};
    return pick(names, g.part);
  }
  std::string_view operator()(const RowScale& r) const { return r.backward ? "row_scale_backward" : "row_scale"; }
  std::string_view operator()(const Embedding& e) const {
    return e.backward ? "embedding_backward" : "embedding_forward";
  }
  std::string_view operator()(const EmbeddingBags& e) const {
    static constexpr std::string_view names[] = {"embedding_bags_forward", "embedding_bags_backward",
                                                 "embedding_bags_update"};
    return pick(names, e.part);
  }
  std::string_view operator()(const Pairs& p) const { return p.backward ? "pairs_backward" : "pairs_forward"; }
  std::string_view operator()(const CrossEntropy& c) const {
    static constexpr std::string_view names[] = {"cross_entropy_forward", "cross_entropy_row_max",
                                                 "cross_entropy_exp_sum", "cross_entropy_loss",
                                                 "cross_entropy_backward"};
    return pick(names, c.part);
  }
  std::string_view operator()(const MeanSquaredError& m) const { return m.backward ? "mse_backward" : "mse_forward"; }
  std::string_view operator()(const BinaryCrossEntropy& b) const { return b.backward ? "bce_backward" : "bce_forward"; }
  std::string_view operator()(const Lamb& l) const {
    return l.part == LambPart::moments ? "lamb_moments" : "lamb_apply";
  }
  std::string_view operator()(const Adafactor&) const { return "adafactor"; }
  std::string_view operator()(const AdafactorParts& a) const {
    static constexpr std::string_view kNames[] = {"adafactor_sums", "adafactor_squares", "adafactor_apply"};
    return kNames[static_cast<std::size_t>(a.part)];
  }
  std::string_view operator()(const Muon& m) const {
    if (m.part == MuonPart::apply) return "muon_apply";
    return m.part == MuonPart::momentum ? "muon_momentum" : "muon";
  }
  std::string_view operator()(const OuterStep& o) const {
    static constexpr std::string_view kNames[] = {"outer_mean", "outer_difference", "outer_update"};
    return kNames[static_cast<std::size_t>(o.part)];
  }
  std::string_view operator()(const LowRank& l) const {
    static constexpr std::string_view kNames[] = {"orthogonalise", "low_rank_pack", "low_rank_unpack", "low_rank_keep"};
    return kNames[static_cast<std::size_t>(l.part)];
  }
  std::string_view operator()(const Compress& c) const { return c.decompress ? "decompress" : "compress"; }
  std::string_view operator()(const Optimizer& o) const { return o.adam ? "adamw" : "sgd"; }
  std::string_view operator()(const CountedTargets& c) const { return c.mean ? "mean_of_counted" : "count_targets"; }
  std::string_view operator()(const SumSquares&) const { return "sum_squares"; }
  std::string_view operator()(const ClipCoefficient&) const { return "clip_coefficient"; }
  std::string_view operator()(const UpdateLossScale&) const { return "update_loss_scale"; }
  std::string_view operator()(const Conv2d& c) const {
    static constexpr std::string_view names[] = {"conv2d_forward", "conv2d_backward_input", "conv2d_backward_weight"};
    return pick(names, c.part);
  }
  std::string_view operator()(const Pool2d& p) const { return p.backward ? "max_pool_backward" : "max_pool_forward"; }
  std::string_view operator()(const AveragePool& p) const {
    return p.backward ? "average_pool_backward" : "average_pool_forward";
  }
  std::string_view operator()(const ChannelScale& c) const {
    return c.backward ? "channel_scale_backward" : "channel_scale_forward";
  }
  std::string_view operator()(const BatchNorm& n) const {
    static constexpr std::string_view names[] = {
        "batch_norm_forward",       "batch_norm_backward",        "batch_norm_sums",          "batch_norm_normalise",
        "batch_norm_backward_sums", "batch_norm_backward_weight", "batch_norm_backward_input"};
    return pick(names, n.part);
  }
  std::string_view operator()(const Input&) const { return "input"; }
  std::string_view operator()(const Collective& c) const {
    static constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                 "broadcast",  "all_to_all", "reduce"};
    return pick(names, c.kind);
  }
  std::string_view operator()(const PointToPoint& p) const {
    const auto sends = std::count_if(p.legs.begin(), p.legs.end(), [](const Leg& leg) { return leg.send; });
    if (sends == 0) return "receive";
    return sends == static_cast<std::ptrdiff_t>(p.legs.size()) ? "send" : "send_receive";
  }
  std::string_view operator()(const HostSync&) const { return "host_sync"; }
};

}  // namespace

std::string_view name_of(Epilogue epilogue) {
  static constexpr std::string_view names[] = {"", "gelu", "gelu_backward", "bias_gradient"};
  return pick(names, epilogue);
}

std::string_view kind_name(const OpShape& shape) {
  return std::visit(KindName{}, shape);
}

}  // namespace rehearse::program
