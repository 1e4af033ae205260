// The program as a user meets it: help, messages and exit codes for what can go wrong, and the files of a result.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace rehearse::e2e {
namespace {

// A small model on four ranks: every kind of traffic, simulated in well under a second.
constexpr char kCliScenario[] = R"(rehearse: 1
framework: rehearse
name: small
model: {family: gpt, layers: 4, hidden: 512, heads: 8, kv_heads: 8, ffn_hidden: 2048, vocab: 8192, max_seq_len: 256}
cluster: {topology: dgx-a100, gpus: 8}
plan: {tensor: 2, pipeline: 2, micro_batch: 1, zero: 1, schedule: 1f1b}
training: {global_batch: 16, seq_len: 256, precision: bf16}
)";

// Llama 2 7B whose GPipe schedule holds the activations of 64 micro-batches: too many for 80 GB.
constexpr char kTooLarge[] = R"(rehearse: 1
name: too large
model: llama2-7b
cluster: {topology: dgx-a100, gpus: 8}
plan: {tensor: 2, pipeline: 4, micro_batch: 1, schedule: gpipe}
training: {global_batch: 64, seq_len: 4096, precision: bf16}
)";

TEST(Help, NamesEveryCommandAndExits0) {
  const Outcome top = run({"--help"});
  EXPECT_EQ(top.status, 0);
  EXPECT_EQ(top.err, "");
  for (const char* command :
       {"simulate", "execute", "calibrate", "demo", "validate", "compare", "report", "estimate", "queue", "list",
        "discover", "init", "export", "import", "explain", "schema", "completion"}) {
    EXPECT_TRUE(has(top.out, command)) << command;
    const Outcome own = run({command, "--help"});
    EXPECT_EQ(own.status, 0) << command;
    EXPECT_TRUE(has(own.out, "Example")) << own.out;
    EXPECT_LE(widest(top.out + own.out), 80u) << top.out << own.out;
  }
}

TEST(Help, VersionSaysWhatIsInIt) {
  const Outcome r = run({"--version"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out.rfind("rehearse ", 0), 0u) << r.out;
  EXPECT_EQ(r.out.find('\n'), r.out.find_first_not_of("0123456789.", 9)) << "the first line is for scripts: " << r.out;
  EXPECT_TRUE(has(r.out, "linked\nfmt ")) << r.out;
  EXPECT_TRUE(has(r.out, "ranks of execute: local")) << r.out;
  EXPECT_LE(widest(r.out), 80u);
}

TEST(Usage, NoCommandPrintsHelpToStandardErrorAndExits2) {
  const Outcome r = run({});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "simulate"));
}

