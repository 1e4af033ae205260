// See paths.h.
#include "cli/paths.h"

#include <fmt/format.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/result/output_file.h"
#include "sim/result/result.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstalled = "share/rehearse";  // where `cmake --install` puts the data, next to bin/

bool holds_data(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "scenarios", error) && fs::is_directory(folder / "topologies", error);
}

// The program's own file, links resolved. Where /proc is not mounted, by the name it was started with.
fs::path own_file() {
  std::error_code error;
  fs::path file = fs::read_symlink("/proc/self/exe", error);
  if (!error) return file;
  // getauxval() gives addresses as integers.
  const auto* name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
  if (name == nullptr) return {};
  file = fs::canonical(name, error);
  return error ? fs::path() : file;
}

[[noreturn]] void refuse_path(const std::string& file, std::string message, std::string hint = "") {
  throw InputError(Diagnostic{file, 0, 0, "", std::move(message), std::move(hint)});
}

}  // namespace

std::string data_root() {
  if (const char* given = std::getenv("REHEARSE_ROOT"); given != nullptr && *given != '\0') {
    if (!holds_data(given)) refuse_path(given, "REHEARSE_ROOT names a folder without scenarios/ and topologies/");
    return given;
  }
  for (fs::path at = own_file(); at.has_relative_path(); at = at.parent_path())
    for (const fs::path& folder : {at.parent_path(), at.parent_path() / kInstalled})
      if (holds_data(folder)) return folder.string();
  refuse_path(
      "", fmt::format("found no folder with scenarios/ and topologies/ above the program, nor {} there", kInstalled),
      "set REHEARSE_ROOT to it");
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
  if (given.empty()) refuse_path("", "the scenario's name is empty");
  const bool bare = given.find('/') == std::string::npos && !given.ends_with(".yaml");
  const fs::file_status there = fs::status(given, error);
  if (fs::exists(there) && !(bare && fs::is_directory(there))) {
    note_input(given);
    return given;
  }
  // Shipped scenarios of a folder are named with it: published/korthikanti-22b-full.
  const bool name = !given.ends_with(".yaml") && !given.starts_with('/') && given.find("..") == std::string::npos;
  const fs::path shipped = fs::path(root) / "scenarios" / (given + ".yaml");
  if (name && fs::exists(fs::status(shipped, error))) {
    note_input(shipped.string());
    return shipped.string();
  }
  if (fs::is_directory(there)) return given;  // its reader says so
  const std::string near = nearest(fs::path(given).stem().string(), scenario_names(root));
  refuse_path(given, "no such file, and no scenario of that name",
              near.empty() ? "rehearse list scenarios names them" : fmt::format("did you mean '{}'?", near));
}

std::string prices_file(const std::string& given, const std::string& root) {
  return given.empty() ? (fs::path(root) / "topologies" / "prices.csv").string() : given;
}

std::string shown_path(const std::string& path, const std::string& root) {
  const std::string prefix = root.ends_with('/') ? root : root + '/';
  return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
}

void check_output_directory(const std::string& dir, std::initializer_list<const char*> files) {
  if (const std::string problem = result::directory_problem(dir); !problem.empty())
    refuse_path("", "-o: " + problem, "-o names a directory");
  for (const char* name : files) result::check_output_file((fs::path(dir) / name).string());
}

void check_result_directory(const std::string& dir) {
  check_output_directory(dir, {"ops.csv", "trace.json.gz", "result.json"});
}

void check_output_path(const std::string& file) {
  result::check_output_file(file);
  std::error_code error;
  const fs::path folder = fs::absolute(file, error).parent_path();
  if (!fs::is_directory(folder, error)) refuse_path(file, fmt::format("there is no directory {}", folder.string()));
}

}  // namespace rehearse::cli
