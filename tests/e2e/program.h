// Runs the built program as a user would: its own process, its standard output and error caught apart.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rehearse::e2e {

struct Outcome {
  int status = -1;  // exit status; 128 + signal if a signal ended it
  std::string out, err;
};

// `arguments` follow the program's name. REHEARSE_ROOT is the source tree. Gives up after two minutes (status 124).
Outcome run(const std::vector<std::string>& arguments);
// The same through a shell: `command` is a shell command in which $REHEARSE is the program.
Outcome shell(const std::string& command);

// What a script begins with in which mpirun is called, by itself or by the program: as root, with more ranks than
// cores, without ssh, in containers; Open MPI itself leaks; and no variables of a launcher around the tests.
inline constexpr const char* kOpenMpi =
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_plm=isolated OMPI_MCA_btl_vader_single_copy_mechanism=none LSAN_OPTIONS=detect_leaks=0\n"
    "unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT\n";
// Why there is no MPI; empty: there is.
std::string without_mpi();

// A folder that is gone with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const;  // returns the path
  std::vector<std::string> files() const;                                        // names below it, sorted

 private:
  std::filesystem::path path_;
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::size_t widest(const std::string& text);  // bytes of the longest line, without its \r
std::string read(const std::string& path);
std::string gunzip(const std::string& path);

}  // namespace rehearse::e2e
