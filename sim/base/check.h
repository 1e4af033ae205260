// REHEARSE_CHECK(condition, fmt-style message...): an invariant of our own that stays on in release builds. A broken
// one throws InternalError with the place; it is never used for user input (see diagnostics.h).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace rehearse {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& message);

}  // namespace rehearse

#define REHEARSE_CHECK(condition, ...)                                                    \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::rehearse::fail_check(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
