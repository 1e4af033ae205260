// The commands that help to write a scenario: list, explain, init; what they say, and what they refuse.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Json find(const Json& rows, const std::string& name) {
  for (const Json& row : rows)
    if (row["name"] == name) return row;
  ADD_FAILURE() << "no " << name << " in " << rows.dump();
  return {};
}

TEST(List, EveryNameIsInTheTableWhichFits80Columns) {
  for (const char* kind : {"models", "topologies", "devices", "frameworks", "scenarios"}) {
    const Outcome names = run({"list", kind, "--names"}), table = run({"list", kind});
    ASSERT_EQ(table.status, 0) << table.err;
    EXPECT_EQ(table.err, "") << kind;
    EXPECT_LE(widest(table.out), 80u) << table.out;
    const Json rows = Json::parse(run({"list", kind, "--json"}).out);
    const auto list = lines_of(names.out);
    ASSERT_EQ(rows.size(), list.size()) << kind;
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(rows[i]["name"], list[i]);
      EXPECT_TRUE(has("\n" + table.out, "\n" + list[i])) << kind << " " << list[i];
      EXPECT_FALSE(rows[i].contains("problem")) << rows[i];
    }
  }
}

TEST(List, FactsAreThoseOfTheFiles) {
  const Json model = find(Json::parse(run({"list", "models", "--json"}).out), "llama2-70b");
  EXPECT_EQ(model["parameters"], 68976648192);  // the published checkpoint's count
  EXPECT_EQ(model["layers"], 80);
  EXPECT_EQ(model["kv_heads"], 8);
  EXPECT_EQ(model["family"], "llama");
  const Json topology = find(Json::parse(run({"list", "topologies", "--json"}).out), "dgx-h100");
  EXPECT_EQ(topology["devices_per_node"], 8);
  EXPECT_EQ(topology["memory_bytes"], 85899345920);
  EXPECT_EQ(topology["nvlink_bytes_per_s"], 450000000000);
  EXPECT_EQ(topology["nic_bytes_per_s"], 50000000000);
  EXPECT_EQ(topology["devices_at_most"], 16384);
  const Json device = find(Json::parse(run({"list", "devices", "--json"}).out), "a100-sxm-80g");
  EXPECT_EQ(device["peak_bf16_flops"], 312e12);
  EXPECT_EQ(device["measured_gemms"], 428);
  const Json scenario = find(Json::parse(run({"list", "scenarios", "--json"}).out), "gpt3-175b-1024xa100");
  EXPECT_EQ(scenario["gpus"], 1024);
  EXPECT_EQ(scenario["data"], 16);
  EXPECT_TRUE(has(scenario["shows"].get<std::string>(), "(Narayanan et al., arXiv 2104.04473)")) << scenario;
  for (const Json& f : Json::parse(run({"list", "frameworks", "--json"}).out)) EXPECT_NE(f["summary"], "") << f;
}

TEST(List, AFileThatCannotBeReadIsNamedAndTheOthersListed) {
  const Folder folder;
  namespace fs = std::filesystem;
  fs::create_directories(folder / "scenarios/models");
  fs::copy(std::string(REHEARSE_SOURCE_DIR) + "/topologies", folder / "topologies");
  folder.write("scenarios/models/good.yaml", "family: mlp\nwidths: [4, 2]\n");
  folder.write("scenarios/models/bad.yaml", "family: mlp\nwidth: [4, 2]\n");
  const Outcome r = shell("REHEARSE_ROOT=" + (folder / "") + " \"$REHEARSE\" list models");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "good")) << r.out;
  EXPECT_TRUE(has(r.err, "bad.yaml:")) << r.err;
}

TEST(Explain, SaysWhatAKeyMeansAndTakes) {
  const Outcome r = run({"explain", "plan.zero"});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* part : {"plan.zero\n", "Type      integer, 0 to 3\n", "Default   0\n", "Example   plan: {zero: 1}\n",
                           "--set 'plan.zero=1'", "Related   plan.zero_group"})
    EXPECT_TRUE(has(r.out, part)) << part << " in " << r.out;
  EXPECT_EQ(run({"explain", "zero"}).out, r.out) << "the last part alone, where only one key ends so";
  EXPECT_TRUE(has(run({"explain", "model.dropout"}).out, "the framework's: rehearse 0, megatron-2021 0.1"));
  EXPECT_TRUE(has(run({"explain", "cluster.topology"}).out, "Known     aws-p4d, aws-p5"));
  EXPECT_TRUE(has(run({"explain", "model.convolutions[1].pool"}).out, "model.convolutions[].pool\n"));
  EXPECT_TRUE(has(run({"explain", "costs"}).out, "\ncosts\n  calibration ")) << "a section lists its keys";
}

TEST(Explain, AloneListsEveryKeyIn80Columns) {
  const Outcome r = run({"explain"});
  EXPECT_EQ(r.status, 0);
  EXPECT_LE(widest(r.out), 80u) << r.out;
  for (const std::string& key : lines_of(run({"explain", "--names"}).out)) {
    const std::string name = key.substr(key.find('.') + 1);
    EXPECT_TRUE(has(r.out, "\n  " + name + " ")) << key;
    const Outcome one = run({"explain", key});
    EXPECT_EQ(one.status, 0) << key;
    EXPECT_LE(widest(one.out), 80u) << one.out;
  }
}

