// The keys that ranks compare: every key of the table that changes how a scenario is resolved, and is not only
// simulated, is among them with its new value.
#include "sim/plan/performed_keys.h"

#include <map>
#include <set>

#include "sim/plan/keys.h"
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::map<std::string, std::string> of(const std::string& text, const std::vector<std::string>& assignments = {}) {
  std::map<std::string, std::string> all;
  for (const auto& [key, value] : performed_keys(read(text, assignments))) {
    EXPECT_NE(find_key(key), nullptr) << key << " is no key of a scenario";
    EXPECT_TRUE(all.emplace(key, value).second) << key << " stands twice";
  }
  return all;
}

// Of the keys below plan and training and the model's that a gpt, a cnn or an mlp has.
const std::string kGpt = "rehearse: 1\nname: n\n" + kSmallModel +
                         "cluster: {topology: dgx-a100, gpus: 8}\nplan: {tensor: 2, pipeline: 2}\n"
                         "training: {global_batch: 16, seq_len: 64, precision: fp16}\n";
const std::string kCnn =
    "rehearse: 1\nname: n\nmodel: {family: cnn, image: {channels: 3, size: 32}, convolutions: [{channels: 8}], widths: "
    "[10]}\ncluster: {topology: dgx-a100, gpus: 2}\ntraining: {global_batch: 16}\n";

const std::string kMoe =
    "rehearse: 1\nname: n\nmodel: {family: moe, layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 128, "
    "ffn_hidden: 64, experts: 8, experts_per_token: 2, expert_ffn_hidden: 48, capacity_factor: 1}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\ntraining: {global_batch: 16}\n";

const std::string kBert =
    "rehearse: 1\nname: n\nmodel: {family: bert, layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 128}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\ntraining: {global_batch: 16, precision: fp32}\n";

const std::string kT5 =
    "rehearse: 1\nname: n\nmodel: {family: t5, encoder_layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: "
    "128}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\ntraining: {global_batch: 16, precision: fp32}\n";

const std::string kVit =
    "rehearse: 1\nname: n\nmodel: {family: vit, layers: 4, hidden: 96, heads: 12, image: {channels: 3, size: 32}, "
    "patch: 8, classes: 10}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\ntraining: {global_batch: 16, precision: fp32}\n";

const std::string kCustom =
    "rehearse: 1\nname: n\nmodel: {family: custom, features: 8, layer_list: [{layer: linear, width: 10}]}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\ntraining: {global_batch: 16, precision: fp32}\n";

const std::string kLlama =
    "rehearse: 1\nname: n\nmodel: {family: llama, layers: 12, hidden: 96, heads: 12, ffn_hidden: 256, vocab: 1000, "
    "max_seq_len: 128, sliding_window: 64}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\ntraining: {global_batch: 16, precision: fp32}\n";

TEST(PerformedKeys, HaveEveryKeyOfModelPlanAndTraining) {
  const std::map<std::string, std::string> gpt = of(kGpt), cnn = of(kCnn), moe = of(kMoe), bert = of(kBert),
                                           vit = of(kVit), custom = of(kCustom), t5 = of(kT5), llama = of(kLlama);
  // Of image and convolutions the whole is compared; embedding_as_layer is in layers_per_stage; of the
  // others there is one value yet, or (routing_file) they are of simulations alone.
  const std::set<std::string_view> others = {"plan.embedding_as_layer", "plan.expert_tensor", "model.hf",
                                             "model.routing_file"};
  for (const Key& key : keys()) {
    const bool counts = key.section() == "model" || key.section() == "plan" || key.section() == "training";
    if (!counts || !key.available() || key.path == "model.name" || key.path == "model.preset") continue;
    if (others.contains(key.path) || key.path.starts_with("model.image.") || key.path.find("[]") < key.path.size())
      continue;
    const std::string path(key.path);
    EXPECT_TRUE(gpt.contains(path) || cnn.contains(path) || moe.contains(path) || bert.contains(path) ||
                vit.contains(path) || custom.contains(path) || t5.contains(path) || llama.contains(path))
        << path << " is missing in performed_keys.cpp";
  }
}

TEST(PerformedKeys, OfLlamasChangeWithTheirKeys) {
  for (const std::string change :
       {"scaled_embeddings=true", "zero_centered_norms=true", "post_norms=true", "qk_norm=true", "attention_softcap=50",
        "logit_softcap=30", "query_scale=4", "rope_base=500000", "rope_base_local=100", "rope_scaling=linear",
        "rope_factor=2", "rope_low_freq_factor=2", "rope_high_freq_factor=8", "rope_trained_len=4096"}) {
    const std::string key = "model." + change.substr(0, change.find('='));
    std::vector<std::string> changes = {"model." + change};
    if (key != "model.rope_scaling") changes.push_back("model.rope_scaling=llama3");
    EXPECT_NE(of(kLlama, changes).at(key), of(kLlama).at(key)) << change;
  }
}

