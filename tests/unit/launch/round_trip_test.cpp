// Every shipped scenario as each format's file and back: a key of the plan is the same again, or was listed as one that
// the format cannot say.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "launch/launch.h"
#include "launch/megatron.h"
#include "sim/base/document.h"
#include "sim/model/model.h"
#include "sim/plan/keys.h"
#include "sim/plan/scenario.h"
#include "tests/unit/launch/written.h"

namespace rehearse::launch {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> shipped_scenarios() {
  std::vector<std::string> files;
  for (const char* folder : {"scenarios", "scenarios/published", "scenarios/gpu", "scenarios/local"})
    for (const auto& entry : fs::directory_iterator(fs::path(REHEARSE_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".yaml" && entry.path().filename() != "plans.yaml")
        files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// Keys that name what a plan is, as far as the format may say them.
bool compared(const plan::Key& key, bool model) {
  if (key.path == "cluster.gpus") return true;
  if (key.section() == "model")
    return model && key.path != "model.name" && key.path != "model.position_rows" && key.path != "model.family";
  return key.section() == "plan" || key.section() == "training";
}

void expect_same(const plan::Scenario& before, const plan::Scenario& after, const Exported& exported, bool model) {
  std::set<std::string> left;
  for (const LeftOut& one : exported.left_out) left.insert(one.key);
  for (const plan::Key& key : plan::keys()) {
    const std::string path(key.path);
    if (!compared(key, model) || left.contains(path)) continue;
    if (path == "plan.bucket" && !before.plan.bucket_given) continue;     // by the framework
    if (path == "plan.reuse_distance" && before.plan.zero < 3) continue;  // nothing is gathered
    if (path == "plan.overlap_param_gather" && (before.plan.zero == 0 || before.plan.zero == 3)) continue;
    if (path == "plan.layers_per_stage" && left.contains("plan.pipeline")) continue;
    if (path == "plan.layers_per_stage" && before.plan.layers_by_time) continue;         // chosen before it is exported
    if (path == "plan.expert_tensor" && before.plan.expert == 1) continue;               // nothing is split
    if (path == "plan.fused_latent_rope" && !before.model.latent_attention()) continue;  // there is none
    if (path == "plan.overlap_tensor_backward" && before.plan.tensor == 1) continue;     // no groups
    if (path == "plan.overlap_grad_reduce" && before.plan.data * before.plan.context == 1) continue;  // no replicas
    if (path == "training.momentum" && before.training.optimizer != plan::OptimizerKind::sgd) continue;
    if (path.starts_with("training.loss_scale") && before.training.precision != plan::Precision::fp16) continue;
    if (path == "plan.zero_group") {
      if (before.plan.zero > 0 && !left.contains("plan.zero")) {
        EXPECT_EQ(after.plan.replicas, before.plan.replicas);
      }
      continue;
    }
    EXPECT_EQ(plan::value_text(key, after), plan::value_text(key, before)) << path;
  }
  const bool whole =
      std::none_of(left.begin(), left.end(), [](const std::string& key) { return key.starts_with("model."); });
  if (model && whole) {
    EXPECT_EQ(model::parameter_count(after.model), model::parameter_count(before.model));
    EXPECT_EQ(model::model_flops(after.model, 1, after.training.seq_len),
              model::model_flops(before.model, 1, before.training.seq_len));
  }
}

// There and back: false where the format's program trains no such model, or the model is no preset that a hint can
// name.
bool there_and_back(const std::string& format, const plan::Scenario& before) {
  Exported exported;
  try {
    exported = export_plan(format, before, 8);
  } catch (const InputError& error) {
    EXPECT_TRUE(before.model.family == model::Family::cnn || before.model.family == model::Family::mlp ||
                before.model.family == model::Family::bert || before.model.family == model::Family::t5 ||
                before.model.family == model::Family::custom ||
                (before.model.kv_heads < before.model.heads && before.model.kv_heads < before.plan.tensor))
        << error.what();
    return false;
  }
  const Written text("launch-file", exported.text);
  ImportHints hints;
  const bool model = format == "megatron" || format == "sbatch";
  if (!model) hints.model = before.model.name;
  if (!model && !fs::exists(fs::path(REHEARSE_SOURCE_DIR) / "scenarios/models" / (hints.model + ".yaml"))) return false;
  const Imported imported = import_plan(text.path, exported.text, hints);
  EXPECT_EQ(imported.format, format == "sbatch" ? "megatron" : format);
  const Written scenario("scenario.yaml", imported.scenario);
  expect_same(before, plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR), exported, model);
  return true;
}

class RoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, AKeyOfAShippedScenarioIsTheSameAgainOrListed) {
  int done = 0;
  for (const std::string& file : shipped_scenarios()) {
    SCOPED_TRACE(file);
    done += there_and_back(GetParam(), plan::read_scenario(file, {}, REHEARSE_SOURCE_DIR)) ? 1 : 0;
  }
  EXPECT_GE(done, 20);
}

// What no shipped scenario has.
TEST_P(RoundTrip, AKeyOfAnotherPlanIsTheSameAgainOrListed) {
  const Written base("base.yaml",
                     "rehearse: 1\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 64}\n"
                     "training: {global_batch: 512, seq_len: 4096}\n");
  using Assignments = std::vector<std::string>;
  const std::vector<Assignments> plans = {
      {"plan.zero=2", "plan.bucket=50MB", "training.precision=fp16", "training.loss_scale=4096"},
      {"plan.zero=1", "plan.bucket=40MB", "training.grad_dtype=bf16", "training.reduce_dtype=bf16"},
      {"plan.zero=3", "plan.zero_group=node", "plan.recompute=full", "plan.recompute_every=2"},
      {"plan.pipeline=2", "plan.layers_per_stage=[17, 15]", "model.mtp_depth=1", "model.mtp_loss_weight=0.2"},
      {"plan.zero=2", "plan.zero_group=16", "plan.recompute=full", "plan.recompute_layers=3"},
      {"plan.tensor=4", "plan.pipeline=4", "plan.schedule=interleaved", "plan.chunks=2", "plan.sequence_parallel=true"},
      {"plan.tensor=4", "plan.sequence_parallel=true", "plan.async_tensor_parallel=true", "plan.zero=1"},
      {"plan.tensor=4", "plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=4", "plan.zero=1"},
      {"plan.context=4", "plan.context_kind=all_gather", "plan.zero=3"},
      {"plan.context=4", "plan.context_kind=all_to_all", "plan.tensor=2"},
      {"plan.context=2", "plan.zero=3", "plan.zero_group=16", "plan.tensor=2", "plan.sequence_parallel=true"},
      {"plan.zero=3", "plan.recompute=ops", "training.precision=fp8", "training.fp8_recipe=tensorwise",
       "training.fp8_params=true"},
      {"plan.zero=1", "training.precision=fp8", "training.fp8_recipe=blockwise", "training.fp8_bf16_layers=2"},
      {"plan.pipeline=4", "plan.layers_per_stage=[7, 9, 9, 7]", "plan.micro_batch=2"},
      {"plan.pipeline=2", "plan.embedding_as_layer=true"},
      {"plan.pipeline=2", "plan.schedule=gpipe"},
      {"plan.pipeline=4", "plan.schedule=zero_bubble"},
      {"plan.pipeline=4", "plan.schedule=dualpipe_v"},
      {"plan.pipeline=4", "plan.rank_order=[tensor, context, expert, pipeline, data]"},
      {"plan.tensor=2", "plan.pipeline=2", "plan.rank_order=[pipeline, tensor, context, expert, data]"},
      {"training.optimizer=sgd", "training.momentum=0.9", "training.weight_decay=0.01", "training.clip=0"},
      {"training.lora_rank=16", "training.lora_alpha=32"},
      {"training.moments=bf16", "training.lr_schedule=cosine", "training.warmup_steps=100", "training.seed=7"},
      {"training.precision=fp32", "plan.zero=1"},
      {"plan.recompute=selective", "plan.tensor=8", "plan.overlap_grad_reduce=true", "plan.overlap_param_gather=true"},
      {"model={preset: llama3-8b, sliding_window: 1024, dropout: 0.1, attention: unfused}", "plan.tensor=2"},
      {"model={preset: llama3-8b, rope_scaling: llama3, rope_factor: 32, qk_norm: true, zero_centered_norms: true}"},
      {"model={preset: llama3-8b, rope_scaling: linear, rope_factor: 4}", "plan.tensor=2"},
      {"model={preset: llama3-8b, rope_scaling: yarn, rope_factor: 4}", "plan.tensor=2"},
      {"model={preset: llama3-8b, rope_scaling: linear, rope_factor: 2.5}", "plan.tensor=2"},
      {"plan.zero=3", "plan.recompute=full", "framework=deepspeed", "plan.reuse_distance=1000000"},
      {"plan.cuda_graphs=layer", "framework=megatron-core", "plan.zero=1"},
      {"plan.fused_weight_gradient=false", "framework=megatron-core"},
      {"model=mixtral-8x7b", "plan.expert=8", "plan.expert_dispatch=all_gather", "framework=megatron-core"},
      {"model=mixtral-8x7b", "plan.expert=8", "plan.zero=3", "plan.recompute=ops", "framework=torch-fsdp2"},
      {"model=deepseek-v3", "plan.expert=8", "plan.zero=3", "plan.recompute=ops", "framework=torch-fsdp2"},
      {"model=mixtral-8x7b", "plan.expert=8", "plan.tensor=2", "plan.sequence_parallel=true", "plan.expert_tensor=1",
       "plan.zero=3", "framework=torch-fsdp2"},
  };
  for (const Assignments& assignments : plans) {
    SCOPED_TRACE(assignments.front() + " ...");
    EXPECT_TRUE(there_and_back(GetParam(), plan::read_scenario(base.path, assignments, REHEARSE_SOURCE_DIR)));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundTrip,
                         testing::Values("megatron", "deepspeed", "torchtitan-toml", "accelerate", "sbatch"),
                         [](const auto& one) { return one.param.substr(0, one.param.find('-')); });

TEST(Nccl, PinnedCollectivesAreItsVariables) {
  const Written base("pins.yaml",
                     "rehearse: 1\nmodel: llama3-8b\nframework: megatron-core\n"
                     "cluster:\n  topology: dgx-h100\n  gpus: 16\n  collectives:\n"
                     "    - {kind: all_reduce, algorithm: nvls, protocol: simple}\n"
                     "    - {kind: all_reduce, algorithm: nvls_tree, protocol: simple}\n"
                     "    - {kind: all_gather, algorithm: ring}\nplan: {tensor: 2, zero: 1}\n");
  const plan::Scenario s = plan::read_scenario(base.path, {}, REHEARSE_SOURCE_DIR);
  const Exported exported = export_plan("megatron", s, 8);
  EXPECT_NE(exported.text.find("export NCCL_ALGO='allgather:ring;allreduce:nvls,nvlstree'\nexport "
                               "NCCL_PROTO='allreduce:simple'\n"),
            std::string::npos)
      << exported.text;
  const Imported imported = import_plan(base.path, exported.text, {});
  EXPECT_NE(imported.scenario.find("collectives: [{kind: all_reduce, algorithm: nvls, protocol: simple}, "
                                   "{kind: all_reduce, algorithm: nvls_tree, protocol: simple}, "
                                   "{kind: all_gather, algorithm: ring, protocol: auto}]"),
            std::string::npos)
      << imported.scenario;
  const std::string arguments = "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 64 --bf16\n";
  const Imported all = import_plan("x.sh", "export NCCL_ALGO=Ring,Tree\n" + arguments, {});
  EXPECT_NE(all.scenario.find("{kind: all_gather, algorithm: ring, protocol: auto}"), std::string::npos);
  EXPECT_EQ(all.scenario.find("{kind: all_gather, algorithm: tree"), std::string::npos) << "trees gather nothing";
  EXPECT_EQ(import_plan("x.sh", "export NCCL_ALGO=^Tree\n" + arguments, {}).scenario.find("collectives"),
            std::string::npos);
  EXPECT_THROW(import_plan("x.sh", "export NCCL_ALGO=Rings\n" + arguments, {}), InputError);
}

TEST(Nccl, TheLevelOfGpuDirectIsAKey) {
  const std::string arguments = "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 64 --bf16\n";
  const auto imported = [&](const std::string& level) {
    return import_plan("x.sh", "export NCCL_NET_GDR_LEVEL=" + level + "\n" + arguments, {}).scenario;
  };
  for (const char* never : {"LOC", "0", "00", "NVL", "NVB", "C2C"})
    EXPECT_NE(imported(never).find("gpudirect: false"), std::string::npos) << never;
  for (const char* level : {"PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "3", "12"})
    EXPECT_EQ(imported(level).find("gpudirect: false"), std::string::npos) << level;
  for (const char* wrong : {"NEAR", "-1", "1.5"}) EXPECT_THROW(imported(wrong), InputError) << wrong;
  // Where the topology would refuse the key, the variable is ignored.
  const auto on = [&](const std::string& topology) {
    return import_plan("x.sh", "export NCCL_NET_GDR_LEVEL=LOC\n" + arguments, {"", topology, 0, REHEARSE_SOURCE_DIR});
  };
  EXPECT_NE(on("aws-p4d").scenario.find("gpudirect: false"), std::string::npos);
  for (const std::string& topology :
       {std::string(), std::string(REHEARSE_SOURCE_DIR) + "/topologies/dgx-a100.yaml", std::string("rail-only-h100")}) {
    const Imported none = on(topology);
    EXPECT_EQ(none.scenario.find("gpudirect"), std::string::npos) << none.scenario;
    EXPECT_TRUE(std::any_of(none.report.ignored.begin(), none.report.ignored.end(), [](const std::string& line) {
      return line.starts_with("NCCL_NET_GDR_LEVEL: ") && line.find("no PCIe links") != std::string::npos;
    }));
    for (const std::string& line : none.report.used) EXPECT_EQ(line.find("gpudirect"), std::string::npos) << line;
  }
  const Written base("direct.yaml",
                     "rehearse: 1\nmodel: llama3-8b\nframework: megatron-core\n"
                     "cluster: {topology: aws-p4d, gpus: 16, gpudirect: false}\nplan: {tensor: 2}\n");
  const plan::Scenario s = plan::read_scenario(base.path, {}, REHEARSE_SOURCE_DIR);
  const auto says_never = [](const plan::Scenario& scenario) {
    return export_plan("megatron", scenario, 8).text.find("export NCCL_NET_GDR_LEVEL=LOC\n") != std::string::npos;
  };
  EXPECT_TRUE(says_never(s));
  // What a topology's own file turns off, and a scenario turns on again.
  std::ifstream shipped(std::string(REHEARSE_SOURCE_DIR) + "/topologies/aws-p4d.yaml");
  std::ostringstream topology;
  topology << shipped.rdbuf() << "\ngpudirect: false\n";
  const Written staged("staged.yaml", topology.str());
  const std::string there = "cluster.topology=" + staged.path;
  const Written plain("plain.yaml",
                      "rehearse: 1\nmodel: llama3-8b\nframework: megatron-core\n"
                      "cluster: {gpus: 16}\nplan: {tensor: 2}\n");
  EXPECT_TRUE(says_never(plan::read_scenario(plain.path, {there}, REHEARSE_SOURCE_DIR)));
  EXPECT_FALSE(says_never(plan::read_scenario(plain.path, {there, "cluster.gpudirect=true"}, REHEARSE_SOURCE_DIR)));
}

// Weights come from rank 0 where either key says so; FSDP2 has one of the two alone.
TEST(Accelerate, FirstWeightsAreBroadcastWhereEitherKeySaysSo) {
  const auto imported = [](int version, const char* sync, const char* efficient) {
    const std::string scenario =
        import_plan(
            "x.yaml",
            "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: " + std::to_string(version) +
                "\n  fsdp_sync_module_states: " + sync + "\n  fsdp_cpu_ram_efficient_loading: " + efficient + "\n",
            {})
            .scenario;
    return scenario.find("first_weights: broadcast") != std::string::npos;
  };
  EXPECT_TRUE(imported(1, "true", "false"));
  EXPECT_TRUE(imported(1, "false", "true"));
  EXPECT_FALSE(imported(1, "false", "false"));
  EXPECT_FALSE(imported(2, "true", "false"));
  EXPECT_TRUE(imported(2, "false", "true"));
}

// Key-value heads, angles and norms, as Megatron-LM's arguments.py names them.
TEST(Megatron, HasKeyHeadsAnglesAndNorms) {
  const std::string
      shape =
          "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 64 --bf16 --vocab-size 1000 "
          "--hidden-dropout 0 --position-embedding-type rope ",
      llama = shape + "--swiglu --normalization RMSNorm --disable-bias-linear ";
  const auto model_of = [&](const std::string& arguments, std::string* ignored = nullptr) {
    const Imported imported = import_plan("x.sh", "torchrun pretrain_gpt.py " + arguments + "\n", {});
    if (ignored != nullptr)
      for (const std::string& one : imported.report.ignored) *ignored += one + "\n";
    const Written scenario("scenario.yaml", imported.scenario);
    return plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR).model;
  };
  const model::Model all = model_of(llama +
                                    "--group-query-attention --num-query-groups 2 --rotary-base 500000 "
                                    "--rotary-percent 0.5 --use-rope-scaling --rope-scaling-factor 32 "
                                    "--apply-layernorm-1p --qk-layernorm");
  EXPECT_EQ(all.kv_heads, 2);
  EXPECT_EQ(all.rotary_dim, 16);
  EXPECT_EQ(all.rope_base, 500000);
  EXPECT_EQ(all.rope_scaling, RotationScaling::llama3);
  EXPECT_EQ(all.rope_factor, 32);
  EXPECT_TRUE(all.zero_centered_norms && all.qk_norm);
  const model::Model longer = model_of(llama + "--rotary-seq-len-interpolation-factor 4 --num-query-groups 2");
  EXPECT_EQ(longer.rope_scaling, RotationScaling::linear);
  EXPECT_EQ(longer.rope_factor, 4);
  EXPECT_EQ(longer.kv_heads, 8) << "without --group-query-attention they are not grouped";
  EXPECT_EQ(longer.rope_base, 10000);
  EXPECT_FALSE(longer.zero_centered_norms || longer.qk_norm);
  std::string ignored;
  const model::Model gpt = model_of(shape + "--rotary-base 70000 --qk-layernorm --apply-layernorm-1p", &ignored);
  EXPECT_EQ(gpt.rope_base, 70000);
  EXPECT_NE(ignored.find("--qk-layernorm: model.qk_norm is of models of family llama and moe"), std::string::npos)
      << ignored;
  EXPECT_NE(ignored.find("--apply-layernorm-1p"), std::string::npos) << ignored;
  EXPECT_THROW(model_of(llama + "--use-rope-scaling --rotary-seq-len-interpolation-factor 4"), InputError);
  EXPECT_EQ(model_of(llama + "--use-rope-scaling --rotary-seq-len-interpolation-factor 1").rope_scaling,
            RotationScaling::llama3);
  EXPECT_THROW(model_of(llama + "--rotary-base many"), InputError);
}

// --recompute-modules layernorm is of norms that are modules of their own: with Transformer Engine those before experts
// and latent attention.
TEST(Megatron, NormsOfDenseLayersAreNotComputedAgain) {
  const auto imported = [](const std::string& more) {
    return import_plan("x.sh",
                       "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length "
                       "64 --bf16 --vocab-size 1000 --swiglu --normalization RMSNorm --disable-bias-linear "
                       "--position-embedding-type rope --recompute-granularity selective --recompute-modules core_attn "
                       "layernorm " +
                           more + "\n",
                       {});
  };
  const Imported dense = imported("");
  EXPECT_TRUE(std::any_of(dense.report.ignored.begin(), dense.report.ignored.end(), [](const std::string& one) {
    return one.find("layernorm: norms of dense layers are inside the products") != std::string::npos;
  }));
  EXPECT_EQ(dense.scenario.find("recompute_norms"), std::string::npos) << dense.scenario;
  const Imported experts = imported("--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512");
  EXPECT_NE(experts.scenario.find("recompute_norms: true"), std::string::npos) << experts.scenario;

  const auto exported = [](const std::string& model) {
    const std::string text = "rehearse: 1\nmodel: " + model +
                             "\nframework: megatron-core\ncluster: {topology: dgx-h100, gpus: 8}\nplan: {tensor: 8, "
                             "recompute_norms: true}\ntraining: {global_batch: 8, precision: bf16}\n";
    const Written file("norms.yaml", text);
    return export_megatron(plan::read_scenario(file.path, {}, REHEARSE_SOURCE_DIR), 8);
  };
  EXPECT_EQ(exported("llama2-7b").text.find("layernorm"), std::string::npos);
  EXPECT_NE(exported("mixtral-8x7b").text.find("--recompute-modules layernorm"), std::string::npos);
}

TEST(Megatron, FirstWeightsAreBroadcastWhereEachReplicaDrawsItsOwn) {
  for (const bool broadcast : {false, true}) {
    const plan::Scenario s = plan::read_scenario(
        std::string(REHEARSE_SOURCE_DIR) + "/scenarios/gpt3-175b-tp8-pp16.yaml",
        {std::string("training.first_weights=") + (broadcast ? "broadcast" : "seeded")}, REHEARSE_SOURCE_DIR);
    const Exported exported = export_plan("megatron", s, 8);
    EXPECT_EQ(exported.text.find("--data-parallel-random-init") != std::string::npos, broadcast) << exported.text;
    for (const LeftOut& one : exported.left_out) EXPECT_NE(one.key, "training.first_weights") << one.why;
    const Imported back = import_plan("x.sh", exported.text, {});
    EXPECT_EQ(back.scenario.find("first_weights: broadcast") != std::string::npos, broadcast) << back.scenario;
  }
}

// torchtitan has asynchronous tensor parallelism with compile alone.
TEST(Torchtitan, CompilesWhatIsAsynchronous) {
  const Written base(
      "async.yaml",
      "rehearse: 1\nname: async\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 64}\n"
      "plan: {micro_batch: 1, tensor: 4, zero: 3, sequence_parallel: true, async_tensor_parallel: true}\n"
      "training: {global_batch: 512, seq_len: 4096}\n");
  const auto exported = [&](const char* framework) {
    return export_plan("torchtitan-toml",
                       plan::read_scenario(base.path, {std::string("framework=") + framework}, REHEARSE_SOURCE_DIR), 8);
  };
  const std::string line = "enable_async_tensor_parallel = true";
  const Exported compiled = exported("torch-fsdp2-compile"), eager = exported("torch-fsdp2");
  EXPECT_NE(compiled.text.find(line), std::string::npos);
  EXPECT_EQ(eager.text.find(line), std::string::npos);
  EXPECT_TRUE(std::any_of(eager.left_out.begin(), eager.left_out.end(),
                          [](const LeftOut& one) { return one.key == "plan.async_tensor_parallel"; }));
  std::string asked = eager.text;
  asked.insert(asked.find("tensor_parallel_degree"), line + "\n");
  EXPECT_THROW(import_plan("eager.toml", asked, {}), InputError);
}

// Scales of rows: torchtitan has a recipe of them, Megatron-LM none.
TEST(Torchtitan, ReadsAndWritesTheRecipeOfRows) {
  const Written base("rowwise.yaml",
                     "rehearse: 1\nname: rowwise\nmodel: llama3-8b\nframework: torch-fsdp2-compile\n"
                     "cluster: {topology: dgx-h100, gpus: 8}\nplan: {micro_batch: 1, zero: 3}\n"
                     "training: {global_batch: 16, precision: fp8, fp8_recipe: rowwise}\n");
  const plan::Scenario s = plan::read_scenario(base.path, {}, REHEARSE_SOURCE_DIR);
  const Exported exported = export_plan("torchtitan-toml", s, 8);
  EXPECT_NE(exported.text.find("recipe_name = \"rowwise\""), std::string::npos) << exported.text;
  const auto leaves_out = [](const Exported& file) {
    return std::any_of(file.left_out.begin(), file.left_out.end(),
                       [](const LeftOut& one) { return one.key == "training.fp8_recipe"; });
  };
  EXPECT_FALSE(leaves_out(exported));
  EXPECT_NE(import_plan("x.toml", exported.text, {}).scenario.find("fp8_recipe: rowwise"), std::string::npos);
  const Exported megatron = export_plan("megatron", s, 8);
  EXPECT_TRUE(leaves_out(megatron));
  EXPECT_EQ(megatron.text.find("fp8-recipe rowwise"), std::string::npos) << megatron.text;
  std::string kept = exported.text;
  kept.insert(kept.find("rowwise\"") + 7, "_with_gw_hp");
  const Imported other = import_plan("x.toml", kept, {});
  EXPECT_NE(other.scenario.find("fp8_recipe: rowwise"), std::string::npos);
  EXPECT_TRUE(std::any_of(other.report.assumed.begin(), other.report.assumed.end(),
                          [](const std::string& one) { return one.find("rowwise_with_gw_hp") != std::string::npos; }));
}

// Sinks, layers without rotation, experts in every second layer, gpt-oss's activation.
TEST(Megatron, ReadsBackModelsWhoseLayersDiffer) {
  const Written base("layers.yaml",
                     "rehearse: 1\nname: layers\nmodel: gpt-oss-20b\nframework: megatron-core\n"
                     "cluster: {topology: dgx-h100, gpus: 64}\nplan: {micro_batch: 1, expert: 8}\n"
                     "training: {global_batch: 512, seq_len: 4096}\n");
  for (const std::string model : {"gpt-oss-20b", "{preset: llama4-maverick, attention_chunk: 0}"})
    EXPECT_TRUE(there_and_back("megatron", plan::read_scenario(base.path, {"model=" + model}, REHEARSE_SOURCE_DIR)))
        << model;
}

// What Megatron-LM has a flag for is never among what is left out.
TEST(Megatron, SaysItsOwnPlansInFull) {
  const plan::Scenario s = plan::read_scenario(
      std::string(REHEARSE_SOURCE_DIR) + "/scenarios/gpt3-175b-tp8-pp16.yaml",
      {"framework=megatron-core", "plan.schedule=interleaved", "plan.chunks=2", "plan.sequence_parallel=true",
       "plan.recompute=selective", "plan.context=2", "plan.rank_order=[tensor, context, expert, pipeline, data]",
       "training.precision=fp8", "training.fp8_recipe=mxfp8", "training.moments=bf16", "plan.bucket=100MiB",
       "plan.cuda_graphs=step"},
      REHEARSE_SOURCE_DIR);
  const Exported exported = export_plan("megatron", s, 8);
  for (const LeftOut& one : exported.left_out) ADD_FAILURE() << one.key << ": " << one.why;
  for (const char* part :
       {"--num-virtual-stages-per-pipeline-rank 2", "--sequence-parallel", "--recompute-granularity selective",
        "--context-parallel-size 2", "--use-tp-pp-dp-mapping", "--fp8-recipe mxfp8", "--fp8-format e4m3",
        "--exp-avg-sq-dtype bf16", "--ddp-bucket-size 26214400", "--nnodes 128", "--cuda-graph-impl local",
        "--cuda-graph-scope full_iteration", "export CUDA_DEVICE_MAX_CONNECTIONS=1"})
    EXPECT_NE(exported.text.find(part), std::string::npos) << part << " in\n" << exported.text;
}

// Every format, of every scenario: something is written, nothing of the plan is missing without a word.
TEST(Export, EveryFormatSaysOrListsTheDegrees) {
  for (const std::string& file : shipped_scenarios()) {
    const plan::Scenario s = plan::read_scenario(file, {}, REHEARSE_SOURCE_DIR);
    for (const std::string& format : export_formats()) {
      Exported exported;
      try {
        exported = export_plan(format, s, 8);
      } catch (const InputError& error) {
        const std::string what = error.what();
        EXPECT_TRUE(what.find("expected gpt, llama or moe") != std::string::npos ||
                    what.find("a key-value head is on several") != std::string::npos)
            << what;
        continue;
      }
      const auto listed = [&](const char* key) {
        return std::any_of(exported.left_out.begin(), exported.left_out.end(),
                           [&](const LeftOut& one) { return one.key == key; });
      };
      for (const auto& [key, degree] : {std::pair{"plan.tensor", s.plan.tensor}, {"plan.pipeline", s.plan.pipeline}}) {
        if (degree == 1 || listed(key)) continue;
        const std::string number = std::to_string(degree);
        EXPECT_TRUE(exported.text.find("size " + number) != std::string::npos ||
                    exported.text.find("size: " + number) != std::string::npos ||
                    exported.text.find("size\": " + number) != std::string::npos ||
                    exported.text.find("size = " + number) != std::string::npos ||
                    exported.text.find("degree = " + number) != std::string::npos ||
                    exported.text.find("- '" + number + "'") != std::string::npos)
            << file << " " << format << " " << key;
      }
      EXPECT_TRUE(exported.text.find("Made by rehearse export") != std::string::npos || !exported.notes.empty());
    }
  }
}

TEST(Export, PyTorchJobsAreYaml) {
  const plan::Scenario s = plan::read_scenario(
      std::string(REHEARSE_SOURCE_DIR) + "/scenarios/deepseek-v3-2048xh800.yaml", {}, REHEARSE_SOURCE_DIR);
  Diagnostics problems;
  const Document job = Document::from_text("job.yaml", export_plan("pytorchjob", s, 8).text, problems);
  problems.throw_if_any();
  EXPECT_EQ(job.root().text("kind"), "PyTorchJob");
  const Node specs = job.root().get("spec").get("pytorchReplicaSpecs");
  EXPECT_EQ(specs.get("Worker").integer("replicas"), 255) << "2,048 ranks, 8 a node, one of the nodes is the master";
  const Node container = specs.get("Worker").get("template").get("spec").get("containers").at(0);
  EXPECT_EQ(container.get("args").at(0).as_text(), "--num-layers");
  EXPECT_EQ(container.get("args").at(1).as_text(), "61");
  EXPECT_GE(container.get("env").size(), 2u);
}

// Megatron-LM's --deterministic-mode wants NCCL_ALGO as one word.
TEST(Export, DeterministicModeSaysRing) {
  const std::string text =
      "rehearse: 1\nframework: megatron-core\nmodel: gpt3-175b\ncluster: {gpus: 16, topology: dgx-h100}\n"
      "plan: {tensor: 8}\ntraining: {global_batch: 16, deterministic: true}\n";
  const Written scenario("deterministic.yaml", text);
  const plan::Scenario s = plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR);
  const std::string script = export_plan("megatron", s, 8).text;
  for (const char* line : {"export NCCL_ALGO='Ring'\n", "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0\n",
                           "export CUBLAS_WORKSPACE_CONFIG=:4096:8\n", "  --deterministic-mode\n"})
    EXPECT_NE(script.find(line), std::string::npos) << line << script;
  const std::string back = import_plan("run.sh", script, {}).scenario;
  EXPECT_NE(back.find("deterministic: true"), std::string::npos) << back;
  EXPECT_NE(back.find("{kind: all_reduce, algorithm: ring"), std::string::npos) << back;
}

TEST(Export, TorchtitanSaysDeterministicToo) {
  const Written scenario(
      "deterministic-titan.yaml",
      "rehearse: 1\nframework: torch-fsdp2\nmodel: llama3-8b\ncluster: {gpus: 8, topology: dgx-h100}\n"
      "plan: {zero: 3}\ntraining: {global_batch: 8, seq_len: 4096, deterministic: true}\n");
  const plan::Scenario s = plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR);
  EXPECT_NE(export_plan("torchtitan", s, 8).text.find("config.debug.deterministic = True\n"), std::string::npos);
  const Exported exported = export_plan("torchtitan-toml", s, 8);
  EXPECT_NE(exported.text.find("\ndeterministic = true\n"), std::string::npos) << exported.text;
  for (const LeftOut& one : exported.left_out) EXPECT_FALSE(one.key.starts_with("training.")) << one.key;
  std::string toml = exported.text;
  EXPECT_NE(import_plan("run.toml", toml, {}).scenario.find("deterministic: true"), std::string::npos);
  toml.replace(toml.find("\ndeterministic = true\n"), 22, "\n");
  EXPECT_EQ(import_plan("run.toml", toml, {}).scenario.find("deterministic"), std::string::npos);
  EXPECT_NE(
      import_plan("run.toml", toml + "\n[debug]\ndeterministic = true\n", {}).scenario.find("deterministic: true"),
      std::string::npos);
}

TEST(Layout, IsReadAsItIsWritten) {
  using Layers = std::vector<std::int64_t>;
  const auto read = [](const std::string& text) {
    const auto layout = layers_of_layout(text);
    return layout ? std::optional(layout->layers) : std::nullopt;
  };
  for (const Layers& layers : {Layers{3, 4, 4, 3}, Layers{0, 2, 2, 0}, Layers{7}, Layers{1, 1}})
    EXPECT_EQ(read(pipeline_layout(layers)), layers) << pipeline_layout(layers);
  EXPECT_EQ(read("Et*3|tt|,t,tL"), (Layers{3, 2, 2}));
  EXPECT_EQ(pipeline_layout({3, 2}, 2), "Et*3|t*2mmL");  // modules of multi-token prediction, with the loss
  EXPECT_EQ(read("Et*3|t*2mmL"), (Layers{3, 2}));
  for (const char* wrong : {"", "t|t", "Et|t", "E(t|)L", "E(t(t|)*2)*2L", "E(t|*2L", "E()*2L", "mEtL", "EtL|t",
                            "Et*0|tL", "Et*99999999|L", "EEtL", "Et|m|tL", "Etm|mL", "Etx|tL", "E(t*9999|)*9999L"})
    EXPECT_EQ(read(wrong), std::nullopt) << wrong;
}

// The examples of Megatron-Core's own comments (pipeline_parallel_layer_layout.py, parse_str_to_list).
TEST(Layout, BracketsRepeat) {
  const auto layout = layers_of_layout("Et*3|(tt|)*29m|L");
  ASSERT_TRUE(layout);
  ASSERT_EQ(layout->layers.size(), 32U);
  EXPECT_EQ(layout->layers[0], 3);
  for (std::size_t i = 1; i < 30; ++i) EXPECT_EQ(layout->layers[i], 2) << i;
  EXPECT_EQ(layout->layers[30], 0);
  EXPECT_EQ(layout->layers[31], 0);
  EXPECT_TRUE(layout->modules_apart);
  EXPECT_EQ(layers_of_layout("E|(tt|t)*2,tL")->layers, (std::vector<std::int64_t>{0, 2, 3, 2}));
  EXPECT_EQ(layers_of_layout("E(t*2|)*3L")->layers, (std::vector<std::int64_t>{2, 2, 2, 0}));
}

}  // namespace
}  // namespace rehearse::launch
