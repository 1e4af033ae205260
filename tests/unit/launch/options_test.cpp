// Options that Megatron-LM has more than one meaning for, refuses together, or does not know.
#include <gtest/gtest.h>

#include "launch/launch.h"
#include "sim/model/model.h"
#include "sim/plan/scenario.h"
#include "tests/unit/launch/written.h"

namespace rehearse::launch {
namespace options {

std::string lines(const std::vector<std::string>& list) {
  std::string all;
  for (const std::string& line : list) all += line + "\n";
  return all;
}

plan::Scenario scenario_of(const std::string& text) {
  const Written scenario("options.yaml", text);
  return plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR);
}

std::string error_of(const std::string& script, const ImportHints& hints = {}) {
  try {
    import_plan("x.sh", script, hints);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const std::string kModel =
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 256 --num-attention-heads 4 "
    "--seq-length 64 --vocab-size 1000 --hidden-dropout 0 --micro-batch-size 1 --global-batch-size 16 ";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Megatron-Core pads an expert's rows to its capacity with --moe-pad-expert-input-to-capacity alone.
TEST(Capacity, WithoutPaddingOnlyDrops) {
  const std::string experts = kModel + "--bf16 --swiglu --num-experts 8 --moe-router-topk 2 ";
  const auto of = [&](const std::string& more) { return import_plan("x.sh", experts + more + "\n", {}); };
  const std::string said = "without --moe-pad-expert-input-to-capacity pads nothing";
  const Imported padded = of("--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity");
  EXPECT_EQ(scenario_of(padded.scenario).model.capacity_factor, 1.25);
  EXPECT_FALSE(has(lines(padded.report.assumed), said));
  const Imported drops = of("--moe-expert-capacity-factor 1.25");
  EXPECT_EQ(scenario_of(drops.scenario).model.capacity_factor, 0);
  EXPECT_TRUE(has(lines(drops.report.assumed), "--moe-expert-capacity-factor 1.25 " + said))
      << lines(drops.report.assumed);
  EXPECT_TRUE(has(lines(of("--moe-expert-capacity-factor 0.8").report.assumed), "20% of them even with even routing"));
  for (const char* none : {"", "--moe-expert-capacity-factor -1.0"}) {
    const Imported without = of(none);
    EXPECT_EQ(scenario_of(without.scenario).model.capacity_factor, 0);
    EXPECT_FALSE(has(lines(without.report.assumed), said));
  }
}

TEST(Options, ThatMegatronRefusesTogetherAreErrors) {
  EXPECT_TRUE(has(error_of(kModel + "--bf16 --fp16\n"), "--fp16: does not go with --bf16"));
  EXPECT_EQ(error_of(kModel + "--bf16\n"), "");
  const std::string fsdp = kModel + "--bf16 --use-torch-fsdp2 --untie-embeddings-and-output-weights ";
  EXPECT_EQ(error_of(fsdp + "\n"), "");
  EXPECT_TRUE(has(error_of(fsdp + "--pipeline-model-parallel-size 2\n"),
                  "--use-torch-fsdp2: Megatron-LM refuses it with --pipeline-model-parallel-size 2"));
  EXPECT_TRUE(has(error_of(fsdp + "--num-experts 8 --swiglu --expert-model-parallel-size 2\n"),
                  "refuses it with --expert-model-parallel-size 2"));
  EXPECT_TRUE(has(error_of(fsdp + "--use-distributed-optimizer\n"), "refuses it with --use-distributed-optimizer"));
  EXPECT_EQ(error_of(kModel + "--bf16 --use-megatron-fsdp --pipeline-model-parallel-size 2\n"), "");
}

TEST(Options, AMixersLayersAreNamedOrAnError) {
  std::string mixers = kModel + "--bf16\n";
  mixers.replace(mixers.find("pretrain_gpt.py"), 15, "pretrain_mamba.py");
  EXPECT_TRUE(has(error_of(mixers), "--hybrid-override-pattern would say the layers")) << error_of(mixers);
  EXPECT_TRUE(has(error_of(kModel + "--bf16 --hybrid-attention-ratio 0.1\n"), "--hybrid-override-pattern alone"));
  EXPECT_EQ(error_of(mixers, {"nemotron-h-8b", "", 8}), "");
}

TEST(Options, GraphsOfAWholeStepAreAScopeOrAKind) {
  const auto of = [](const std::string& more) {
    return scenario_of(import_plan("x.sh", kModel + "--bf16 " + more + "\n", {}).scenario).plan.cuda_graphs;
  };
  EXPECT_EQ(of("--cuda-graph-impl local --cuda-graph-scope full_iteration"), plan::CudaGraphs::step);
  EXPECT_EQ(of("--cuda-graph-impl full_iteration"), plan::CudaGraphs::step);
  EXPECT_EQ(of("--cuda-graph-impl local"), plan::CudaGraphs::layer);
  EXPECT_EQ(of("--cuda-graph-scope full_iteration"), plan::CudaGraphs::none) << "captured by none";
  const Imported parts =
      import_plan("x.sh", kModel + "--bf16 --cuda-graph-impl transformer_engine --cuda-graph-scope attn\n", {});
  EXPECT_TRUE(has(lines(parts.report.unmodelled), "--cuda-graph-scope attn")) << lines(parts.report.unmodelled);
}

TEST(Options, AVariableWithoutValueIsAnErrorWhereRanksNeedIt) {
  std::string nodes = kModel + "--bf16\n";
  nodes.replace(nodes.find("--nproc-per-node 8"), 18, "--nproc-per-node 8 --nnodes=$NNODES");
  EXPECT_TRUE(has(error_of(nodes), "--nnodes: the value is $NNODES, which the file does not set")) << error_of(nodes);
  EXPECT_EQ(error_of(nodes, {"", "", 64}), "");
  EXPECT_EQ(error_of("NNODES=2\n" + nodes), "");
  EXPECT_EQ(error_of("#SBATCH --nodes=2\n" + nodes), "");
  EXPECT_TRUE(
      has(error_of("torchrun --nproc-per-node $GPUS train.py --lr 1\n"), "--nproc-per-node: the value is $GPUS"));
}

// A preset of --model says what a file's options are about, as the file's own options would.
TEST(Options, OfAPresetAreTheModels) {
  const auto of = [](const std::string& model, const std::string& more) {
    return import_plan("x.sh",
                       "torchrun --nproc-per-node 8 pretrain_gpt.py --bf16 --seq-length 4096 --micro-batch-size 1 "
                       "--global-batch-size 16 --expert-model-parallel-size 8 " +
                           more + "\n",
                       {model, "dgx-h100", 0, REHEARSE_SOURCE_DIR});
  };
  const std::string norms = "--recompute-granularity selective --recompute-modules layernorm";
  EXPECT_TRUE(scenario_of(of("deepseek-v2-lite", norms).scenario).plan.recompute_norms);
  EXPECT_TRUE(has(lines(of("llama3-8b", norms).report.ignored), "norms of dense layers"));
  EXPECT_EQ(scenario_of(of("deepseek-v2-lite", "").scenario).plan.expert_dispatch, plan::ExpertDispatch::all_gather);
  EXPECT_TRUE(scenario_of(of("deepseek-v2-lite", "--enable-experimental").scenario).plan.fused_latent_rope);
  const model::Model modules =
      scenario_of(of("deepseek-v3", "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.2").scenario).model;
  EXPECT_EQ(modules.mtp_depth, 2);
  EXPECT_EQ(modules.mtp_loss_weight, 0.2);
}

TEST(Options, TokensAreGatheredByDefault) {
  const std::string experts = kModel + "--bf16 --swiglu --num-experts 8 --moe-router-topk 2 ";
  const auto of = [&](const std::string& more) { return import_plan("x.sh", experts + more + "\n", {}); };
  const Imported gathered = of("--expert-model-parallel-size 4");
  EXPECT_EQ(scenario_of(gathered.scenario).plan.expert_dispatch, plan::ExpertDispatch::all_gather);
  EXPECT_TRUE(has(lines(gathered.report.assumed), "allgather, Megatron-LM's default"));
  for (const char* other :
       {"--expert-model-parallel-size 1", "--expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall",
        "--expert-model-parallel-size 4 --moe-expert-capacity-factor 1.0"})
    EXPECT_NE(scenario_of(of(other).scenario).plan.expert_dispatch, plan::ExpertDispatch::all_gather) << other;
}

TEST(Options, StandForWhatTheyAreOr) {
  const auto of = [&](const std::string& more) { return import_plan("x.sh", kModel + "--bf16 " + more + "\n", {}); };
  EXPECT_EQ(scenario_of(of("--use-rotary-position-embeddings").scenario).model.position, model::Position::rope);
  EXPECT_TRUE(has(lines(of("--transformer-impl local").report.unmodelled), "kernels are Transformer Engine's"));
  EXPECT_EQ(lines(of("--transformer-impl transformer_engine").report.unmodelled), "");
  EXPECT_TRUE(has(lines(of("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 "
                           "--decoder-first-pipeline-num-layers 8")
                            .report.unmodelled),
                  "layers are spread evenly"));
}

TEST(Options, WhatIsLeftOutIsTheDefault) {
  const auto of = [&](const std::string& more) { return import_plan("x.sh", kModel + "--bf16 " + more + "\n", {}); };
  EXPECT_EQ(scenario_of(of("--group-query-attention").scenario).model.kv_heads, 1);
  EXPECT_EQ(scenario_of(of("--group-query-attention --num-query-groups 2").scenario).model.kv_heads, 2);
  EXPECT_EQ(scenario_of(of("--num-query-groups 2").scenario).model.kv_heads, 4);
  EXPECT_EQ(scenario_of(of("--optimizer dist_muon").scenario).training.optimizer, plan::OptimizerKind::muon);
  const model::Model m =
      scenario_of(
          of("--multi-latent-attention --swiglu --disable-bias-linear --position-embedding-type rope --v-head-dim 64")
              .scenario)
          .model;
  EXPECT_EQ(m.kv_lora_rank, 32);
  EXPECT_EQ(m.q_lora_rank, 0);
  EXPECT_EQ(m.qk_nope_head_dim, 128);
  EXPECT_EQ(m.qk_rope_head_dim, 64);
  EXPECT_EQ(m.v_head_dim, 64);
}

TEST(Options, SayWhichLayersHaveExperts) {
  const std::string experts =
      kModel + "--bf16 --swiglu --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall ";
  const auto of = [&](const std::string& layers) {
    return scenario_of(import_plan("x.sh", experts + "--moe-layer-freq " + layers + "\n", {}).scenario).model;
  };
  for (const char* all : {"1", "'([1]*32)'", "[1]*32", "'([1, 1]*16)'"}) {
    EXPECT_EQ(of(all).dense_layers, 0) << all;
    EXPECT_EQ(of(all).experts_every, 1) << all;
  }
  EXPECT_EQ(of("'([0]*3+[1]*29)'").dense_layers, 3);
  EXPECT_EQ(of("'[0,0]+[1]*30'").dense_layers, 2);
  EXPECT_EQ(of("'([0,1]*16)'").experts_every, 2);
  EXPECT_EQ(of("'([0,0,0,1]*8)'").experts_every, 4);
  const auto error = [&](const std::string& layers) { return error_of(experts + "--moe-layer-freq " + layers + "\n"); };
  for (const char* wrong :
       {"0", "x", "'([0,1]*15)'", "'[0,1'", "'([0,2]*16)'", "'([0,1]*16'+", "'([0]*99999999999999)'"})
    EXPECT_TRUE(has(error(wrong), "expected a number or a list of 0 and 1 for each layer")) << wrong << error(wrong);
  EXPECT_TRUE(has(error("'([0]*32)'"), "no layer has experts"));
  for (const char* other : {"2", "'([1]*8+[0]*24)'", "'([0,1,1,1]*8)'"})
    EXPECT_TRUE(has(error(other), "layers without experts have to be the first ones")) << error(other);
}

TEST(Options, AreSuggestedByTheirFirstWordsToo) {
  const auto ignored = [&](const std::string& script, const ImportHints& hints = {}) {
    return lines(import_plan("x.sh", script, hints).report.ignored);
  };
  EXPECT_TRUE(has(ignored(kModel + "--bf16 --tensor-model-parallel 2\n"),
                  "--tensor-model-parallel (line 1); did you mean --tensor-model-parallel-size?"));
  EXPECT_FALSE(has(ignored(kModel + "--bf16 --tensor 2 --log-interval 3\n"), "did you mean"));
  const std::string few = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layer 3 --seq-length 64\n";
  EXPECT_TRUE(has(ignored(few), "--num-layer (line 1); did you mean --num-layers?"));
  EXPECT_TRUE(has(ignored(few, {"llama3-8b", "", 0}), "--num-layer (line 1); did you mean --num-layers?"));
  EXPECT_TRUE(has(error_of("python x.py --num-layer 3 --hidden-size 64 --num-attention-heads 4\n"),
                  "--num-layer of line 1 meant as --num-layers"));
}

// Which parts of a layout stand for which virtual stages.
TEST(Layout, HasAsManyPartsAsVirtualStages) {
  const std::string split = kModel + "--bf16 --pipeline-model-parallel-size 4 ";
  const Imported two = import_plan(
      "x.sh", split + "--pipeline-model-parallel-layout 'Et*4|(t*4|)*6t*4L' --num-virtual-stages-per-pipeline-rank 2\n",
      {});
  const plan::Plan p = scenario_of(two.scenario).plan;
  EXPECT_EQ(p.chunks, 2);
  EXPECT_EQ(p.layers_per_stage, (std::vector<std::int64_t>(8, 4)));
  EXPECT_TRUE(has(error_of(split + "--pipeline-model-parallel-layout 'Et*4|(t*4|)*6t*4L' "
                                   "--num-virtual-stages-per-pipeline-rank 4\n"),
                  "has 8 parts, expected 4 stages x 4 virtual ones"));
  EXPECT_TRUE(
      has(error_of(split + "--pipeline-model-parallel-layout 'Et*8|t*8|t*16L'\n"), "for 4 stages: it has 3 parts"));
  // DeepSeek-V3 on 4 stages with the module apart from the loss.
  const Imported apart = import_plan("x.sh",
                                     split +
                                         "--swiglu --position-embedding-type rope --mtp-num-layers 1 "
                                         "--pipeline-model-parallel-layout 'Et*4|(t*4|)*5t*8m|L'\n",
                                     {});
  EXPECT_EQ(scenario_of(apart.scenario).plan.layers_per_stage, (std::vector<std::int64_t>{4, 4, 4, 4, 4, 4, 8, 0}));
  EXPECT_TRUE(has(lines(apart.report.assumed), "the modules of multi-token prediction on the last stage"));
  // A stage of the module alone, and one of the loss, which no plan has.
  const Imported alone = import_plan(
      "x.sh",
      "torchrun --nproc-per-node 8 --nnodes 32 pretrain_gpt.py --num-layers 61 --pipeline-model-parallel-size 16 "
      "--pipeline-model-parallel-layout 'Et*3|(tt|)*29m|L' --bf16 --micro-batch-size 1 --global-batch-size 512\n",
      {"deepseek-v3", "", 0});
  std::vector<std::int64_t> layers(32, 2);
  layers[0] = 3, layers[28] = layers[29] = layers[30] = layers[31] = 1;
  EXPECT_EQ(scenario_of(alone.scenario).plan.layers_per_stage, layers);
  EXPECT_EQ(scenario_of(alone.scenario).plan.chunks, 2);
  EXPECT_TRUE(has(lines(alone.report.assumed), "on stage 31, 32 of --pipeline-model-parallel-layout"));
}

// Where some layers alone are computed again, no module of the others is.
TEST(Export, SaysWhichLayersAreComputedAgain) {
  const Written file("again.yaml",
                     "rehearse: 1\nmodel: deepseek-v2-lite\ncluster: {topology: dgx-h100, gpus: 8}\n"
                     "plan: {recompute: full, recompute_latent: true}\n");
  const auto why = [&](const std::vector<std::string>& more) {
    const plan::Scenario s = plan::read_scenario(file.path, more, REHEARSE_SOURCE_DIR);
    for (const LeftOut& one : export_plan("megatron", s, 8).left_out)
      if (one.key == "plan.recompute_latent") return one.why;
    return std::string();
  };
  EXPECT_TRUE(has(why({}), "whole layers are computed again")) << why({});
  EXPECT_TRUE(
      has(why({"plan.recompute_layers=2"}), "computes 2 whole layers of a stage again, and no modules of the others"))
      << why({"plan.recompute_layers=2"});
}

}  // namespace options
}  // namespace rehearse::launch
