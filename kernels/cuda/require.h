// REHEARSE_CHECK for .cu files: nvcc does not compile {fmt}, so the message is a std::string.
#pragma once

#include <string>

namespace rehearse {
[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& message);
}  // namespace rehearse

#define REHEARSE_REQUIRE(condition, message)                             \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::rehearse::fail_check(#condition, __FILE__, __LINE__, (message)); \
  } while (false)
