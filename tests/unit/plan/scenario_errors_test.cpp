// Scenario files that are wrong: every problem at once, at its place, with the rule, the numbers and what would work.
#include <fmt/format.h>

#include <algorithm>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

std::string small(const std::string& rest) {
  return "rehearse: 1\n" + kSmallModel + rest;
}

TEST(ScenarioErrors, AllProblemsAreReportedAtOnceWithTheirPlaces) {
  const Texts found = problems(small(R"(cluster: {gpus: 10}
plan:
  tensor: 3
  pipeline: 2
  micro_batch: 0
  bucket: 25
  recompute: some
  tensr: 4
training: {global_batch: 7, seq_len: 256, clip: -1}
frmework: rehearse
)"));
  ASSERT_EQ(found.size(), 9U) << testing::PrintToString(found);
  EXPECT_EQ(
      found[0],
      "3:17 cluster.gpus: gpus = 10 is not divisible by tensor * pipeline = 3 * 2 = 6; nearest gpus that are: 6 or "
      "12");
  EXPECT_EQ(
      found[1],
      "5:11 plan.tensor: kv_heads = 4 is not divisible by tensor = 3; nearest tensor sizes that divide heads = 12, "
      "kv_heads = 4 and ffn_hidden = 384: 2 or 4");
  EXPECT_TRUE(found[2].starts_with("7:16 plan.micro_batch: 0 is out of range")) << found[2];
  EXPECT_TRUE(found[3].starts_with("8:11 plan.bucket: ")) << found[3];
  EXPECT_TRUE(found[4].starts_with("9:14 plan.recompute: expected one of none, selective, full, ops")) << found[4];
  EXPECT_EQ(found[5], "10:3 plan.tensr: unknown key (did you mean 'tensor'?)");
  EXPECT_TRUE(found[6].starts_with("11:38 training.seq_len: seq_len = 256 is above max_seq_len = 128")) << found[6];
  EXPECT_TRUE(found[7].starts_with("11:49 training.clip: -1 is out of range")) << found[7];
  EXPECT_EQ(found[8], "12:1 frmework: unknown key (did you mean 'framework'?)");
}

TEST(ScenarioErrors, DataKeysThatNeedOneAnother) {
  const Texts found = problems(small(R"(data: {epochs: 3, sample_bytes: 110kB, workers: -1}
training: {base_lr: 0.1}
)"));
  ASSERT_EQ(found.size(), 4U) << testing::PrintToString(found);
  EXPECT_EQ(found[0], "3:16 data.epochs: needs samples, the examples of an epoch (samples: 50000)");
  EXPECT_EQ(found[1],
            "3:33 data.sample_bytes: needs storage_bandwidth, the rate at which samples are read (storage_bandwidth: "
            "2GB/s)");
  EXPECT_TRUE(found[2].starts_with("3:49 data.workers: -1 is out of range")) << found[2];
  EXPECT_EQ(found[3], "4:21 training.base_lr: needs base_batch, the batch that it went with (base_batch: 256)");
  EXPECT_EQ(problems(small("data: {storage_bandwidth: 2GB/s}\n")),
            (Texts{"3:27 data.storage_bandwidth: needs sample_bytes, the size of a stored sample (sample_bytes: "
                   "110kB)"}));
  EXPECT_EQ(problems(small("data: {sample_bytes: 1kB, storage_bandwidth: 0}\n")),
            (Texts{"3:46 data.storage_bandwidth: expected a bandwidth above zero (storage_bandwidth: 2GB/s)"}));
  EXPECT_TRUE(problems(small("data: {sample_bytes: 1kB, storage_bandwidth: 5}\n"))[0].find("needs its unit") !=
              std::string::npos);
}

TEST(ScenarioErrors, OneMistakeGivesOneMessage) {
  EXPECT_EQ(problems(small("cluster: {gpus: 8}\nplan: {tenso: 8}\ntraining: {global_batch: 1}\n")),
            (Texts{"4:8 plan.tenso: unknown key (did you mean 'tensor'?)"}))
      << "the batch is not judged by a data parallel size that is only the typing error's";
  const Texts bad = problems(small("cluster: {gpus: 8}\nplan: {tensor: many}\ntraining: {global_batch: 1}\n"));
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_TRUE(bad[0].starts_with("4:16 plan.tensor: expected an integer")) << bad[0];
}

TEST(ScenarioErrors, VersionAndModelAreRequired) {
  const Texts found = problems("name: Nothing\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], "1:1 rehearse: required key is missing: the schema version (rehearse: 1)");
  EXPECT_TRUE(found[1].starts_with("1:1 model: required key is missing")) << found[1];
  EXPECT_EQ(problems("rehearse: 2\n" + kSmallModel),
            (Texts{"1:11 rehearse: schema version 2 is not known: this program reads version 1"}));
  EXPECT_EQ(problems("just text\n").size(), 1U);
  EXPECT_EQ(problems("- a\n- list\n").size(), 1U);
}

TEST(ScenarioErrors, AnUnknownFrameworkNamesTheNearest) {
  EXPECT_EQ(
      problems(small("framework: megatron-2020\n")),
      (Texts{"3:12 framework: unknown framework 'megatron-2020'; known: auto, rehearse, megatron-2021, megatron-2022, "
             "megatron-core, megatron-deepspeed, nemo, nemo-2023, deepspeed, deepspeed-2021, torch-ddp, torch-fsdp, "
             "torch-fsdp2, "
             "torch-fsdp2-compile, torch-fsdp2-compile-2024, llm-foundry, llm-foundry-torch1, nanotron, accelerate, "
             "nvidia-bert, mxnet, tensorflow-xla (did you mean "
             "'megatron-2021'?)"}));
}

TEST(ScenarioErrors, WeightsInEightBitsAloneAreOfEightBitProducts) {
  const Texts bf16 = problems(small("training: {fp8_params: true}\n"));
  ASSERT_EQ(bf16.size(), 1U) << testing::PrintToString(bf16);
  EXPECT_EQ(bf16[0], "3:24 training.fp8_params: is of 8-bit products (precision: fp8, or leave fp8_params out)");
  for (const char* recipe : {"mxfp8", "blockwise"}) {
    const std::string of = std::string("training: {precision: fp8, fp8_params: true, fp8_recipe: ") + recipe + "}\n";
    EXPECT_EQ(problems(small(of + "plan: {zero: 1}\n")), Texts{}) << recipe;
    const Texts sharded = problems(small(of + "plan: {zero: 3}\n"));
    ASSERT_EQ(sharded.size(), 1U) << testing::PrintToString(sharded);
    EXPECT_NE(sharded[0].find("training.fp8_params: with scales of blocks 16 bits are gathered into the place of whole "
                              "gradients, which plan.zero = 3 does not keep"),
              std::string::npos)
        << sharded[0];
  }
  EXPECT_EQ(problems(small("training: {precision: fp8, fp8_params: true, fp8_recipe: tensorwise}\nplan: {zero: 3}\n")),
            Texts{});
}

TEST(ScenarioErrors, FourBitsAreOfBlocks) {
  EXPECT_EQ(problems(small("training: {precision: nvfp4}\n")), Texts{});
  EXPECT_EQ(problems(small("training: {precision: nvfp4, grad_dtype: bf16}\n")), Texts{});
  const Texts ends = problems(small("training: {precision: nvfp4, fp8_bf16_layers: 6}\n"));
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_NE(ends[0].find("6 blocks at either end of 12 leave none in 4 bits"), std::string::npos) << ends[0];
  const Texts held = problems(small("training: {precision: nvfp4, fp8_params: true}\n"));
  ASSERT_EQ(held.size(), 1U);
  EXPECT_NE(held[0].find("training.fp8_params: is of 8-bit products"), std::string::npos) << held[0];
}

TEST(ScenarioErrors, AdaptersHaveARankAndTargets) {
  EXPECT_EQ(problems(small("training: {lora_rank: 16}\n")), Texts{});
  EXPECT_EQ(problems(small("training: {lora_rank: 16, lora_alpha: 32, lora_targets: [mlp]}\n"), {}, Purpose::perform),
            Texts{});
  EXPECT_EQ(problems(small("training: {lora_alpha: 32}\n")),
            (Texts{"3:24 training.lora_alpha: needs lora_rank, the rank of the adapters (lora_rank: 16)"}));
  EXPECT_EQ(problems(small("training: {lora_targets: [mlp]}\n")),
            (Texts{"3:26 training.lora_targets: needs lora_rank, the rank of the adapters (lora_rank: 16)"}));
  EXPECT_EQ(problems(small("training: {lora_rank: 4, lora_targets: [mpl]}\n")),
            (Texts{"3:41 training.lora_targets[0]: unknown target 'mpl'; expected a list of one or more of [attention, "
                   "mlp, attention_qkv, attention_dense, mlp_fc1, mlp_fc2] (did you mean 'mlp'?)"}));
  for (const char* targets : {"[]", "mlp"}) {
    const Texts found = problems(small(std::string("training: {lora_rank: 4, lora_targets: ") + targets + "}\n"));
    ASSERT_EQ(found.size(), 1U) << targets;
    EXPECT_TRUE(found[0].starts_with("3:40 training.lora_targets: expected a list of one or more of [attention, mlp, "))
        << found[0];
  }
  const Texts twice = problems(small("training: {lora_rank: 4, lora_targets: [mlp, mlp]}\n"));
  ASSERT_EQ(twice.size(), 1U);
  EXPECT_NE(twice[0].find("target mlp is listed twice"), std::string::npos) << twice[0];
  EXPECT_TRUE(
      problems(small("training: {lora_rank: -1}\n")).at(0).starts_with("3:23 training.lora_rank: -1 is out of"));
}

TEST(ScenarioErrors, AdaptersAreRefusedWhereThereAreNone) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& assignments = {}) {
    const Texts found = problems(text, assignments);
    EXPECT_EQ(found.size(), 1U) << testing::PrintToString(found);
    return found.empty() ? "" : found[0].substr(found[0].find(' ') + 1);
  };
  const std::string with = "training: {lora_rank: 4}\n", at = "training.lora_rank: lora_rank = 4: ";
  const std::string family = " (lora_rank: 0, or a model of family gpt, llama or moe)";
  const std::string narrow =
      at + "products of experts and latent attention in 8 bits have no adapters beside them yet (precision: bf16)";
  EXPECT_EQ(refused("rehearse: 1\nmodel: moe-tiny\n" + with, {"training.precision=fp8"}), narrow);
  EXPECT_EQ(refused("rehearse: 1\nmodel: bert-tiny\n" + with),
            at + "blocks with their norms behind their sums have no adapters yet" + family);
  for (const char* model : {"cnn-cifar", "mlp-mnist"})
    EXPECT_EQ(refused("rehearse: 1\nmodel: " + std::string(model) + "\n" + with),
              at + "adapters are of a transformer's blocks, which this model has none of" + family);
  EXPECT_EQ(refused("rehearse: 1\nmodel: {preset: llama-tiny, kv_heads: 4, kv_lora_rank: 16, qk_nope_head_dim: 8, "
                    "qk_rope_head_dim: 4, v_head_dim: 8}\n" +
                        with,
                    {"training.precision=fp8"}),
            narrow);
  EXPECT_EQ(problems(small(with), {"training.precision=fp8"}), Texts{});
  const Texts performed = problems(small(with), {"training.precision=fp8"}, Purpose::perform);
  ASSERT_EQ(performed.size(), 1U) << testing::PrintToString(performed);
  EXPECT_NE(performed[0].find("products in 8 bits beside adapters are simulated, but not performed (precision: bf16)"),
            std::string::npos)
      << performed[0];
  EXPECT_EQ(refused(small(with), {"training.precision=fp8", "training.fp8_params=true"}),
            at + "frozen weights are held in 16 bits beside their 8-bit copies (fp8_params: false)");
  EXPECT_EQ(refused(small(with), {"training.precision=nvfp4"}),
            at + "products in 4 bits have no adapters beside them yet (precision: bf16)");
  for (const std::string schedule : {"zero_bubble", "zero_bubble_v", "dualpipe_v"})
    EXPECT_EQ(refused(small(with),
                      {"cluster.gpus=2", "plan.pipeline=2", "training.global_batch=8", "plan.schedule=" + schedule}),
              at + "schedule " + schedule +
                  " puts weight gradients into a part of their own, and frozen weights have none (schedule: 1f1b)");
  EXPECT_EQ(problems(small(with), {"plan.schedule=zero_bubble"}), Texts{}) << "of one stage";
  EXPECT_EQ(refused(small(with), {"plan.recompute=ops"}),
            at + "ops recomputation knows no adapters (recompute: full, selective or none)");
  EXPECT_EQ(refused(small(with), {"plan.fused_epilogues=gelu"}),
            at + "a product with an epilogue has no place for what its adapter adds (fused_epilogues: none)");
}

TEST(ScenarioErrors, EightBitsAreOfBlocks) {
  EXPECT_EQ(problems(small("training: {precision: fp8}\n")), Texts{});
  EXPECT_EQ(problems(small("training: {precision: fp8, grad_dtype: bf16, reduce_dtype: bf16}\n")), Texts{});
  EXPECT_EQ(problems(small("training: {precision: fp8, grad_dtype: fp16}\n")),
            (Texts{"3:40 training.grad_dtype: fp16 with precision fp8: expected fp32 or bf16"}));
  EXPECT_EQ(
      problems(small("training: {precision: fp8, fp8_recipe: mxfp}\n")),
      (Texts{
          "3:40 training.fp8_recipe: expected one of delayed, tensorwise, blockwise, mxfp8, rowwise, found 'mxfp' (did "
          "you mean 'mxfp8'?)"}));
  const Texts ends = problems(small("training: {precision: fp8, fp8_bf16_layers: 6}\n"));
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0], "3:45 training.fp8_bf16_layers: 6 blocks at either end of 12 leave none in 8 bits");
  const Texts cnn = problems(
      "rehearse: 1\nmodel: {family: mlp, widths: [4, 2]}\ncluster: {topology: dgx-h100, gpus: 1}\n"
      "training: {precision: fp8, global_batch: 1}\n");
  ASSERT_EQ(cnn.size(), 1U) << testing::PrintToString(cnn);
  EXPECT_NE(cnn[0].find("training.precision: fp8 is of linear layers in transformer blocks"), std::string::npos);
}

