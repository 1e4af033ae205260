// Models from Hugging Face configurations as a user meets them: simulated, overridden from the command line, written
// into a scenario by init, and refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

const std::string kConfigurations = std::string(REHEARSE_SOURCE_DIR) + "/tests/unit/plan/hf/";

// What a simulation says of everything but the file, the name and what the program took.
Json simulated(const std::string& scenario, const std::vector<std::string>& assignments) {
  std::vector<std::string> line = {"simulate", scenario, "--json", "--fold", "auto"};
  for (const std::string& one : assignments) line.insert(line.end(), {"--set", one});
  const Outcome r = run(line);
  EXPECT_EQ(r.status, 0) << r.err;
  Json result = Json::parse(r.out);
  for (const char* key : {"engine", "notes"}) result.erase(key);
  result["scenario"].erase("model");
  return result;
}

TEST(HuggingFace, AModelThatIsAPresetIsSimulatedAlike) {
  const std::string scenario = "llama2-7b-8xa100";
  const Json preset = simulated(scenario, {"model=llama2-7b"});
  EXPECT_EQ(simulated(scenario, {"model.hf=" + kConfigurations + "llama-2-7b.json"}), preset);
  EXPECT_NE(simulated(scenario, {"model.hf=" + kConfigurations + "llama-2-7b.json", "model.vocab=32256"}), preset);
}

TEST(HuggingFace, MixtralsAndGpt2sFilesAreSimulatedAsTheirPresets) {
  const std::string moe = "mixtral-8x7b-64xh100", dense = "gpt2-diloco-2-nodes";
  EXPECT_EQ(simulated(moe, {"model={hf: " + kConfigurations + "mixtral-8x7b.json, capacity_factor: 1}"}),
            simulated(moe, {}));
  EXPECT_EQ(simulated(dense, {"model.hf=" + kConfigurations + "gpt2.json"}), simulated(dense, {}));
}

TEST(HuggingFace, NotesSayWhatWasRead) {
  const Outcome r =
      run({"simulate", "llama2-7b-8xa100", "--set", "model.hf=" + kConfigurations + "llama-2-7b.json", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json notes = Json::parse(r.out)["notes"];
  ASSERT_GE(notes.size(), 3U);
  for (const Json& note : notes) EXPECT_EQ(note["what"], "model_file");
  EXPECT_TRUE(has(
      notes[0]["text"],
      "of the kind llama (LlamaForCausalLM): 6,738,415,616 parameters. Read: num_hidden_layers 32, hidden_size 4096"));
  EXPECT_TRUE(has(r.err, "rehearse: note: Left to the scenario: torch_dtype (training.precision)")) << r.err;
}

TEST(HuggingFace, InitWritesAScenarioWithIt) {
  const Folder folder;
  folder.write("config.json", read(kConfigurations + "mistral-7b.json"));
  const std::string file = folder / "mine.yaml";
  const Outcome made = run({"init", file, "--model", folder / "config.json", "--cluster", "dgx-h100"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(has(read(file), "\nmodel: {hf: '" + (folder / "config.json") + "'}\n")) << read(file);
  EXPECT_TRUE(has(read(file), "\n  seq_len: 4096\n")) << "no longer than the window";
  const Outcome simulated = run({"simulate", file});
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  const Outcome wrong = run({"init", folder / "other.yaml", "--model", folder / "absent.json"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(has(wrong.err, "absent.json cannot be read: No such file or directory")) << wrong.err;
}

TEST(HuggingFace, AWrongFileIsNamedWithLineAndColumn) {
  const Folder folder;
  folder.write("config.json", "{\n  \"model_type\": \"gpt2\",\n  \"n_embd\": 768,\n  \"n_layers\": 12\n}\n");
  const std::string scenario = folder.write("s.yaml", "rehearse: 1\nmodel: {hf: config.json}\n");
  const Outcome r = run({"simulate", scenario});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(
      has(r.err, "config.json:1:1: error: n_layer: required key is missing, expected an integer (is it 'n_layers'?)"))
      << r.err;
}

}  // namespace
}  // namespace rehearse::e2e
