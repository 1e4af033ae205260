// What inputs are made from: the files of a reader's corpus and of the checkout, and the words that stand in them or in
// the table of the scenario's keys.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/readers.h"

namespace rehearse::fuzz {

inline constexpr std::size_t kMostSeedBytes = 64 << 10;  // longer files are cut at a line's end

struct Seed {
  std::string path, content;
};

// Paths in the order of their names, first the corpus. Throws std::runtime_error where a corpus or a named seed is
// missing.
std::vector<Seed> seeds_of(const Reader& reader);
// Words, each once, sorted: keys, choices, units and names where the reader's texts have scenario keys; the words of
// the seeds otherwise.
std::vector<std::string> words_of(const Reader& reader, const std::vector<Seed>& seeds);
// The same as a dictionary of libFuzzer, a quoted word a line.
std::string dictionary_of(const std::vector<std::string>& words);

}  // namespace rehearse::fuzz