TEST(ScenarioErrors, ExpertsMustDivideOverRanksThatHoldTheSame) {
  const auto spread = [](const std::string& plan, const std::string& model = "", const std::string& rest = "") {
    return problems(
        "rehearse: 1\nmodel: {family: moe, layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 128, "
        "experts: 12, experts_per_token: 2, expert_ffn_hidden: 48, capacity_factor: 1" +
        model + "}\ncluster: {topology: dgx-a100, gpus: 24}\nplan: {" + plan + "}\n" + rest);
  };
  EXPECT_EQ(spread("expert: 4, tensor: 2, zero: 1"), Texts{});
  EXPECT_EQ(spread("expert: 6, context: 2, tensor: 2, expert_tensor: 2, sequence_parallel: true"), Texts{});
  EXPECT_EQ(spread("expert: 8"),
            (Texts{"4:16 plan.expert: 12 experts do not divide by expert = 8; nearest that do: 6 or "
                   "12"}));
  EXPECT_EQ(spread("expert: 3, pipeline: 4, tensor: 3"),
            (Texts{"4:16 plan.expert: expert = 3 does not divide the 2 ranks that experts may be spread over (data = "
                   "2); nearest that do: 2"}));
  EXPECT_EQ(
      spread("expert: 3, context: 2"),
      (Texts{"4:16 plan.expert: expert = 3 is not a multiple of context = 2: the ranks of a sequence come first"}));
  EXPECT_EQ(spread("expert: 4, tensor: 2, expert_tensor: 1, sequence_parallel: true"), Texts{});
  EXPECT_EQ(spread("expert: 4, tensor: 2, expert_tensor: 1").size(), 1U) << "each rank has tokens of its own";
  EXPECT_EQ(spread("expert: 4, tensor: 4, expert_tensor: 2").size(), 1U);
  EXPECT_EQ(
      spread("expert: 3, tensor: 2, expert_tensor: 1, sequence_parallel: true"),
      (Texts{"4:16 plan.expert: expert = 3 is not a multiple of tensor = 2: the ranks of a tensor group come first"}));
  EXPECT_EQ(spread("expert: 2, zero: 1, zero_group: 4"), Texts{});
  EXPECT_EQ(
      spread("expert: 4, zero: 1, zero_group: 6"),
      (Texts{"4:40 plan.zero_group: groups of 6 ranks: experts are spread over 4 of the ranks with the same other "
             "weights, which do not lie whole in each group (a multiple of 4)"}));
  EXPECT_EQ(spread("expert: 4, expert_dispatch: forwarding"), Texts{});
  EXPECT_EQ(spread("expert_dispatch: forwarding"),
            (Texts{"4:25 plan.expert_dispatch: experts are not spread over ranks (plan.expert above 1)"}));
  const std::string gathers = ", expert_dispatch: all_gather", dropless = "model.capacity_factor=0";
  const auto gathered = [](const std::string& plan, const std::string& set) {
    return problems(
        "rehearse: 1\nmodel: {family: moe, layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 128, "
        "experts: 12, experts_per_token: 2, expert_ffn_hidden: 48}\ncluster: {topology: dgx-a100, gpus: 24}\n"
        "plan: {" +
            plan + "}\n",
        {set});
  };
  EXPECT_EQ(gathered("expert: 4" + gathers, dropless), Texts{});
  EXPECT_EQ(gathered("zero: 1" + gathers, dropless),
            (Texts{"4:34 plan.expert_dispatch: experts are not spread over ranks (plan.expert above 1)"}));
  EXPECT_EQ(gathered("expert: 4" + gathers, "model.capacity_factor=1.25"),
            (Texts{"4:36 plan.expert_dispatch: capacity_factor = 1.25: rows that are gathered are taken by experts as "
                   "they come (model.capacity_factor: 0, or expert_dispatch: all_to_all)"}));
  EXPECT_EQ(gathered("expert: 4, overlap_expert_exchange: true" + gathers, dropless),
            (Texts{"4:67 plan.expert_dispatch: overlap_expert_exchange fills the time of all-to-alls "
                   "(expert_dispatch: all_to_all)"}));
  const std::string overlaps = ", overlap_expert_exchange: true";
  EXPECT_EQ(spread("expert: 4" + overlaps), Texts{});
  EXPECT_EQ(spread("zero: 1" + overlaps),
            (Texts{"4:42 plan.overlap_expert_exchange: experts are not spread over ranks (plan.expert above 1)"}));
  EXPECT_EQ(spread("expert: 4, zero: 3" + overlaps).size(), 1U);
  EXPECT_EQ(spread("expert: 4, recompute: full" + overlaps).size(), 1U);
  EXPECT_EQ(spread("expert: 4, pipeline: 2, schedule: interleaved, chunks: 1" + overlaps), Texts{});
  EXPECT_EQ(
      spread("expert: 4, pipeline: 2, schedule: gpipe" + overlaps),
      (Texts{"4:74 plan.overlap_expert_exchange: schedule gpipe does not alternate forward and backward (schedule: "
             "1f1b, interleaved, dualpipe_v or dualpipe)"}));
  const std::string beside = ", overlap_shared_experts: true", shared = ", shared_experts: 1";
  EXPECT_EQ(spread("expert: 4" + beside, shared), Texts{});
  EXPECT_EQ(spread("expert: 4" + beside).size(), 1U) << "no shared experts";
  EXPECT_EQ(spread("zero: 1" + beside, shared).size(), 1U) << "nothing is exchanged";
  EXPECT_EQ(spread("expert: 4" + beside + overlaps, shared).size(), 1U);
  EXPECT_EQ(spread("expert: 4", ", expert_groups: 3, groups_per_token: 2"), Texts{});
  EXPECT_EQ(problems("rehearse: 1\nmodel: {family: moe, layers: 2, hidden: 32, heads: 4, vocab: 100, max_seq_len: 32, "
                     "experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, capacity_factor: 1}\n"
                     "cluster: {topology: local, gpus: 2}\nplan: {expert: 2, expert_dispatch: forwarding}\n",
                     {}, Purpose::perform),
            (Texts{"4:36 plan.expert_dispatch: forwarding is simulated, but not performed (expert_dispatch: "
                   "all_to_all)"}));
  EXPECT_EQ(
      spread("expert: 4", ", expert_groups: 8"),
      (Texts{"2:179 model.expert_groups: 12 experts do not divide into 8 equal groups; nearest that do: 6 or 12"}));
  EXPECT_EQ(spread("expert: 4", ", expert_groups: 3, groups_per_token: 4"),
            (Texts{"2:200 model.groups_per_token: a token chooses 4 of 3 groups"}));
  EXPECT_EQ(spread("expert: 4", ", expert_groups: 12, groups_per_token: 1"),
            (Texts{"2:201 model.groups_per_token: a token is sent to 2 experts, and 1 of 12 groups have 1"}));
  EXPECT_EQ(spread("recompute: ops"), Texts{});
  EXPECT_EQ(spread("expert: 2, zero: 3, recompute: ops", "", "framework: torch-fsdp2\n"), Texts{});
  EXPECT_EQ(spread("expert: 2, recompute: ops, overlap_expert_exchange: true"),
            (Texts{"4:60 plan.overlap_expert_exchange: op by op recomputation is torchtitan's, which refuses it where "
                   "another "
                   "micro-batch fills the exchanges (recompute: selective or none)"}));
  EXPECT_EQ(spread("expert: 2", "", "framework: torch-fsdp\n"),
            (Texts{"4:16 plan.expert: framework torch-fsdp does not spread experts over ranks (leave plan.expert out, "
                   "or choose another framework)"}));
  EXPECT_EQ(spread("tensor: 8", ", ffn_hidden: 60, dense_layers: 1").size(), 2U) << "heads, and the common width 12";
  EXPECT_EQ(problems(small("cluster: {gpus: 2}\nplan: {expert: 2}\n")),
            (Texts{"4:16 plan.expert: expert = 2: this model has no experts (family: moe)"}));
}

