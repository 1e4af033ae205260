// rehearse execute of a scenario with section `reinforcement`: what it prints and writes, that it is set beside its
// simulation, and what is refused with its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "program.h"

namespace rehearse::e2e {
namespace {

constexpr const char* kLocal = "gpt-tiny-grpo-local";

std::vector<double> numbers_behind(const std::string& text, const std::string& what) {
  std::vector<double> numbers;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;)
    numbers.push_back(std::stod(text.substr(at += what.size())));
  return numbers;
}

std::vector<double> column(const std::string& table, const std::string& name) {
  std::istringstream lines(table);
  std::vector<double> numbers;
  std::ptrdiff_t at = -1;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    if (at >= 0)
      numbers.push_back(std::stod(cells.at(static_cast<std::size_t>(at))));
    else
      at = std::find(cells.begin(), cells.end(), name) - cells.begin();
  }
  return numbers;
}

// Of a file of --metrics: the value behind a name and its labels.
double metric(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("rehearse_" + name + "{", 0) == 0) return std::stod(line.substr(line.rfind(' ') + 1));
  ADD_FAILURE() << name << " is not in\n" << text;
  return 0;
}

TEST(Learning, IsPerformedAndComparedPhaseByPhase) {
  const Folder folder;
  const Outcome r = run({"execute", kLocal, "--steps", "3", "--log-every", "1", "-o", folder / "measured", "--metrics",
                         folder / "metrics.prom"});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* phase : {"generation", "actor scoring", "reference scoring", "rewards", "actor training", "weights"})
    EXPECT_TRUE(has(r.out, std::string("\n  ") + phase + " ")) << phase << r.out;
  EXPECT_TRUE(has(r.out, "4 updates of 32 sequences")) << r.out;
  EXPECT_FALSE(has(r.out, "idle")) << "which is not measured: " << r.out;
  EXPECT_TRUE(has(read(folder / "measured/steps.csv"), "\n3,1,")) << "step 3 of rank 1";
  const std::string steps = read(folder / "measured/learning.csv");
  EXPECT_EQ(std::count(steps.begin(), steps.end(), '\n'), 4) << steps;
  EXPECT_TRUE(has(steps, "step,loss,reward,distance,end_s,step_s,generation_s,prefill_s,decode_s,")) << steps;
  const std::string result = read(folder / "measured/result.json");
  EXPECT_TRUE(has(result, "\"rewards\"") && !has(result, "\"idle\"")) << result;
  // Rewards are shares, of a rule that random tokens keep one time in four; they are printed to four places.
  const auto rewards = numbers_behind(r.err, "  reward "), columns = column(steps, "reward");
  ASSERT_EQ(rewards.size(), 3U) << r.err;
  ASSERT_EQ(columns.size(), 3U) << steps;
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(rewards[step], columns[step], 5.1e-5) << r.err << steps;
    EXPECT_NEAR(rewards[step], 0.25, 0.1) << "of 128 responses of some 12 tokens";
  }
  // A step of the run is of 128 sequences, and of their prompts and responses.
  const std::string metrics = read(folder / "metrics.prom");
  const double step_s = metric(metrics, "step_seconds"), tokens = metric(metrics, "tokens_per_second") * step_s;
  EXPECT_NEAR(metric(metrics, "examples_per_second") * step_s, 128, 0.1) << metrics;
  EXPECT_NEAR(tokens, 128 * (4 + 12), 128) << metrics;
  EXPECT_EQ(metric(metrics, "ranks"), 2) << metrics;

  const Outcome simulated = run({"simulate", kLocal, "--calibration", "a100-sxm-80g", "-o", folder / "simulated"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const Outcome compared = run({"compare", folder / "simulated", folder / "measured", "-o", folder / "compared"});
  EXPECT_EQ(compared.status, 0) << compared.err;
  for (const char* line : {"generation", "  prefill", "  decode", "actor training", "rewards", "step"})
    EXPECT_TRUE(has(compared.out, std::string("\n  ") + line + " ")) << line << compared.out;
  EXPECT_TRUE(has(read(folder / "compared/compare.csv"), "phase,first_s,second_s\ngeneration,"));
}

TEST(Learning, ACriticIsPerformedAndComparedPhaseByPhase) {
  const Folder folder;
  const Outcome r =
      run({"execute", "gpt-tiny-ppo-local", "--steps", "3", "--log-every", "1", "-o", folder / "measured"});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* phase : {"generation", "actor scoring", "reference scoring", "critic scoring", "rewards",
                            "actor training", "critic training", "weights"})
    EXPECT_TRUE(has(r.out, std::string("\n  ") + phase + " ")) << phase << r.out;
  const std::string steps = read(folder / "measured/learning.csv");
  const auto losses = column(steps, "value_loss"), told = numbers_behind(r.err, ", critic "),
             training = column(steps, "critic_training_s");
  ASSERT_EQ(losses.size(), 3U) << steps;
  ASSERT_EQ(told.size(), 3U) << r.err;
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(told[step], losses[step], 1e-4) << r.err << steps;
    EXPECT_GT(training[step], 0);
  }
  EXPECT_LT(losses[2], losses[0]) << "a critic that expects nothing learns what is usual";
  EXPECT_TRUE(has(read(folder / "measured/result.json"), "\"algorithm\": \"ppo\""));
  const Outcome simulated =
      run({"simulate", "gpt-tiny-ppo-local", "--calibration", "a100-sxm-80g", "-o", folder / "simulated"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const Outcome compared = run({"compare", folder / "simulated", folder / "measured"});
  EXPECT_EQ(compared.status, 0) << compared.err;
  for (const char* line : {"critic scoring", "critic training"})
    EXPECT_TRUE(has(compared.out, std::string("\n  ") + line + " ")) << line << compared.out;
}

// The simulation counts what weights move by layers and parts, the performer by what ranks hold.
TEST(Learning, AsManyBytesOfSpreadExpertsMoveAsSimulated) {
  const Folder folder;
  const std::string file = folder.write("experts.yaml", R"(rehearse: 1
name: experts
model: {family: moe, layers: 4, hidden: 32, heads: 4, vocab: 64, max_seq_len: 32, experts: 4, experts_per_token: 2,
        expert_ffn_hidden: 48, aux_loss: 0, buffer_factor: 2, dropout: 0}
framework: rehearse
cluster: {topology: local, gpus: 4}
plan: {micro_batch: 2, expert: 2}
training: {global_batch: 16, seq_len: 16, precision: fp32}
reinforcement: {prompts: 8, samples: 4, prompt_tokens: 4, response_tokens: 8, packing: false, offload: false}
)");
  for (const char* set : {"plan.pipeline=1", "plan.pipeline=2", "plan.zero=1", "model.bias=true",
                          "reinforcement.generation.tensor=2", "reinforcement.generation.gpus=2"}) {
    const Outcome simulated = run({"simulate", file, "--set", set, "--calibration", "a100-sxm-80g", "--json"}),
                  performed = run({"execute", file, "--set", set, "--steps", "1", "--json"});
    ASSERT_EQ(simulated.status, 0) << set << simulated.err;
    ASSERT_EQ(performed.status, 0) << set << performed.err;
    const auto moved = numbers_behind(simulated.out, "\"moved_bytes\":");
    ASSERT_EQ(moved.size(), 1U) << simulated.out;
    EXPECT_GT(moved.front(), 0);
    EXPECT_EQ(numbers_behind(performed.out, "\"moved_bytes\":"), moved) << set;
  }
}

TEST(Learning, RefusesWhatIsNotPerformedWithItsPlace) {
  struct Refused {
    std::string set, says, too = "reinforcement.prompts=8";
  };
  for (const auto& [set, says, too] :
       {Refused{"reinforcement.critic=gpt2", "a critic that is another model", "reinforcement.algorithm=ppo"},
        Refused{"reinforcement.packing=true", "packed rows are not performed"},
        Refused{"reinforcement.offload=true", "the memory of devices is the host's"},
        Refused{"reinforcement.reward=gpt2", "a reward model that is another model"},
        Refused{"reinforcement.samples=1", "no group that its advantage could be told by", "reinforcement.prompts=32"},
        Refused{"reinforcement.rule_modulus=17", "17 is more than the 16 tokens"},
        Refused{"reinforcement.generation.memory=60%", "a device's part of the memory is not kept to"},
        Refused{"reinforcement.generation.overhead=1ms", "is measured, not given"},
        Refused{"model.dropout=0.1", "which drops nothing"}}) {
    const Outcome r = run({"execute", kLocal, "--steps", "1", "--set", set, "--set", too});
    EXPECT_EQ(r.status, 2) << set << r.err;
    EXPECT_TRUE(has(r.err, says)) << set << r.err;
    EXPECT_TRUE(has(r.err, set.substr(0, set.find('=')))) << set << r.err;
  }
  // In the file: with its line.
  const Folder folder;
  std::string text = read(std::string(REHEARSE_SOURCE_DIR) + "/scenarios/gpt-tiny-grpo-local.yaml");
  const auto at = text.find("packing: false");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 14, "packing: true");
  const std::string packed = folder.write("packed.yaml", text);
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--checkpoint", folder / "saved", "--max-restarts", "1"}}) {
    std::vector<std::string> command = {"execute", packed};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome r = run(command);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_TRUE(has(r.err, "packed.yaml:" + std::to_string(line) + ":")) << r.err;
  }
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--ranks", "gloo"},
                                             {"--record-routing", folder / "routing.csv"},
                                             {"--as-simulated"},
                                             {"--baseline"},
                                             {"--async", "--checkpoint", folder / "saved"},
                                             {"--epochs", "1"}}) {
    std::vector<std::string> command = {"execute", kLocal};
    command.insert(command.end(), options.begin(), options.end());
    const Outcome refused = run(command);
    EXPECT_EQ(refused.status, 2) << options.front() << refused.err;
    EXPECT_TRUE(has(refused.err, options.front())) << refused.err;
  }
}

