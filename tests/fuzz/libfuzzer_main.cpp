// rehearse-fuzz under clang: libFuzzer has the main function and calls LLVMFuzzerTestOneInput (harness.cpp). It passes
// over options that begin with two dashes, which are ours (tools.h).
#include <string>
#include <vector>

#include "tests/fuzz/tools.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  rehearse::fuzz::begin(std::vector<std::string>(*argv + 1, *argv + *argc));
  return 0;
}