TEST(Explain, MisspeltKeysNameTheNearestAndExit2) {
  const Outcome r = run({"explain", "training.clp"});
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(has(r.err, "no key of a scenario file is called 'training.clp' (did you mean 'training.clip'?)"))
      << r.err;
  EXPECT_TRUE(has(run({"explain", "channels"}).err, "several keys are called 'channels': model.image.channels"));
  EXPECT_TRUE(has(run({"explain", "cluster.overrides.nic.count"}).err, "docs/data.md"));
  EXPECT_EQ(run({"explain", "model.convolutions["}).status, 2);
  EXPECT_EQ(run({"explain", "a", "b"}).status, 2);
  EXPECT_EQ(run({"explain", "--json", "--markdown"}).status, 2);
}

TEST(Explain, JsonAndValuesAreForPrograms) {
  const Json all = Json::parse(run({"explain", "--json"}).out);
  EXPECT_EQ(all.size(), lines_of(run({"explain", "--names"}).out).size());
  EXPECT_EQ(run({"explain", "plan.zero_group", "--values"}).out, "all\nnode\n");
  EXPECT_EQ(run({"explain", "plan.recompute", "--values"}).out, "none\nselective\nfull\nops\n");
  EXPECT_EQ(run({"explain", "plan.zero", "--values"}).out, "0\n1\n2\n3\n");
}

TEST(Init, WritesAScenarioThatSimulatesAsItIs) {
  const Folder folder;
  for (const std::vector<std::string>& options : {std::vector<std::string>{},
                                                  {"--model", "gpt2-xl", "--gpus", "3"},
                                                  {"--model", "mlp-mnist", "--gpus", "4"},
                                                  {"--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "64"}}) {
    const std::string file = folder / "s.yaml";
    std::vector<std::string> words = {"init", file, "--force"};
    words.insert(words.end(), options.begin(), options.end());
    const Outcome r = run(words);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(has(r.err, "rehearse: wrote " + file)) << r.err;
    EXPECT_LE(widest(read(file)), 80u) << read(file);
    const Outcome simulated = run({"simulate", file, "--json"});
    EXPECT_EQ(simulated.status, 0) << simulated.err << read(file);
    EXPECT_TRUE(Json::parse(simulated.out)["memory"]["fits"].get<bool>());
  }
}

TEST(Init, EveryKeyThatCanBeGivenStandsInItAndMayBeUncommented) {
  const Outcome r = run({"init", "-"});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const Json& key : Json::parse(run({"explain", "--json"}).out)) {
    const std::string path = key["key"];
    if (!key["available"].get<bool>() || path.starts_with("model.") || !key["not_available"].empty()) continue;
    if (path.find('.') != path.rfind('.')) continue;  // shown by its list's or mapping's example
    EXPECT_TRUE(has(r.out, path.substr(path.find('.') + 1) + ":")) << path;
  }
  const Folder folder;
  // Each commented key alone, with its section's name; those without blanks after the # are keys.
  const auto lines = lines_of(r.out);
  std::size_t section = lines.size();  // the line of the section's name, if that is commented
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t mark = lines[i].find('#');
    if (lines[i].empty() || (lines[i][0] == '#' && lines[i].back() == ':' && lines[i].find(' ') == std::string::npos))
      section = lines[i].empty() ? lines.size() : i;
    if (mark == std::string::npos || mark + 1 >= lines[i].size() || lines[i][mark + 1] == ' ' ||
        lines[i].find_first_not_of(' ') != mark || section == i)
      continue;
    std::string text;
    for (std::size_t j = 0; j < lines.size(); ++j)
      text += (j == i         ? lines[j].substr(0, mark) + lines[j].substr(mark + 1)
               : j == section ? lines[j].substr(1)
                              : lines[j]) +
              "\n";
    const Outcome checked = run({"simulate", folder.write("s.yaml", text), "--json"});
    const std::string key = lines[i].substr(mark + 1, lines[i].find(':') - mark - 1);
    const bool of_data = section < lines.size() && lines[section] == "#data:";
    if (section < lines.size() && lines[section] == "#reinforcement:")  // a section that needs three keys
      EXPECT_TRUE(checked.status == 2 && has(checked.err, "required key is missing")) << lines[i] << checked.err;
    else if (key == "epochs" || (of_data && key == "storage_bandwidth") || key == "base_lr" || key == "lora_alpha" ||
             key == "fill_uninitialized")  // need another
      EXPECT_TRUE(checked.status == 2 && has(checked.err, key + ": needs ")) << lines[i] << "\n" << checked.err;
    else if (key == "document_length" || key == "document_lengths")
      EXPECT_TRUE(checked.status == 2 && has(checked.err, key + ": belongs to documents: ")) << checked.err;
    else
      EXPECT_EQ(checked.status, 0) << lines[i] << "\n" << checked.err;
  }
}