TEST(Usage, UnknownCommandNamesTheNearestAndAll) {
  const Outcome r = run({"simulat", "x"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(
      has(r.err,
          "unknown command 'simulat' (did you mean 'simulate'?); the commands are simulate, plan, "
          "execute, calibrate, demo, validate, compare, report, estimate, goodput, queue, list, discover, init, "
          "export, import, explain, schema, completion"))
      << r.err;
}

TEST(Usage, UnknownOptionNamesTheNearest) {
  const Outcome r = run({"simulate", "x", "--jsn"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "unknown option '--jsn' (did you mean '--json'?)")) << r.err;
  const Outcome with_value = run({"simulate", "x", "--colour", "red"});
  EXPECT_TRUE(has(with_value.err, "unknown option '--colour'")) << with_value.err << "and not its value";
}

TEST(Usage, BadValuesExit2) {
  EXPECT_EQ(run({"simulate"}).status, 2) << "no scenario";
  EXPECT_EQ(run({"simulate", "gpt3-175b-1024xa100", "--steps", "0"}).status, 2);
  EXPECT_EQ(run({"simulate", "gpt3-175b-1024xa100", "--fold", "maybe"}).status, 2);
  EXPECT_EQ(run({"list", "planets"}).status, 2);
  const Outcome r = run({"simulate", "gpt3-175b-1024xa100", "--fidelity", "packet"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "--fidelity: packet not in {analytic,flow,step}")) << r.err;
}

TEST(Usage, NumbersOutOfRangeSayTheRange) {
  const Outcome r = run({"simulate", "gpt3-175b-1024xa100", "--steps", "0.1"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "--steps: expected an integer from 1 to 50000, found '0.1'")) << r.err;
}

// The whole of result.json but what the simulation itself took.
TEST(Fold, EveryRankGivesTheSameBytes) {
  const auto result = [](const std::string& how) {
    nlohmann::json json = nlohmann::json::parse(run({"simulate", "gpt3-175b-zero3-tp2", "--json", "--fold", how}).out);
    EXPECT_EQ(json.at("engine").at("ranks_simulated"), how == "off" ? 1024 : 1);
    json.erase("engine");
    return json.dump();
  };
  EXPECT_EQ(result("auto"), result("off"));
}

TEST(Fold, ExplainNamesClassesAndWhatSplitsThem) {
  const Outcome alike = run({"simulate", "llama2-7b-8xa100", "--fold", "explain"});
  EXPECT_EQ(alike.status, 0) << alike.err;
  EXPECT_TRUE(has(alike.out, "1 of 8 ranks are simulated")) << alike.out;
  EXPECT_TRUE(has(alike.out, "  rank 0 for 8: 0-7\n")) << alike.out;
  const Outcome split = run(
      {"simulate", "llama2-7b-8xa100", "--fold", "explain", "--set", "noise.slow_ranks=[{ranks: [5], factor: 1.5}]"});
  EXPECT_TRUE(has(split.out, "  rank 5 for 1: 5\n    apart from rank 0: rank 5 and rank 0 are not equally fast"))
      << split.out;
  const Outcome noisy = run({"simulate", "llama2-7b-8xa100", "--fold", "explain", "--set", "noise.kernels=0.1"});
  EXPECT_TRUE(has(noisy.out, "All 8 ranks are simulated: noise.kernels is drawn for each rank.")) << noisy.out;
  const Outcome json = run({"simulate", "llama2-7b-8xa100", "--fold", "explain", "--json"});
  EXPECT_EQ(json.status, 2);
  EXPECT_TRUE(has(json.err, "--fold explain simulates nothing")) << json.err;
}

TEST(Usage, SamplesAndWhatIfsAreOfOnePlan) {
  for (const char* option : {"--what-if", "--samples=3"})
    EXPECT_EQ(run({"simulate", "llama2-7b-8xa100", option, "--sweep", "plan.zero=1,3"}).status, 2) << option;
}

TEST(BadInput, WindowsThatCannotBeAreRefusedWithBothKeys) {
  const auto refused = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", "llama2-7b-8xa100", "--set", "model=mistral-7b", "--set"});
    const Outcome r = run(more);
    EXPECT_EQ(r.status, 2) << r.err;
    return r.err;
  };
  EXPECT_TRUE(has(refused({"model.sliding_window=-1"}), "model.sliding_window"))
      << refused({"model.sliding_window=-1"});
  const std::string none = refused({"model.sliding_window=0", "--set", "model.full_attention_every=2"});
  EXPECT_TRUE(has(none,
                  "model.full_attention_every: full_attention_every = 2 says which layers have no window, but "
                  "sliding_window = 0"))
      << none;
  const std::string ring = refused({"training.seq_len=8192", "--set", "plan.context=2"});
  EXPECT_TRUE(has(ring, "plan.context: context_kind: ring")) << ring;
  EXPECT_TRUE(has(ring, "sliding_window = 4096 below seq_len = 8192")) << ring;
  const Outcome cuda = run({"execute", "gpt-tiny-ddp", "--set", "model.sliding_window=16", "--set",
                            "training.seq_len=64", "--steps", "3", "--device", "cuda"});
  EXPECT_EQ(cuda.status, 2) << cuda.err;
  EXPECT_TRUE(has(cuda.err, "no kernels of GPUs for model.sliding_window below training.seq_len")) << cuda.err;
}

TEST(BadInput, ADerivedKeySaysWhatItFollowsFrom) {
  const Outcome r = run({"simulate", "llama2-7b-8xa100", "--set", "plan.data=4"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "plan.data: is no key: the data parallel size follows")) << r.err;
}

TEST(Simulate, ASlowRankIsNamedWhateverTheThreads) {
  const std::vector<std::string> arguments = {
      "simulate",  "llama2-7b-8xa100",
      "--set",     "noise={kernels: 0.02, slow_ranks: [{ranks: [3], factor: 1.2}]}",
      "--samples", "5",
      "--what-if"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  const Outcome table = with({});
  EXPECT_EQ(table.status, 0) << table.err;
  for (const char* part :
       {"Over 5 samples of the noise", "Rank 3 is slow (its kernels take 1.2 times as long): that costs",
        "Busiest links", "What if (one at a time)", "Compute rate: doubled, it would make the step"})
    EXPECT_TRUE(has(table.out, part)) << part << "\n" << table.out;
  nlohmann::json one = nlohmann::json::parse(with({"--json", "--threads", "1"}).out);
  nlohmann::json four = nlohmann::json::parse(with({"--json", "--threads", "4"}).out);
  one.erase("engine"), four.erase("engine");
  EXPECT_TRUE(one == four);
  EXPECT_EQ(one["samples"]["count"], 5);
  EXPECT_EQ(one["what_if"].size(), 6u);
}

TEST(Simulate, ShippedScenariosOfAFolderAreNamedWithIt) {
  const Outcome r = run({"simulate", "published/korthikanti-22b-full"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "scenarios/published/korthikanti-22b-full.yaml")) << r.out;
}

TEST(BadInput, MissingScenarioNamesTheNearest) {
  const Outcome r = run({"simulate", "gpt3-175b-gpip"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "gpt3-175b-gpip: error:")) << r.err;
  EXPECT_TRUE(has(r.err, "did you mean 'gpt3-175b-gpipe'?")) << r.err;
  EXPECT_EQ(r.out, "");
}

TEST(BadInput, MisspeltKeyHasItsPlaceAndTheNearestKey) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", "rehearse: 1\nmodel: gpt-tiny\nplan:\n  tensr: 2\n");
  const Outcome r = run({"simulate", file});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, file + ":4:3: error: ")) << r.err;
  EXPECT_TRUE(has(r.err, "tensor")) << r.err;
}

