// What a file leaves to its program: the program's own default, said as assumed, or worked out of what is there.
#include <gtest/gtest.h>

#include <algorithm>

#include "launch/launch.h"
#include "sim/model/model.h"
#include "sim/plan/scenario.h"
#include "tests/unit/launch/written.h"

namespace rehearse::launch {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

plan::Scenario read(const std::string& text) {
  const Written scenario("defaults.yaml", text);
  return plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR);
}

TEST(Defaults, DeepSpeedsPrecisionMayBeOpen) {
  struct Case {
    const char *file, *precision, *assumed;
  };
  for (const Case& c :
       {Case{R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}})", "precision: bf16",
             "bf16, since bf16.enabled and fp16.enabled are auto"},
        Case{R"({"fp16": {"enabled": false}, "bf16": {"enabled": "auto"}})", "precision: bf16",
             "bf16, since bf16.enabled is auto"},
        Case{R"({"fp16": {"enabled": "auto"}})", "precision: fp16", "fp16, since fp16.enabled is auto"},
        Case{R"({"fp16": {"enabled": true}, "bf16": {"enabled": "auto"}})", "precision: fp16", ""},
        Case{R"({"fp16": {"enabled": false}})", "precision: fp32", "fp32, since neither bf16 nor fp16 is enabled"}}) {
    const Imported imported = import_plan("ds.json", c.file, {});
    EXPECT_NE(imported.scenario.find(c.precision), std::string::npos) << imported.scenario;
    const std::string assumed = joined(imported.report.assumed);
    EXPECT_NE(assumed.find(c.assumed), std::string::npos) << assumed;
    EXPECT_TRUE(*c.assumed != 0 || assumed.find("16") == std::string::npos) << assumed;
  }
}

TEST(Defaults, DeepSpeedsMicroBatchFollows) {
  const std::string file = R"({"train_batch_size": 64, "gradient_accumulation_steps": 4, "bf16": {"enabled": true}})";
  const Imported alone = import_plan("ds.json", file, {});
  EXPECT_NE(alone.scenario.find("micro_batch: 16\n"), std::string::npos) << alone.scenario;
  EXPECT_NE(joined(alone.report.used).find("gradient_accumulation_steps 4: plan.micro_batch 16"), std::string::npos);
  EXPECT_NE(import_plan("ds.json", file, {"", "", 8}).scenario.find("micro_batch: 2\n"), std::string::npos);
  // Without accumulation a rank takes its part at once.
  EXPECT_NE(import_plan("ds.json", R"({"train_batch_size": 64})", {"", "", 16}).scenario.find("micro_batch: 4\n"),
            std::string::npos);
  EXPECT_THROW(import_plan("ds.json", file, {"", "", 3}), InputError);
}

const std::string kShape =
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 256 --num-attention-heads 4 "
    "--seq-length 64 --vocab-size 1000 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 8 ";

TEST(Defaults, MegatronsAreItsOwn) {
  const Imported bare = import_plan("x.sh", kShape + "--fp16\n", {});
  const plan::Training t = read(bare.scenario).training;
  EXPECT_EQ(t.beta1, 0.9);
  EXPECT_EQ(t.beta2, 0.999);
  EXPECT_EQ(t.weight_decay, 0.01);
  EXPECT_EQ(t.seed, 1234U);
  EXPECT_EQ(t.loss_scale, 4294967296.0);
  EXPECT_EQ(t.loss_scale_interval, 1000);
  const std::string assumed = joined(bare.report.assumed);
  for (const char* flag : {"--adam-beta2 0.999", "--weight-decay 0.01", "--seed 1234", "--lr-decay-style linear"})
    EXPECT_NE(assumed.find(flag), std::string::npos) << flag << "\n" << assumed;
  const Imported given = import_plan("x.sh",
                                     kShape +
                                         "--bf16 --adam-beta1 0.8 --adam-beta2 0.95 --weight-decay 0.1 --seed 3 "
                                         "--lr-decay-style cosine\n",
                                     {});
  EXPECT_EQ(read(given.scenario).training.beta2, 0.95);
  EXPECT_EQ(joined(given.report.assumed).find("Megatron-LM's default"), std::string::npos);
  const plan::Training sgd = read(import_plan("x.sh", kShape + "--bf16 --optimizer sgd\n", {}).scenario).training;
  EXPECT_EQ(sgd.momentum, 0.9);
}

