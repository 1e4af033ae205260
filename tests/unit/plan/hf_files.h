// The files of hf/, read as a scenario's model, whole or with a piece replaced.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/plan/read_model.h"
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {

using model::Model;

inline const std::string kFiles = std::string(REHEARSE_SOURCE_DIR) + "/tests/unit/plan/hf/";

inline std::string contents(const std::string& name) {
  std::ifstream file(kFiles + name + ".json");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class HfTest : public testing::Test {
 protected:
  Model read_value(const std::string& value) {
    diagnostics_ = Diagnostics();
    const Document scenario = Document::from_text("s.yaml", "model: " + value, diagnostics_);
    return read_model(scenario.root().get("model"), *find_framework("rehearse"), REHEARSE_SOURCE_DIR, diagnostics_);
  }
  Model file(const std::string& name, const std::string& more = "") {
    return read_value("{hf: '" + kFiles + name + ".json'" + more + "}");
  }
  // A file of this text instead.
  std::string written(const std::string& text) const {
    const std::string path = std::filesystem::path(scenario_file("")).replace_extension("json").string();
    std::ofstream(path) << text;
    return path;
  }
  Model text(const std::string& text, const std::string& more = "") {
    path_ = written(text);
    return read_value("{hf: '" + path_ + "'" + more + "}");
  }
  // One of the files with a piece replaced.
  Model changed(const std::string& name, const std::string& from, const std::string& to) {
    std::string all = contents(name);
    const std::size_t at = all.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text(all.replace(at, from.size(), to));
  }
  // "line:column: message (hint)" of the only problem, which is in the file.
  std::string problem() const {
    if (diagnostics_.list().size() != 1) return fmt::format("{} problems", diagnostics_.list().size());
    const Diagnostic& d = diagnostics_.list().front();
    EXPECT_EQ(d.file, path_);
    return fmt::format("{}:{}: {}{}", d.line, d.column, d.message, d.hint.empty() ? "" : " (" + d.hint + ")");
  }
  bool says(const Model& model, const std::string& what) const {
    return std::any_of(model.notes.begin(), model.notes.end(),
                       [&](const std::string& note) { return note.find(what) != std::string::npos; });
  }
  void expect_sound() const {
    for (const Diagnostic& d : diagnostics_.list()) ADD_FAILURE() << d.text();
  }

  Diagnostics diagnostics_;
  std::string path_;
};

}  // namespace rehearse::plan
