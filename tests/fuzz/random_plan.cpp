// See random_plan.h. At most 64 ranks, 8 layers and 8 micro-batches, so that a plan takes milliseconds.
#include "tests/fuzz/random_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace rehearse::fuzz {
namespace {

constexpr const char* kTopologies[] = {"dgx-a100",       "dgx-h100", "dgx1-v100", "ethernet-a100",
                                       "gb200-nvl72",    "hgx-b200", "pcie-a100", "rail-only-h100",
                                       "dragonfly-a100", "torus-2d", "aws-p4d",   "azure-nd-h100-v5"};
constexpr const char* kSchedules[] = {"1f1b",          "gpipe",      "sequential", "interleaved",
                                      "zero_bubble_v", "dualpipe_v", "dualpipe"};
constexpr const char* kPrecisions[] = {"bf16", "fp16", "fp32"};
constexpr const char* kFrameworks[] = {"rehearse", "megatron-2021", "torch-ddp"};

// What a plan is divided by and must divide.
struct Sizes {
  std::size_t tensor = 1, pipeline = 1, data = 1, chunks = 1, micro_batch = 1, micro_batches = 1;
  std::size_t gpus() const { return tensor * pipeline * data; }
};

class Writer {
 public:
  Writer(Choices& choices, const std::string& calibration) : c_(choices), calibration_(calibration) {}

  std::string scenario() {
    on_host_ = c_.once_in(6);
    transformer_ = !c_.once_in(5);
    choose_sizes();
    std::string text = fmt::format("rehearse: 1\nname: random\nframework: {}\n", framework());
    text += model();
    text += cluster();
    text += plan();
    text += training();
    if (on_host_) text += fmt::format("costs: {{calibration: '{}'}}\n", calibration_);
    if (c_.once_in(3)) text += noise();
    if (llama_ && c_.below(3) == 1) give_experts(text);  // last, so that other choices keep their places
    if (llama_ && c_.below(4) == 1) give_latents(text);
    if (c_.below(4) == 1)
      text.insert(text.find("training: {") + 11, c_.below(2) == 1 ? "moments: int8, " : "moments: bf16, ");
    if (transformer_ && c_.below(3) == 1) give_window(text);
    if (c_.below(3) == 1) give_data(text);
    const bool adapts = text.find("experts:") == std::string::npos && text.find("kv_lora_rank") == std::string::npos &&
                        text.find("fused_epilogues") == std::string::npos;
    if (transformer_ && (adapts || c_.below(16) == 1) && c_.below(3) == 1)  // refused beside them, and by some plans
      text.insert(text.find("training: {") + 11,
                  c_.below(2) == 1 ? "lora_rank: 2, lora_targets: [mlp], " : "lora_rank: 3, ");
    if (transformer_ && c_.below(4) == 1) give_documents(text);
    // What a rule forbids together shows nothing but the rule.
    const auto lacks = [&](const char* what) { return text.find(what) == std::string::npos; };
    if (c_.below(10) == 1 && lacks("zero: 3") && lacks("offload") && lacks("documents"))
      text.insert(text.find("plan:\n") + 6, c_.below(2) == 1 ? "  cuda_graphs: layer\n" : "  cuda_graphs: step\n");
    if (transformer_ && c_.below(10) == 1 && lacks("optimizer:") && lacks("zero: 3") && lacks("moments"))
      text.insert(text.find("training: {") + 11, "optimizer: muon, ");
    if (!on_host_ && c_.below(4) == 1) give_kinds(text);
    if (transformer_ && s_.pipeline > 1 && c_.below(8) == 1)
      text.insert(text.find("plan:\n") + 6, "  layers_per_stage: by_time\n");
    if (llama_ && c_.below(4) == 1 && lacks("lora")) give_modules(text);
    const bool rules_it_out =
        !lacks("offload") || !lacks("fp16") || !lacks("expert: ") || !lacks("jobs:") || !lacks("cuda_graphs: step");
    if (s_.data > 1 && (!rules_it_out || c_.below(32) == 1) && c_.below(6) == 1) give_local_steps(text);
    if (llama_ && c_.below(4) == 1 && lacks("experts:") && lacks("kv_lora_rank")) give_norms_and_caps(text);
    if (llama_ && !lacks("experts:") && lacks("kv_lora_rank") && c_.below(4) == 1) give_head_norms(text);
    if (llama_ && c_.below(6) == 1) give_angles(text);
    if (transformer_ && c_.below(6) == 1) give_decoder(text);
    const bool splits = s_.tensor > 1 || s_.pipeline > 1 || !lacks("context: ") || !lacks("expert: ");
    const bool no_servers = splits || !goes_with_servers(text);
    if (s_.data > 1 && (!no_servers || c_.below(64) == 1) && c_.below(3) != 1) give_servers(text);
    if (s_.data > 1 && (goes_with_compression(text) || c_.below(64) == 1) && c_.below(4) == 1) give_compression(text);
    // Parameter servers hand out the first weights themselves.
    if (c_.below(8) == 1 && (text.find("  servers: ") == std::string::npos || c_.below(32) == 1))
      text.insert(text.find("training: {") + 11, "first_weights: broadcast, ");
    // Of topologies without PCIe links it is refused, as where nodes of several kinds are listed.
    constexpr std::array<std::string_view, 5> kWithPcie = {"ethernet-a100", "pcie-a100", "dragonfly-a100", "aws-p4d",
                                                           "azure-nd-h100-v5"};
    const bool pcie = std::find(kWithPcie.begin(), kWithPcie.end(), topology_) != kWithPcie.end();
    if (c_.below(4) == 1 && ((pcie && text.find("  nodes: ") == std::string::npos) || c_.below(32) == 1))
      text.insert(text.find("cluster:\n") + 9, "  gpudirect: false\n");
    const bool shards = text.find("  zero: ") != std::string::npos && text.find("  zero: 0") == std::string::npos;
    if ((shards || c_.below(64) == 1) && s_.data > 1 && c_.below(4) == 1) give_shard_groups(text);
    if (transformer_ && s_.data % 2 == 0 && c_.below(5) == 1) give_context(text);
    if (transformer_ && c_.below(8) == 1) give_optimizer(text);
    if (llama_ && c_.below(8) == 1) give_branches(text);
    return text;
  }

