// A file that is gone with the object.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace rehearse::launch {

struct Written {
  Written(const std::string& name, const std::string& content) {
    const auto folder = std::filesystem::temp_directory_path() / ("rehearse-launch-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    path = (folder / name).string();
    std::ofstream(path, std::ios::binary) << content;
  }
  ~Written() {
    std::error_code error;
    std::filesystem::remove(path, error);
    std::filesystem::remove(std::filesystem::path(path).parent_path(), error);
  }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  std::string path;
};

}  // namespace rehearse::launch