TEST(ScenarioErrors, ExpertsPerformedOnSeveralRanksHaveACapacityOrRoom) {
  const auto dropless = [](const std::string& plan, const std::string& model = "", Purpose purpose = Purpose::perform) {
    return problems(
        "rehearse: 1\nmodel: {family: moe, layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 128, "
        "experts: 12, experts_per_token: 2, expert_ffn_hidden: 48" +
            model + "}\ncluster: {topology: dgx-a100, gpus: 8}\nframework: rehearse\nplan: {" + plan + "}\n",
        {}, purpose);
  };
  EXPECT_EQ(dropless("expert: 2", "", Purpose::simulate), Texts{});
  EXPECT_EQ(dropless("tensor: 2, zero: 1"), Texts{});
  EXPECT_EQ(dropless("tensor: 2, sequence_parallel: true"), Texts{});
  EXPECT_EQ(dropless("expert: 2"),
            (Texts{"5:16 plan.expert: expert = 2: without a capacity how many rows each rank gets is for the router to "
                   "say; what is performed needs room for them before (model.buffer_factor, as 2 for twice the even "
                   "rows, or model.capacity_factor)"}));
  EXPECT_EQ(dropless("expert: 2", ", buffer_factor: 1.5"), Texts{});
  const std::string uneven = ", routing: table, routing_table: [3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1], buffer_factor: ";
  EXPECT_EQ(dropless("expert: 2", uneven + "1.5", Purpose::simulate), Texts{});
  EXPECT_EQ(dropless("expert: 2", uneven + "1.4", Purpose::simulate),
            (Texts{"2:228 model.buffer_factor: buffer_factor = 1.4: in layer 0 the experts of one rank get 1.5 times "
                   "the even rows (a larger one, or other loads (model.routing))"}));
  EXPECT_EQ(dropless("expert: 2", uneven + "1.4"), Texts{}) << "routed as the router says";
}