 private:
  // torch-ddp only has replicas of a whole model; where it is asked for more, now and then, it is refused.
  const char* framework() {
    if (c_.once_in(4)) return "auto";
    if (on_host_ || !c_.once_in(3)) return kFrameworks[0];
    whole_ = s_.tensor == 1 && s_.pipeline == 1;
    return kFrameworks[c_.below(whole_ || c_.once_in(16) ? 3 : 2)];
  }

  void choose_sizes() {
    constexpr std::size_t tensors[] = {1, 2, 4, 8}, pipelines[] = {1, 2, 3, 4}, replicas[] = {1, 2, 3, 4, 8};
    s_.tensor = transformer_ ? c_.of(tensors) : 1;
    s_.pipeline = c_.of(pipelines);
    s_.data = c_.of(replicas);
    if (c_.below(5) == 1) s_.tensor = s_.pipeline = 1;  // many keys are of replicas of a whole model only
    while (s_.gpus() > (on_host_ ? 8U : 64U)) s_.data > 1 ? s_.data /= 2 : s_.tensor /= 2;
    s_.micro_batch = 1 + c_.below(3);
    s_.micro_batches = 1 + c_.below(8);
    if (s_.pipeline == 1) return;
    schedule_ = c_.of(kSchedules);
    if (std::string(schedule_).ends_with("_v")) {
      s_.chunks = 2;
      if (!c_.once_in(16)) s_.micro_batches = std::max(s_.micro_batches, 2 * s_.pipeline);
    }
    if (schedule_ == std::string("dualpipe") && !c_.once_in(16)) s_.micro_batches = 2 * (s_.pipeline + c_.below(3));
    if (schedule_ != std::string("interleaved")) return;
    s_.chunks = 2 + c_.below(2);
    if (!c_.once_in(16)) s_.micro_batches = (s_.micro_batches + s_.pipeline - 1) / s_.pipeline * s_.pipeline;
  }

