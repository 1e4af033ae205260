// rehearse export and import as a user runs them: there and back through a file, and what is wrong with one.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

const std::string kLaunchCorpus = std::string(REHEARSE_SOURCE_DIR) + "/tests/fuzz/corpus/";

double step_of(const std::string& scenario) {
  const Outcome r = run({"simulate", scenario, "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  return r.status == 0 ? nlohmann::json::parse(r.out)["step_time_s"].get<double>() : 0;
}

TEST(LaunchFiles, APlanTakenAwayAndBroughtBackTakesAsLong) {
  const Folder folder;
  const std::string script = folder / "pretrain.sh", back = folder / "back.yaml";
  const Outcome out = run({"export", "mixtral-8x7b-64xh100", "--to", "megatron", "-o", script});
  EXPECT_EQ(out.status, 0) << out.err;
  EXPECT_TRUE(out.err.starts_with("rehearse: batch: 256 sequences = ")) << out.err;
  EXPECT_EQ(std::count(out.err.begin(), out.err.end(), '\n'), 1) << "Megatron-LM says all of that plan\n" << out.err;
  const Outcome in = run({"import", script, "-o", back});
  EXPECT_EQ(in.status, 0) << in.err;
  EXPECT_EQ(in.out, "");
  EXPECT_TRUE(has(in.err, "rehearse: used --expert-model-parallel-size 8: plan.expert 8")) << in.err;
  EXPECT_TRUE(has(in.err, "rehearse: ignored --master-addr")) << in.err;
  EXPECT_TRUE(has(in.err, "rehearse: assumed the topology dgx-h100 (--cluster)")) << in.err;
  const double before = step_of("mixtral-8x7b-64xh100");
  EXPECT_GT(before, 0);
  EXPECT_EQ(step_of(back), before);
}

TEST(LaunchFiles, WhatAFormatCannotSayIsListedInTheFileToo) {
  const Outcome r = run({"export", "gpt-tiny-2x2x2", "--to", "deepspeed"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "rehearse: not in the file: plan.pipeline: 2")) << r.err;
  EXPECT_TRUE(has(r.err, "deepspeed --num_nodes 1 --num_gpus 8")) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)["tensor_parallel"]["autotp_size"], 2);
  const Outcome titan =
      run({"export", "gpt-tiny-2x2x2", "--to", "torchtitan-toml", "--set", "plan.recompute=selective"});
  EXPECT_TRUE(has(titan.out, "#   plan.recompute: selective")) << titan.out;
  EXPECT_TRUE(has(titan.err, "rehearse: not in the file: plan.recompute: selective")) << titan.err;
}

TEST(LaunchFiles, EveryKindOfFileIsTold) {
  for (const auto& [file, line] : {std::pair{"launch-script/llama.sh", "  fp8_recipe: delayed"},
                                   {"deepspeed/zero2.json", "  gpus: 16"},
                                   {"torchtitan/llama3.toml", "framework: torch-fsdp2-compile"},
                                   {"accelerate/fsdp.yaml", "  zero_group: node"}}) {
    const Outcome r = run({"import", kLaunchCorpus + file});
    EXPECT_EQ(r.status, 0) << file << r.err;
    EXPECT_TRUE(has(r.out, line)) << file << "\n" << r.out;
    EXPECT_TRUE(has(r.err, "rehearse: assumed ")) << r.err;
    const Folder folder;
    EXPECT_EQ(run({"simulate", folder.write("s.yaml", r.out), "--steps", "1"}).status % 3, 0)
        << file << ": done, or does not fit";
  }
}

TEST(LaunchFiles, HintsStandForWhatAFileLacks) {
  const Outcome r = run({"import", kLaunchCorpus + "accelerate/fsdp.yaml", "--model", "llama3-8b", "--cluster",
                         "dgx-a100", "--gpus", "32"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "model: 'llama3-8b'") && has(r.out, "topology: 'dgx-a100'") && has(r.out, "gpus: 32"))
      << r.out;
}

