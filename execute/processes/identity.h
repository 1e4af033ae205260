// What must be alike in all processes of a run, or they would train different things together: the program's version,
// the scenario's keys, the data, the options, the lowered program. Each process states its own as named values when it
// meets the others; the root compares them (difference_text) and all end if they are not the same.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::execute {

// Names and values; a value says all there is to say of what it names.
using Identity = std::vector<std::pair<std::string, std::string>>;

// Parts that follow from others: named only if no other differs.
inline constexpr const char* kProgramPart = "lowered program";
inline constexpr const char* kOrderPart = "simulated order";

// The processes of a run were not started alike. An empty text if another process tells the user.
class RanksDiffer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string pack(const Identity& identity);
Identity unpack_identity(std::string_view bytes);

// Which ranks differ, and in what, by name; empty if they do not. `identities` by rank. Lines of at most 80 columns
// where values allow it.
std::string difference_text(std::span<const Identity> identities);

// 128 bits of XXH3 (Collet, github.com/Cyan4973/xxHash) as hexadecimal digits, against mistakes, not against malice:
// of a file "35149 bytes, 0123...", or why it cannot be read; of what a program holds.
std::string fingerprint_of_file(const std::string& file);
std::string fingerprint_of(const program::Program& program);
std::string fingerprint_of_text(std::string_view text);

}  // namespace rehearse::execute