// megatron/training/arguments.py: LayerNorm of Transformer Engine has a bias, whatever products have.
TEST(Defaults, MegatronsLayerNormHasABias) {
  const auto model_of = [&](const std::string& flags) {
    return read(import_plan("x.sh", kShape + flags, {}).scenario).model;
  };
  EXPECT_TRUE(model_of("--bf16 --disable-bias-linear\n").has_norm_bias());
  EXPECT_FALSE(model_of("--bf16 --disable-bias-linear --normalization RMSNorm --swiglu\n").has_norm_bias());
  for (const char* preset : {"nemotron-4-15b", "{preset: nemotron-4-15b, norm_bias: false}"}) {
    const Written file("norms.yaml", std::string("rehearse: 1\nmodel: ") + preset +
                                         "\ncluster: {topology: dgx-h100, gpus: 64}\nplan: {tensor: 8}\n");
    const plan::Scenario before = plan::read_scenario(file.path, {}, REHEARSE_SOURCE_DIR);
    const Exported exported = export_plan("megatron", before, 8);
    const model::Model after = read(import_plan("x.sh", exported.text, {}).scenario).model;
    const bool said = std::any_of(exported.left_out.begin(), exported.left_out.end(),
                                  [](const LeftOut& one) { return one.key == "model.norm_bias"; });
    EXPECT_EQ(said, !before.model.has_norm_bias()) << preset;
    EXPECT_TRUE(said || model::parameter_count(after) == model::parameter_count(before.model)) << preset;
  }
}

TEST(Defaults, MegatronsVirtualStagesAreCountedWithTheEnds) {
  const Imported one =
      import_plan("x.sh", kShape + "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 8\n", {});
  EXPECT_NE(joined(one.report.used).find("--num-layers-per-virtual-pipeline-stage 8: plan.chunks 1"),
            std::string::npos);
  EXPECT_EQ(read(one.scenario).plan.chunks, 1);
  std::string thirty = kShape;
  thirty.replace(thirty.find("--num-layers 32"), 15, "--num-layers 30");
  const Imported ends = import_plan("x.sh",
                                    thirty +
                                        "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 "
                                        "--account-for-embedding-in-pipeline-split "
                                        "--account-for-loss-in-pipeline-split\n",
                                    {});
  EXPECT_EQ(read(ends.scenario).plan.chunks, 2);
}

// Megatron-LM's FSDP refuses any other format of checkpoints, whether one is saved or not.
TEST(Defaults, MegatronsFsdpNamesItsCheckpoints) {
  const Written file("fsdp.yaml",
                     "rehearse: 1\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 16}\nplan: {tensor: 2}\n");
  for (const int zero : {0, 1, 2, 3}) {
    const plan::Scenario s = plan::read_scenario(file.path, {"plan.zero=" + std::to_string(zero)}, REHEARSE_SOURCE_DIR);
    for (const auto& [format, line] : {std::pair{"megatron", "  --ckpt-format fsdp_dtensor\n"},
                                       {"megatron-bridge", "cfg.checkpoint.ckpt_format = \"fsdp_dtensor\"\n"}})
      EXPECT_EQ(export_plan(format, s, 8).text.find(line) != std::string::npos, zero >= 2) << format << zero;
    const Imported back = import_plan("x.sh", export_plan("megatron", s, 8).text, {});
    EXPECT_EQ(joined(back.report.ignored).find("ckpt-format"), std::string::npos);
  }
}