TEST(BadInput, AllProblemsAtOnceOneALine) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", "rehearse: 1\nmodel: gpt-tiny\nplan:\n  tensr: 2\n  zero: 7\n");
  const Outcome r = run({"simulate", file});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 2) << r.err;
}

TEST(BadInput, ThingsThatAreNoScenarioExit2AndDoNotHang) {
  const Folder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string text = std::string("rehearse: 1\n") + '\0' + "x";
  for (const std::string& path :
       {pipe, folder / "", folder.write("empty.yaml", ""), folder.write("binary.yaml", text),
        folder.write("list.yaml", "[1, 2]\n"), folder.write("open.yaml", "plan: {tensor: [1,\n"), std::string("")}) {
    const Outcome r = run({"simulate", path});
    EXPECT_EQ(r.status, 2) << path << "\n" << r.err;
    EXPECT_TRUE(has(r.err, "error: ")) << path << "\n" << r.err;
  }
}

TEST(BadInput, SetIsCheckedLikeTheFile) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kCliScenario);
  EXPECT_EQ(run({"simulate", file, "--set", "plan.tensor=3"}).status, 2) << "8 GPUs are not divisible by 3 * 2";
  EXPECT_EQ(run({"simulate", file, "--set", "nonsense"}).status, 2);
  EXPECT_EQ(run({"simulate", file, "--calibration", folder / "none.yaml"}).status, 2);
}

TEST(BadInput, DataRootWithoutDataIsNamed) {
  const Outcome r = shell("REHEARSE_ROOT=/nowhere \"$REHEARSE\" list models");
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "/nowhere: error: ")) << r.err;
}

TEST(Simulate, UnevenStagesAreToldOf) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kCliScenario);
  const Outcome r = run({"simulate", file, "--set", "model.layers=6", "--set", "plan.pipeline=4", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(r.err.starts_with("rehearse: note: Stages are uneven: they hold from 1 to 2 of the 6 layers. Stage "))
      << r.err;
  EXPECT_TRUE(has(r.err, "The layers divide by: plan.pipeline 2; 3 or 6, with other GPUs or another batch.\n"))
      << r.err;
  const nlohmann::json result = nlohmann::json::parse(r.out);
  ASSERT_EQ(result["notes"].size(), 1u);
  EXPECT_EQ("rehearse: note: " + result["notes"][0]["text"].get<std::string>() + "\n", r.err);
  EXPECT_FALSE(nlohmann::json::parse(run({"simulate", file, "--json"}).out).contains("notes"));
}

TEST(Simulate, TableFits80ColumnsAndNamesTheScenario) {
  const Folder folder;
  const Outcome r = run({"simulate", folder.write("s.yaml", kCliScenario)});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "") << "no progress where standard error is no terminal";
  EXPECT_EQ(r.out.rfind("small\n", 0), 0u) << r.out;
  EXPECT_LE(widest(r.out), 80u) << r.out;
}

