// The promise that fuzzing holds every reader to: whatever the bytes, it ends in a value or in an InputError that says
// something, in text that is safe to print; never in another exception, a crash, a finding of a sanitizer, or after
// more than kMostSeconds of processor time or kMostBytes of memory. Both fuzzers call LLVMFuzzerTestOneInput.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/readers.h"

#if defined(__SANITIZE_ADDRESS__)
#define REHEARSE_FUZZ_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REHEARSE_FUZZ_CHECKED 1
#endif
#endif

namespace rehearse::fuzz {

// Under sanitizers code is slower and larger by factors like these.
#ifdef REHEARSE_FUZZ_CHECKED
inline constexpr int kMostSeconds = 20;
inline constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;
#else
inline constexpr int kMostSeconds = 2;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
#endif

inline constexpr const char* kVerbose = "REHEARSE_FUZZ_VERBOSE";  // set: what is refused is printed

// Whom LLVMFuzzerTestOneInput calls. Set once, before the first input.
void choose_reader(const Reader& reader);
// Runs the chosen reader on one input and holds it to the promise; on a broken one, fail().
void check_one(const std::string& input);

}  // namespace rehearse::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