TEST(PerformedKeys, ChangeWithTheirKeys) {
  for (const std::string change : {"model.layers=24",
                                   "model.hidden=192",
                                   "model.kv_heads=6",
                                   "model.ffn_hidden=512",
                                   "model.vocab=1002",
                                   "model.max_seq_len=256",
                                   "model.activation=relu",
                                   "model.norm=rmsnorm",
                                   "model.position=rope",
                                   "model.tied_embeddings=false",
                                   "model.bias=false",
                                   "model.qkv_bias=true",
                                   "model.norm_bias=true",
                                   "model.parallel_block=one_norm",
                                   "model.position_rows=130",
                                   "model.sliding_window=128",
                                   "model.attention=unfused",
                                   "model.dropout=0.25",
                                   "cluster.gpus=16",
                                   "cluster.threads_per_rank=3",
                                   "framework=megatron-2021",
                                   "plan.tensor=4",
                                   "plan.pipeline=4",
                                   "plan.schedule=gpipe",
                                   "plan.schedule=zero_bubble",
                                   "plan.layers_per_stage=[5, 7]",
                                   "plan.micro_batch=2",
                                   "plan.zero=1",
                                   "plan.bucket=1MiB",
                                   "plan.overlap_grad_reduce=false",
                                   "plan.overlap_param_gather=false",
                                   "plan.overlap_tensor_backward=false",
                                   "plan.fused_weight_gradient=false",
                                   "plan.fused_epilogues=gelu",
                                   "plan.reuse_distance=1000",
                                   "plan.sequence_parallel=true",
                                   "plan.recompute=full",
                                   "plan.recompute_layers=2",
                                   "plan.recompute_every=2",
                                   "plan.context=2",
                                   "plan.rank_order=[pipeline, tensor, context, expert, data]",
                                   "training.global_batch=32",
                                   "training.seq_len=32",
                                   "training.precision=bf16",
                                   "training.grad_dtype=fp16",
                                   "training.reduce_dtype=fp16",
                                   "training.optimizer=sgd",
                                   "training.moments=bf16",
                                   "training.lora_rank=4",
                                   "training.lr=0.125",
                                   "training.lr_schedule=cosine",
                                   "training.warmup_steps=9",
                                   "training.betas=[0.5, 0.25]",
                                   "training.eps=0.5",
                                   "training.weight_decay=0.5",
                                   "training.clip=0.5",
                                   "training.loss_scale=8",
                                   "training.loss_scale_interval=9",
                                   "training.base_batch=128",
                                   "training.first_weights=broadcast",
                                   "training.seed=99"}) {
    const std::string key = change.substr(0, change.find('='));
    EXPECT_NE(of(kGpt, {change}).at(key), of(kGpt, {"framework=rehearse"}).at(key)) << change;
  }
  EXPECT_NE(of(kGpt, {"training.precision=bf16", "training.ignored_token=3"}).at("training.ignored_token"),
            of(kGpt).at("training.ignored_token"));
  for (const std::string change : {"training.lora_alpha=9", "training.lora_targets=[mlp]"}) {
    const std::string key = change.substr(0, change.find('='));
    EXPECT_NE(of(kGpt, {"training.lora_rank=4", change}).at(key), of(kGpt, {"training.lora_rank=4"}).at(key)) << change;
  }
  EXPECT_NE(of(kGpt, {"plan.zero=1", "plan.zero_group=2", "cluster.gpus=16"}).at("plan.zero_group"),
            of(kGpt).at("plan.zero_group"));
  EXPECT_NE(of(kGpt, {"plan.context=2", "plan.context_kind=all_gather"}).at("plan.context_kind"),
            of(kGpt, {"plan.context=2"}).at("plan.context_kind"));
  EXPECT_NE(of(kGpt, {"model.sliding_window=32", "model.full_attention_every=2"}).at("model.full_attention_every"),
            of(kGpt, {"model.sliding_window=32"}).at("model.full_attention_every"));
  for (const std::string change :
       {"model.experts=16", "model.experts_per_token=3", "model.expert_ffn_hidden=32", "model.shared_experts=1",
        "model.shared_ffn_hidden=32", "model.dense_layers=1", "model.router=sigmoid", "model.aux_loss=0.5",
        "model.capacity_factor=2", "model.routing=zipf", "model.routing_exponent=2", "model.buffer_factor=2",
        "plan.expert=4"}) {
    const std::string key = change.substr(0, change.find('='));
    EXPECT_NE(of(kMoe, {change}).at(key), of(kMoe).at(key)) << change;
  }
  const std::string latent = std::string(kMoe).insert(
      kMoe.find("ffn_hidden"),
      "kv_lora_rank: 16, q_lora_rank: 24, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 8, ");
  for (const std::string change : {"model.kv_lora_rank=32", "model.q_lora_rank=0", "model.qk_nope_head_dim=16",
                                   "model.qk_rope_head_dim=2", "model.v_head_dim=4", "plan.recompute_latent=true"}) {
    const std::string key = change.substr(0, change.find('='));
    EXPECT_NE(of(latent, {change}).at(key), of(latent).at(key)) << change;
  }
  for (const std::string change :
       {"model.widths=[20]", "model.image={channels: 1, size: 32}", "model.convolutions=[{channels: 8, kernel: 5}]"}) {
    const std::string key = change.substr(0, change.find('='));
    EXPECT_NE(of(kCnn, {change}).at(key), of(kCnn).at(key)) << change;
  }
}

// What examples cost to load is simulated, and how many epochs there are is said of a result; neither is performed.
TEST(PerformedKeys, HaveNoneOfSectionData) {
  EXPECT_EQ(of(kGpt, {"data.samples=1000", "data.drop_last=false", "data.workers=4", "data.sample_time=1ms"}),
            of(kGpt));
}

TEST(PerformedKeys, AreThoseOfTheValueNotOfItsSpelling) {
  EXPECT_EQ(of(kGpt, {"training.lr=1e-3"}), of(kGpt, {"training.lr=0.001"}));
  EXPECT_EQ(of(kGpt, {"name=other", "cluster.topology=dgx-h100", "noise.kernels=0.5"}), of(kGpt));
}

}  // namespace
}  // namespace rehearse::plan