TEST(Simulate, AFolderDoesNotHideAShippedName) {
  const Folder folder;
  const std::string in = "cd '" + folder / "." + "' && ";
  const Outcome r = shell(in + "mkdir llama2-7b-8xa100 && \"$REHEARSE\" simulate llama2-7b-8xa100");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "scenarios/llama2-7b-8xa100.yaml")) << r.out;
  folder.write("gpt-tiny-ddp", kCliScenario);  // a file of the name is what the user means
  const Outcome file = shell(in + "\"$REHEARSE\" simulate gpt-tiny-ddp");
  EXPECT_TRUE(has(file.out, "small")) << file.out << file.err;
  const Outcome none = shell(in + "mkdir no-such-name && \"$REHEARSE\" simulate no-such-name");
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(has(none.err, "is a directory")) << none.err;
}

TEST(Simulate, JsonIsAllThatIsPrinted) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kCliScenario);
  const Outcome r = run({"simulate", file, "--json", "--fold", "off", "--threads", "2", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_EQ(json["schema"], "rehearse.result/1");
  EXPECT_EQ(json["ranks"], 8);
  EXPECT_GT(json["step_time_s"], 0);
  EXPECT_EQ(json["scenario"]["file"], file);
  EXPECT_NE(json["limited_by"], "");
  EXPECT_EQ(read(folder / "out/result.json"), r.out);
}

TEST(Simulate, SetOverridesTheFile) {
  const Folder folder;
  const Outcome r = run(
      {"simulate", folder.write("s.yaml", kCliScenario), "--set", "plan.tensor=1", "--set", "plan.zero=2", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_EQ(json["scenario"]["plan.tensor"], "1");
  EXPECT_EQ(json["scenario"]["plan.zero"], "2");
  EXPECT_EQ(json["scenario"]["plan.data"], "4") << "8 GPUs in 2 stages";
}

TEST(Simulate, DirectoryHoldsTheResultAndItsOps) {
  const Folder folder;
  ASSERT_EQ(run({"simulate", folder.write("s.yaml", kCliScenario), "-o", folder / "a/b"}).status, 0);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"a/b/ops.csv", "a/b/result.json", "a/b/steps.csv",
                                                      "a/b/trace.json.gz", "s.yaml"}));
  EXPECT_EQ(read(folder / "a/b/ops.csv")
                .rfind("id,rank,stage,stream,kind,phase,shape,start_ps,duration_ps,coverage,bytes,flops,"
                       "micro_batch,group,group_size,waited_ps,after,waited_for,queued_ps,woken_by,moving_ps,peers\n",
                       0),
            0u);
  const auto trace = nlohmann::json::parse(gunzip(folder / "a/b/trace.json.gz"));
  EXPECT_GT(trace["traceEvents"].size(), 100u);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 8);
}

TEST(Simulate, BreakdownOfARealRunSumsToTheStep) {
  const Folder folder;
  const auto json = nlohmann::json::parse(run({"simulate", folder.write("s.yaml", kCliScenario), "--json"}).out);
  std::int64_t sum = 0;
  for (const auto& [key, value] : json["breakdown_s"].items()) sum += std::llround(value.get<double>() * 1e12);
  EXPECT_EQ(sum, std::llround(json["step_time_s"].get<double>() * 1e12));
}

TEST(Simulate, TwoRunsGiveTheSameBytesButForTheEngine) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kCliScenario);
  ASSERT_EQ(run({"simulate", file, "-o", folder / "x"}).status, 0);
  ASSERT_EQ(run({"simulate", file, "-o", folder / "y"}).status, 0);
  for (const char* name : {"/ops.csv", "/trace.json.gz"})
    EXPECT_EQ(read(folder / ("x" + std::string(name))), read(folder / ("y" + std::string(name)))) << name;
  const auto without_engine = [&](const std::string& dir) {
    auto json = nlohmann::ordered_json::parse(read(folder / (dir + "/result.json")));
    json.erase("engine");
    return json.dump();
  };
  EXPECT_EQ(without_engine("x"), without_engine("y"));
}

