// rehearse simulate --sweep: rows in the order given whatever the threads, plans that cannot be among them, its files.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

constexpr char kSmall[] = R"(rehearse: 1
framework: rehearse
model: {family: gpt, layers: 4, hidden: 512, heads: 8, kv_heads: 8, ffn_hidden: 2048, vocab: 8192, max_seq_len: 256}
cluster: {topology: dgx-a100, gpus: 8}
training: {global_batch: 16, seq_len: 256, precision: bf16}
)";

std::string scenario(const Folder& folder) {
  return folder.write("s.yaml", kSmall);
}

TEST(Sweep, RowsStandInTheOrderGivenTheLastKeyFastest) {
  const Folder folder;
  const Outcome r = run({"simulate", scenario(folder), "--sweep", "plan.tensor=2,1", "--sweep", "plan.pipeline=1,4",
                         "--set", "plan.zero=1", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  const Json rows = Json::parse(r.out);
  ASSERT_EQ(rows.size(), 4u);
  const std::vector<std::pair<const char*, const char*>> expected = {{"2", "1"}, {"2", "4"}, {"1", "1"}, {"1", "4"}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["set"]["plan.tensor"], expected[i].first);
    EXPECT_EQ(rows[i]["set"]["plan.pipeline"], expected[i].second);
    EXPECT_EQ(rows[i]["status"], "fits");
    const Json alone = Json::parse(run({"simulate", folder / "s.yaml", "--set", "plan.zero=1", "--set",
                                        std::string("plan.tensor=") + expected[i].first, "--set",
                                        std::string("plan.pipeline=") + expected[i].second, "--json"})
                                       .out);
    EXPECT_EQ(rows[i]["step_time_s"], alone["step_time_s"]) << "a row is the plan's own result";
    EXPECT_EQ(rows[i]["limited_by"], alone["limited_by"]);
    EXPECT_DOUBLE_EQ(rows[i]["mfu"].get<double>(), alone["mfu"].get<double>());
  }
}

TEST(Sweep, ThreadsChangeNothing) {
  const Folder folder;
  const std::string file = scenario(folder);
  const auto with = [&](const char* threads, bool as_json) {
    std::vector<std::string> words = {"simulate",        file,        "--sweep", "plan.tensor=1,2,3,4,8", "--sweep",
                                      "plan.zero=0,1,3", "--threads", threads};
    if (as_json) words.emplace_back("--json");
    return run(words).out;
  };
  EXPECT_EQ(with("1", true), with("4", true));
  EXPECT_EQ(with("1", false), with("3", false));
}

TEST(Sweep, PlansThatCannotBeAreListedWithTheirReason) {
  const Folder folder;
  const Outcome r = run({"simulate", scenario(folder), "--sweep", "plan.tensor=2,3"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "cannot be\n")) << r.out;
  EXPECT_TRUE(has(r.out, "Cannot be\n  3: gpus = 8 is not divisible by tensor * pipeline = 3 * 1")) << r.out;
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Sweep, IfNoPlanCanBeItsReasonsAreTheErrors) {
  const Folder folder;
  const Outcome r = run({"simulate", scenario(folder), "--sweep", "plan.tensor=3,5"});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "error: cluster.gpus: gpus = 8 is not divisible by tensor * pipeline = 3 * 1")) << r.err;
  const std::string broken = folder.write("b.yaml", std::string(kSmall) + "plan: {tensr: 2}\n");
  const Outcome misspelt = run({"simulate", broken, "--sweep", "plan.tensor=1,2,4"});
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_EQ(std::count(misspelt.err.begin(), misspelt.err.end(), '\n'), 1) << "said once: " << misspelt.err;
}

// Three keys made the last columns "d~" and "bub~".
TEST(Sweep, TheTableIsAsWideAsTheTerminal) {
  const Folder folder;
  const std::string sweep =
      " --sweep plan.pipeline=1,2 --sweep plan.tensor=1,2 --sweep plan.zero=0,1 "
      "--sweep plan.recompute=none,full --sweep plan.overlap_grad_reduce=true,false 2>/dev/null";
  const std::string command = "\"$REHEARSE\" simulate " + scenario(folder) + sweep;
  const Outcome piped = shell(command);
  ASSERT_EQ(piped.status, 0) << piped.err;
  EXPECT_LE(widest(piped.out), 80u) << piped.out;
  EXPECT_FALSE(has(piped.out, "~")) << piped.out;
  const auto on_terminal = [&](int width) {
    const std::string script = folder.write("c.sh", "stty cols " + std::to_string(width) + "\n" + command + "\n");
    return shell("script -qec 'sh " + script + "' /dev/null").out;
  };
  const std::string wide = on_terminal(200), narrow = on_terminal(60);
  EXPECT_TRUE(has(wide, "overlap_grad_reduce  ")) << wide;
  EXPECT_TRUE(has(wide, "comm.")) << wide;
  EXPECT_GT(widest(wide), 80u);
  EXPECT_LE(widest(wide), 200u);
  EXPECT_LE(widest(narrow), 60u) << narrow;
  EXPECT_FALSE(has(wide + narrow, "~")) << wide << narrow;
}

