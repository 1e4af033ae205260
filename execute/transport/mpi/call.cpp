// See call.h.
#include "execute/transport/mpi/call.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace rehearse::execute {

void fail_mpi_call(const char* call, int code, const char* file, int line) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  const std::string_view path = file;
  throw MpiError(fmt::format("{}: {} (code {}) at {}:{}", call,
                             std::string_view(text.data(), static_cast<std::size_t>(length)), code,
                             path.substr(path.rfind('/') + 1), line));
}

}  // namespace rehearse::execute