TEST(Defaults, AcceleratesVersionIsTheFrameworks) {
  for (const auto& [framework, version, back] :
       {std::tuple{"accelerate", "fsdp_version: 1", "accelerate"}, {"torch-fsdp2", "fsdp_version: 2", "torch-fsdp2"}})
    for (const auto& [zero, group] : {std::pair{3, "all"}, {2, "all"}, {3, "node"}, {2, "node"}}) {
      const Written file("version.yaml",
                         "rehearse: 1\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 16}\nplan: {zero: 3}\n"
                         "training: {precision: bf16, reduce_dtype: bf16}\n");
      const plan::Scenario s =
          plan::read_scenario(file.path,
                              {std::string("framework=") + framework, "plan.zero=" + std::to_string(zero),
                               std::string("plan.zero_group=") + group},
                              REHEARSE_SOURCE_DIR);
      const Exported exported = export_plan("accelerate", s, 8);
      EXPECT_NE(exported.text.find(version), std::string::npos) << exported.text;
      for (const LeftOut& one : exported.left_out)
        EXPECT_TRUE(one.key != "framework" && one.key != "training.reduce_dtype" && one.key != "plan.zero_group")
            << one.key << one.why;
      const plan::Scenario after = read(import_plan("x.yaml", exported.text, {"llama3-8b", "", 0}).scenario);
      EXPECT_EQ(after.framework.name, back);
      EXPECT_EQ(after.plan.zero, zero);
      EXPECT_EQ(after.plan.replicas, s.plan.replicas);
      EXPECT_EQ(after.training.reduce_dtype, plan::Precision::bf16) << framework;
    }
}

// With stages FSDP2 reduces gradients once a step, which ZeRO-1 does; in 8 bits a model without flavor is said too.
TEST(Defaults, TorchtitansStagesReduceOnce) {
  const plan::Scenario mtp = plan::read_scenario(std::string(REHEARSE_SOURCE_DIR) + "/scenarios/mtp-small-8xh100.yaml",
                                                 {}, REHEARSE_SOURCE_DIR);
  const Exported exported = export_plan("torchtitan-toml", mtp, 8);
  for (const LeftOut& one : exported.left_out) EXPECT_NE(one.key, "plan.zero") << one.why;
  EXPECT_EQ(read(import_plan("x.toml", exported.text, {"deepseek-v2-lite", "", 0}).scenario).plan.zero, 1);
  const Imported alone = import_plan(
      "x.toml", "[parallelism]\ndata_parallel_shard_degree = 8\nfsdp_reshard_after_forward = \"never\"\n", {});
  EXPECT_NE(alone.scenario.find("zero: 2\n"), std::string::npos) << alone.scenario;
  for (const char* precision : {"bf16", "fp8"}) {
    const plan::Scenario s = plan::read_scenario(std::string(REHEARSE_SOURCE_DIR) + "/scenarios/mtp-small-8xh100.yaml",
                                                 {std::string("training.precision=") + precision}, REHEARSE_SOURCE_DIR);
    EXPECT_NE(joined(export_plan("torchtitan-toml", s, 8).notes).find("has no flavor"), std::string::npos) << precision;
  }
}

// Megatron-Core's defaults and torchtitan's end a cosine at 0, DeepSpeed warms up in a logarithm: what is exported says
// what training.lr_schedule and warmup_steps mean, and what is read another way is said.
TEST(LearningRate, EndsWhereTheFileSays) {
  const plan::Scenario s = read(
      "rehearse: 1\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 8}\n"
      "training: {global_batch: 8, seq_len: 4096, lr: 3e-4, lr_schedule: cosine, warmup_steps: 7}\n");
  for (const auto& [format, line] : {std::pair{"megatron", "--min-lr 3e-05"},
                                     {"megatron-bridge", "cfg.optimizer.min_lr = 3e-05"},
                                     {"torchtitan-toml", "min_lr_factor = 0.1"},
                                     {"torchtitan", "min_lr_factor = 0.1"},
                                     {"deepspeed", "\"warmup_type\": \"linear\""}}) {
    const Exported made = export_plan(format, s, 8);
    EXPECT_NE(made.text.find(line), std::string::npos) << format << "\n" << made.text;
    if (std::string(format) == "torchtitan" || std::string(format) == "megatron-bridge") continue;  // not read
    ImportHints hints;
    if (std::string(format) != "megatron") hints.model = "llama3-8b";
    const std::string assumed = joined(import_plan("x", made.text, hints).report.assumed);
    EXPECT_EQ(assumed.find("cosine"), std::string::npos) << assumed;
    EXPECT_EQ(assumed.find("warm-up"), std::string::npos) << assumed;
  }
  const plan::Scenario constant = read("rehearse: 1\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 8}\n");
  EXPECT_EQ(export_plan("megatron", constant, 8).text.find("min-lr"), std::string::npos);
}

