// Inputs for the plain fuzzer: a seed changed in a few places, as an editor's slip, a broken disk or a hostile hand
// would. Which, follows from a number alone: the same one gives the same bytes on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/seeds.h"

namespace rehearse::fuzz {

inline constexpr std::size_t kMostInputBytes = 256 << 10;

// A sequence of numbers, mixed from a first one (sim/base/random.h).
class Draws {
 public:
  explicit Draws(std::uint64_t key) : key_(key) {}
  std::uint64_t next();
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }  // limit > 0

 private:
  std::uint64_t key_, count_ = 0;
};

class Mutator {
 public:
  // `words` take the place of others. Without seeds inputs are random bytes. Both must outlive it.
  Mutator(const std::vector<Seed>& seeds, const std::vector<std::string>& words) : seeds_(seeds), words_(words) {}
  std::string input(std::uint64_t number) const;

 private:
  void change(std::string& text, Draws& draws) const;
  void change_bytes(std::string& text, Draws& draws) const;
  void change_lines(std::string& text, Draws& draws) const;
  void change_words(std::string& text, Draws& draws) const;
  void splice(std::string& text, Draws& draws) const;

  const std::vector<Seed>& seeds_;
  const std::vector<std::string>& words_;
};

}  // namespace rehearse::fuzz
