// See program.h.
#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <sstream>

extern char** environ;

namespace rehearse::e2e {

namespace fs = std::filesystem;

namespace {

Outcome spawn(std::vector<std::string> words) {
  const Folder folder;
  const std::string out = folder / "out", err = folder / "err";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  words.insert(words.begin(), {"timeout", "120"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  Outcome result;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0);
  int status = 0;
  if (error == 0 && waitpid(child, &status, 0) == child)
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read(out);
  result.err = read(err);
  return result;
}

void set_environment() {
  setenv("REHEARSE_ROOT", REHEARSE_SOURCE_DIR, 1);
  setenv("REHEARSE", REHEARSE_BINARY, 1);
  setenv("REHEARSE_DEVICE", "cpu", 0);  // on machines with a GPU too, unless a test says otherwise
}

}  // namespace

Outcome run(const std::vector<std::string>& arguments) {
  set_environment();
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), REHEARSE_BINARY);
  return spawn(std::move(words));
}

Outcome shell(const std::string& command) {
  set_environment();
  return spawn({"bash", "-c", command});
}

std::string without_mpi() {
  if (shell("command -v mpirun").status != 0) return "there is no mpirun (openmpi-bin)";
  if (has(run({"execute", "gpt-tiny-ddp", "--ranks", "mpi"}).err, "built without MPI"))
    return "built without MPI (libopenmpi-dev)";
  return "";
}

Folder::Folder() {
  static int count = 0;
  path_ = fs::temp_directory_path() / ("rehearse_e2e_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
  fs::create_directories(path_);
}

Folder::~Folder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string Folder::write(const std::string& name, const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return *this / name;
}

std::vector<std::string> Folder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(path_))
    if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), path_).string());
  std::sort(names.begin(), names.end());
  return names;
}

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);)
    most = std::max(most, line.size() - (line.ends_with('\r') ? 1 : 0));
  return most;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string gunzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string out;
  char block[1 << 16];
  for (int n = 0; file != nullptr && (n = gzread(file, block, sizeof block)) > 0;)
    out.append(block, static_cast<std::size_t>(n));
  if (file != nullptr) gzclose(file);
  return out;
}

}  // namespace rehearse::e2e