TEST(Simulate, PlanThatDoesNotFitExits3WithItsResultAndAWayOut) {
  const Folder folder;
  const Outcome r = run({"simulate", folder.write("s.yaml", kTooLarge), "-o", folder / "out"});
  EXPECT_EQ(r.status, 3) << r.err;
  const auto json = nlohmann::json::parse(read(folder / "out/result.json"));
  EXPECT_EQ(json["memory"]["fits"], false);
  EXPECT_GT(json["step_time_s"], 0) << "as if it fitted";
  EXPECT_TRUE(has(r.err, "does not fit in memory: stage 3 needs ")) << r.err;
  EXPECT_TRUE(has(r.err, "it would fit with --set plan.schedule=1f1b")) << r.err;
  EXPECT_TRUE(has(r.out, "Does not fit: stage 3 needs ")) << r.out;
  // The advice is true.
  EXPECT_EQ(run({"simulate", folder / "s.yaml", "--set", "plan.schedule=1f1b"}).status, 0);
}

TEST(Simulate, PlanThatNoSingleChangeSavesIsToldWhichTogetherDo) {
  const Folder folder;
  // 7.5 billion parameters on 8 GPUs of 80 GB keep 16 bytes each, and all activations of 64 sequences.
  const std::string file = folder.write("s.yaml",
                                        "rehearse: 1\nmodel: megatron-7.5b\nframework: megatron-core\n"
                                        "cluster: {topology: dgx-a100, gpus: 8}\n"
                                        "plan: {micro_batch: 64}\ntraining: {global_batch: 512}\n");
  const Outcome r = run({"simulate", file});
  EXPECT_EQ(r.status, 3) << r.err;
  const std::size_t begin = r.err.find("it would fit with --set ");
  ASSERT_NE(begin, std::string::npos) << r.err;
  std::istringstream words(r.err.substr(begin + std::string("it would fit with ").size()));
  std::vector<std::string> command{"simulate", file};
  for (std::string word; words >> word && !word.starts_with("(");) command.push_back(word);
  EXPECT_GE(command.size(), 6U) << "two changes at least: " << r.err;
  // The advice is true, and none of it is needless.
  EXPECT_EQ(run(command).status, 0) << r.err;
  for (std::size_t i = 2; i + 1 < command.size(); i += 2) {
    std::vector<std::string> fewer = command;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i), fewer.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    EXPECT_EQ(run(fewer).status, 3) << command[i + 1];
  }
}

// Ten billion parameters on one GPU of 32 GB: nothing that keeps the optimizer there makes them fit.
TEST(Simulate, PlanThatOnlyTheHostSavesIsToldSo) {
  std::vector<std::string> command{
      "simulate", "gpt-10b-offload-1xv100", "--set", "plan.offload_optimizer=false", "--set", "plan.zero=0"};
  const Outcome r = run(command);
  EXPECT_EQ(r.status, 3);
  EXPECT_TRUE(has(r.err, "it would fit with --set plan.offload_optimizer=true --set plan.zero=2 (needs ")) << r.err;
  command.insert(command.end(), {"--set", "plan.offload_optimizer=true", "--set", "plan.zero=2"});
  EXPECT_EQ(run(command).status, 0) << "the advice is true";
  command.back() = "plan.zero=1";
  EXPECT_EQ(run(command).status, 3) << "and none of it needless";
}

TEST(Simulate, PlanThatThreeChangesDoNotSaveNamesTheNearest) {
  const Folder folder;
  // 175 billion parameters on 8 GPUs: their 12 bytes of optimizer state alone are 262 GB a GPU.
  const std::string file = folder.write("s.yaml",
                                        "rehearse: 1\nmodel: gpt3-175b\ncluster: {topology: dgx-a100, gpus: 8}\n"
                                        "plan: {tensor: 8}\ntraining: {global_batch: 1}\n");
  const Outcome r = run({"simulate", file, "--json"});
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)["memory"]["fits"], false);
  EXPECT_TRUE(has(r.err, "no change of up to three keys makes it fit; the nearest is --set plan.")) << r.err;
}

TEST(Simulate, OutputOntoAFileIsRefusedAndTheFileKept) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kCliScenario);
  for (const std::string& target : {file, folder.write("notes", "mine"), folder / "notes/below", std::string("")}) {
    const Outcome r = run({"simulate", file, "-o", target});
    EXPECT_EQ(r.status, 2) << target << "\n" << r.err;
  }
  EXPECT_EQ(read(file), kCliScenario);
  EXPECT_EQ(read(folder / "notes"), "mine");
}