TEST(Init, SaysWhatABatchIsMadeOf) {
  const Outcome r = run({"init", "-", "--model", "gpt3-175b", "--gpus", "256"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(
      has(r.out, "  # Now 256 sequences = micro-batch 1 x 32 micro-batches x data 8; 524,288\n  # tokens a step.\n"))
      << r.out;
  EXPECT_TRUE(has(r.out, "global_batch: 256\n"));
}

TEST(Init, KeepsAFileThatIsThere) {
  const Folder folder;
  const std::string file = folder.write("mine.yaml", "mine");
  const Outcome r = run({"init", file});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "mine.yaml: error: exists already (--force replaces it)")) << r.err;
  EXPECT_EQ(read(file), "mine");
  EXPECT_EQ(run({"init", file, "--force", "--model", "gpt-tiny"}).status, 0);
  EXPECT_TRUE(has(read(file), "model: gpt-tiny"));
  EXPECT_EQ(folder.files(), std::vector<std::string>{"mine.yaml"}) << "no temporary file is left";
}

TEST(Init, WrongInputWritesNothing) {
  const Folder folder;
  const std::string file = folder / "s.yaml";
  EXPECT_TRUE(has(run({"init", file, "--model", "gpt3-175"}).err, "did you mean 'gpt3-175b'?"));
  EXPECT_TRUE(has(run({"init", file, "--cluster", "dgx-a10"}).err, "did you mean 'dgx-a100'?"));
  EXPECT_EQ(run({"init", file, "--cluster", folder / "none.yaml"}).status, 2);
  EXPECT_EQ(run({"init", file, "--gpus", "0"}).status, 2);
  EXPECT_TRUE(has(run({"init", file, "--gpus", "5000"}).err, "--gpus: error: 5000 devices: "));
  EXPECT_EQ(run({"init", folder / ""}).status, 2) << "a directory";
  EXPECT_EQ(run({"init", folder / "no/s.yaml"}).status, 2) << "in no directory";
  EXPECT_EQ(run({"init", ""}).status, 2);
  EXPECT_TRUE(folder.files().empty());
}

TEST(Init, APlanThatCannotFitSaysSo) {
  const Folder folder;
  const Outcome r = run({"init", folder / "s.yaml", "--model", "megatron-529.6b"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "no plan tried fits: this one needs ")) << r.err;
  EXPECT_TRUE(has(r.err, "with --gpus ")) << r.err;
}

// Tokens that tensor groups split, and sequences over several nodes, make room; the number of GPUs that is named does.
TEST(Init, LongSequencesAreSplit) {
  const Folder folder;
  const std::string file = folder / "s.yaml";
  const auto made = [&](const std::string& model, const std::string& gpus) {
    const Outcome r = run({"init", file, "--force", "--model", model, "--cluster", "dgx-h100", "--gpus", gpus});
    EXPECT_EQ(r.status, 0) << r.err;
    return r.err;
  };
  EXPECT_FALSE(has(made("llama3.1-70b", "64"), "no plan tried fits"));
  EXPECT_TRUE(has(read(file), "\n  sequence_parallel: true\n"));
  EXPECT_EQ(run({"simulate", file}).status, 0) << "it fits";
  const std::string small = made("llama3.1-70b", "8");
  const std::size_t at = small.find("with --gpus ");
  ASSERT_NE(at, std::string::npos) << small;
  const std::string enough = small.substr(at + 12, small.find(' ', at + 12) - at - 12);
  EXPECT_FALSE(has(made("llama3.1-70b", enough), "no plan tried fits")) << enough;
}

TEST(Init, SpreadsExpertsOverANode) {
  const Folder folder;
  const std::string file = folder / "s.yaml";
  const Outcome r = run({"init", file, "--model", "qwen3-30b-a3b", "--cluster", "dgx-h100", "--gpus", "64"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(read(file), "\n  expert: 8\n"));
  EXPECT_EQ(run({"simulate", file}).status, 0) << "it fits";
}

TEST(Init, PrintsACommandThatAShellTakes) {
  const Folder folder;
  const Outcome r = run({"init", folder / "neu \u00f6.yaml", "--model", "gpt-tiny"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "'" + (folder / "neu \u00f6.yaml") + "'\n")) << r.err;
  EXPECT_TRUE(
      has(run({"init", folder / "plain.yaml", "--model", "gpt-tiny"}).err, " " + (folder / "plain.yaml") + "\n"));
}

// What a device cannot multiply is the scenario's to say, not the device file's.
TEST(ScenarioKeys, APrecisionThatADeviceHasNotIsTheScenariosProblem) {
  const Outcome r = run({"simulate", "llama2-7b-8xa100", "--set", "training.precision=fp8"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err,
                  "scenarios/llama2-7b-8xa100.yaml: error: training.precision: fp8: device a100-sxm-80g has no "
                  "products of this type (fp32, bf16, fp16)"))
      << r.err;
}

}  // namespace
}  // namespace rehearse::e2e