  std::string model() {
    if (!transformer_) {
      if (c_.once_in(2))
        return fmt::format("model: {{family: mlp, widths: [{}, 64, 48, 32, 10]}}\n", 16 + 16 * c_.below(4));
      if (c_.once_in(3))
        return fmt::format(
            "model: {{family: cnn, image: {{channels: 3, size: {}}}, residual_block: bottleneck, residual_layers: [1, "
            "1], residual_groups: {}, residual_group_width: {}, squeeze_ratio: {}, widths: [10]}}\n",
            8 + 4 * c_.below(6), 1 << c_.below(6), 1 << c_.below(6), 16 * c_.below(2));
      return fmt::format(
          "model: {{family: cnn, image: {{channels: 3, size: {}}}, convolutions: [{{channels: 8}}, {{channels: {}, "
          "pool: {}}}], widths: [32, 10]}}\n",
          8 + 4 * c_.below(6), 4 + c_.below(13), 1 + c_.below(2));
    }
    const std::size_t heads = c_.once_in(24) ? 3 : s_.tensor * (1U << c_.below(3));
    const std::size_t layers = c_.once_in(24) ? 1 : s_.pipeline * s_.chunks + c_.below(5);
    const bool llama = llama_ = c_.once_in(2);
    std::string text =
        fmt::format("model: {{family: {}, layers: {}, hidden: {}, heads: {}, vocab: {}, max_seq_len: 128",
                    llama ? "llama" : "gpt", layers, heads * (8U << c_.below(3)), heads, 100 + 37 * c_.below(20));
    if (llama) text += fmt::format(", ffn_hidden: {}", heads * (8U << c_.below(4)));
    if (llama && c_.once_in(2)) text += fmt::format(", kv_heads: {}", std::max(s_.tensor, heads / 2));
    if (c_.once_in(4)) text += ", tied_embeddings: false";
    if (c_.once_in(4)) text += ", attention: unfused";
    if (c_.once_in(4)) text += ", dropout: 0.1";
    return text + "}\n";
  }

  std::string cluster() {
    topology_ = on_host_ ? "local" : c_.of(kTopologies);
    std::string text =
        fmt::format("cluster:\n  topology: {}\n  gpus: {}\n", topology_, s_.gpus() + (c_.once_in(24) ? 1 : 0));
    if (on_host_) {
      if (c_.once_in(3)) text += fmt::format("  threads_per_rank: {}\n", 1 + c_.below(3));
      return text;
    }
    if (c_.once_in(6)) text += "  faults: [{link: 'node0/*', share: 0.5}]\n";
    if (c_.once_in(8)) text += "  background: [{from: 1, to: 0, rate: 2GB/s}]\n";
    if (c_.once_in(8)) text += "  collectives: [{kind: all_reduce, algorithm: ring}]\n";
    jobs_ = s_.gpus() <= 16 && c_.once_in(6);
    if (jobs_) text += "  jobs: [{name: other, set: {plan.micro_batch: 1, cluster.jobs: []}}]\n";
    return text;
  }

