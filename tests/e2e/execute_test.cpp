// rehearse execute as a user meets it: a small plan performed, its files, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "program.h"
#include "tests/support/small_gpt.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

// What tokens chose comes back as the loads of a simulation, found beside the scenario.
TEST(Execute, RecordsWhichExpertsTokensChose) {
  const Folder folder;
  const std::string model =
      "rehearse: 1\nmodel: {preset: moe-tiny, layers: 2, buffer_factor: 2ROUTING}\n"
      "cluster: {topology: dgx-a100, gpus: 4}\nplan: {expert: 2, micro_batch: 1}\n"
      "training: {global_batch: 8, seq_len: 16, precision: fp32}\n";
  const auto with = [&model](const std::string& routing) {
    std::string text = model;
    return text.replace(text.find("ROUTING"), 7, routing);
  };
  const std::string scenario = folder.write("moe.yaml", with(""));
  const Outcome r = run({"execute", scenario, "--steps", "3", "--record-routing", folder / "routing.csv"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string table = read(folder / "routing.csv");
  EXPECT_TRUE(
      table.starts_with("step,micro_batch,layer,data,context,tensor,rows,sequences,positions,chosen\n1,0,0,0,0,0,"))
      << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 3 * 2 * 2 * 4);
  EXPECT_TRUE(has(table, "\n3,1,1,3,0,0,"));
  const std::string recorded = folder.write("recorded.yaml", with(", routing: recorded, routing_file: routing.csv"));
  const Outcome s = run({"simulate", recorded, "--json"});
  ASSERT_EQ(s.status, 0) << s.err;
  const Json result = Json::parse(s.out);
  EXPECT_EQ(result["scenario"]["model.routing_step"], "3");
  EXPECT_GT(result["experts"]["imbalance"].get<double>(), 1);
  const Outcome gone = run({"simulate", recorded, "--set", "model.routing_step=4"});
  EXPECT_EQ(gone.status, 2);
  EXPECT_TRUE(has(gone.err, "routing.csv:1:1: error: the table has no step 4 (model.routing_step: 1 to 3)"))
      << gone.err;
  const Outcome none = run({"execute", folder.write("small.yaml", kSmallGpt), "--record-routing", folder / "r.csv"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(has(none.err, "the model has no experts for tokens to choose")) << none.err;
}

// Ranks start within the first step, of which no rate is told by.
TEST(Execute, MetricsOfOneStepHaveNoRates) {
  const Folder folder;
  const Outcome r =
      run({"execute", folder.write("small.yaml", kSmallGpt), "--steps", "1", "--metrics", folder / "run.prom"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string metrics = read(folder / "run.prom");
  EXPECT_TRUE(has(metrics, "rehearse_loss{")) << metrics;
  EXPECT_FALSE(has(metrics, "second")) << metrics;
}

TEST(Execute, AMeasuredResultHasLossesAndSharesThatSumToTheStep) {
  const Folder folder;
  const std::string scenario = folder.write("small.yaml", kSmallGpt);
  const Outcome r = run({"execute", scenario, "--steps", "30", "-o", folder / "out", "--json", "--metrics",
                         folder / "run.prom", "--tensorboard"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string metrics = read(folder / "run.prom");
  EXPECT_TRUE(has(metrics, "rehearse_steps_total{scenario=\"")) << metrics;
  EXPECT_TRUE(has(metrics, "\"} 30\n")) << metrics;
  EXPECT_TRUE(has(metrics, "rehearse_step_seconds{")) << metrics;
  const std::string steps = read(folder / "out/steps.csv");
  EXPECT_TRUE(steps.starts_with("step,rank,loss,end_s,step_s,compute_s,")) << steps;
  EXPECT_EQ(std::count(steps.begin(), steps.end(), '\n'), 1 + 30 * 4);
  const std::string events = read(folder / "out/events.out.tfevents.rehearse");
  std::size_t losses = 0;
  for (std::size_t at = 0; (at = events.find("\x04"
                                             "loss\x15",
                                             at)) != std::string::npos;
       ++at)
    ++losses;
  EXPECT_EQ(losses, 30U) << "a step's tag, with its length before and a 4-byte number behind";
  const Json result = Json::parse(r.out);
  // The head is larger than a layer; nothing else is on standard error.
  ASSERT_EQ(result["notes"].size(), 1u);
  EXPECT_EQ(result["notes"][0]["what"], "uneven_stages");
  const std::string note = result["notes"][0]["text"];
  EXPECT_TRUE(note.starts_with("Stages are uneven, though each holds 1 of the 2 layers. Stage 1 (1 layer, with the "))
      << note;
  EXPECT_TRUE(has(note, "by its FLOPs")) << note;
  EXPECT_EQ(r.err, "rehearse: note: " + note + "\n");
  EXPECT_EQ(result["source"], "measured");
  EXPECT_EQ(result["ranks"], 4);
  EXPECT_EQ(result["steps"], 30);
  ASSERT_EQ(result["loss"].size(), 30u);
  EXPECT_LT(result["loss"].back().get<double>(), result["loss"].front().get<double>());
  double sum = 0;
  for (const auto& [name, share] : result["breakdown_s"].items()) sum += share.get<double>();
  EXPECT_NEAR(sum, result["step_time_s"].get<double>(), 1e-12);
  EXPECT_EQ(r.out, read(folder / "out/result.json"));
  // The last step of one rank a stage: ranks 0 and 2.
  const std::string ops = read(folder / "out/ops.csv");
  EXPECT_TRUE(has(ops, "\n0/29/")) << ops;
  EXPECT_TRUE(has(ops, "\n2/29/"));
  EXPECT_FALSE(has(ops, "\n1/29/"));
  EXPECT_TRUE(Json::accept(gunzip(folder / "out/trace.json.gz")));
}

// 128 images of ten classes and first weights that say little: ln 10 = 2.3026 but for those. The outputs' spread over
// classes is about 0.1 (biases and weights uniform in +-1 / sqrt(84) make it so), which moves the mean loss by some
// 0.005.
TEST(Execute, TheCifarNetworkBeginsAtTheLossOfTenClasses) {
  const Folder folder;
  const Outcome r = run({"execute", "cifar-4-workers", "--steps", "2", "-o", folder / "out", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json result = Json::parse(r.out);
  EXPECT_EQ(result["ranks"], 4);
  EXPECT_EQ(result["scenario"]["training.global_batch"], "128");
  EXPECT_EQ(result["scenario"]["model.parameters"],
            std::to_string(76 * 6 + 151 * 16 + 1025 * 120 + 121 * 84 + 85 * 10));
  EXPECT_NEAR(result["loss"][0].get<double>(), std::log(10.0), 0.02);
  // One rank sees the same 128 images.
  const Outcome alone = run({"execute", "cifar-4-workers", "--set", "cluster.gpus=1", "--steps", "2", "--json"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  for (const int step : {0, 1})
    EXPECT_NEAR(Json::parse(alone.out)["loss"][step].get<double>(), result["loss"][step].get<double>(), 1e-5);
}

// Asynchronous workers as shipped: freely, and in the order of the simulation, which is the same in every run.
TEST(Execute, WorkersOfAParameterServer) {
  const Folder folder;
  const Outcome free = run({"execute", "cifar-4-workers-async", "--steps", "4", "-o", folder / "free", "--json"});
  ASSERT_EQ(free.status, 0) << free.err;
  const Json result = Json::parse(free.out);
  EXPECT_NEAR(result["loss"][0].get<double>(), std::log(10.0), 0.02);
  EXPECT_GE(result["parameter_servers"]["updates"], 3) << "of the worker that ends first all but its first iteration";
  EXPECT_LE(result["parameter_servers"]["updates"], 12);
  const std::string events = read(folder / "free/servers.csv");
  EXPECT_EQ(std::count(events.begin(), events.end(), '\n'), 1 + 2 * 16);
  EXPECT_TRUE(has(events, "server,place,act,worker,iteration\n0,0,pull,"));
  const auto ordered = [&](const char* name) {
    const Outcome r =
        run({"execute", "cifar-4-workers-async", "--steps", "4", "--as-simulated", "-o", folder / name, "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out)["loss"].dump() + read(folder / (std::string(name) + "/servers.csv"));
  };
  EXPECT_EQ(ordered("first"), ordered("second"));
  const Outcome table = run({"execute", "cifar-4-workers-async", "--steps", "4"});
  EXPECT_TRUE(has(table.out, "1 parameter server, 4 workers, asynchronous")) << table.out;
  EXPECT_TRUE(has(table.out, "How old gradients are")) << table.out;
}

TEST(Execute, WhatServersAreNotPerformedWithIsRefused) {
  const auto refused = [](std::vector<std::string> more) {
    std::vector<std::string> words = {"execute", "cifar-4-workers-async", "--steps", "2"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 2) << r.err;
    return r.err;
  };
  EXPECT_TRUE(has(refused({"--ranks", "mpi"}), "(mpirun -n 5 rehearse execute ... --ranks mpi)"));
  EXPECT_TRUE(has(refused({"--ranks", "gloo", "--elastic", "1:4", "--checkpoint", "saved", "--every", "1"}),
                  "do not come and go yet"));
  EXPECT_TRUE(has(refused({"--as-simulated", "--set", "plan.servers=0", "--set", "plan.consistency=synchronous"}),
                  "orders what parameter servers do"));
  const Outcome shrunk = run({"execute", "cifar-4-workers-async", "--shrink"});
  EXPECT_EQ(shrunk.status, 2);
  EXPECT_TRUE(has(shrunk.err, "no miniatures of plans with parameter servers yet")) << shrunk.err;
  const Outcome sampled = run({"simulate", "cifar-4-workers-async", "--samples", "3", "--json"});
  EXPECT_EQ(sampled.status, 0) << sampled.err;
  EXPECT_EQ(Json::parse(sampled.out)["samples"]["count"], 3);
  const Outcome asked = run({"simulate", "cifar-4-workers-async", "--what-if"});
  EXPECT_EQ(asked.status, 2);
  EXPECT_TRUE(has(asked.err, "pulls and pushes have a network of their own")) << asked.err;
  const Outcome planned = run({"plan", "cifar-4-workers-async"});
  EXPECT_EQ(planned.status, 2);
  EXPECT_TRUE(has(planned.err, "plans are compared without noise")) << planned.err;
}

// Plans of fixed servers are compared: what stands first is what a simulation of it says.
TEST(Execute, PlansWithServersAreSearched) {
  const std::vector<std::string> same = {
      "--set", "cluster.topology=ethernet-a100", "--set", "cluster.gpus=8",  "--set", "plan.servers=2",
      "--set", "plan.consistency=asynchronous",  "--set", "training.clip=0", "--set", "training.global_batch=64"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), same.begin(), same.end());
    words.push_back("--json");
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out);
  };
  const Json found = with({"plan", "gpu/gpt2"});
  ASSERT_FALSE(found["plans"].empty());
  const Json& best = found["plans"][0];
  EXPECT_EQ(best["gpus"], 10) << "two of the servers' own";
  EXPECT_GT(found["search"]["plans_simulated"], 1);
  std::vector<std::string> words = {"simulate", "gpu/gpt2"};
  for (const auto& [key, value] : best["plan"].items()) {
    words.push_back("--set");
    words.push_back(key + "=" + value.get<std::string>());
  }
  const Json simulated = with(words);
  EXPECT_EQ(simulated["step_time_s"], best["step_time_s"]);
  EXPECT_NEAR(simulated["cost"]["gpu_hours_per_step"].get<double>(), simulated["step_time_s"].get<double>() * 10 / 3600,
              1e-12);
  EXPECT_NEAR(simulated["tokens_per_s_per_gpu"].get<double>() * 10, simulated["tokens_per_s"].get<double>(), 1e-3);
  EXPECT_EQ(simulated["parameter_servers"]["own_devices"], 2);
}

// At a learning rate of 1 gradients that are three updates old drive the regression apart, and those of all workers
// together do not.
TEST(Execute, GradientsThatComeTooLate) {
  const auto loss = [](const char* consistency) {
    const Outcome r = run({"execute", "regression-stale", "--as-simulated", "--steps", "60", "--set",
                           std::string("plan.consistency=") + consistency, "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out)["loss"];
  };
  const Json late = loss("asynchronous"), together = loss("synchronous");
  EXPECT_LT(together[59].get<double>(), 0.2 * together[0].get<double>());
  EXPECT_GT(late[19].get<double>(), 100 * late[0].get<double>());
}

// As shipped, on this machine: how long a step takes is the machine's, what it holds and counts is the plan's.
TEST(Execute, TheCifarNetworkIsSimulatedAsItIsPerformed) {
  const Folder folder;
  const Outcome calibrated =
      run({"calibrate", "--budget", "4", "--for", "cifar-4-workers", "-o", folder / "host.json"});
  ASSERT_EQ(calibrated.status, 0) << calibrated.err;
  const Outcome s =
      run({"simulate", "cifar-4-workers", "--set", "costs.calibration=" + (folder / "host.json"), "--json"});
  ASSERT_EQ(s.status, 0) << s.err;
  const Outcome m = run({"execute", "cifar-4-workers", "--steps", "1", "--json"});
  ASSERT_EQ(m.status, 0) << m.err;
  const Json simulated = Json::parse(s.out), measured = Json::parse(m.out);
  EXPECT_GT(simulated["step_time_s"].get<double>(), 0);
  EXPECT_EQ(simulated["ranks"], 4);
  EXPECT_GT(simulated["breakdown_s"]["exposed_data"].get<double>(), 0) << "the workers reduce their gradients";
  for (const char* part : {"parameters", "gradients", "activations", "peak"})
    EXPECT_EQ(simulated["memory"]["stages"][0][part], measured["memory"]["stages"][0][part]) << part;
  EXPECT_EQ(simulated["flop_formula"], measured["flop_formula"]);
}

constexpr char kRegression[] = R"(rehearse: 1
framework: rehearse
name: regression
model: {family: mlp, widths: [10, 1], loss: mse}
cluster: {topology: dgx-a100, gpus: 2}
training: {global_batch: 8, precision: fp32, optimizer: sgd, lr: 0.1, weight_decay: 0, clip: 0}
)";

TEST(Execute, ARegressionIsSimulatedPerformedAndReportedInItsOwnLoss) {
  const Folder folder;
  const std::string scenario = folder.write("regression.yaml", kRegression);
  const Outcome simulated = run({"simulate", scenario, "-o", folder / "simulated"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const Outcome r = run({"execute", scenario, "--steps", "20", "-o", folder / "measured"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "mean squared error")) << r.out;
  EXPECT_TRUE(has(r.out, "1 value of 10 inputs")) << r.out;
  EXPECT_FALSE(has(r.out, "nats")) << r.out;
  const Outcome report = run({"report", folder / "simulated", folder / "measured", "-o", folder / "page.html"});
  ASSERT_EQ(report.status, 0) << report.err;
  EXPECT_TRUE(has(read(folder / "page.html"), "Of the measured runs, in mean squared error"));
  const Outcome compared = run({"compare", folder / "simulated", folder / "measured"});
  EXPECT_EQ(compared.status, 0) << compared.err;
  for (const char* kind : {"mse_forward", "mse_backward"})
    EXPECT_TRUE(has(read(folder / "measured/ops.csv") + gunzip(folder / "simulated/trace.json.gz"), kind)) << kind;
}

TEST(Execute, TheTableSaysWhatWasTrainedOnAndHowItWent) {
  const Folder folder;
  const std::string text = folder.write("text.txt", std::string(500, 'a'));
  const Outcome r = run({"execute", folder.write("small.yaml", kSmallGpt), "--steps", "3", "--data", text});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* part : {"text.txt", "4 sequences = micro-batch 1 x 4 micro-batches x data 1; 32", "first, ",
                           "last of 3 steps", "Tokens a second", "Memory a rank", "compute", "exposed tensor"})
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
}

// The process holds its ranks' arenas, which are as large as planned to a page, and no more beside them than stated
// (execute/memory_use.h): 24 MiB and 8 MiB a computing thread. The models are large enough for a lost copy to show.
TEST(Execute, TheProcessHoldsItsArenasAndNoMoreBesideThanStated) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers hold memory of their own";
#endif
  const std::string gpt =
      "rehearse: 1\n"
      "model: {family: gpt, layers: 2, hidden: 256, heads: 8, vocab: 20000, max_seq_len: 16}\n"
      "training: {global_batch: 4, precision: fp32}\n";
  const std::vector<std::pair<int, std::string>> plans = {
      {1, "plan: {micro_batch: 4}\n"},
      {4, "plan: {zero: 3}\n"},
      {8, "plan: {tensor: 2, pipeline: 2}\n"},
  };
  for (const auto& [ranks, plan] : plans) {
    SCOPED_TRACE(plan);
    const Folder folder;
    const std::string cluster =
        "cluster: {topology: dgx-a100, gpus: " + std::to_string(ranks) + ", threads_per_rank: 1}\n";
    const Outcome r = run({"execute", folder.write("memory.yaml", gpt + cluster + plan), "--steps", "1", "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    const Json result = Json::parse(r.out);
    const Json& stages = result["memory"]["stages"];
    std::int64_t planned = 0;
    for (const Json& stage : stages)
      planned += stage["peak"].get<std::int64_t>() * ranks / static_cast<std::int64_t>(stages.size());
    const auto arenas = result["engine"]["arena_bytes"].get<std::int64_t>();
    EXPECT_LE(std::abs(arenas - planned), planned / 100) << arenas << " of " << planned;
    EXPECT_GT(arenas, 50'000'000);
    const std::int64_t beside = result["engine"]["peak_rss_bytes"].get<std::int64_t>() - arenas;
    EXPECT_GT(beside, 0);
    EXPECT_LE(beside, (24 + 8 * ranks) * (std::int64_t{1} << 20));
  }
}

// In 16 bits as well the arenas are as planned: half the parameters and activations, fp32 copies of the parameters, and
// all of it finds its way into a comparison with the simulation, op by op. fp16 tells of its loss scale.
TEST(Execute, SixteenBitRunsAreMeasuredAndCompared) {
  for (const std::string precision : {"bf16", "fp16"}) {
    const Folder folder;
    const std::vector<std::string> scenario = {"gpt-tiny-2x2x2", "--set", "training.precision=" + precision};
    const auto with = [&](const std::string& command, const std::vector<std::string>& more) {
      std::vector<std::string> all = {command};
      all.insert(all.end(), scenario.begin(), scenario.end());
      all.insert(all.end(), more.begin(), more.end());
      return run(all);
    };
    const Outcome r = with("execute", {"--steps", "4", "-o", folder / "measured"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(has(r.out, "Loss scale        65536 at the end, for 4 steps"), precision == "fp16") << r.out;
    EXPECT_TRUE(has(r.out, "+0.00% of what was planned")) << r.out;
    const Json result = Json::parse(read(folder / "measured/result.json"));
    EXPECT_LT(result["loss"][3].get<double>(), result["loss"][0].get<double>());
    const Outcome s = with("simulate", {"--set", "cluster.topology=dgx-a100", "-o", folder / "simulated"});
    ASSERT_TRUE(s.status == 0 || s.status == 3) << s.err;
    const Outcome c = run({"compare", folder / "simulated", folder / "measured"});
    EXPECT_EQ(c.status, 0) << c.err;
    EXPECT_TRUE(has(c.out, "The same program: all ")) << c.out;
  }
}

TEST(Execute, TheShippedScenariosOfThisMachineArePerformed) {
  for (const char* scenario : {"gpt-tiny-text", "gpt-tiny-ddp", "gpt-tiny-2x2x2", "moe-tiny-2x2", "dlrm-tiny-4"}) {
    const Outcome r = run({"execute", scenario, "--steps", "2", "--json"});
    ASSERT_EQ(r.status, 0) << scenario << ": " << r.err;
    const Json loss = Json::parse(r.out)["loss"];
    EXPECT_LT(loss[1].get<double>(), loss[0].get<double>()) << scenario;
  }
}

TEST(Execute, TheLogHasALineEverySoManySteps) {
  const Folder folder;
  const Outcome r = run({"execute", folder.write("small.yaml", kSmallGpt), "--steps", "7", "--log-every", "3"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 3)
      << "two of the log, and the note on uneven stages: " << r.err;
  EXPECT_TRUE(has(r.err, "rehearse: note: Stages are uneven")) << r.err;
  for (const char* part : {"step 3  loss ", "step 6  loss ", " tokens/s"}) EXPECT_TRUE(has(r.err, part)) << r.err;
}

TEST(Execute, EpochsAndStepsExcludeEachOther) {
  const Outcome r = run({"execute", "gpt-tiny-ddp", "--epochs", "1", "--steps", "3"});
  EXPECT_EQ(r.status, 2) << r.out;
  EXPECT_TRUE(has(r.err, "--epochs")) << r.err;
}

TEST(Execute, WhatCannotBePerformedExits2AndSaysWhy) {
  const Folder folder;
  const std::string scenario = folder.write("small.yaml", kSmallGpt);
  const Outcome ranks = run({"execute", scenario, "--set", "cluster.gpus=256", "--set", "training.global_batch=64"});
  EXPECT_EQ(ranks.status, 2);
  EXPECT_TRUE(has(ranks.err, "at most 64")) << ranks.err;
  const Outcome vocabulary = run({"execute", scenario, "--set", "model.vocab=50"});
  EXPECT_EQ(vocabulary.status, 2);
  EXPECT_TRUE(has(vocabulary.err, "outside the model's vocabulary of 50")) << vocabulary.err;
  const Outcome data = run({"execute", scenario, "--data", folder / "none.txt"});
  EXPECT_EQ(data.status, 2);
  EXPECT_TRUE(has(data.err, "no such file")) << data.err;
}

// What the CPU's kernels perform and those of GPUs do not yet; `reason` is what the refusal says. The CPU's output.
std::string expect_on_cpus_only(std::vector<std::string> words, const std::string& reason) {
  const Outcome cpu = run(words);
  EXPECT_EQ(cpu.status, 0) << cpu.err;
  words.insert(words.end(), {"--device", "cuda"});
  const Outcome cuda = run(words);
  EXPECT_EQ(cuda.status, 2);
  EXPECT_TRUE(has(cuda.err, reason)) << cuda.err;
  return cpu.out;
}

// What GPUs perform too, where there are some: nothing but these is missing.
void expect_gpus_are_asked_for(std::vector<std::string> words) {
  words.insert(words.end(), {"--device", "cuda"});
  const Outcome cuda = run(words);
  if (cuda.status != 0) {
    EXPECT_TRUE(has(cuda.err, "no CUDA device")) << cuda.err;
  }
}

TEST(Execute, ModelsWithExpertsArePerformed) {
  const std::vector<std::string> words = {"execute", "moe-tiny-2x2", "--steps", "3"};
  const Outcome cpu = run(words);
  EXPECT_EQ(cpu.status, 0) << cpu.err;
  EXPECT_TRUE(has(cpu.out, "exposed expert")) << cpu.out;
  expect_gpus_are_asked_for(words);
}

TEST(Execute, AdaptersAreTrainedBesideFrozenParameters) {
  const auto performed = [](const char* scenario, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"execute", scenario, "--steps", "3", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 0) << r.err;
    return Json::parse(r.out);
  };
  const auto count = [](const Json& result, const char* key) {
    return std::stoll(result["scenario"].at(key).get<std::string>());
  };
  for (const char* scenario : {"gpt-tiny-2x2x2", "moe-tiny-2x2"}) {
    SCOPED_TRACE(scenario);
    const Json all = performed(scenario, {}), adapted = performed(scenario, {"--set", "training.lora_rank=4"});
    EXPECT_FALSE(all["scenario"].contains("model.trainable_parameters"));
    const auto trained = count(adapted, "model.trainable_parameters");
    EXPECT_EQ(count(adapted, "model.parameters"), count(all, "model.parameters") + trained);
    EXPECT_LT(trained, count(all, "model.parameters") / 4);
    EXPECT_EQ(adapted["loss"][0], all["loss"][0]) << "an adapter begins by adding nothing";
    EXPECT_NE(adapted["loss"][2], all["loss"][2]);
  }
}

TEST(Execute, LatentAttentionIsPerformedOnCpusOnly) {
  std::vector<std::string> words = {"execute", "moe-tiny-2x2", "--steps", "3"};
  for (const char* key : {"kv_lora_rank=16", "qk_nope_head_dim=8", "qk_rope_head_dim=4", "v_head_dim=8", "kv_heads=4"})
    words.insert(words.end(), {"--set", std::string("model.") + key});
  expect_on_cpus_only(words, "no kernels of GPUs for latent attention yet");
}

TEST(Execute, EightAndFourBitsArePerformedOnCpusOnly) {
  for (const char* recipe : {"delayed", "tensorwise"})
    expect_on_cpus_only({"execute", "gpt-tiny-2x2x2", "--steps", "3", "--set", "training.precision=fp8", "--set",
                         std::string("training.fp8_recipe=") + recipe},
                        "no kernels of GPUs for 8-bit copies yet");
  expect_on_cpus_only({"execute", "gpt-tiny-2x2x2", "--steps", "3", "--set", "training.precision=nvfp4", "--set",
                       "plan.sequence_parallel=false"},
                      "no kernels of GPUs for 8-bit copies yet");
}

TEST(Execute, AContextGroupThatPassesKeysOnIsPerformed) {
  const Folder folder;
  const std::vector<std::string> words = {
      "execute", folder.write("small.yaml", kSmallGpt), "--set", "plan.tensor=1", "--set", "plan.context=2", "--steps",
      "2"};
  const Outcome cpu = run(words);
  EXPECT_EQ(cpu.status, 0) << cpu.err;
  expect_gpus_are_asked_for(words);
}

// With a GPU the first is performed there.
TEST(Execute, WhereItIsPerformedMustBeThereAndFitTheRanks) {
  const Folder folder;
  const std::string scenario = folder.write("small.yaml", kSmallGpt);
  const Outcome cuda = run({"execute", scenario, "--device", "cuda", "--steps", "1"});
  if (cuda.status != 0) {
    EXPECT_EQ(cuda.status, 2);
    EXPECT_TRUE(has(cuda.err, "no CUDA device: ")) << cuda.err;
    EXPECT_EQ(cuda.out, "");
    const Outcome without_asking = run({"execute", scenario, "--device", "auto", "--steps", "1"});
    EXPECT_EQ(without_asking.status, 0) << without_asking.err;
  }
  const Outcome gloo = run({"execute", scenario, "--device", "cuda", "--ranks", "gloo"});
  EXPECT_EQ(gloo.status, 2);
  EXPECT_TRUE(has(gloo.err, "ranks on GPUs are processes joined by NCCL")) << gloo.err;
  const Outcome cpu = run({"execute", scenario, "--device", "cpu", "--ranks", "nccl"});
  EXPECT_EQ(cpu.status, 2);
  EXPECT_TRUE(has(cpu.err, "joins ranks on GPUs")) << cpu.err;
}

}  // namespace
}  // namespace rehearse::e2e
