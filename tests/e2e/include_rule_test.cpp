// The house's rule, read from the sources themselves: which folder may include which (arrows down only), and what every
// file looks like from outside. kHouse is the rule; the first tests hold it up to made-up files, so that a checker that
// sees nothing is caught, the later ones to every .h and .cpp of the tree and to what CMake links.
// Only includes in quotes are looked at: they are ours and are written from the root of the tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

// "engine stands on plan, program, ...". A folder may include itself and what it stands on, directly or through others.
const std::map<std::string, std::set<std::string>> kHouse = {
    {"base", {}},
    {"kernels", {"base"}},
    {"program", {"base"}},
    {"model", {"base"}},
    {"cluster", {"base"}},
    {"result", {"base"}},
    {"plan", {"base", "model"}},
    {"lower", {"model", "plan", "program"}},
    {"cost", {"program"}},
    {"collective", {"cluster", "program", "cost"}},
    {"engine", {"plan", "program", "cluster", "collective", "cost", "result", "account"}},
    {"account", {"plan", "program", "result"}},
    {"run", {"lower", "engine", "account"}},
    {"execute", {"plan", "program", "kernels", "result", "account"}},
    {"search", {"run"}},
    {"calibrate", {"kernels", "lower", "program", "cost", "execute"}},
    {"formats", {"base"}},
    {"launch", {"plan", "formats"}},
    {"reports", {"result", "program", "model", "plan"}},
    {"cli", {"run", "execute", "search", "calibrate", "formats", "launch", "reports"}},
};

constexpr std::size_t kMaxLines = 600;

std::set<std::string> stands_on(const std::string& folder) {
  std::set<std::string> all, open = kHouse.at(folder);
  while (!open.empty()) {
    const std::string next = *open.begin();
    open.erase(open.begin());
    if (all.insert(next).second) open.insert(kHouse.at(next).begin(), kHouse.at(next).end());
  }
  return all;
}

// "sim/engine/share.cpp" -> "engine", "reports/html/html.h" -> "reports"; nothing for a path outside the house.
std::optional<std::string> folder_of(const std::string& path) {
  std::istringstream parts(path);
  std::string folder, rest;
  std::getline(parts, folder, '/');
  if (folder == "sim") std::getline(parts, folder, '/');
  if (!std::getline(parts, rest) || !kHouse.contains(folder)) return {};
  return folder;
}

