// See tools.h.
#include "tests/fuzz/tools.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/harness.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/seeds.h"

namespace rehearse::fuzz {
namespace {

constexpr std::uint64_t kChoiceSeeds = 20;

std::string value_of(const std::vector<std::string>& arguments, const std::string& option) {
  for (const std::string& argument : arguments)
    if (argument.starts_with(option + "=")) return argument.substr(option.size() + 1);
  return "";
}

bool has(const std::vector<std::string>& arguments, const std::string& option) {
  for (const std::string& argument : arguments)
    if (argument == option) return true;
  return false;
}

void list_readers() {
  for (const Reader& reader : readers()) fmt::print("{}\n", reader.name);
}

// Names by number: files of several folders may be called alike.
void write_seeds(const Reader& reader, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::vector<Seed> seeds;
  if (reader.choices) {
    const std::vector<std::string> words;
    const std::vector<Seed> none;
    for (std::uint64_t i = 0; i < kChoiceSeeds; ++i) seeds.push_back({"", Mutator(none, words).input(i)});
  } else {
    seeds = seeds_of(reader);
  }
  for (std::size_t i = 0; i < seeds.size(); ++i)
    std::ofstream(fmt::format("{}/seed-{:03}", folder, i), std::ios::binary) << seeds[i].content;
}

}  // namespace

const Reader& begin(const std::vector<std::string>& arguments) {
  if (has(arguments, "--list")) {
    list_readers();
    std::exit(0);
  }
  const Reader* reader = find_reader(value_of(arguments, "--target"));
  if (reader == nullptr) {
    fmt::print(stderr, "usage: rehearse-fuzz --list | --target=NAME [--dictionary | --seeds=FOLDER | ...], NAME of\n");
    list_readers();
    std::exit(2);
  }
  const std::string folder = value_of(arguments, "--seeds");
  if (!folder.empty()) write_seeds(*reader, folder);
  if (has(arguments, "--dictionary"))
    fmt::print("{}", reader->choices ? "" : dictionary_of(words_of(*reader, seeds_of(*reader))));
  if (!folder.empty() || has(arguments, "--dictionary")) std::exit(0);
  choose_reader(*reader);
  return *reader;
}

}  // namespace rehearse::fuzz