  std::string plan() {
    std::string text =
        fmt::format("plan:\n  tensor: {}\n  pipeline: {}\n  micro_batch: {}\n", s_.tensor, s_.pipeline, s_.micro_batch);
    if (s_.pipeline > 1) text += fmt::format("  schedule: {}\n", schedule_);
    if (s_.chunks > 1) text += fmt::format("  chunks: {}\n", s_.chunks);
    if (!whole_) text += fmt::format("  zero: {}\n", c_.below(4));
    if (s_.tensor > 1 && c_.once_in(2)) text += "  sequence_parallel: true\n";
    constexpr const char* kept[] = {"none", "none", "selective", "full", "ops"};
    if (transformer_) text += fmt::format("  recompute: {}\n", c_.of(kept));
    if (c_.once_in(6)) text += fmt::format("  recompute_layers: {}\n", 1 + c_.below(3));
    if (c_.once_in(6)) text += "  recompute_every: 2\n";
    if (c_.once_in(3)) text += fmt::format("  bucket: {}KiB\n", 1U << c_.below(11));
    if (c_.once_in(4)) text += "  overlap_grad_reduce: false\n";
    if (c_.once_in(4)) text += "  overlap_param_gather: false\n";
    if (c_.once_in(4)) text += "  overlap_tensor_backward: false\n";
    constexpr const char* epilogues[] = {"all", "gelu", "bias_gradient"};
    if (c_.once_in(4)) text += fmt::format("  fused_epilogues: {}\n", c_.of(epilogues));
    if (c_.once_in(6)) text += "  rank_order: [data, tensor, context, expert, pipeline]\n";
    if (c_.once_in(5)) text += "  offload_optimizer: true\n";
    if (text.find("offload_optimizer") != std::string::npos && c_.once_in(2)) text += "  offload_parameters: true\n";
    if (text.find("recompute: full") != std::string::npos && c_.once_in(2)) text += "  offload_activations: true\n";
    if (text.find("overlap_tensor_backward") != std::string::npos && c_.once_in(2))
      text += "  fused_weight_gradient: false\n";
    return text;
  }

  void give_experts(std::string& text) {
    const auto put = [&](const std::string& before, const std::string& what, std::size_t erased) {
      const std::size_t at = text.find(before);
      text.replace(at + before.size() - erased, erased, what);
    };
    constexpr const char* capacities[] = {"1", "1.25", "0", "3"};
    put("family: llama", "moe", 5);
    put("max_seq_len: 128",
        fmt::format(
            ", experts: {}, experts_per_token: {}, expert_ffn_hidden: {}, capacity_factor: {}, aux_loss: 0.0{}, "
            "shared_experts: {}",
            4U << c_.below(3), 1 + c_.below(4), s_.tensor * (8U << c_.below(3)), c_.of(capacities), c_.below(3),
            c_.below(2)),
        0);
    constexpr std::size_t ranks[] = {1, 2, 4, 8};
    put("plan:\n", fmt::format("  expert: {}\n", c_.of(ranks)), 0);
    if (c_.below(4) == 1) put("plan:\n", "  expert_tensor: 1\n", 0);
    if (c_.below(4) == 1) put("plan:\n", "  overlap_expert_exchange: true\n", 0);
    if (c_.below(4) == 1) put("plan:\n", "  overlap_shared_experts: true\n", 0);
    if (c_.below(4) == 1) put("plan:\n", "  expert_dispatch: all_gather\n", 0);
    if (c_.below(2) == 1)
      put("max_seq_len: 128", fmt::format(", routing: zipf, routing_exponent: 0.{}", c_.below(10)), 0);
  }

  // Where there are grouped queries too, it is refused.
  void give_latents(std::string& text) {
    const std::string latents =
        fmt::format(", kv_lora_rank: {}, q_lora_rank: {}, qk_nope_head_dim: {}, qk_rope_head_dim: {}, v_head_dim: {}",
                    8U << c_.below(4), c_.below(3) * 12, 1 + c_.below(20), 2 + 2 * c_.below(6), 1 + c_.below(24));
    const std::string before = "max_seq_len: 128", plan = "plan:\n";
    text.insert(text.find(before) + before.size(), latents);
    if (c_.below(3) == 1) text.insert(text.find(plan) + plan.size(), "  recompute_latent: true\n");
    if (c_.below(4) == 1) text.insert(text.find(plan) + plan.size(), "  fused_latent_rope: false\n");
  }

  // Of multi-token prediction.
  void give_modules(std::string& text) {
    const std::string before = "max_seq_len: 128";
    text.insert(text.find(before) + before.size(),
                fmt::format(", mtp_depth: {}, mtp_loss_weight: 0.{}", 1 + c_.below(3), c_.below(10)));
  }