TEST(ScenarioErrors, SequencesMustDivideOverAContextGroup) {
  const auto split = [](const std::string& plan, const std::string& rest = "") {
    return problems(small("cluster: {topology: dgx-a100, gpus: 12}\nplan: {" + plan + "}\n" + rest));
  };
  EXPECT_EQ(split("context: 2"), Texts{});
  EXPECT_EQ(split("context: 4, tensor: 3, context_kind: all_to_all").size(), 1U) << "heads over tensor";
  EXPECT_EQ(split("context: 3"),
            (Texts{"4:17 plan.context: seq_len = 128 does not divide into 6 equal parts (2 * context = 3); nearest "
                   "seq_len: 126 or 132"}));
  EXPECT_EQ(split("context: 4, context_kind: all_to_all, pipeline: 3"), Texts{});
  EXPECT_EQ(split("context: 6, context_kind: all_to_all", "training: {seq_len: 96}\n"),
            (Texts{"4:17 plan.context: context_kind: all_to_all gives each rank whole heads: 12 heads and 4 key-value "
                   "heads a tensor rank do not divide by context = 6 (context_kind: ring or all_gather takes any)"}));
  EXPECT_EQ(split("context: 5", "training: {seq_len: 120}\n"),
            (Texts{"3:37 cluster.gpus: gpus = 12 is not divisible by tensor * pipeline * context = 1 * 1 * 5 = 5; "
                   "nearest gpus that are: 10 or 15"}));
  EXPECT_EQ(split("context: 2", "framework: megatron-2021\n"),
            (Texts{"4:17 plan.context: framework megatron-2021 has no context parallelism (leave plan.context out, or "
                   "choose another framework)"}));
}