TEST(Simulate, ScenarioNamedLikeAResultIsNotOverwritten) {
  const Folder folder;
  const std::string file = folder.write("result.json", kCliScenario);
  EXPECT_EQ(run({"simulate", file, "-o", folder / ""}).status, 2);
  EXPECT_EQ(read(file), kCliScenario);
}

TEST(Streams, ReaderThatLeavesIsNoError) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kCliScenario);
  const Outcome r = shell("\"$REHEARSE\" simulate " + file + " --json | true; echo ${PIPESTATUS[0]}");
  EXPECT_EQ(r.out, "0\n");
  EXPECT_EQ(r.err, "");
}

TEST(Streams, FullDiskIsAnError) {
  const Outcome r = shell("\"$REHEARSE\" list frameworks > /dev/full");
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r.err, "cannot write to standard output")) << r.err;
}

TEST(Streams, ClosedStandardOutputDoesNotReachTheFiles) {
  const Folder folder;
  const std::string file = folder.write("s.yaml", kCliScenario);
  const Outcome r = shell("\"$REHEARSE\" simulate " + file + " -o " + (folder / "out") + " >&-");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(nlohmann::json::accept(read(folder / "out/result.json")));
}

TEST(Interrupt, StopsTheRunAndWritesNothing) {
  const Folder folder;
  // 1,000 steps of 1,024 ranks take far longer than the half second after which timeout sends SIGINT.
  const Outcome r = shell(
      "timeout --foreground --preserve-status -s INT 0.5 \"$REHEARSE\" simulate gpt3-175b-1024xa100 --steps 1000 -o " +
      (folder / "out"));
  EXPECT_EQ(r.status, 130);
  EXPECT_EQ(r.err, "rehearse: interrupted\n");
  EXPECT_TRUE(folder.files().empty());
}

TEST(Validate, ComparesEachMeasurementAndWritesTheLedger) {
  const Folder folder;
  folder.write("small.yaml", kCliScenario);
  folder.write("broken.yaml", "rehearse: 1\n");
  const std::string csv = folder.write("m.csv",
                                       "id,scenario,metric,value,unit\n"
                                       "one,small.yaml,iter_time_s,1,s\n"
                                       "two,broken.yaml,mfu,40,%\n"
                                       "three,small.yaml,mood,1,\n");
  const Outcome r = run({"validate", "--throughput", csv, "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(read(folder / "out/ledger.json"));
  EXPECT_EQ(json["schema"], "rehearse.ledger/1");
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_TRUE(json["rows"][0]["used"]);
  EXPECT_GT(json["rows"][0]["predicted"], 0);
  EXPECT_FALSE(json["rows"][1]["used"]);
  EXPECT_TRUE(has(json["rows"][1]["reason"], "model")) << json["rows"][1]["reason"];
  EXPECT_FALSE(json["rows"][2]["used"]);
  const std::string ledger = read(folder / "out/ledger.csv");
  EXPECT_EQ(std::count(ledger.begin(), ledger.end(), '\n'), 4);
  EXPECT_TRUE(has(r.out, "1 used")) << r.out;
}

// One switch, three fidelities, whatever is pinned: a group alone on its links takes the same time at each, to 2 %.
TEST(Simulate, PinnedCollectivesAtEveryFidelity) {
  for (const char* pin :
       {"", "{kind: all_gather, algorithm: direct}", "{kind: all_gather, algorithm: halving_doubling}",
        "{kind: reduce_scatter, protocol: ll128}", "{kind: all_gather, algorithm: ring, protocol: ll}"}) {
    std::map<std::string, double> step;
    for (const char* fidelity : {"analytic", "flow", "step"}) {
      const Outcome r = run({"simulate", "llama2-7b-8xa100", "--fidelity", fidelity, "--json", "--set",
                             std::string("cluster.collectives=[") + pin + "]", "--set", "training.global_batch=32"});
      ASSERT_EQ(r.status, 0) << pin << r.err;
      step[fidelity] = nlohmann::json::parse(r.out)["step_time_s"];
    }
    for (const auto& [fidelity, time] : step) EXPECT_NEAR(time / step["flow"], 1, 0.02) << pin << " " << fidelity;
  }
}

TEST(Simulate, APinThatTheMachineLacksNamesItsPlace) {
  const Folder folder;
  const std::string text =
      "rehearse: 1\nmodel: gpt-tiny\ncluster:\n  topology: dgx-a100\n  gpus: 16\n  collectives:\n"
      "    - {kind: all_reduce, algorithm: ring}\n    - {kind: all_reduce, algorithm: collnet_direct}\n";
  const Outcome r = run({"simulate", folder.write("pins.yaml", text)});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err,
                  "pins.yaml:8:37: error: cluster.collectives[1].algorithm: collnet_direct needs a network that "
                  "adds up (the topology's fabric.sharp)"))
      << r.err;
  EXPECT_TRUE(has(r.err, "all_reduce is offered on DGX A100 80GB SuperPOD: ring, tree, direct")) << r.err;
  EXPECT_EQ(run({"simulate", folder / "pins.yaml", "--set", "cluster.overrides.fabric.sharp=true"}).status, 0);
}

