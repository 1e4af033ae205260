// rehearse plan as a user runs it: the table, JSON, what it writes, several numbers of GPUs, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"
#include "tests/support/temporary.h"

namespace rehearse::e2e {
namespace {

using PlanJson = nlohmann::json;

std::string plan_scenario(const std::string& more = "") {
  const std::string path = test::temporary_path("plan.yaml");
  std::ofstream(path) << "rehearse: 1\nname: small\nframework: rehearse\n"
                         "model: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 2048, max_seq_len: 256}\n"
                         "cluster: {topology: dgx-a100, gpus: 16}\n"
                         "training: {global_batch: 32, seq_len: 256, precision: bf16}\n"
                      << more;
  return path;
}

Outcome plan(std::vector<std::string> more, const std::string& file = plan_scenario()) {
  std::vector<std::string> all{"plan", file, "--fix", "plan.context=1", "--fix", "plan.schedule=1f1b"};
  all.insert(all.end(), more.begin(), more.end());
  return run(all);
}

TEST(PlanCommand, AnswersTheBestPlansAndHowSureItIs) {
  const Outcome r = plan({"--top", "3", "--worth", "--front", "--tokens", "1B", "--price", "2.5"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_LE(widest(r.out), 80u) << r.out;
  for (const char* part :
       {"small: the best 3 plans by step time", "The best plan: ", "Proven: no other plan",
        "1G tokens take the best plan", "What each key is worth", "Less memory, and what it costs in time"})
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
}

TEST(PlanCommand, WritesPlansThatSimulateToTheSameSteps) {
  const std::string folder = test::temporary_path("plans");
  const Outcome r = plan({"--top", "2", "--json", "-o", folder});
  ASSERT_EQ(r.status, 0) << r.err;
  const PlanJson json = PlanJson::parse(r.out);
  EXPECT_EQ(json["schema"], "rehearse.plan/1");
  EXPECT_TRUE(json["search"]["proven"]);
  EXPECT_GT(json["search"]["plans_pruned"].get<int>(), json["search"]["plans_simulated"].get<int>());
  ASSERT_EQ(json["plans"].size(), 2u);
  for (int i = 1; i <= 2; ++i) {
    const std::string name = folder + "/plan-" + std::to_string(i);
    const PlanJson again = PlanJson::parse(run({"simulate", name + ".yaml", "--json"}).out);
    EXPECT_EQ(again["step_time_s"], json["plans"][i - 1]["step_time_s"]);
    EXPECT_TRUE(std::filesystem::exists(name + "/result.json"));
  }
  EXPECT_EQ(PlanJson::parse(std::ifstream(folder + "/plans.json"))["plans"], json["plans"]);
}

// Steps are whole picoseconds, so no more than twelve places, and the number that simulate prints.
TEST(PlanCommand, PrintsAStepAsSimulateDoes) {
  const Outcome r = plan({"--top", "20", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string name = "\"step_time_s\": ";
  int steps = 0;
  for (std::size_t at = r.out.find(name); at != std::string::npos; at = r.out.find(name, at + 1), ++steps) {
    const std::size_t first = at + name.size();
    const std::string number = r.out.substr(first, r.out.find_first_not_of("0123456789.", first) - first);
    EXPECT_LE(number.size() - number.find('.') - 1, 12U) << number;
  }
  EXPECT_GE(steps, 20);
}

// The scenario's own plan need not be one that can be: what is free is set anew.
TEST(PlanCommand, AScenariosOwnPlanMayBeImpossible) {
  const std::string chunks = plan_scenario("plan: {pipeline: 2, schedule: interleaved, chunks: 2, tensor: 4}\n");
  const Outcome schedule = plan({"--top", "1", "--budget", "1"}, chunks);
  EXPECT_EQ(schedule.status, 0) << schedule.err;
  const std::string file = plan_scenario(
      "plan: {pipeline: 4, schedule: interleaved, chunks: 1, tensor: 4, layers_per_stage: [1, 1, 1, 1]}\n");
  const Outcome gpus = run({"plan", file, "--fix", "cluster.gpus=2", "--budget", "1"});
  EXPECT_EQ(gpus.status, 0) << gpus.err;
  const Outcome batch =
      run({"plan", "cnn-cifar-ddp", "--calibration", "a100-sxm-80g", "--fix", "cluster.gpus=4", "--budget", "1"});
  EXPECT_EQ(batch.status, 0) << batch.err;
}

TEST(PlanCommand, BlamesTheOptionThatAssigns) {
  const Outcome range = plan({"--range", "plan.zero=7"});
  EXPECT_EQ(range.status, 2);
  EXPECT_TRUE(has(range.err, "--range: error: plan.zero: 7 is out of range, expected 0 to 3 (")) << range.err;
  const Outcome fixed = plan({"--fix", "plan.tensor=7"});
  EXPECT_EQ(fixed.status, 2);
  EXPECT_TRUE(has(fixed.err, "--fix: error: plan.tensor: heads = 8 is not divisible by tensor = 7")) << fixed.err;
  EXPECT_FALSE(has(fixed.err, "--set")) << fixed.err;
  EXPECT_TRUE(has(plan({"--gpus", "9999999"}).err, "--gpus: error: ")) << plan({"--gpus", "9999999"}).err;
}

// Strong scaling of a small batch bends; with a batch that grows as the GPUs do it does not.
TEST(PlanCommand, StrongScalingHasAKneeThatWeakScalingHasNot) {
  const Outcome strong = plan({"--gpus", "8,16,32", "--json"}), weak = plan({"--gpus", "8,16,32", "--weak", "--json"});
  ASSERT_EQ(strong.status, 0) << strong.err;
  ASSERT_EQ(weak.status, 0) << weak.err;
  const PlanJson s = PlanJson::parse(strong.out), w = PlanJson::parse(weak.out);
  EXPECT_TRUE(w["knee_gpus"].is_null()) << w["knee_gpus"];
  EXPECT_TRUE(s.contains("knee_gpus"));
  const auto batch = [](const PlanJson& j, int i) { return j["searches"][i]["plans"][0]["global_batch"].get<int>(); };
  EXPECT_EQ(batch(s, 2), 32);
  EXPECT_EQ(batch(w, 0), 32);
  EXPECT_EQ(batch(w, 2), 128);
  EXPECT_TRUE(has(plan({"--gpus", "8,16", "--weak"}).out, "knee"));
  EXPECT_EQ(plan({"--gpus", "8", "--weak"}).status, 2);
}

TEST(PlanCommand, OfSeveralNumbersOfGpusItWritesEachAndThePageDrawsThem) {
  const std::string folder = test::temporary_path("numbers"), page = test::temporary_path("numbers.html");
  const Outcome r = plan({"--gpus", "4,8,16", "--json", "-o", folder});
  ASSERT_EQ(r.status, 0) << r.err;
  const PlanJson written = PlanJson::parse(std::ifstream(folder + "/scaling.json"));
  EXPECT_EQ(written["knee_gpus"], PlanJson::parse(r.out)["knee_gpus"]);
  for (const PlanJson& search : written["searches"]) {
    const PlanJson& best = search["plans"][0];
    const PlanJson result =
        PlanJson::parse(std::ifstream(folder + "/" + best["directory"].get<std::string>() + "/result.json"));
    EXPECT_EQ(result["step_time_s"], best["step_time_s"]);
  }
  ASSERT_EQ(run({"report", folder, "-o", page}).status, 0);
  const std::string html = read(page);
  for (const char* part : {"The best plan for each number of GPUs", "Strong scaling: the batch stays.", "Efficiency",
                           "16 GPUs", "ideal: as the GPUs"})
    EXPECT_TRUE(has(html, part)) << part;
  ASSERT_EQ(run({"report", folder + "/gpus-8", "-o", page}).status, 0) << "the space of one of them";
  std::ofstream(folder + "/scaling.json") << R"({"schema": "rehearse.plan_scaling/1", "searches": [{}]})";
  const Outcome broken = run({"report", folder, "-o", page});
  EXPECT_EQ(broken.status, 2);
  EXPECT_TRUE(has(broken.err, "scaling.json: error: is not rehearse.plan_scaling/1")) << broken.err;
}

TEST(PlanCommand, OfSeveralNumbersOfGpusTheFewestInTime) {
  const Outcome r = plan({"--gpus", "4,8,16", "--tokens", "1B", "--days", "1", "--fix", "plan.recompute=none"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_LE(widest(r.out), 80u) << r.out;
  EXPECT_TRUE(has(r.out, "the best plan by step time for each number of GPUs")) << r.out;
  EXPECT_TRUE(has(r.out, "The fewest GPUs of these that train 1G tokens in 1 days: 4")) << r.out;
  EXPECT_TRUE(has(r.out, "strong scaling, the batch stays")) << r.out;
}

// Growing a model over four sizes on 64 GPUs moves the plan to take from whole replicas over ZeRO and tensor groups to
// stages of split layers (Megatron-LM's choices: its optimizer is sharded or not; docs/plan.md, "Four cases").
TEST(PlanCommand, AGrowingModelMovesThePlanAlongDdpZeroTensorHybrid) {
  const std::string file = test::temporary_path("four.yaml");
  std::ofstream(file) << "rehearse: 1\nframework: megatron-core\nmodel: megatron-1.7b\n"
                         "cluster: {topology: dgx-a100, gpus: 64}\n"
                         "training: {global_batch: 2048, seq_len: 2048, precision: bf16}\n";
  const auto why = [&](const std::string& model) {
    const Outcome r = plan({"--fix", "model=" + model, "--fix", "plan.chunks=1", "--range", "plan.zero=0,1", "--fix",
                            "plan.sequence_parallel=false", "--range", "plan.tensor=1,2,4", "--range",
                            "plan.pipeline=1,4", "--range", "plan.micro_batch=1,2", "--top", "1", "--json"},
                           file);
    EXPECT_EQ(r.status, 0) << r.err;
    return PlanJson::parse(r.out)["why"];
  };
  const PlanJson data = why("megatron-1.7b"), zero = why("megatron-7.5b"), tensor = why("megatron-18.4b"),
                 hybrid = why("megatron-76.1b");
  EXPECT_EQ(data["kind"], "whole replicas (data parallelism, DDP)") << data;
  EXPECT_EQ(zero["kind"], "sharded replicas (ZeRO, FSDP)") << zero;
  EXPECT_EQ(tensor["kind"], "layers split over groups (tensor, context, expert)") << tensor;
  EXPECT_EQ(hybrid["kind"], "pipeline stages of split layers (hybrid, 3D)") << hybrid;
  EXPECT_TRUE(has(zero["simpler"][0]["against"].get<std::string>(), "fits; the least needs 143.3 GB of 85.9 GB"));
}

TEST(PlanCommand, OfSeveralClustersTheFewestGpusAndTheCheapestInTime) {
  const std::string prices = test::temporary_path("prices.csv");
  std::ofstream(prices) << "cluster,instance,usd_per_gpu_hour,date,source\n"
                           "aws-p5,p5,100,2026-11,made up\ndgx-a100,a100,1,2026-11,made up\n";
  const std::vector<std::string> ask{"--clusters", "aws-p5,dgx-a100", "--tokens", "300B",  "--days",
                                     "1",          "--prices",        prices,     "--fix", "plan.recompute=none"};
  const Outcome r = plan(ask);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_LE(widest(r.out), 80u) << r.out;
  EXPECT_TRUE(has(r.out, "Fewest GPUs that train 300G tokens in 1 days: ")) << r.out;
  EXPECT_TRUE(has(r.out, "Cheapest that train 300G tokens in 1 days: ")) << r.out;
  std::vector<std::string> json = ask;
  json.push_back("--json");
  const PlanJson answer = PlanJson::parse(plan(json).out);
  EXPECT_EQ(answer["cheapest"], "dgx-a100");
  EXPECT_EQ(answer["fewest_gpus"], "aws-p5");
  EXPECT_LE(answer["clusters"][1]["search"]["plans"][0]["cost"]["days"].get<double>(), 1);
}

TEST(PlanCommand, ALimitOfPlansIsKeptAndSaid) {
  const Outcome r = plan({"--budget", "2"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "2 simulated. Not proven: the limit left")) << r.out;
}

// A limit that comes before a plan was simulated: what is open may fit.
TEST(PlanCommand, ALimitThatComesTooSoonDoesNotSayThatNothingFits) {
  const Outcome r = plan({"--budget", "0.000001s"});
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_TRUE(has(r.out, "0 simulated. Not proven: the limit left")) << r.out;
  EXPECT_TRUE(has(r.out, "No plan is known to fit yet")) << r.out;
  EXPECT_FALSE(has(r.out, "Nothing fits")) << r.out;
}

TEST(PlanCommand, WhatCannotBeIsRefusedPlainly) {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& words) {
    const Outcome r = plan(arguments);
    EXPECT_EQ(r.status, 2) << r.out;
    EXPECT_TRUE(has(r.err, words)) << r.err;
  };
  refused({"--range", "plan.tensr=1,2"}, "did you mean 'plan.tensor'?");
  refused({"--range", "plan.tensor"}, "e.g. --range plan.tensor=1,2,4,8");
  refused({"--budget", "soon"}, "expected a number of plans such as 200, or a time such as 90s");
  refused({"--gpus", "4,x"}, "expected numbers of GPUs such as 256,512");
  refused({"--days", "3"}, "--tokens 300B --days 30");
  refused({"--clusters", "dgx-a100,", "--worth"}, "are of one cluster and number");
  refused({"--clusters", "dgx-a1000"}, "dgx-a100");
  refused({"--prices", "nowhere.csv"}, "nowhere.csv");
  refused({"--tokens", "many"}, "expected a number such as 1.4T or 300B");
  refused({"--fix", "plan.tensor=3"}, "heads = 8");
  refused({"--range", "plan.tensor=3,5"}, "there are plans with --range plan.tensor=1,2,4,8");
  refused({"--fix", "plan.tensor=2", "--fix", "plan.tensor=4"},
          "plan.tensor=2 and plan.tensor=4 contradict each other");
  refused({"--fix", "plan.tensor=2", "--range", "plan.tensor=1,2"}, "plan.tensor is fixed too, by --fix plan.tensor=2");
}

TEST(PlanCommand, WhereNothingFitsItSaysWhatNeedsLeast) {
  const std::string file = test::temporary_path("large.yaml");
  std::ofstream(file) << "rehearse: 1\nframework: rehearse\nmodel: gpt3-175b\ncluster: {topology: dgx-a100, gpus: 8}\n"
                         "training: {global_batch: 8, seq_len: 2048, precision: bf16}\n";
  const Outcome r = plan({"--fix", "plan.offload_optimizer=false", "--fix", "plan.chunks=1", "--range", "plan.tensor=8",
                          "--range", "plan.pipeline=1"},
                         file);
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_TRUE(has(r.out, "Nothing fits. The plan that needs least, plan.tensor=8")) << r.out;
  EXPECT_TRUE(has(r.out, "Were all of it divided among more GPUs")) << r.out;
}

// Rows are updated in backward, so a step has one micro-batch: of 8,192 examples on 8 GPUs.
TEST(PlanCommand, ARecommenderHasItsWholeBatchInAMicroBatch) {
  const Outcome r = run({"plan", "dlrm-criteo-8xa100", "--top", "1"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "micro-batch 8,192 x 1 micro-batch x data 8")) << r.out;
  EXPECT_TRUE(has(r.out, "each table of sparse features on one GPU")) << r.out;
}

}  // namespace
}  // namespace rehearse::e2e