  // Shorter and longer than sequences are (training()), not felt or with layers that see all.
  void give_window(std::string& text) {
    std::string window = fmt::format(", sliding_window: {}", 1 + c_.below(200));
    if (c_.below(2) == 1) window += fmt::format(", full_attention_every: {}", c_.below(5));
    const std::string before = "max_seq_len: 128";
    text.insert(text.find(before) + before.size(), window);
  }

  // Refused where a node has all ranks with the same weights.
  void give_local_steps(std::string& text) {
    const std::size_t zero = text.find("  zero: ");
    if (zero != std::string::npos && c_.below(16) != 1) text[zero + 8] = '0';
    std::string keys = fmt::format("  local_steps: {}\n", 1 + c_.below(5));
    const std::size_t group = c_.below(3);
    if (group == 1 && s_.gpus() > 16) keys += "  local_group: node\n";
    if (group == 2 && s_.data > 2 && s_.data % 2 == 0) keys += "  local_group: 2\n";
    if (c_.below(2) == 1) keys += fmt::format("  outer_optimizer: nesterov\n  outer_momentum: 0.{}\n", c_.below(10));
    text.insert(text.find("plan:\n") + 6, keys);
  }

  // Of two ranks, of half of a stage's replicas, or of a node, in which whole expert groups have to lie.
  void give_shard_groups(std::string& text) {
    const std::size_t kind = c_.below(3);
    const std::string group = kind == 0 && s_.data % 2 == 0   ? "2"
                              : kind == 1 && s_.data % 4 == 0 ? fmt::to_string(s_.data / 2)
                                                              : "node";
    text.insert(text.find("plan:\n") + 6, fmt::format("  zero_group: {}\n", group));
  }

  // Whether nothing of the text is refused with parameter servers.
  static bool goes_with_servers(const std::string& text) {
    for (const char* what : {"offload", "fp16", "fp8", "nvfp4", "jobs:", "cuda_graphs: step", "local_steps", "lora",
                             "optimizer: muon", "moments", "gradient_compression", "nodes:"})
      if (text.find(what) != std::string::npos) return false;
    return true;
  }

  void give_servers(std::string& text) {
    const std::size_t zero = text.find("  zero: ");
    if (zero != std::string::npos && c_.below(16) != 1) text[zero + 8] = '0';
    std::string keys = fmt::format("  servers: {}\n", 1 + c_.below(3));
    if (c_.below(2) == 1) keys += "  server_devices: workers\n";
    const std::size_t consistency = c_.below(3);
    if (consistency == 1) keys += "  consistency: asynchronous\n";
    if (c_.below(4) == 0) keys += "  mode_overhead: 0.25\n";
    if (consistency == 2) keys += fmt::format("  consistency: bounded\n  staleness: {}\n", c_.below(4));
    text.insert(text.find("plan:\n") + 6, keys);
    if (text.find("clip: ") == std::string::npos) text.insert(text.find("training: {") + 11, "clip: 0, ");
  }

  // The same with compressed gradients.
  bool goes_with_compression(const std::string& text) const {
    for (const char* what : {"servers:", "local_steps", "expert: ", "context: ", "lora", "offload", "fp16", "fp8",
                             "optimizer: muon", "framework: megatron", "framework: nemo"})
      if (text.find(what) != std::string::npos) return false;
    return s_.tensor == 1 && s_.pipeline == 1;
  }