TEST(LearningRate, IsSaidWhereTheFileMeansAnother) {
  const auto assumed = [](const std::string& file, const std::string& text) {
    return joined(import_plan(file, text, {}).report.assumed);
  };
  const auto megatron = [&](const std::string& arguments) {
    return assumed("x.sh", kShape + "--bf16 --lr 3e-4 --lr-decay-style " + arguments + "\n");
  };
  const std::string ends = "a cosine that ends at 0.1 of the learning rate, not at ";
  EXPECT_NE(megatron("cosine").find(ends + "0, as without --min-lr\n"), std::string::npos);
  EXPECT_NE(megatron("cosine --min-lr 1e-5").find(ends + "--min-lr 1e-05\n"), std::string::npos);
  EXPECT_EQ(megatron("cosine --min-lr 3e-5").find(ends), std::string::npos);
  EXPECT_EQ(megatron("constant").find(ends), std::string::npos);
  const auto titan = [&](const std::string& lines) {
    return assumed("x.toml", "[training]\nseq_len = 64\n[lr_scheduler]\ndecay_type = \"cosine\"\n" + lines);
  };
  EXPECT_NE(titan("").find(ends + "lr_scheduler.min_lr_factor 0, torchtitan's default\n"), std::string::npos)
      << titan("");
  EXPECT_EQ(titan("min_lr_factor = 0.1\n").find(ends), std::string::npos);
  const auto deepspeed = [&](const std::string& type, const std::string& params) {
    return assumed("x.json",
                   "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 1}, \"scheduler\": "
                   "{\"type\": \"" +
                       type + "\", \"params\": {\"warmup_num_steps\": 10" + params + "}}}");
  };
  EXPECT_NE(
      deepspeed("WarmupLR", "").find("a linear warm-up, not scheduler.params.warmup_type log, DeepSpeed's default"),
      std::string::npos)
      << deepspeed("WarmupLR", "");
  EXPECT_EQ(deepspeed("WarmupLR", ", \"warmup_type\": \"linear\"").find("warm-up"), std::string::npos);
  EXPECT_NE(deepspeed("WarmupCosineLR", "").find(ends + "scheduler.params.cos_min_ratio 0.0001, DeepSpeed's default"),
            std::string::npos);
  EXPECT_EQ(deepspeed("WarmupCosineLR", ", \"cos_min_ratio\": 0.1").find(ends), std::string::npos);
}

// A name that is a letter or two off was meant; another name that is right elsewhere was not.
TEST(Slips, AreSaidAndRightNamesAreNot) {
  const Imported imported =
      import_plan("x.sh",
                  kShape +
                      "--bf16 --num-workers 2 --lr-decay-iters 100 --train-iters 100 --tokenizer-model x "
                      "--tensor-model-paralel-size 2 --lr-warmup-itres 4 --min-lr 0\n",
                  {});
  const std::string ignored = joined(imported.report.ignored);
  for (const char* line : {"--num-workers (line 1)\n", "--lr-decay-iters (line 1)\n", "--train-iters (line 1)\n",
                           "--tokenizer-model (line 1)\n", "--min-lr (line 1)\n",
                           "--tensor-model-paralel-size (line 1); did you mean --tensor-model-parallel-size?\n",
                           "--lr-warmup-itres (line 1); did you mean --lr-warmup-iters?\n"})
    EXPECT_NE(ignored.find(line), std::string::npos) << line << ignored;
  const std::string titan =
      joined(import_plan("x.toml", "[training]\nseq_len = 64\nsteps = 10\nlocal_batch_sise = 2\n", {}).report.ignored);
  EXPECT_NE(titan.find("training.steps (line 3)\n"), std::string::npos) << titan;
  EXPECT_NE(titan.find("did you mean training.local_batch_size?"), std::string::npos) << titan;
}

