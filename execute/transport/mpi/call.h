// REHEARSE_MPI(call): every call of MPI goes through it; what fails is thrown with the expression, MPI's text and the
// place. Communicators return errors (MPI_ERRORS_RETURN) for it to see.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace rehearse::execute {

class MpiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail_mpi_call(const char* call, int code, const char* file, int line);

}  // namespace rehearse::execute

#define REHEARSE_MPI(call)                                                     \
  do {                                                                         \
    if (const int mpi_code = (call); mpi_code != MPI_SUCCESS) [[unlikely]]     \
      ::rehearse::execute::fail_mpi_call(#call, mpi_code, __FILE__, __LINE__); \
  } while (false)