  void give_compression(std::string& text) {
    const std::size_t zero = text.find("  zero: ");
    if (zero != std::string::npos && c_.below(16) != 1) text[zero + 8] = '0';
    static constexpr const char* kChains[] = {
        "power_sgd", "power_sgd, error_feedback", "top_k, int8, error_feedback", "int4", "top_k, error_feedback",
        "random_k",  "sign, error_feedback"};
    const char* chain = c_.of(kChains);
    const bool sgd = text.find("optimizer: sgd") != std::string::npos && text.find("clip: 0") != std::string::npos;
    if (sgd && c_.below(2) == 1) chain = "top_k, momentum_correction";
    std::string keys = fmt::format("  gradient_compression: [{}]\n", chain);
    if (c_.below(2) == 1) keys += fmt::format("  gradient_rank: {}\n", 1 + c_.below(8));
    if (c_.below(4) == 1) keys += "  gradient_min_rate: 0\n";
    text.insert(text.find("plan:\n") + 6, keys);
  }

  // What Gemma has, and now and then fewer key-value heads than ranks of a tensor group.
  void give_norms_and_caps(std::string& text) {
    std::string more;
    for (const char* key : {"scaled_embeddings", "zero_centered_norms", "post_norms", "qk_norm"})
      if (c_.below(2) == 1) more += fmt::format(", {}: true", key);
    if (c_.below(2) == 1) more += ", attention_softcap: 50";
    if (c_.below(2) == 1) more += ", logit_softcap: 30";
    if (c_.below(3) == 1) more += ", query_scale: 5";
    if (c_.below(3) == 1) more += ", activation: geglu";
    if (c_.below(3) == 1 && text.find("sliding_window") != std::string::npos) more += ", rope_base_local: 100";
    if (c_.below(3) == 1 && text.find("kv_heads") == std::string::npos)
      more += fmt::format(", kv_heads: {}", s_.tensor > 2 && s_.micro_batch > 1 ? 2 : 1);
    const std::string before = "max_seq_len: 128";
    text.insert(text.find(before) + before.size(), more);
  }

  // Of rotated positions: a base, and how angles were made smaller.
  void give_angles(std::string& text) {
    static constexpr const char* kScalings[] = {"linear", "llama3, rope_low_freq_factor: 0.5",
                                                "yarn, rope_trained_len: 64"};
    const std::string before = "max_seq_len: 128";
    text.insert(text.find(before) + before.size(),
                fmt::format(", rope_base: {}, rope_scaling: {}, rope_factor: {}", 100 + 1000 * c_.below(20),
                            c_.of(kScalings), 1 + c_.below(40)));
  }

  // Of queries and keys, which Qwen3 with experts has too.
  void give_head_norms(std::string& text) {
    const std::string before = "max_seq_len: 128";
    text.insert(text.find(before) + before.size(), ", qk_norm: true");
  }

  // An encoder with a decoder in the model's place, unless the plan has what a rule keeps from it.
  void give_decoder(std::string& text) {
    for (const char* not_there : {"recompute: ops", "lora", "documents", "cuda_graphs", "offload_activations", "muon",
                                  "interleaved", "_v\n", "by_time", "expert", "recompute_latent"})
      if (text.find(not_there) != std::string::npos) return;
    const std::size_t heads = s_.tensor * (1U << c_.below(2)), layers = s_.pipeline + c_.below(5) + 1;
    const std::size_t encoder = 1 + c_.below(layers - 1);
    const std::size_t at = text.find("model: {"), end = text.find('\n', at);
    text.replace(at, end - at,
                 fmt::format("model: {{family: t5, encoder_layers: {}, decoder_layers: {}, hidden: {}, heads: {}, "
                             "head_dim: {}, ffn_hidden: {}, vocab: {}, max_seq_len: 128, decoder_seq_len: {}{}{}}}",
                             encoder, layers - encoder, 16 + 8 * c_.below(4), heads, 4 + c_.below(9),
                             heads * (8U << c_.below(3)), 100 + 37 * c_.below(20), 16U << c_.below(3),
                             c_.below(2) == 1 ? ", activation: geglu, tied_embeddings: false" : "",
                             c_.below(3) == 1 ? ", dropout: 0.1" : ""));
  }