TEST(Sweep, OverGpusSaysHowItScales) {
  const Folder folder;
  const std::string file = scenario(folder);
  const Json strong = Json::parse(run({"simulate", file, "--sweep", "cluster.gpus=4,2,8", "--json"}).out);
  ASSERT_EQ(strong.size(), 3u);
  EXPECT_EQ(strong[1]["scaling"], "reference") << "the fewest GPUs";
  EXPECT_EQ(strong[2]["scaling"], "strong");
  EXPECT_EQ(strong[2]["global_batch"], 16);
  EXPECT_NEAR(strong[2]["speed_up"].get<double>(),
              strong[1]["step_time_s"].get<double>() / strong[2]["step_time_s"].get<double>(), 1e-9);
  EXPECT_NEAR(strong[2]["efficiency"].get<double>(), strong[2]["speed_up"].get<double>() / 4, 1e-12);
  const std::string alone =
      folder.write("weak.yaml", std::string(kSmall).replace(std::string(kSmall).find("global_batch: 16, "), 18, ""));
  const Json weak = Json::parse(run({"simulate", alone, "--sweep", "cluster.gpus=2,8", "--json"}).out);
  EXPECT_EQ(weak[1]["scaling"], "weak") << "one sequence a replica where no batch is given";
  EXPECT_EQ(weak[1]["tokens_per_step"], 8 * 256);
  EXPECT_NEAR(weak[1]["efficiency"].get<double>(),
              weak[0]["step_time_s"].get<double>() / weak[1]["step_time_s"].get<double>(), 1e-9);
  const Outcome table = run({"simulate", file, "--sweep", "cluster.gpus=4,2,8"});
  EXPECT_TRUE(has(table.out, "strong scaling")) << table.out;
}

TEST(Sweep, UnevenStagesHaveANote) {
  const Folder folder;
  const Outcome r = run(
      {"simulate", scenario(folder), "--sweep", "plan.pipeline=2,8", "--set", "model.layers=12", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "* 8: Stages are uneven: they hold from 1 to 2 of the 12 layers.")) << r.out;
  EXPECT_FALSE(has(r.out, "* 2:")) << r.out;
  EXPECT_TRUE(has(read(folder / "out/sweep.csv"), "Stages are uneven: ")) << read(folder / "out/sweep.csv");
  EXPECT_TRUE(has(read(folder / "out/002-pipeline=8/result.json"), "\"what\": \"uneven_stages\""));
}

TEST(Sweep, ExitsWith3IfNothingFits) {
  const Folder folder;
  const std::string file = folder.write("big.yaml",
                                        "rehearse: 1\nmodel: llama2-13b\ncluster: {topology: dgx-a100, gpus: 2}\n"
                                        "training: {global_batch: 2, seq_len: 512}\n");
  const Outcome r = run({"simulate", file, "--sweep", "plan.micro_batch=1"});
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_TRUE(has(r.out, "memory\n")) << r.out;
  EXPECT_TRUE(has(r.out, "as if it fitted")) << r.out;
}