// learning.csv of a run in two parts has the losses of one.
TEST(Learning, GoesOnFromItsCheckpoints) {
  const Folder folder;
  const auto execute = [&](const std::string& steps, const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> command = {"execute", kLocal, "--steps", steps, "-o", folder / out};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  };
  ASSERT_EQ(execute("4", "whole", {}).status, 0);
  const std::vector<std::string> saved = {"--checkpoint", folder / "saved", "--every", "1"};
  ASSERT_EQ(execute("2", "begun", saved).status, 0);
  const Outcome refused = execute("4", "again", saved);
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(has(refused.err, "has checkpoints already, the last of step 2")) << refused.err;
  std::vector<std::string> on = saved;
  on.emplace_back("--resume");
  const Outcome resumed = execute("4", "resumed", on);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const std::string whole = read(folder / "whole/learning.csv"), rest = read(folder / "resumed/learning.csv");
  EXPECT_EQ(column(rest, "step"), (std::vector<double>{3, 4})) << rest;
  for (const char* name : {"loss", "reward", "distance"}) {
    const auto all = column(whole, name);
    ASSERT_EQ(all.size(), 4U);
    EXPECT_EQ(column(rest, name), std::vector<double>(all.begin() + 2, all.end())) << name;
  }
}

std::string losses_of(const std::string& json) {
  const auto at = json.find("\"loss\":");
  return at == std::string::npos ? "" : json.substr(at, json.find(']', at) - at);
}