TEST(ScenarioErrors, RanksThatShardTogetherMustDivide) {
  const auto hybrid = [](const std::string& plan, int gpus = 16) {
    return problems(small(fmt::format("cluster: {{topology: dgx-a100, gpus: {}}}\nplan: {{{}}}\n", gpus, plan)));
  };
  EXPECT_EQ(hybrid("zero: 3, zero_group: node"), Texts{});
  EXPECT_EQ(hybrid("zero: 3, zero_group: 4"), Texts{});
  EXPECT_EQ(hybrid("zero_group: node"),
            (Texts{"4:20 plan.zero_group: with zero: 0 nothing is sharded (plan.zero 1, 2 or 3, or leave zero_group "
                   "out)"}));
  EXPECT_EQ(
      hybrid("zero: 1, zero_group: 6"),
      (Texts{"4:29 plan.zero_group: groups of 6 ranks: 16 ranks have the same weights (data), which do not divide "
             "into such groups; nearest that do: 4 or 8"}));
  EXPECT_EQ(hybrid("zero: 1, zero_group: nodes"),
            (Texts{"4:29 plan.zero_group: expected all, node, or an integer, 2 to 1,000,000, found 'nodes' (did you "
                   "mean 'node'?)"}));
  EXPECT_EQ(hybrid("zero: 1, zero_group: 1").size(), 1U);
  EXPECT_EQ(hybrid("tensor: 4, pipeline: 2, zero: 1, zero_group: node, rank_order: [tensor, pipeline, context, expert, "
                   "data]",
                   32),
            (Texts{"4:53 plan.zero_group: no two ranks with the same weights share a node of 8 devices (tensor = 4, "
                   "pipeline = 2, rank_order) (split less, or give zero_group as a number of ranks)"}));
}

