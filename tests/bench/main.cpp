// rehearse-bench: `--table` prints the budgets beside what is measured here and what other simulators took, `--growth`
// how costs grow; anything else is Google Benchmark's.
#include <benchmark/benchmark.h>

#include <cstring>

#include "sim/base/freed_memory.h"
#include "table.h"

int main(int argc, char** argv) {
  rehearse::keep_freed_memory();
  if (argc == 2 && std::strcmp(argv[1], "--table") == 0) return rehearse::bench::print_table();
  if (argc == 2 && std::strcmp(argv[1], "--growth") == 0) return rehearse::bench::print_growth();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
