// rehearse-fuzz with any compiler: the plain mutator of campaign.h.
//
//   rehearse-fuzz --target=NAME [-seed=1] [-runs=10000] [-seconds=S]   runs, or S seconds of them
//   rehearse-fuzz --target=NAME [-seed=1] -only=I                      one input again
//   rehearse-fuzz --target=NAME FILE...                                these inputs
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/campaign.h"
#include "tests/fuzz/tools.h"

namespace {

std::optional<std::uint64_t> number(const std::string& argument, const std::string& option) {
  if (!argument.starts_with(option)) return std::nullopt;
  std::uint64_t value = 0;
  const char* const end = argument.data() + argument.size();
  const auto [stop, error] = std::from_chars(argument.data() + option.size(), end, value);
  if (error == std::errc() && stop == end) return value;
  fmt::print(stderr, "rehearse-fuzz: {} takes a number\n", option);
  std::exit(2);
}

struct Arguments {
  std::uint64_t seed = 1, runs = 10'000;
  std::optional<std::uint64_t> only, seconds;
  std::vector<std::string> files;
};

Arguments read(const std::vector<std::string>& words) {
  Arguments a;
  for (const std::string& word : words) {
    if (const auto seed = number(word, "-seed="))
      a.seed = *seed;
    else if (const auto runs = number(word, "-runs="))
      a.runs = *runs;
    else if (const auto only = number(word, "-only="))
      a.only = only;
    else if (const auto seconds = number(word, "-seconds="))
      a.seconds = seconds;
    else if (!word.starts_with("-"))
      a.files.push_back(word);
  }
  return a;
}

std::string content_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    fmt::print(stderr, "rehearse-fuzz: {} cannot be read\n", file);
    std::exit(2);
  }
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rehearse::fuzz;
  const std::vector<std::string> words(argv + 1, argv + argc);
  const Reader& reader = begin(words);
  const Arguments a = read(words);
  report_deaths();
  for (const std::string& file : a.files) run_input(reader, file, content_of(file));
  if (!a.files.empty()) return 0;
  if (a.only) {
    run_mutated(reader, a.seed, *a.only, 1);
    return 0;
  }
  run_seeds(reader);
  if (!a.seconds) {
    run_mutated(reader, a.seed, 0, a.runs);
    return 0;
  }
  constexpr std::uint64_t kAtOnce = 200;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(*a.seconds);
  std::uint64_t done = 0;
  for (; std::chrono::steady_clock::now() < until; done += kAtOnce) run_mutated(reader, a.seed, done, kAtOnce);
  fmt::print("{}: {} inputs of seed {}, nothing found\n", reader.name, done, a.seed);
}