TEST(Slips, StandInTheErrorThatTheyMake) {
  try {
    import_plan("x.sh", "pretrain_gpt.py --num-layers 4 --bf16 \\\n  --hiden-size 4096 --micro-batch-size 1\n", {});
    ADD_FAILURE() << "half a model";
  } catch (const InputError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("whose --hidden-size and --num-attention-heads the file does not give (is --hiden-size of line "
                        "2 meant as --hidden-size?)"),
              std::string::npos)
        << what;
  }
}

// As torchtitan's deepseek_v3_671b.toml has it.
TEST(Defaults, TorchtitansDeepSeekRecomputesOpByOp) {
  const Imported imported =
      import_plan("x.toml",
                  "[model]\nname = \"deepseek_v3\"\nflavor = \"671B\"\n[training]\nlocal_batch_size = 4\nseq_len = "
                  "4096\n[parallelism]\ndata_parallel_shard_degree = -1\n[activation_checkpoint]\nmode = "
                  "\"selective\"\nselective_ac_option = 'op'\n",
                  {"", "", 256});
  const plan::Scenario s = read(imported.scenario);
  EXPECT_EQ(s.plan.recompute, plan::Recompute::ops);
  EXPECT_TRUE(s.model.latent_attention());
}

TEST(Defaults, TorchtitansModelsAreItsFlavors) {
  const auto of = [](const std::string& flavor, const ImportHints& hints) {
    return import_plan("x.toml",
                       "[model]\nname = \"qwen3\"\nflavor = \"" + flavor +
                           "\"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n[parallelism]\n"
                           "data_parallel_shard_degree = -1\n",
                       hints);
  };
  // The batch is a rank's: of as many as are said beside the file.
  const plan::Scenario s = read(of("8B", {"", "", 64}).scenario);
  EXPECT_EQ(s.model.name, "qwen3-8b");
  EXPECT_EQ(s.training.global_batch, 256);
  try {
    of("9B", {"", "", 64});
    ADD_FAILURE() << "no such flavor";
  } catch (const InputError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("x.toml:3:"), std::string::npos) << what;
    EXPECT_NE(what.find("there is no preset of torchtitan's 'qwen3' '9B' (name the model with --model)"),
              std::string::npos)
        << what;
  }
  EXPECT_EQ(read(of("9B", {"llama3-8b", "", 64}).scenario).model.name, "llama3-8b");
}

TEST(Defaults, DeepSpeedsOptimizersAreNamed) {
  const auto of = [](const std::string& type) {
    return import_plan("ds.json",
                       R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "optimizer": {"type": ")" +
                           type + R"(", "params": {"lr": 1e-4}}})",
                       {"llama3-8b", "", 8});
  };
  const auto said = [](const std::vector<std::string>& lines, const char* part) {
    for (const std::string& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  };
  const char* const kNone = "which no key has";
  EXPECT_EQ(read(of("Muon").scenario).training.optimizer, plan::OptimizerKind::muon);
  EXPECT_EQ(read(of("DeepSpeedCPUAdam").scenario).training.optimizer, plan::OptimizerKind::adamw);
  EXPECT_FALSE(said(of("DeepSpeedCPUAdam").report.assumed, kNone));
  EXPECT_TRUE(said(of("Adamax").report.assumed, kNone));
  EXPECT_FALSE(said(of("ADAM").report.assumed, kNone));
  EXPECT_EQ(read(of("OneBitLamb").scenario).training.optimizer, plan::OptimizerKind::lamb);
  EXPECT_TRUE(said(of("OneBitAdam").report.unmodelled, "gradients in few bits"));
}