TEST(ScenarioErrors, ZeroBubbleNeedsWhatItReadsLater) {
  const std::string pipeline = "cluster: {gpus: 4}\nplan: {pipeline: 2, schedule: zero_bubble, ";
  EXPECT_EQ(problems(small(pipeline + "recompute: full}\n")), Texts{});
  EXPECT_EQ(
      problems(small(pipeline + "zero: 2}\n")),
      (Texts{"4:50 plan.zero: zero = 2 shards gradients after each backward, which schedule zero_bubble leaves in "
             "two parts; zero: 0 or 1"}));
  EXPECT_EQ(problems(small(pipeline + "zero: 1}\n")), Texts{});
}

TEST(ScenarioErrors, DualPipeVHasTwoChunksAndFillsThePipelineFromBothEnds) {
  const auto pipeline = [](const std::string& more, const std::string& batch = "4") {
    return problems(small("cluster: {gpus: 2}\nplan: {pipeline: 2, schedule: dualpipe_v" + more +
                          "}\ntraining: {global_batch: " + batch + "}\n"));
  };
  EXPECT_EQ(pipeline(""), Texts{});
  EXPECT_EQ(pipeline(", chunks: 2, zero: 1"), Texts{});
  EXPECT_EQ(pipeline(", chunks: 3"), (Texts{"4:51 plan.chunks: chunks = 3: schedule dualpipe_v has 2 a stage (chunks: "
                                            "2, or leave it out)"}));
  EXPECT_EQ(pipeline("", "3"),
            (Texts{"5:26 training.global_batch: schedule dualpipe_v needs 2 * pipeline = 4 micro-batches at least, but "
                   "there are 3 (global_batch / (data * micro_batch))"}));
  EXPECT_EQ(pipeline(", recompute: ops"), Texts{});
}

TEST(ScenarioErrors, NoiseNamesRanksAndLinksThatCanBe) {
  EXPECT_EQ(problems(small("cluster: {gpus: 2}\nnoise: {slow_ranks: [{ranks: [1, 2], factor: 1.2}]}\n")),
            Texts{"4:34 noise.slow_ranks[0].ranks[1]: there is no rank 2: cluster.gpus = 2, ranks are 0 to 1"});
  EXPECT_EQ(problems(small("noise: {slow_ranks: [{factor: 1.2}]}\n")),
            Texts{"3:22 noise.slow_ranks[0]: names no ranks: needs ranks, share or both (e.g. '{ranks: [3], "
                  "factor: 1.2}')"});
  EXPECT_EQ(problems(small("noise: {links: [{resources: 'nic*', capacity: 0.5, duty: 0.5}]}\n")),
            Texts{"3:58 noise.links[0].duty: is a share of period, which is not given (period: 100ms)"});
  EXPECT_EQ(problems(small("noise: {links: [{resources: 'nic*', capacity: 0.5, period: 1ns}]}\n")),
            Texts{"3:60 noise.links[0].period: is out of range: a period is at least 1 us"});
  EXPECT_EQ(problems(small("noise: {kernels: 0.6, jitter: 1}\n")).size(), 2U);
  EXPECT_EQ(problems(small("noise: {rank_step: {uniform: [1.2, 0.8]}}\n")),
            Texts{"3:30 noise.rank_step.uniform: the least factor, 1.2, is above the largest, 0.8 (uniform: [0.8, "
                  "1.2])"});
  EXPECT_EQ(problems(small("noise: {rank_step: {uniform: 0.2}}\n")),
            Texts{"3:30 noise.rank_step.uniform: expected a list of two factors, the least and the largest (e.g. "
                  "'uniform: [0.8, 1.2]')"});
  EXPECT_EQ(problems(small("noise: {rank_step: {uniform: [0, 1.2]}}\n")),
            Texts{"3:31 noise.rank_step.uniform[0]: expected a factor, a number from 0.001 to 1000"});
  EXPECT_EQ(problems(small("noise: {rank_step: {}}\n")),
            Texts{"3:20 noise.rank_step: required key uniform is missing (e.g. 'rank_step: {uniform: [0.8, 1.2]}')"});
}

TEST(ScenarioErrors, InterleavingNeedsItsScheduleAndWholeGroupsOfMicroBatches) {
  EXPECT_EQ(problems(small("plan: {pipeline: 2, chunks: 2}\ncluster: {gpus: 2}\n")),
            Texts{"3:29 plan.chunks: chunks = 2: several model chunks a stage need schedule: interleaved"});
  EXPECT_EQ(
      problems(small("plan: {pipeline: 2, chunks: 2, schedule: interleaved}\ncluster: {gpus: 2}\n"
                     "training: {global_batch: 5}\n")),
      Texts{"5:26 training.global_batch: schedule interleaved needs a number of micro-batches divisible by pipeline = "
            "2, but there are 5 (global_batch / (data * micro_batch)); nearest: 4 or 6"});
  EXPECT_EQ(
      problems(small("plan: {pipeline: 2, chunks: 7, schedule: interleaved}\ncluster: {gpus: 2}\n"
                     "training: {global_batch: 4}\n")),
      Texts{"3:18 plan.pipeline: pipeline = 2 stages of 7 chunks need at least one layer each, but the model has 12 "
            "layers; nearest pipeline that works: 1"});
}

TEST(ScenarioErrors, LaterKeysAreAcceptedAtTheirDefault) {
  EXPECT_EQ(problems(small("plan: {context: 1, context_kind: ring, expert: 1, expert_tensor: 1, chunks: 1, "
                           "embedding_as_layer: false, zero_group: all}\nnoise: {}\n")),
            Texts{});
}

