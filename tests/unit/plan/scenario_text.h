// Reads a scenario from text for the tests: the text becomes a file of its own, so that positions are those of a file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"

namespace rehearse::plan {

// 12 layers; 12 heads with 4 key-value heads; tensor sizes 1, 2 and 4 divide heads, kv_heads and ffn_hidden.
inline const std::string kSmallModel =
    "model: {family: gpt, layers: 12, hidden: 96, heads: 12, kv_heads: 4, ffn_hidden: 384, vocab: 1000, "
    "max_seq_len: 128}\n";

inline std::string scenario_file(const std::string& text) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder = testing::TempDir() + "plan_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/plan_" + test->name() + ".yaml";
  std::ofstream(path) << text;
  return path;
}

inline Scenario read(const std::string& text, const std::vector<std::string>& assignments = {},
                     Purpose purpose = Purpose::simulate) {
  return read_scenario(scenario_file(text), assignments, REHEARSE_SOURCE_DIR, purpose);
}

// The problems of a scenario as "line:column path: message", without the file.
inline std::vector<std::string> problems(const std::string& text, const std::vector<std::string>& assignments = {},
                                         Purpose purpose = Purpose::simulate) {
  std::vector<std::string> found;
  try {
    read(text, assignments, purpose);
  } catch (const InputError& error) {
    for (const Diagnostic& d : error.diagnostics()) {
      const std::string place = d.file == "--set" ? "--set" : std::to_string(d.line) + ":" + std::to_string(d.column);
      found.push_back(place + " " + d.path + ": " + d.message + (d.hint.empty() ? "" : " (" + d.hint + ")"));
    }
  }
  return found;
}

}  // namespace rehearse::plan