// What is wrong with the file at `path` (from the root of the tree) that holds `text`.
std::vector<std::string> check(const std::string& path, const std::string& text) {
  static const std::regex include(R"(^\s*#\s*include\s*"([^"]*)\".*)");
  static const std::regex using_namespace(R"(^using\s+namespace\b.*)");  // inside a function it may
  std::vector<std::string> wrong;
  const std::optional<std::string> folder = folder_of(path);
  const bool header = path.ends_with(".h");
  bool pragma_once = false;
  std::size_t lines = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::string place = path + ":" + std::to_string(++lines) + ": ";
    pragma_once |= line == "#pragma once";
    if (header && std::regex_match(line, using_namespace)) wrong.push_back(place + "using namespace in a header");
    std::smatch match;
    if (!folder || !std::regex_match(line, match, include)) continue;
    const std::optional<std::string> other = folder_of(match[1]);
    if (!other) {
      wrong.push_back(place + "\"" + match[1].str() +
                      "\" is no path from the root of the tree into a folder of the house");
    } else if (other != folder && !stands_on(*folder).contains(*other)) {
      wrong.push_back(place + *folder + " may not include " + *other);
    }
  }
  if (header && !pragma_once) wrong.push_back(path + ": no #pragma once");
  if (lines > kMaxLines) wrong.push_back(path + ": " + std::to_string(lines) + " lines");
  return wrong;
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Files under the source folders and the tests whose names `pattern` matches, as paths from the root, sorted.
std::vector<std::string> files_matching(const std::regex& pattern) {
  const fs::path root = REHEARSE_SOURCE_DIR;
  std::vector<std::string> paths;
  for (const char* top : {"sim", "kernels", "execute", "calibrate", "formats", "launch", "reports", "cli", "tests"}) {
    if (!fs::exists(root / top)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (entry.is_regular_file() && std::regex_match(path, pattern)) paths.push_back(path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

using Wrongs = std::vector<std::string>;

TEST(IncludeRule, AnArrowUpIsFound) {
  EXPECT_EQ(check("sim/base/units.cpp", "#include \"sim/base/units.h\"\n#include \"sim/model/model.h\"\n"),
            Wrongs{"sim/base/units.cpp:2: base may not include model"});
  EXPECT_EQ(check("sim/engine/a.cpp", "  # include \"execute/performer.h\"  // why not\n"),
            Wrongs{"sim/engine/a.cpp:1: engine may not include execute"});
  EXPECT_EQ(check("execute/a.cpp", "#include \"sim/engine/engine.h\"\n"),
            Wrongs{"execute/a.cpp:1: execute may not include engine"});
  EXPECT_EQ(check("sim/program/work.cpp", "#include \"sim/plan/plan.h\"\n#include \"cli/a.h\"\n").size(), 2u);
}

TEST(IncludeRule, WhatAFolderStandsOnIsAllowed) {
  EXPECT_EQ(
      check("sim/engine/a.cpp", "#include <vector>\n#include \"sim/engine/b.h\"\n#include \"sim/model/model.h\"\n"),
      Wrongs{});
  EXPECT_EQ(check("cli/a.cpp", "#include \"sim/engine/engine.h\"\n#include \"execute/a.h\"\n"), Wrongs{});
  EXPECT_EQ(check("sim/base/a.cpp", "// #include \"sim/model/model.h\"\n"), Wrongs{}) << "a comment includes nothing";
  EXPECT_EQ(check("tests/e2e/a.cpp", "#include \"sim/engine/engine.h\"\n#include \"near.h\"\n"), Wrongs{})
      << "tests are outside the house";
}

TEST(IncludeRule, AnIncludeThatIsNotFromTheRootIsFound) {
  EXPECT_EQ(check("sim/base/a.cpp", "#include \"units.h\"\n").size(), 1u);
  EXPECT_EQ(check("sim/base/a.cpp", "#include \"../base/units.h\"\n").size(), 1u);
  EXPECT_EQ(check("sim/base/a.cpp", "#include \"sim/units.h\"\n").size(), 1u);
}

TEST(IncludeRule, WhatAFileLooksLikeIsChecked) {
  EXPECT_EQ(check("sim/base/a.h", "int a;\n"), Wrongs{"sim/base/a.h: no #pragma once"});
  EXPECT_EQ(check("sim/base/a.h", "#pragma once\nusing  namespace std;\n"),
            Wrongs{"sim/base/a.h:2: using namespace in a header"});
  EXPECT_EQ(check("sim/base/a.cpp", "using namespace std;\n"), Wrongs{}) << "a .cpp may";
  EXPECT_EQ(check("sim/base/a.cpp", std::string(kMaxLines, '\n')), Wrongs{});
  EXPECT_EQ(check("sim/base/a.cpp", std::string(kMaxLines + 1, '\n')), Wrongs{"sim/base/a.cpp: 601 lines"});
}

TEST(IncludeRule, TheHouseHasNoCycles) {
  for (const auto& [folder, below] : kHouse) EXPECT_FALSE(stands_on(folder).contains(folder)) << folder;
}

TEST(IncludeRule, EverySourceFileKeepsIt) {
  const std::vector<std::string> paths = files_matching(std::regex(R"(.*\.(h|cpp|cu|cuh))"));
  ASSERT_GT(paths.size(), 20u) << "the tree was not found";
  for (const std::string& path : paths) {
    EXPECT_TRUE(folder_of(path) || path.starts_with("tests/")) << path << " is in no folder of the house";
    for (const std::string& wrong : check(path, read(fs::path(REHEARSE_SOURCE_DIR) / path))) ADD_FAILURE() << wrong;
  }
}

// rehearse_library(engine DEPENDS rehearse_plan ...) must say no more than kHouse does.
TEST(IncludeRule, CMakeLinksNoMore) {
  static const std::regex library(R"(rehearse_library\((\w+)([^)]*)\))"), dependency(R"(rehearse_(\w+))");
  std::size_t libraries = 0;
  for (const std::string& path : files_matching(std::regex(R"(.*CMakeLists\.txt)"))) {
    const std::string text = read(fs::path(REHEARSE_SOURCE_DIR) / path);
    for (std::sregex_iterator it(text.begin(), text.end(), library), end; it != end; ++it, ++libraries) {
      const std::string folder = (*it)[1], depends = (*it)[2];
      ASSERT_TRUE(kHouse.contains(folder)) << path << ": " << folder;
      const std::set<std::string> below = stands_on(folder);
      for (std::sregex_iterator d(depends.begin(), depends.end(), dependency); d != end; ++d) {
        const std::string on = (*d)[1] == "cuda" ? "kernels" : (*d)[1].str();  // kernels/cuda is a library of its own
        EXPECT_TRUE(below.contains(on)) << path << ": " << folder << " may not link " << on;
      }
    }
  }
  EXPECT_GE(libraries, 11u) << "the libraries of sim/ were not found";
}

}  // namespace