TEST(ScenarioErrors, EmbeddingAndHeadCountAsLayersWhereTheseDivide) {
  const auto found = [](const std::string& plan) {
    return problems(
        small("plan: {embedding_as_layer: true, " + plan + "}\ncluster: {gpus: 2}\ntraining: {global_batch: 4}\n"));
  };
  EXPECT_EQ(found("pipeline: 2"), Texts{});
  EXPECT_EQ(found("pipeline: 1"), Texts{}) << "one stage";
  EXPECT_EQ(
      found("pipeline: 2, layers_per_stage: [6, 6]"),
      (Texts{"3:28 plan.embedding_as_layer: layers_per_stage says how many layers each stage has (only one of the "
             "two)"}));
  EXPECT_EQ(found("pipeline: 2, chunks: 4, schedule: interleaved"),
            (Texts{"3:28 plan.embedding_as_layer: 12 layers, embedding and head do not divide by 2 stages of 4 chunks; "
                   "nearest layers: 14 (layers_per_stage as a list)"}));
  EXPECT_EQ(
      problems("rehearse: 1\nmodel: mlp-mnist\nplan: {embedding_as_layer: true, pipeline: 2}\ncluster: {gpus: 2}\n"
               "training: {global_batch: 4}\n"),
      (Texts{"3:28 plan.embedding_as_layer: this model has no embedding (leave it out)"}));
}

TEST(ScenarioErrors, TensorDividesHeadsAndFeedForward) {
  const Texts five = problems(small("cluster: {gpus: 5}\nplan: {tensor: 5}\n"));
  ASSERT_EQ(five.size(), 3U) << testing::PrintToString(five);
  EXPECT_EQ(five[0],
            "4:16 plan.tensor: heads = 12 is not divisible by tensor = 5; nearest tensor sizes that divide heads = 12, "
            "kv_heads = 4 and ffn_hidden = 384: 4");
  EXPECT_TRUE(five[1].starts_with("4:16 plan.tensor: kv_heads = 4 is smaller than tensor = 5")) << five[1];
  EXPECT_TRUE(five[2].starts_with("4:16 plan.tensor: ffn_hidden = 384 is not divisible by tensor = 5")) << five[2];
  const Texts six = problems(small("cluster: {gpus: 6}\nplan: {tensor: 6}\n"));
  ASSERT_EQ(six.size(), 1U);
  EXPECT_TRUE(six[0].starts_with("4:16 plan.tensor: kv_heads = 4 is smaller than tensor = 6")) << six[0];
}

TEST(ScenarioErrors, TheBatchRuleNamesItsNumbersAndTheNearestBatches) {
  EXPECT_EQ(
      problems(small("cluster: {gpus: 4}\nplan: {micro_batch: 2}\ntraining: {global_batch: 20}\n")),
      (Texts{"5:26 training.global_batch: global_batch = 20 is not divisible by data * micro_batch = 4 * 2 = 8 (data "
             "= gpus / (tensor * pipeline)); nearest global_batch that is: 16 or 24"}));
}

TEST(ScenarioErrors, EveryStageNeedsALayer) {
  EXPECT_EQ(
      problems(small("cluster: {gpus: 16}\nplan: {pipeline: 16}\n")),
      (Texts{"4:18 plan.pipeline: pipeline = 16 stages need at least one layer each, but the model has 12 layers; "
             "nearest pipeline that works: 12"}));
  const Texts list = problems(small("cluster: {gpus: 2}\nplan: {pipeline: 2, layers_per_stage: [4, 4, 5]}\n"));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0], "4:39 plan.layers_per_stage: 3 stages are listed, but pipeline = 2");
  EXPECT_EQ(list[1], "4:39 plan.layers_per_stage: the stages add up to 13, but the model has 12 layers");
  const Texts zero = problems(small("cluster: {gpus: 2}\nplan: {pipeline: 2, layers_per_stage: [12, 0]}\n"));
  ASSERT_EQ(zero.size(), 1U) << testing::PrintToString(zero);
  EXPECT_EQ(zero[0],
            "4:44 plan.layers_per_stage[1]: a stage without layers: only the first and the last may have none, with "
            "model.mtp_depth");
}

TEST(ScenarioErrors, SequenceParallelNeedsADivisibleSequence) {
  EXPECT_EQ(
      problems(small("cluster: {gpus: 4}\nplan: {tensor: 4, sequence_parallel: true}\ntraining: {seq_len: 126}\n")),
      (Texts{"4:38 plan.sequence_parallel: sequence_parallel needs seq_len = 126 divisible by tensor = 4; nearest "
             "seq_len: 124 or 128"}));
}

TEST(ScenarioErrors, RankOrderIsAPermutation) {
  const std::string expected = "expected a permutation of [tensor, context, expert, data, pipeline]",
                    more = " (rehearse explain plan.rank_order)";
  EXPECT_EQ(problems(small("plan: {rank_order: [tensor, data]}\n")),
            (Texts{"3:20 plan.rank_order: not listed: context, expert, pipeline; " + expected + more}));
  EXPECT_EQ(problems(small("plan: {rank_order: [tensor, data, tensor, pipelin, context]}\n")),
            (Texts{"3:35 plan.rank_order[2]: axis tensor is listed twice; " + expected + more,
                   "3:43 plan.rank_order[3]: unknown axis 'pipelin'; " + expected + " (did you mean 'pipeline'?)"}));
}

