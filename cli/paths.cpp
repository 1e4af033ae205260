// See paths.h.
#include "cli/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "sim/base/diagnostics.h"
#include "sim/result/result.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

bool holds_data(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "scenarios", error) && fs::is_directory(folder / "topologies", error);
}

[[noreturn]] void fail(const std::string& file, std::string message, std::string hint = "") {
  throw InputError(Diagnostic{file, 0, 0, "", std::move(message), std::move(hint)});
}

}  // namespace

std::string data_root() {
  if (const char* given = std::getenv("REHEARSE_ROOT"); given != nullptr && *given != '\0') {
    if (!holds_data(given)) fail(given, "REHEARSE_ROOT names a folder without scenarios/ and topologies/");
    return given;
  }
  std::error_code error;
  for (fs::path at = fs::read_symlink("/proc/self/exe", error); at.has_relative_path(); at = at.parent_path())
    if (holds_data(at.parent_path())) return at.parent_path().string();
  fail("", "found no folder with scenarios/ and topologies/ above the program", "set REHEARSE_ROOT to it");
}

std::vector<std::string> yaml_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".yaml" && !entry.path().stem().has_extension())
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> scenario_names(const std::string& root) {
  return yaml_names((fs::path(root) / "scenarios").string());
}

std::string scenario_file(const std::string& given, const std::string& root) {
  std::error_code error;
  if (given.empty()) fail("", "the scenario's name is empty");
  if (fs::exists(fs::status(given, error))) return given;
  const fs::path shipped = fs::path(root) / "scenarios" / (given + ".yaml");
  const bool bare = given.find('/') == std::string::npos;
  if (bare && fs::exists(fs::status(shipped, error))) return shipped.string();
  const std::string near = nearest(fs::path(given).stem().string(), scenario_names(root));
  fail(given, "no such file, and no scenario of that name",
       near.empty() ? "rehearse list scenarios names them" : fmt::format("did you mean '{}'?", near));
}

std::string shown_path(const std::string& path, const std::string& root) {
  const std::string prefix = root.ends_with('/') ? root : root + '/';
  return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
}

void check_output(const std::string& dir, const std::string& scenario) {
  if (const std::string problem = result::directory_problem(dir); !problem.empty())
    fail("", "-o: " + problem, "-o names a directory");
  for (const char* name : {"result.json", "ops.csv", "trace.json.gz"}) {
    std::error_code error;
    if (fs::equivalent(fs::path(dir) / name, scenario, error))
      fail("", fmt::format("-o {}: would overwrite the scenario {}", dir, scenario));
  }
}

}  // namespace rehearse::cli