  // Nodes of two kinds, some ranks on either, and room for as many of another job.
  void give_kinds(std::string& text) {
    constexpr const char* kinds[] = {"dgx-h100", "dgx-a100", "aws-p4d", "azure-nd-h100-v5"};  // 8 devices a node
    const std::size_t gpus = s_.gpus(), first = c_.below(gpus + 1);
    const std::size_t nodes = std::max<std::size_t>(1, (first + 7) / 8), others = (2 * gpus + 7) / 8;
    std::string placed;
    const auto place = [&](std::size_t from, std::size_t count) {
      if (count > 0) placed += fmt::format("{}{}-{}", placed.empty() ? "" : ", ", from, from + count - 1);
    };
    place(0, first);
    place(8 * nodes, gpus - first);
    const std::string before = fmt::format("  topology: {}\n", topology_);
    text.replace(text.find(before), before.size(),
                 fmt::format("  topology: {}\n  nodes: [{{topology: {}, count: {}}}, {{topology: {}, count: {}}}]\n  "
                             "placement: [{}]\n",
                             c_.of(kinds), c_.of(kinds), nodes, c_.of(kinds), others, placed));
  }

  // Two ranks have a sequence, of replicas half as many. A ring cuts documents in four, of one row.
  void give_context(std::string& text) {
    for (const char* not_there : {"servers:", "gradient_compression", "family: t5"})
      if (text.find(not_there) != std::string::npos) return;
    constexpr const char* kinds[] = {"ring", "ring", "all_gather", "all_to_all"};
    std::string kind = c_.of(kinds);
    const auto put = [&](const std::string& before, char end, const std::string& what) {
      const std::size_t at = text.find(before);
      if (at != std::string::npos) text.replace(at + before.size(), text.find(end, at) - at - before.size(), what);
    };
    if (text.find("documents: uniform") != std::string::npos || text.find("documents: lognormal") != std::string::npos)
      kind = "all_gather";
    if (kind == "ring" && text.find("documents: ") != std::string::npos) {
      put("document_length: ", ',', fmt::to_string(4 * (1 + c_.below(8))));
      put("document_lengths: [", ']', fmt::format("{}, {}", 4 * (1 + c_.below(4)), 4 * (1 + c_.below(8))));
      put("  micro_batch: ", '\n', "1");
    }
    text.insert(text.find("plan:\n") + 6, fmt::format("  context: 2\n  context_kind: {}\n", kind));
  }

  // Layers of one branch each: mixers, attention, and feed-forward layers or experts.
  void give_branches(std::string& text) {
    for (const char* not_there :
         {"kv_lora_rank", "post_norms", "family: t5", "full_attention_every", "parallel_block", "lora"})
      if (text.find(not_there) != std::string::npos) return;
    const std::size_t at = text.find("layers: ") + 8;
    const std::size_t layers = std::stoul(text.substr(at));
    const bool experts = text.find("experts:") != std::string::npos;
    std::string pattern = experts ? "ME" : "M-";
    while (pattern.size() < std::max<std::size_t>(layers, 2)) pattern += "M*-"[c_.below(experts ? 2 : 3)];
    if (text.find("mtp_depth") != std::string::npos)
      text.insert(text.find("mtp_depth"), experts ? "mtp_pattern: \"*E\", " : "mtp_pattern: \"*-\", ");
    text.replace(at, text.find(',', at) - at,
                 fmt::format("{}, layer_pattern: \"{}\", mamba_heads: {}, mamba_head_dim: {}, mamba_groups: {}, "
                             "mamba_state: {}, mamba_chunk: {}",
                             pattern.size(), pattern, 2 * s_.tensor, 4 + c_.below(8), s_.tensor, 2 + c_.below(9),
                             1 + c_.below(40)));
  }

  // Of whole tensors or of parts, also of adapters.
  void give_optimizer(std::string& text) {
    for (const char* not_there : {"optimizer: ", "moments", "offload_optimizer", "servers:", "momentum_correction"})
      if (text.find(not_there) != std::string::npos) return;
    const bool lamb = c_.below(2) == 1 && text.find("experts:") == std::string::npos;
    text.insert(text.find("training: {") + 11, lamb ? "optimizer: lamb, " : "optimizer: adafactor, ");
  }