TEST(Sweep, DirectoryHoldsATableAndAResultEach) {
  const Folder folder;
  const Outcome r = run({"simulate", scenario(folder), "--sweep", "plan.tensor=1,3", "--sweep",
                         "plan.layers_per_stage=auto,[4]", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(folder.files(),
            (std::vector<std::string>{
                "out/001-tensor=1-layers_per_stage=auto/ops.csv", "out/001-tensor=1-layers_per_stage=auto/result.json",
                "out/001-tensor=1-layers_per_stage=auto/trace.json.gz", "out/002-tensor=1-layers_per_stage=_4_/ops.csv",
                "out/002-tensor=1-layers_per_stage=_4_/result.json",
                "out/002-tensor=1-layers_per_stage=_4_/trace.json.gz", "out/sweep.csv", "s.yaml"}));
  std::istringstream csv(read(folder / "out/sweep.csv"));
  std::string line;
  std::getline(csv, line);
  EXPECT_EQ(line,
            "plan.tensor,plan.layers_per_stage,status,gpus,global_batch,tokens_per_step,step_time_s,step_time_low_s,"
            "step_time_high_s,tokens_per_s,mfu,scaling,speed_up,efficiency,peak_bytes,memory_bytes,bubble,"
            "exposed_communication,limited_by,framework,notes,reason,directory");
  const auto columns = std::count(line.begin(), line.end(), ',');
  std::getline(csv, line);
  EXPECT_TRUE(line.starts_with("1,auto,fits,8,16,4096,0.")) << line;
  EXPECT_TRUE(line.ends_with(",,,001-tensor=1-layers_per_stage=auto")) << line;
  std::getline(csv, line);
  std::getline(csv, line);
  EXPECT_TRUE(line.starts_with("3,auto,infeasible,,,,,,,,,,,,,,,,,,")) << line;
  EXPECT_GE(std::count(line.begin(), line.end(), ','), columns);
}

TEST(Sweep, WrongInputExits2BeforeAnythingIsSimulated) {
  const Folder folder;
  const std::string file = scenario(folder);
  const auto refused = [&](const std::string& text, const std::string& message) {
    const Outcome r = run({"simulate", file, "--sweep", text, "-o", folder / "out"});
    EXPECT_EQ(r.status, 2) << text;
    EXPECT_TRUE(has(r.err, message)) << text << ": " << r.err;
  };
  refused("plan.tensr=1,2", "(did you mean 'plan.tensor'?)");
  refused("plan.tensor", "'plan.tensor' is not KEY=VALUE,VALUE,...");
  refused("=1", "is not KEY=VALUE,VALUE,...");
  refused("plan.tensor=", "empty value");
  refused("plan.tensor=1,,2", "empty value");
  refused("plan.tensor=2,2", "has the value 2 twice");
  refused("model.convolutions[].pool=1", "give the whole list");
  EXPECT_TRUE(has(run({"simulate", file, "--sweep", "plan.zero=1", "--sweep", "plan.zero=2"}).err, "is given twice"));
  std::string many = "training.seed=0";
  for (int i = 1; i < 200; ++i) many += "," + std::to_string(i);
  std::string more = "training.warmup_steps" + many.substr(many.find('='));
  EXPECT_TRUE(has(run({"simulate", file, "--sweep", many, "--sweep", more}).err, "more than 10000 combinations"));
  EXPECT_EQ(run({"simulate", file, "--sweep", "plan.zero=1", "-o", file}).status, 2);
  EXPECT_EQ(folder.files(), std::vector<std::string>{"s.yaml"});
}

TEST(Sweep, AnInterruptStopsAllThreadsAndLeavesNoTable) {
  const Folder folder;
  const Outcome r = shell(
      "timeout --foreground --preserve-status -s INT 0.5 \"$REHEARSE\" simulate gpt3-175b-1024xa100 --steps 1000 "
      "--threads 2 --sweep plan.zero=0,1,2 -o " +
      (folder / "out"));
  EXPECT_EQ(r.status, 130);
  EXPECT_EQ(r.err, "rehearse: interrupted\n");
  EXPECT_TRUE(folder.files().empty());
}

TEST(SweepConflict, AKeyIsSweptOrSet) {
  const Outcome r = run({"simulate", "gpt-tiny-ddp", "--sweep", "plan.zero=0,1", "--set", "plan.zero=2"});
  EXPECT_EQ(r.status, 2) << r.out;
  EXPECT_TRUE(has(r.err, "--sweep: error: plan.zero is fixed too, by --set plan.zero=2 (one of them)")) << r.err;
  const Outcome within = run({"simulate", "gpt-tiny-ddp", "--sweep", "plan.zero=0,1", "--set", "plan={zero: 2}"});
  EXPECT_EQ(within.status, 2) << within.out;
  EXPECT_TRUE(has(within.err, "plan.zero is fixed too, by --set plan={zero: 2}")) << within.err;
  const Outcome another =
      run({"simulate", "gpt-tiny-ddp", "--sweep", "plan.tensor=1,2", "--set", "plan={expert_tensor: 1}"});
  EXPECT_FALSE(has(another.err, "is fixed too")) << another.err;
  const Outcome beside = run({"simulate", "gpt-tiny-ddp", "--calibration", "a100-sxm-80g", "--sweep", "plan.zero=0,1",
                              "--set", "plan={micro_batch: 1}"});
  EXPECT_EQ(beside.status, 0) << beside.err;
}

}  // namespace
}  // namespace rehearse::e2e
