// Commands of NeMo and Megatron-Bridge, programs that are not known, and options that change a step and have no key.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launch/launch.h"
#include "sim/model/model.h"
#include "sim/plan/scenario.h"
#include "tests/unit/launch/written.h"

namespace rehearse::launch {
namespace nemo {

std::string lines(const std::vector<std::string>& list) {
  std::string all;
  for (const std::string& line : list) all += line + "\n";
  return all;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Imported imported(const std::string& script, ImportHints hints = {}) {
  if (hints.data_root.empty()) hints.data_root = REHEARSE_SOURCE_DIR;
  return import_plan("x.sh", script, hints);
}

plan::Scenario scenario_of(const Imported& from) {
  const Written scenario("nemo.yaml", from.scenario);
  return plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR);
}

std::string error_of(const std::string& script) {
  try {
    imported(script);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// The launcher's `srun`, long and short options of scripts/performance, and assignments, of which options are applied
// later.
TEST(Nemo, ReadsOptionsOfMegatronBridge) {
  const Imported one = imported(
      "#SBATCH --nodes=2\n"
      "srun python scripts/performance/run_script.py --model_family_name llama --model_recipe_name llama3_8b --gpu "
      "h100 "
      "--num_gpus 16 -tp 2 -pp 1 -cp 2 -mb 1 -gb 128 -sl 8192 --compute_dtype fp8_cs -en "
      "model.tensor_model_parallel_size=4 train.global_batch_size=128 model.recompute_granularity=full "
      "model.recompute_method=block model.recompute_num_layers=3 logger.log_interval=1\n");
  EXPECT_EQ(one.format, "nemo");
  const plan::Scenario s = scenario_of(one);
  EXPECT_EQ(s.model.name, "llama3-8b");
  EXPECT_TRUE(has(one.scenario, "topology: 'dgx-h100'"));
  EXPECT_EQ(s.cluster.gpus, 16);
  EXPECT_EQ(s.plan.tensor, 2);
  EXPECT_EQ(s.plan.context, 2);
  EXPECT_EQ(s.plan.micro_batch, 1);
  EXPECT_EQ(s.training.global_batch, 128);
  EXPECT_EQ(s.training.seq_len, 8192);
  EXPECT_EQ(s.training.precision, plan::Precision::fp8);
  EXPECT_EQ(s.training.fp8_recipe, plan::Fp8Recipe::tensorwise);
  EXPECT_TRUE(s.training.fp8_params);
  EXPECT_EQ(s.plan.zero, 1);
  EXPECT_TRUE(s.plan.sequence_parallel);
  EXPECT_EQ(s.plan.recompute_layers, 3);
  const std::string used = lines(one.report.used), assumed = lines(one.report.assumed);
  EXPECT_TRUE(has(used, "-tp 2: plan.tensor 2\n")) << used;
  EXPECT_TRUE(has(used, "--num_gpus 16: cluster.gpus 16\n")) << used;
  EXPECT_TRUE(has(used, "--compute_dtype fp8_cs: training.precision fp8\n")) << used;
  EXPECT_TRUE(has(assumed, "-tp 2, which the program applies after model.tensor_model_parallel_size=4")) << assumed;
  EXPECT_FALSE(has(assumed, "says nothing")) << assumed;
  for (const char* line : {"logger.log_interval (line 2)\n", "-en (line 2)\n"})
    EXPECT_TRUE(has(lines(one.report.ignored), line)) << lines(one.report.ignored);
}

TEST(Nemo, ReadsAssignmentsOfNemo2) {
  const Imported two = imported(
      "nemo llm pretrain --factory \"llama31_70b(num_nodes=4)\" trainer.devices=8 "
      "trainer.strategy.tensor_model_parallel_size=4 trainer.strategy.pipeline_model_parallel_size=2 "
      "trainer.strategy.virtual_pipeline_model_parallel_size=5 trainer.strategy.sequence_parallel=True "
      "data.micro_batch_size=1 data.global_batch_size=64 data.seq_length=4096 trainer.max_steps=10 "
      "optim.config.lr=3e-4\n");
  const plan::Scenario s = scenario_of(two);
  EXPECT_EQ(s.model.name, "llama3.1-70b");
  EXPECT_EQ(s.cluster.gpus, 32);
  EXPECT_EQ(s.plan.tensor, 4);
  EXPECT_EQ(s.plan.pipeline, 2);
  EXPECT_EQ(s.plan.chunks, 5);
  EXPECT_EQ(s.training.global_batch, 64);
  EXPECT_EQ(s.training.seq_len, 4096);
  EXPECT_EQ(s.training.lr, 3e-4);
  EXPECT_EQ(s.training.precision, plan::Precision::bf16);
  EXPECT_TRUE(has(lines(two.report.ignored), "trainer.max_steps (line 1)"));
  EXPECT_TRUE(has(lines(two.report.assumed), "what the command leaves to its recipe llama31_70b is not in the file"));
}

TEST(Nemo, RecipesOfEightBitsAreTwoOptions) {
  const auto of = [](const std::string& more) {
    return scenario_of(
               imported("python scripts/performance/llm/pretrain_llama3_8b.py --gpu h100 --num_gpus 8 " + more + "\n"))
        .training;
  };
  EXPECT_EQ(of("model.fp8_recipe=mxfp8 -c fp8 -fr cs").fp8_recipe, plan::Fp8Recipe::tensorwise);
  EXPECT_EQ(of("-fr ss -c fp8").fp8_recipe, plan::Fp8Recipe::blockwise);
  EXPECT_FALSE(of("-fr ss -c fp8").fp8_params);
  EXPECT_TRUE(of("-c fp8 -fr mx").fp8_params);
  EXPECT_EQ(of("-c fp8").fp8_recipe, plan::Fp8Recipe::delayed);
}

TEST(Nemo, NodesHaveWhatSlurmSays) {
  const auto of = [](const std::string& directives) {
    return scenario_of(imported(directives + "srun nemo llm pretrain --factory llama3_8b trainer.num_nodes=2\n"))
        .cluster.gpus;
  };
  EXPECT_EQ(of(""), 16);
  EXPECT_EQ(of("#SBATCH --gpus-per-node=h100:4\n"), 8);
  EXPECT_EQ(of("#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"), 16);
  EXPECT_EQ(of("#SBATCH --ntasks-per-node=1\n"), 16);
  EXPECT_EQ(of("#SBATCH --ntasks-per-node=4\n"), 8);
}

// What is set to False or left empty is off, not on.
TEST(Nemo, ModesThatAreOffStayOff) {
  const auto of = [](const std::string& more) {
    return scenario_of(
        imported("python scripts/performance/run_script.py -m llama -mr llama3_8b -g h100 -ng 8 " + more + "\n"));
  };
  EXPECT_EQ(of("model.fp16=False model.bf16=True").training.precision, plan::Precision::bf16);
  EXPECT_EQ(of("model.fp16=True model.bf16=False").training.precision, plan::Precision::fp16);
  EXPECT_EQ(of("model.fp8=hybrid model.bf16=True").training.precision, plan::Precision::fp8);
  EXPECT_EQ(of("model.fp8=null model.bf16=True").training.precision, plan::Precision::bf16);
  EXPECT_EQ(of("--use_megatron_fsdp False").plan.zero, 1);
  EXPECT_EQ(of("--use_megatron_fsdp true").plan.zero, 3);
  EXPECT_EQ(of("-tp 2 -et -mb 1").plan.micro_batch, 1);
  EXPECT_EQ(of("--use_tokendrop false").model.capacity_factor, 0);
}

// scripts/performance of NeMo 2, a program a recipe, whose options have other names; and of Megatron-Bridge in 2025.
TEST(Nemo, ReadsOptionsOfEarlierScripts) {
  for (const char* program : {"python -m scripts.performance.llm.pretrain_llama31_405b slurm",
                              "python3 scripts/performance/llm/pretrain_llama31_405b.py"}) {
    const Imported two = imported(std::string(program) +
                                  " --account me --gpu h100 --num_gpus 512 --tensor_parallel_size 8 "
                                  "--pipeline_parallel_size 8 --virtual_pipeline_parallel_size 8 -cp 2 -fr cs -c fp8 "
                                  "--micro_batch_size 1 --global_batch_size 256 -cg true\n");
    const plan::Scenario s = scenario_of(two);
    EXPECT_EQ(s.model.name, "llama3.1-405b");
    EXPECT_EQ(s.cluster.gpus, 512);
    EXPECT_EQ(s.plan.tensor, 8);
    EXPECT_EQ(s.plan.pipeline, 8);
    EXPECT_EQ(s.plan.chunks, 8);
    EXPECT_EQ(s.plan.context, 2);
    EXPECT_EQ(s.plan.cuda_graphs, plan::CudaGraphs::layer);
    EXPECT_EQ(s.training.fp8_recipe, plan::Fp8Recipe::tensorwise) << "whichever of -fr and -c is first";
    EXPECT_FALSE(has(lines(two.report.ignored), " me")) << "an option's value may be a secret";
  }
  const Imported bridge =
      imported("python scripts/performance/setup_experiment.py -m llama3 -s 70b -ng 64 -g gb200 -c bf16 -tp 4 -rl 2\n");
  EXPECT_EQ(scenario_of(bridge).model.name, "llama3-70b");
  EXPECT_EQ(scenario_of(bridge).cluster.gpus, 64);
  EXPECT_EQ(scenario_of(bridge).plan.recompute_layers, 2);
}

// NeMo's recipes have 8 GPUs a node where nothing says how many there are.
TEST(Nemo, TakesNodesFromSlurm) {
  const std::string command =
      "nemo llm pretrain --factory llama3_8b trainer.num_nodes=2 trainer.strategy.tensor_model_parallel_size=2\n";
  EXPECT_EQ(scenario_of(imported(command)).cluster.gpus, 16);
  EXPECT_EQ(scenario_of(imported("#SBATCH --gpus-per-node=4\n" + command)).cluster.gpus, 8);
}

// Without a recipe the assignments give the model, or it is an error.
TEST(Nemo, TakesAModelFromAssignments) {
  const std::string train = "python pretrain.py train.micro_batch_size=1 train.global_batch_size=16 model.bf16=True ";
  const Imported own = imported(train +
                                "model.num_layers=4 model.hidden_size=512 model.num_attention_heads=8 "
                                "model.ffn_hidden_size=1024 model.vocab_size=1000 model.seq_length=128\n");
  const plan::Scenario s = scenario_of(own);
  EXPECT_EQ(s.model.layers, 4);
  EXPECT_EQ(s.model.hidden, 512);
  EXPECT_EQ(s.model.vocab, 1000);
  EXPECT_TRUE(has(error_of(train + "model.num_layers=4 model.hidden_size=512\n"), "--num-attention-heads"));
  // Beside a recipe, what it changes of it.
  const plan::Scenario changed = scenario_of(
      imported("python run_script.py -m llama -mr llama3_8b -ng 8 -g h100 -nlay 4 model.num_attention_heads=16 "
               "model.num_query_groups=4 model.ffn_hidden_size=2048\n"));
  EXPECT_EQ(changed.model.layers, 4);
  EXPECT_EQ(changed.model.heads, 16);
  EXPECT_EQ(changed.model.kv_heads, 4);
  EXPECT_EQ(changed.model.ffn_hidden, 2048);
}

TEST(Nemo, NamesModelsThatArePresets) {
  EXPECT_TRUE(has(error_of("python run_script.py -m llama -mr llama3_9b -ng 8 -g h100\n"),
                  "there is no preset of the recipe 'llama3_9b' (did you mean 'llama3_8b'? Or --model)"));
  const std::string deepseek = "python setup_experiment.py -m deepseek -mr deepseek_v3 -ng 256 -g gb200 -c fp8_mx ";
  const Imported all = imported(deepseek + "-ep 64 -pp 4 --use_tokendrop True --num_layers 16\n");
  EXPECT_TRUE(has(all.scenario, "preset: 'deepseek-v3'\n")) << all.scenario;
  EXPECT_TRUE(has(all.scenario, "capacity_factor: 1\n"));
  EXPECT_TRUE(has(all.scenario, "layers: 16\n"));
  EXPECT_TRUE(has(all.scenario, "topology: 'gb200-nvl72'\n"));
  const plan::Scenario s = scenario_of(all);
  EXPECT_EQ(s.training.fp8_recipe, plan::Fp8Recipe::mxfp8);
  EXPECT_EQ(s.plan.expert, 64);
  // Every recipe that is known has its preset.
  std::ifstream source(std::string(REHEARSE_SOURCE_DIR) + "/launch/nemo_recipes.cpp");
  std::string line;
  bool within = false;
  int found = 0;
  while (std::getline(source, line)) {
    if (has(line, "nemo_recipes() {")) within = true;
    if (within && line == "}") break;
    const std::size_t comma = line.find("\", {\"");
    if (!within || comma == std::string::npos) continue;
    const std::string preset = line.substr(comma + 5, line.find('"', comma + 5) - comma - 5);
    EXPECT_TRUE(std::filesystem::exists(std::string(REHEARSE_SOURCE_DIR) + "/scenarios/models/" + preset + ".yaml"))
        << preset;
    ++found;
  }
  EXPECT_GE(found, 40);
}

// What a command leaves to its recipe and can be known: sequences, adapters, gradients of the performance mode.
TEST(Nemo, TakesWhatRecipesHave) {
  const std::string bridge = "python scripts/performance/run_script.py -m gpt_oss -mr gpt_oss_20b -g h100 -ng 8 ";
  const Imported one = imported(bridge + "\n");
  EXPECT_EQ(scenario_of(one).training.seq_len, 4096);
  EXPECT_EQ(scenario_of(one).framework.name, "nemo");
  EXPECT_EQ(scenario_of(one).training.grad_dtype, plan::Precision::bf16);
  EXPECT_TRUE(has(lines(one.report.assumed), "sequences of 4096 tokens, the recipe's")) << lines(one.report.assumed);
  EXPECT_TRUE(has(lines(one.report.assumed), "ddp.grad_reduce_in_fp32 False"));
  EXPECT_EQ(scenario_of(imported(bridge + "-sl 8192\n")).training.seq_len, 8192);
  // Rows of experts.
  const auto dispatch = [&](const std::string& more) {
    return scenario_of(imported(bridge + more + "\n")).plan.expert_dispatch;
  };
  EXPECT_EQ(dispatch("-ep 8"), plan::ExpertDispatch::forwarding);
  EXPECT_EQ(dispatch("-ep 8 --use_tokendrop true"), plan::ExpertDispatch::all_to_all);
  EXPECT_EQ(dispatch(""), plan::ExpertDispatch::all_to_all);
  EXPECT_EQ(dispatch("-ep 8 model.num_moe_experts=16"), plan::ExpertDispatch::forwarding);
  for (const char* said : {"model.moe_token_dispatcher_type=alltoall", "--moe_token_dispatcher_type alltoall"})
    EXPECT_EQ(dispatch(std::string("-ep 8 ") + said), plan::ExpertDispatch::all_to_all) << said;
  const Imported said = imported("nemo llm pretrain --factory llama3_8b ddp.grad_reduce_in_fp32=True\n");
  EXPECT_EQ(scenario_of(said).training.grad_dtype, plan::Precision::fp32);
  EXPECT_EQ(scenario_of(said).training.seq_len, 8192);
  const Imported unknown = imported("nemo llm pretrain --factory gemma2_9b\n");
  EXPECT_EQ(scenario_of(unknown).training.seq_len, 4096);
  EXPECT_TRUE(has(lines(unknown.report.assumed), "those of the recipe are not known here (-sl)"));
  const Imported adapters = imported("nemo llm finetune --factory llama3_8b peft=lora\n");
  EXPECT_EQ(scenario_of(adapters).training.lora_rank, 32);
  EXPECT_TRUE(has(lines(adapters.report.assumed), "adapters of rank 32"));
  EXPECT_EQ(scenario_of(imported("nemo llm finetune --factory llama3_8b\n")).training.lora_rank, 0);
  const Imported others = imported("nemo llm finetune --factory llama3_8b peft=dora\n");
  EXPECT_EQ(scenario_of(others).training.lora_rank, 0);
  EXPECT_TRUE(has(lines(others.report.unmodelled), "peft=dora")) << lines(others.report.unmodelled);
  // Of no recipe there are none: the model's own.
  const Imported none = imported("python pretrain.py train.micro_batch_size=1 train.global_batch_size=16\n",
                                 {"gpt2-small", "", 8, REHEARSE_SOURCE_DIR});
  EXPECT_EQ(scenario_of(none).training.seq_len, 1024);
}

TEST(Nemo, TakesTheModelsOwnFields) {
  const plan::Scenario s = scenario_of(
      imported("python pretrain.py model.num_layers=4 model.hidden_size=256 model.num_attention_heads=8 "
               "model.num_query_groups=2 model.gated_linear_unit=True model.add_bias_linear=False model.seq_length=64 "
               "model.share_embeddings_and_output_weights=False trainer.devices=8 trainer.num_nodes=1 "
               "data.micro_batch_size=1 data.global_batch_size=8\n"));
  EXPECT_EQ(s.model.kv_heads, 2);
  EXPECT_EQ(s.model.activation, model::ActivationKind::swiglu);
  EXPECT_FALSE(s.model.bias);
  EXPECT_FALSE(s.model.tied_embeddings);
}

// Values of what means nothing here may be tokens: they stand nowhere.
TEST(Nemo, KeepsWhatMeansNothingToItself) {
  const Imported one = imported(
      "python scripts/performance/run_script.py -mr=llama3_8b -g h100 -ng 8 -tp=2 --hf_token AAA --hf_token BBB "
      "--cuda_graph_scope attn -ol 4\n");
  EXPECT_EQ(scenario_of(one).plan.tensor, 2);
  for (const auto* list : {&one.report.used, &one.report.assumed, &one.report.ignored, &one.report.unmodelled})
    for (const char* token : {"AAA", "BBB"}) EXPECT_FALSE(has(lines(*list), token)) << lines(*list);
  EXPECT_TRUE(has(lines(one.report.unmodelled), "--cuda_graph_scope attn (line 1)")) << lines(one.report.unmodelled);
}

// DeepSpeed's launcher has --num_gpus too, and programs of one's own --model_name.
TEST(Nemo, IsNotWhatOtherProgramsAreCalledWith) {
  EXPECT_NE(imported("deepspeed --num_gpus 8 train.py --model_name meta-llama/Llama-3 --model_size 8b --bf16\n").format,
            "nemo");
}

// A program that is not known: none of its options is another's value, none is lost, none is taken for ranks.
TEST(Environment, ListsOptionsOfOtherPrograms) {
  const Imported other =
      imported("torchrun --nproc-per-node 8 --nnodes 2 train.py --num_gpus 16 -tp 2 --lr 1 a.b=3 --last x\n");
  const std::string ignored = lines(other.report.ignored), assumed = lines(other.report.assumed);
  EXPECT_EQ(other.format, "environment");
  EXPECT_TRUE(has(other.scenario, "gpus: 16\n")) << other.scenario;
  for (const char* line :
       {"--num-gpus 16 (line 1)", "-tp (line 1)\n", "--lr (line 1)\n", "a.b (line 1)\n", "--last (line 1)"})
    EXPECT_TRUE(has(ignored, line)) << line << "\n" << ignored;
  EXPECT_TRUE(has(assumed, "those of a program that is not known here")) << assumed;
  EXPECT_FALSE(has(assumed, "says nothing of it")) << assumed;
  EXPECT_EQ(lines(imported("python3 -u -m torch.distributed.run --nproc-per-node 8 train.py\n").report.ignored), "");
  EXPECT_TRUE(has(imported("deepspeed --num_gpus 8 --num_nodes 2 train.py\n").scenario, "gpus: 16\n"));
  EXPECT_TRUE(has(lines(imported("torchrun --nproc-per-node 8 train.py\n").report.assumed),
                  "nothing that is read here says how the model is split"));
}

// Of what has no key: apart, what changes a step.
TEST(Unmodelled, StandApartFromWhatChangesNothing) {
  const std::string model =
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 256 --num-attention-heads 4 "
      "--seq-length 64 --vocab-size 1000 --micro-batch-size 1 --global-batch-size 16 --bf16 ";
  const Imported script =
      imported(model + "--rampup-batch-size 16 16 5000 --log-interval 5 --make-vocab-size-divisible-by 128\n");
  EXPECT_EQ(lines(script.report.unmodelled), "--rampup-batch-size 16 (line 1)\n");
  EXPECT_TRUE(has(lines(script.report.ignored), "--log-interval (line 1)\n"));
  EXPECT_FALSE(has(lines(script.report.ignored), "rampup"));
  const Imported json = import_plan("ds.json", R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8,
      "zero_quantized_weights": true, "zero_quantized_gradients": false, "stage3_max_live_parameters": 1e9},
      "activation_checkpointing": {"partition_activations": true}, "steps_per_print": 10})",
                                    {});
  const std::string apart = lines(json.report.unmodelled);
  EXPECT_EQ(apart,
            "zero_optimization.zero_hpz_partition_size 8 (line 1)\n"
            "zero_optimization.zero_quantized_weights true (line 2)\n"
            "activation_checkpointing.partition_activations true (line 3)\n");
  EXPECT_TRUE(has(lines(json.report.ignored), "steps_per_print"));
  EXPECT_TRUE(has(lines(json.report.ignored), "zero_quantized_gradients"));
}

// The profile deepspeed is software of 2022, and who has such files today runs other attention.
TEST(DeepSpeed, IsReadAsProgramsOfTodayRunIt) {
  const std::string file = R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}})";
  const auto of = [&](const std::string& model) {
    return import_plan("ds.json", file, {model, "", 8, REHEARSE_SOURCE_DIR});
  };
  const Imported llama = of("llama3-8b");
  const plan::Scenario s = scenario_of(llama);
  EXPECT_EQ(s.framework.name, "deepspeed");
  EXPECT_EQ(s.model.name, "llama3-8b");
  EXPECT_EQ(s.model.attention, model::AttentionKind::sdpa_flash);
  EXPECT_EQ(s.model.dropout, 0);
  const std::string assumed = lines(llama.report.assumed);
  EXPECT_TRUE(has(assumed, "model.attention sdpa_flash: what transformers takes by default")) << assumed;
  EXPECT_TRUE(has(assumed, "DeepSpeed 0.6 of 2022 under Megatron-LM's kernels")) << assumed;
  EXPECT_EQ(scenario_of(of("bert-large")).model.attention, model::AttentionKind::sdpa_flash);
  // Eager there too: capped scores, biases of positions; and no attention at all.
  for (const char* eager : {"gemma2-9b", "t5-large", "bloom-7b1"})
    EXPECT_EQ(scenario_of(of(eager)).model.attention, model::AttentionKind::unfused) << eager;
  EXPECT_FALSE(has(of("resnet-50").scenario, "attention"));
  const Imported accelerate =
      import_plan("a.yaml", "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n",
                  {"llama3-8b", "", 8, REHEARSE_SOURCE_DIR});
  EXPECT_EQ(scenario_of(accelerate).model.attention, model::AttentionKind::sdpa_flash);
}

}  // namespace nemo
}  // namespace rehearse::launch