TEST(Learning, KilledItIsStartedAgainAndLosesNothing) {
  const Folder folder;
  const std::string command = "$REHEARSE execute gpt-tiny-grpo-local --steps 24 --json";
  const Outcome r =
      shell(command + " --checkpoint " + (folder / "saved") +
            " --every 2 --keep 2 --max-restarts 1 & parent=$!; for try in $(seq 3000); do ls " + (folder / "saved") +
            "/*/manifest.json > /dev/null 2>&1 && break; sleep 0.02; done; kill -KILL $(cut -d ' ' -f 1 "
            "/proc/$parent/task/$parent/children); wait $parent");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "was killed by signal 9")) << r.err;
  EXPECT_TRUE(has(r.err, "restart 1 of 1")) << r.err;
  const auto performed = numbers_behind(r.out, "\"steps\":");
  ASSERT_FALSE(performed.empty()) << r.out;
  EXPECT_LT(performed.front(), 24) << "it went on from a checkpoint";
  const Outcome whole = shell(command);
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_NE(losses_of(whole.out), "");
  EXPECT_EQ(losses_of(r.out), losses_of(whole.out));
}

TEST(Learning, WrongNumbersAreRefusedWithTheirKeys) {
  for (const char* set : {"reinforcement.gamma=1.1", "reinforcement.gae_lambda=-0.1", "reinforcement.value_clip=0",
                          "reinforcement.gamma=0.9", "reinforcement.clip=0", "reinforcement.clip=2",
                          "reinforcement.kl=-1", "reinforcement.rule_modulus=1", "reinforcement.rule_modulus=x"}) {
    const Outcome r = run({"execute", kLocal, "--set", set});
    EXPECT_EQ(r.status, 2) << set << r.err;
    EXPECT_TRUE(has(r.err, std::string(set, std::string(set).find('=')))) << r.err;
  }
}

}  // namespace
}  // namespace rehearse::e2e