TEST(ScenarioErrors, GradientsAreFp32OrThePrecision) {
  EXPECT_EQ(problems(small("training: {precision: bf16, grad_dtype: fp16}\n")),
            (Texts{"3:41 training.grad_dtype: fp16 with precision bf16: expected fp32 or bf16"}));
  EXPECT_EQ(problems(small("training: {precision: fp32, reduce_dtype: bf16}\n")),
            (Texts{"3:43 training.reduce_dtype: bf16 with precision fp32: expected fp32"}));
}

TEST(ScenarioErrors, ModelsWithoutAttentionAreNotSplitOverTensor) {
  const Texts found = problems(
      "rehearse: 1\nmodel: {family: mlp, widths: [784, 256, 10]}\n"
      "cluster: {gpus: 2}\nplan: {tensor: 2, recompute: selective}\ntraining: {seq_len: 4}\n");
  ASSERT_EQ(found.size(), 3U) << testing::PrintToString(found);
  EXPECT_TRUE(found[0].starts_with("4:16 plan.tensor: tensor = 2: only transformers are split")) << found[0];
  EXPECT_TRUE(found[1].starts_with("4:30 plan.recompute: selective recomputation is of attention")) << found[1];
  EXPECT_TRUE(found[2].starts_with("5:21 training.seq_len: seq_len = 4: this model reads no sequences")) << found[2];
}

TEST(ScenarioErrors, AbsurdNumbersAreErrorsNotOverflows) {
  const std::string huge = "1000000000000000000";
  const Texts found =
      problems(small("cluster: {gpus: " + huge + "}\nplan: {tensor: " + huge + ", pipeline: " + huge +
                     ", micro_batch: " + huge + "}\ntraining: {global_batch: " + huge + ", seq_len: " + huge + "}\n"));
  EXPECT_EQ(found.size(), 6U) << testing::PrintToString(found);
  const Texts beyond = problems(small("cluster: {gpus: 1000000}\nplan: {tensor: 1000000, pipeline: 1000000}\n"));
  ASSERT_FALSE(beyond.empty());
  EXPECT_NE(beyond[0].find("1000000 * 1000000 = 1000000000000"), std::string::npos) << beyond[0];
  EXPECT_EQ(problems(small("training: {global_batch: 1000000000}\n")).size(), 1U) << "a billion micro-batches";
  EXPECT_EQ(problems(small("model: {family: llama, layers: 12, hidden: 96, heads: 12, kv_heads: 4, ffn_hidden: 384, "
                           "vocab: 1000, max_seq_len: 128}\n")
                         .substr(12 + kSmallModel.size())
                         .insert(0, "rehearse: 1\n") +
                     "plan: {micro_batch: 1000000}\ntraining: {seq_len: 1000000000}\n")
                .size(),
            1U)
      << "10^15 tokens in a micro-batch";
}

TEST(ScenarioErrors, OverridesHoldValuesOnly) {
  EXPECT_EQ(problems(small("cluster: {overrides: {nic: {rails: [1, 2]}}}\n")), Texts{}) << "the topology's to judge";
  EXPECT_EQ(
      problems(small("cluster: {overrides: 100Gbps}\n")),
      (Texts{"3:22 cluster.overrides: expected a mapping of topology keys to values, for example {nic: {bandwidth: "
             "100Gbps}}"}));
}

TEST(ScenarioErrors, ProblemsOfAssignmentsNameTheCommandLine) {
  EXPECT_EQ(problems(small(""), {"plan.zero=4"}).size(), 1U);
  const Texts found = problems(small(""), {"plan.tensr=4"});
  EXPECT_EQ(found, (Texts{"--set plan.tensr: unknown key (did you mean 'tensor'?)"}));
}

TEST(ScenarioErrors, ASectionOfTheWrongKindIsReportedOnce) {
  const Texts found = problems(small("plan: 7\ncluster: [1]\n"));
  EXPECT_EQ(found.size(), 2U) << testing::PrintToString(found);
}

TEST(ScenarioErrors, WhatTheClusterOrTheCostsRefuseIsLocatedAtItsKey) {
  const Scenario scenario = read(small("cluster: {topology: dgx-a100, overrides: {nic.bandwidth: 1Gbps}}\n"
                                       "costs: {calibration: [a100]}\n"),
                                 {"cluster.gpus=2"});
  const auto place = [&](const std::string& path) {
    const Diagnostic d = located(InputError(Diagnostic{"", 0, 0, path, "", ""}), scenario).diagnostics().front();
    return d.file == "--set" ? d.file : std::to_string(d.line) + ":" + std::to_string(d.column);
  };
  EXPECT_EQ(place("cluster.topology"), "3:21");
  EXPECT_EQ(place("cluster.overrides.nic.bandwidth"), "3:58") << "a dotted key";
  EXPECT_EQ(place("cluster.overrides.nic.count"), "3:42") << "what is not given has the place of what holds it";
  EXPECT_EQ(place("costs.calibration"), "4:22");
  EXPECT_EQ(place("cluster.gpus"), "--set");
}

TEST(ScenarioErrors, AStepThatNoDeviceFinishesIsRefused) {
  const Texts found =
      problems(small("plan: {micro_batch: 1000000}\ntraining: {seq_len: 1000000}\n"), {"model.max_seq_len=1000000"});
  ASSERT_EQ(found.size(), 1U) << testing::PrintToString(found);
  EXPECT_NE(found[0].find("3:21 plan.micro_batch: a step takes"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find("at most 1e+19"), std::string::npos) << found[0];
}

}  // namespace
}  // namespace rehearse::plan