TEST(LaunchFiles, WhatIsWrongHasItsPlace) {
  const std::string megatron =
      "pretrain_gpt.py --num-layers 4 --hidden-size 256 --num-attention-heads 4 \\\n  --seq-length 64 ";
  struct Case {
    std::string name, text, message;
  };
  const std::vector<Case> cases = {
      {"a.sh", megatron + "--tensor-model-parallel-size two",
       ":2:19: error: --tensor-model-parallel-size: expected an integer, found 'two'"},
      {"b.sh", megatron + "--tensor-model-parallel-size $TP", "the value is $TP, which the file does not set"},
      {"c.sh", megatron + "--normalization RMSNrm", "did you mean 'RMSNorm'?"},
      {"d.sh", megatron + "--tensor-model-parallel-size 3 --nproc-per-node 3",
       ":2:19: error: --tensor-model-parallel-size (plan.tensor): "},
      {"e.sh", megatron + "--micro-batch-size 'x", ":2:38: error: this quote is not closed"},
      {"f.sh", megatron + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout '(Et)*2L'",
       "is not available for 2 stages"},
      {"g.sh", "echo nothing", "no launch file that is known"},
      {"a.json",
       "{\"train_batch_size\": 10,\n \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1}",
       ":1:22: error: train_batch_size: 10 is no multiple"},
      {"b.json", "{\"zero_optimization\": {\"stage\": 7}}", ":1:33: error: zero_optimization.stage (plan.zero): "},
      {"c.json", "{\"zero_optimization\":\n {\"stage\": 1,}}", ":2:14: error: not JSON"},
      {"d.json", "{\"bf16\": {\"enabled\": true},\n \"fp16\": {\"enabled\": true}}", "fp16 and bf16 are both enabled"},
      {"e.json", "{\"train_batch_size\": 8, \"train_batch_size\": 8}", "train_batch_size"},
      {"a.toml", "[training]\nseq_len = 2048\n[parallelism]\ntensor_parallel_degree = 0\n",
       ":4:26: error: parallelism.tensor_parallel_degree: expected 1 to"},
      {"b.toml", "[training]\nseq_len = \n", ":2:"},
      {"c.toml", "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"1F1\"\n",
       "did you mean '1F1B'?"},
      {"e.toml", "[training]\nseq_len = 1\na" + std::string(100, '.') + "b = 1\n",
       ":3:41: error: a key of more than 40 parts"},
      {"d.toml", "[training]\nseq_len = 1\nseq_len = 2\n", ":3:"},
      {"a.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHRD\n",
       ":3:27: error: fsdp_config.fsdp_sharding_strategy: 'FULL_SHRD' is not known (did you mean 'FULL_SHARD'?)"},
      {"b.yaml", "distributed_type: TPU\n", "'TPU' is not available"},
  };
  const Folder folder;
  for (const Case& c : cases) {
    const std::string file = folder.write(c.name, c.text);
    const Outcome r = run({"import", file});
    EXPECT_EQ(r.status, 2) << c.text << r.out << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(has(r.err, file) && has(r.err, c.message)) << c.text << "\n" << r.err;
  }
  EXPECT_EQ(folder.files().size(), cases.size()) << "nothing else is written";
}

// A model that is half there is no other model, and a slip in a name is said.
TEST(LaunchFiles, HalfAModelAndMisspeltFlagsAreSaid) {
  const Folder folder;
  const std::string half = folder.write(
      "half.sh", "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --bf16 --tensor-model-paralel-size 2\n");
  const Outcome r = run({"import", half});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err,
                  "half.sh:1:45: error: --num-layers: of a model whose --hidden-size and --num-attention-heads "
                  "the file does not give"))
      << r.err;
  const Outcome named = run({"import", half, "--model", "llama2-7b"});
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_TRUE(has(named.err, "used --nproc-per-node 8: cluster.gpus 8\n")) << named.err;
  EXPECT_TRUE(
      has(named.err, "ignored --tensor-model-paralel-size (line 1); did you mean --tensor-model-parallel-size?"))
      << named.err;
  EXPECT_TRUE(has(named.err, "ignored --num-layers (line 1)\n")) << "known, and not asked for: " << named.err;
}

TEST(LaunchFiles, WhatCannotBeExportedIsRefused) {
  const Outcome cnn = run({"export", "cnn-cifar-ddp", "--to", "megatron"});
  EXPECT_EQ(cnn.status, 2);
  EXPECT_TRUE(has(cnn.err, "is of the family cnn, expected gpt, llama or moe")) << cnn.err;
  EXPECT_EQ(run({"export", "cnn-cifar-ddp", "--to", "torchrun"}).status, 0);
  EXPECT_EQ(run({"export", "gpt-tiny-ddp", "--to", "megatrn"}).status, 2);
  EXPECT_EQ(run({"export", "gpt-tiny-ddp"}).status, 2);
  EXPECT_EQ(run({"import"}).status, 2);
  EXPECT_EQ(run({"import", "/nowhere/run.sh"}).status, 2);
}

TEST(LaunchFiles, AProgramOfOnesOwnHasRanksAndPins) {
  const Folder folder;
  const std::string file = folder.write(
      "run.sh", "export NCCL_PROTO=Simple NCCL_IB_HCA=mlx5\ntorchrun --nnodes=2 --nproc_per_node 8 train.py --lr 1\n");
  const Outcome r = run({"import", file});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "gpus: 16")) << r.out;
  EXPECT_TRUE(has(r.out, "{kind: all_reduce, algorithm: auto, protocol: simple}")) << r.out;
  EXPECT_TRUE(has(r.err, "rehearse: ignored NCCL_IB_HCA (line 1)")) << r.err;
}

TEST(LaunchFiles, PythonIsPython) {
  if (shell("command -v python3").status != 0) GTEST_SKIP() << "no python3";
  const Folder folder;
  for (const char* format : {"torchrun", "torchtitan", "megatron-bridge"})
    for (const char* scenario : {"llama2-7b-8xa100", "deepseek-v3-2048xh800"}) {
      const std::string file = folder / "plan.py";
      ASSERT_EQ(run({"export", scenario, "--to", format, "--set", "plan.recompute=full", "-o", file}).status, 0);
      EXPECT_EQ(shell("python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' '" + file + "'").err, "")
          << format << "\n"
          << read(file);
    }
}

TEST(LaunchFiles, ScriptsAreBash) {
  const Folder folder;
  for (const char* format : {"megatron", "sbatch"}) {
    const std::string file = folder / format;
    ASSERT_EQ(run({"export", "deepseek-v3-2048xh800", "--to", format, "-o", file}).status, 0);
    EXPECT_EQ(shell("bash -n '" + file + "'").err, "") << read(file);
  }
}

}  // namespace
}  // namespace rehearse::e2e
