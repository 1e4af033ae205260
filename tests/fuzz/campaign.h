// The plain fuzzer, for any compiler: a reader's seeds as they are, then inputs by number from the mutator. A run that
// breaks the promise, crashes or does not end within its time leaves its input in a file and says how to repeat it.
#pragma once

#include <cstdint>

#include "tests/fuzz/mutator.h"
#include "tests/fuzz/readers.h"

namespace rehearse::fuzz {

// What kills the process is told apart from what came before: SIGABRT, SIGSEGV and the like, sanitizers' findings, and
// SIGPROF, which ends a run that takes too much of the processor. Call once.
void report_deaths();

// Every seed as it is. Returns how many.
std::size_t run_seeds(const Reader& reader);
// Inputs `first` to `first` + `count` - 1 of `seed`.
void run_mutated(const Reader& reader, std::uint64_t seed, std::uint64_t first, std::uint64_t count);
// One input from outside; `name` is for the report.
void run_input(const Reader& reader, const std::string& name, const std::string& input);

}  // namespace rehearse::fuzz
