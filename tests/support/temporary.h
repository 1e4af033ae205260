// Names of files and folders that a test makes: no two tests, processes or checkouts that run at the same time share
// one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace rehearse::test {

// In the folder for tests' files, never given twice; `ending` says what it is ("links.yaml").
inline std::string temporary_path(const std::string& ending) {
  static int count = 0;
  return testing::TempDir() + "rehearse_" + std::to_string(getpid()) + "_" + std::to_string(++count) + "_" + ending;
}

}  // namespace rehearse::test