  // Of encoders they are refused.
  void give_documents(std::string& text) {
    const int kind = static_cast<int>(c_.below(4));
    const std::string length = fmt::format("document_length: {}, ", 1 + c_.below(150));
    const std::string table = fmt::format("document_lengths: [{}, {}], ", 1 + c_.below(30), 1 + c_.below(150));
    const std::string words[] = {"documents: fixed, " + length, "documents: uniform, " + length,
                                 "documents: lognormal, document_sigma: 0.6, " + length, "documents: table, " + table};
    text.insert(text.find("training: {") + 11, words[kind]);
  }

  // What loading takes is refused on a host.
  void give_data(std::string& text) {
    text +=
        fmt::format("data: {{samples: {}, workers: {}, prefetch: {}", 1 + c_.below(5000), c_.below(5), 1 + c_.below(3));
    constexpr std::size_t times[] = {0, 1, 20, 300, 5000};
    if (!on_host_) text += fmt::format(", sample_time: {}us", c_.of(times));
    if (!on_host_ && c_.below(2) == 1)
      text += fmt::format(", sample_bytes: {}kB, storage_bandwidth: {}MB/s, storage_of: {}", 1 + c_.below(900),
                          100 + c_.below(4000), c_.below(2) == 1 ? "node" : "cluster");
    text += "}\n";
  }

  std::string training() {
    const std::size_t batch = s_.data * s_.micro_batch * s_.micro_batches + (c_.once_in(24) ? 1 : 0);
    std::string text =
        fmt::format("training: {{global_batch: {}, precision: {}", batch, on_host_ ? "fp32" : c_.of(kPrecisions));
    if (transformer_) text += fmt::format(", seq_len: {}", 16U << c_.below(4));
    if (c_.once_in(3)) text += ", optimizer: sgd";
    if (c_.once_in(3)) text += ", clip: 0";
    if (c_.once_in(16)) text += ", ignored_token: 3";
    return text + "}\n";
  }

  std::string noise() {
    std::string text = fmt::format("noise:\n  seed: {}\n", c_.below(100));
    if (c_.once_in(2)) text += "  kernels: 0.05\n";
    if (c_.once_in(2)) text += "  transfers: 0.1\n";
    if (c_.once_in(2)) text += "  granularity: op\n";
    if (c_.once_in(2)) text += "  slow_ranks: [{ranks: [0], factor: 1.3}]\n";
    if (!on_host_ && !jobs_ && c_.once_in(2))
      text += c_.once_in(2) ? "  links: [{resources: '*', capacity: 0.5}]\n"
                            : "  links: [{resources: '*', capacity: 0.2, period: 2ms, duty: 0.4}]\n";
    return text;
  }

  Choices& c_;
  const std::string& calibration_;
  bool on_host_ = false, transformer_ = true, jobs_ = false, whole_ = false, llama_ = false;
  const char* schedule_ = kSchedules[0];
  std::string topology_;
  Sizes s_;
};

}  // namespace

std::size_t Choices::below(std::size_t limit) {
  if (at_ >= bytes_.size()) return 0;
  return static_cast<unsigned char>(bytes_[at_++]) % limit;
}

RandomPlan random_plan(Choices& choices, const std::string& calibration) {
  RandomPlan plan;
  constexpr run::Fidelity kFidelities[] = {run::Fidelity::flow, run::Fidelity::flow, run::Fidelity::step,
                                           run::Fidelity::analytic};
  plan.options.fidelity = choices.of(kFidelities);
  plan.options.steps = 2 + static_cast<int>(choices.below(2));
  plan.options.samples = choices.once_in(4) ? 3 : 0;
  plan.options.what_if = choices.once_in(8);
  plan.write = choices.once_in(4);
  plan.would_fit = choices.once_in(16);
  plan.text = Writer(choices, calibration).scenario();
  return plan;
}

}  // namespace rehearse::fuzz
