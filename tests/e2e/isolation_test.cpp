// Code for AVX2 stays in the kernels: were a function that others use too (of the standard library, of fmt) taken from
// their object, the program would end in an illegal instruction on a machine without AVX2 even where no kernel runs.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

// The lines that a shell command writes.
std::istringstream output_lines(const std::string& command) {
  const Outcome outcome = shell(command);
  EXPECT_EQ(outcome.status, 0) << command << '\n' << outcome.err;
  return std::istringstream(outcome.out);
}

TEST(Isolation, TheKernelsObjectOffersTheirMakerAndWhatTheyNeed) {
  std::istringstream lines = output_lines("nm --defined-only --extern-only " REHEARSE_KERNELS_OBJECT);
  std::set<std::string> names;
  for (std::string address, type, name; lines >> address >> type >> name;) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"_ZN8rehearse7kernels3cpu14make_uncheckedEi",
                                          "_ZN8rehearse7kernels3cpu12kCompiledForE"}));
}

TEST(Isolation, NoFunctionThatOthersMayCallUsesWideVectors) {
  // Functions with 32-byte or 64-byte registers, by address.
  std::istringstream wide = output_lines(
      "objdump -d --no-show-raw-insn \"$REHEARSE\" | awk '/^[0-9a-f]+ </ { at = $1 } /%[yz]mm/ { print at }' | uniq");
  std::istringstream symbols = output_lines("nm --defined-only \"$REHEARSE\"");
  std::multimap<std::string, std::pair<std::string, std::string>> by_address;
  for (std::string address, type, name; symbols >> address >> type >> name;) by_address.insert({address, {type, name}});
  int functions = 0;
  for (std::string address; wide >> address; ++functions) {
    const auto [first, last] = by_address.equal_range(address);
    for (auto i = first; i != last; ++i) {
      const auto& [type, name] = i->second;
      EXPECT_TRUE(type == "t" || name == "_ZN8rehearse7kernels3cpu14make_uncheckedEi") << type << ' ' << name;
    }
  }
  EXPECT_GT(functions, 20);  // the kernels themselves
}

}  // namespace
}  // namespace rehearse::e2e