TEST(Validate, CollectivesAreFittedOnEveryOtherSize) {
  const Folder folder;
  const Outcome r = run({"validate", "--collectives", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(read(folder / "out/ledger.json"));
  std::size_t used = 0;
  for (const auto& row : json["rows"]) {
    EXPECT_EQ(row["metric"], "time_us");
    if (!row["used"]) {
      EXPECT_NE(row["reason"], "");
      continue;
    }
    ++used;
    EXPECT_LE(row["low"], row["predicted"]);
  }
  EXPECT_EQ(json["rows"].size(), 1184u) << "misses and what is not used stay in the table";
  EXPECT_GT(used, 590u);
}

// Each line of the table ends in: sizes tested, median error, median from 64 MiB on, worst. When this was written 4.1 %
// and 3.2 % over all, and of the systems at most 8.5 % and 4.7 %.
TEST(Validate, CollectivesAreWithinTheirBounds) {
  const Outcome r = run({"validate", "--collectives"});
  ASSERT_EQ(r.status, 0) << r.err;
  std::istringstream lines(r.out);
  std::string line;
  int systems = 0;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.empty()) {
    const std::size_t at = line.find_last_not_of("0123456789.%+-<> ");
    std::istringstream cells(line.substr(at + 1));
    double tested = 0, median = 0, large = 0;
    char percent = 0;
    ASSERT_TRUE(cells >> tested >> median >> percent >> large >> percent) << line;
    const bool all = line.starts_with("all ");
    EXPECT_LE(median, all ? 5.0 : 10.0) << line;
    EXPECT_LE(large, all ? 3.5 : 5.0) << line;
    systems += all ? 0 : 1;
  }
  EXPECT_EQ(systems, 11);
}

TEST(Validate, CollectivesInAFileOfOnesOwn) {
  const Folder folder;
  std::string csv =
      "id,source,collective,gpu,gpus,gpus_per_node,interconnect,bytes,time_us,algbw_gbps,busbw_gbps\n"
      "odd,me,all_reduce,H100,8,8,x,lots,1,,\n";
  const Outcome bad = run({"validate", "--collectives", folder.write("bad.csv", csv)});
  EXPECT_EQ(bad.status, 2);
  EXPECT_TRUE(has(bad.err, "bad.csv:2")) << bad.err;
  csv.resize(csv.find("odd"));
  for (int i = 10; i < 22; ++i)
    csv += "r" + std::to_string(i) + ",me,all_gather,A100,4,8,x," + std::to_string(1 << i) + "," +
           std::to_string(10 + (1 << i) * 1e-5) + ",,\n";
  const Outcome r = run({"validate", "--collectives", folder.write("good.csv", csv)});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "0.0%")) << r.out;
}

TEST(Validate, FilterAndColumnsAreChecked) {
  const Folder folder;
  EXPECT_EQ(run({"validate", "--filter", "no-such-run"}).status, 2);
  EXPECT_EQ(run({"validate", "--throughput", folder / "none.csv"}).status, 2);
  const Outcome r = run({"validate", "--throughput", folder.write("m.csv", "id,scenario,metric,value\n")});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "m.csv:1:1: error: there is no column 'unit'")) << r.err;
}

TEST(Validate, DoesNotOverwriteItsMeasurements) {
  const Folder folder;
  folder.write("small.yaml", kCliScenario);
  const std::string csv = "id,scenario,metric,value,unit\none,small.yaml,iter_time_s,1,s\n";
  const Outcome r = run({"validate", "--throughput", folder.write("ledger.csv", csv), "-o", folder / ""});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "is an input of this command")) << r.err;
  EXPECT_EQ(read(folder / "ledger.csv"), csv);
}

}  // namespace
}  // namespace rehearse::e2e
