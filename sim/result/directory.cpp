// A result's directory: ops.csv, trace.json.gz, what else there is of it, and last result.json, so that a directory
// with a result.json is complete. Nothing is renamed to its place before all are written: a full disk leaves an older
// result whole.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "sim/base/input_files.h"
#include "sim/result/output_file.h"
#include "sim/result/records.h"
#include "sim/result/result.h"

namespace rehearse::result {

namespace fs = std::filesystem;

std::string directory_problem(const std::string& dir) {
  if (dir.empty()) return "the output directory's name is empty";
  std::error_code error;
  fs::path existing = fs::absolute(dir, error).lexically_normal();
  if (!existing.has_filename()) existing = existing.parent_path();
  for (; existing.has_relative_path(); existing = existing.parent_path()) {
    const fs::file_status status = fs::symlink_status(existing, error);
    if (fs::exists(status)) break;
    if (status.type() == fs::file_type::none)
      return fmt::format("cannot look for {}: {}", existing.string(), error.message());
  }
  if (!fs::is_directory(existing, error)) return fmt::format("{} exists and is not a directory", existing.string());
  if (::access(existing.c_str(), W_OK | X_OK) != 0) return fmt::format("{} is not writable", existing.string());
  return "";
}

namespace {

// The directories that are made for a result, gone again if it then cannot be written.
class MadeDirectories {
 public:
  explicit MadeDirectories(const fs::path& dir) {
    std::error_code error;
    fs::path at = fs::absolute(dir, error).lexically_normal();
    if (!at.has_filename()) at = at.parent_path();
    for (; at.has_relative_path() && !fs::exists(fs::symlink_status(at, error)); at = at.parent_path())
      made_.push_back(at);
  }
  ~MadeDirectories() {
    std::error_code error;
    for (const fs::path& one : made_) fs::remove(one, error);  // the empty ones
  }
  MadeDirectories(const MadeDirectories&) = delete;
  MadeDirectories& operator=(const MadeDirectories&) = delete;
  void keep() { made_.clear(); }

 private:
  std::vector<fs::path> made_;  // the innermost first
};

}  // namespace

DirectoryFile directory_file(std::string name, std::string content) {
  return {std::move(name), [text = std::move(content)](OutputFile& file) { file.write(text); }};
}

void write_directory(const Result& r, const std::string& dir, const std::vector<DirectoryFile>& more) {
  if (const std::string problem = directory_problem(dir); !problem.empty())
    throw std::runtime_error(fmt::format("cannot write results to {}: {}", dir, problem));
  MadeDirectories made(dir);
  std::error_code error;
  fs::create_directories(dir, error);
  std::error_code ignored;
  if (error && !fs::is_directory(dir, ignored))
    throw std::runtime_error(fmt::format("cannot make the directory {}: {}", dir, error.message()));
  const fs::path base(dir);
  OutputFile ops((base / "ops.csv").string(), OutputFile::Format::plain);
  write_ops_csv(r, ops);
  ops.finish();
  OutputFile trace((base / "trace.json.gz").string(), OutputFile::Format::gzip);
  write_trace(r, trace);
  trace.finish();
  std::vector<std::unique_ptr<OutputFile>> others;
  for (const DirectoryFile& file : more) {
    others.push_back(std::make_unique<OutputFile>((base / file.name).string(), OutputFile::Format::plain));
    file.write(*others.back());
    others.back()->finish();
  }
  OutputFile json((base / "result.json").string(), OutputFile::Format::plain);
  json.write(to_json(r));
  json.finish();
  const bool of_older = fs::exists(base / "result.json", ignored);
  ops.commit();
  trace.commit();
  for (const auto& file : others) file->commit();
  json.commit();
  made.keep();
  if (!of_older) return;  // what lies there is nobody's result
  for (const char* name : {"steps.csv", "servers.csv", "learning.csv"})
    if (!is_input((base / name).string()) &&
        std::none_of(more.begin(), more.end(), [&](const DirectoryFile& file) { return file.name == name; }))
      fs::remove(base / name, ignored);
}

void write_files(const std::string& dir, const std::vector<std::pair<std::string, std::string>>& files) {
  MadeDirectories made(dir);
  fs::create_directories(dir);
  std::vector<std::unique_ptr<OutputFile>> written;
  for (const auto& [name, content] : files) {
    written.push_back(std::make_unique<OutputFile>((fs::path(dir) / name).string(), OutputFile::Format::plain));
    written.back()->write(content);
    written.back()->finish();
  }
  for (const auto& file : written) file->commit();
  made.keep();
}

}  // namespace rehearse::result