// Latent attention's rotation in one kernel is experimental in Megatron-Core; elsewhere the key is of nothing.
TEST(Defaults, MegatronsLatentRotationIsAFlag) {
  const auto exported = [&](const std::string& model, const std::vector<std::string>& more) {
    const Written file("latent.yaml", "rehearse: 1\nmodel: " + model +
                                          "\nframework: megatron-core\n"
                                          "cluster: {topology: dgx-h100, gpus: 16}\nplan: {tensor: 2}\n");
    return export_plan("megatron", plan::read_scenario(file.path, more, REHEARSE_SOURCE_DIR), 8);
  };
  const Exported fused = exported("deepseek-v2-lite", {"plan.fused_latent_rope=true"}),
                 apart = exported("deepseek-v2-lite", {}), none = exported("llama3-8b", {});
  EXPECT_NE(fused.text.find("--enable-experimental\n"), std::string::npos);
  EXPECT_NE(apart.text.find("--no-rope-fusion\n"), std::string::npos);
  EXPECT_EQ(none.text.find("--no-rope-fusion\n"), std::string::npos);
  for (const Exported* one : {&fused, &apart, &none})
    for (const LeftOut& left : one->left_out) EXPECT_NE(left.key, "plan.fused_latent_rope") << left.why;
  EXPECT_TRUE(read(import_plan("x.sh", fused.text, {}).scenario).plan.fused_latent_rope);
  EXPECT_FALSE(read(import_plan("x.sh", apart.text, {}).scenario).plan.fused_latent_rope);
  const plan::Scenario rehearse = plan::read_scenario(
      std::string(REHEARSE_SOURCE_DIR) + "/scenarios/llama2-7b-8xa100.yaml", {}, REHEARSE_SOURCE_DIR);
  for (const std::string& format : export_formats())
    for (const LeftOut& left : export_plan(format, rehearse, 8).left_out)
      EXPECT_NE(left.key, "plan.fused_latent_rope") << format;
}

// Keys of groups and shards that a plan has not are not listed; where it has them they are.
TEST(Defaults, KeysOfWhatThePlanHasNotAreNotListed) {
  const auto listed = [&](const char* format, const std::vector<std::string>& assignments) {
    const Written file("alone.yaml",
                       "rehearse: 1\nmodel: llama3-8b\nframework: deepspeed\n"
                       "cluster: {topology: dgx-h100, gpus: 8}\nplan: {overlap_grad_reduce: true}\n");
    std::string keys = " ";
    for (const LeftOut& one :
         export_plan(format, plan::read_scenario(file.path, assignments, REHEARSE_SOURCE_DIR), 8).left_out)
      keys += one.key + " ";
    return keys;
  };
  const std::string replicas = listed("accelerate", {"plan.zero=2", "plan.overlap_tensor_backward=true"}),
                    groups = listed("accelerate", {"plan.tensor=8", "plan.overlap_tensor_backward=true",
                                                   "plan.overlap_grad_reduce=false"});
  EXPECT_EQ(replicas.find(" plan.overlap_tensor_backward "), std::string::npos) << replicas;
  EXPECT_EQ(replicas.find(" plan.reuse_distance "), std::string::npos) << replicas;
  EXPECT_NE(groups.find(" plan.overlap_tensor_backward "), std::string::npos) << groups;
  EXPECT_EQ(groups.find(" plan.overlap_grad_reduce "), std::string::npos) << groups;
  const std::string gathered = listed("megatron", {"plan.zero=3", "plan.reuse_distance=1000"});
  EXPECT_NE(gathered.find(" plan.reuse_distance "), std::string::npos) << gathered;
}

TEST(Defaults, MegatronsFusedExpertsAreAFlagAndAVariable) {
  const std::string arguments =
      kShape +
      "--bf16 --swiglu --normalization RMSNorm --disable-bias-linear --num-experts 8 --moe-ffn-hidden-size 256 "
      "--fp8-format e4m3 --use-transformer-engine-op-fuser --fp8-recipe ";
  const auto fused = [&](const std::string& variable, const std::string& recipe) {
    const Imported imported = import_plan("x.sh", variable + arguments + recipe + "\n", {});
    return read(imported.scenario).plan.fused_experts;
  };
  EXPECT_TRUE(fused("export NVTE_CUTEDSL_FUSED_GROUPED_MLP=1\n", "mxfp8"));
  EXPECT_FALSE(fused("export NVTE_CUTEDSL_FUSED_GROUPED_MLP=0\n", "mxfp8"));
  EXPECT_FALSE(fused("", "mxfp8"));
  EXPECT_FALSE(fused("export NVTE_CUTEDSL_FUSED_GROUPED_MLP=1\n", "delayed"));
}

}  // namespace
}  // namespace rehearse::launch
