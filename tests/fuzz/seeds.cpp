// See seeds.h.
#include "tests/fuzz/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "sim/plan/keys.h"

namespace rehearse::fuzz {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in) throw std::runtime_error(fmt::format("{}: cannot be read", path.string()));
  if (text.size() <= kMostSeedBytes) return text;
  const std::size_t end = text.rfind('\n', kMostSeedBytes - 1);
  text.resize(end == std::string::npos ? kMostSeedBytes : end + 1);
  return text;
}

void add_files(const fs::path& folder, const std::string& ending, std::vector<Seed>& list) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename().string().ends_with(ending)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) list.push_back({file.string(), content_of(file)});
}

void split(std::string_view text, std::set<std::string>& words) {
  const auto part_of_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && part_of_word(text[i])) continue;
    if (i - begin >= 2 && i - begin <= 40) words.emplace(text.substr(begin, i - begin));
    begin = i + 1;
  }
}

void add_scenario_words(std::set<std::string>& words) {
  for (const plan::Key& key : plan::keys()) {
    words.emplace(fmt::format("{}: ", key.leaf()));
    if (!key.example.empty()) words.emplace(fmt::format("{}: {}", key.leaf(), key.example));
    for (const std::string_view value : key.values) words.emplace(value);
    for (const std::string_view value : key.later) words.emplace(value);
    for (const auto& bound : {key.min, key.max})
      if (bound) words.emplace(fmt::format("{}", *bound));
    split(key.path, words);
    split(key.fallback, words);
    split(key.example, words);
  }
}

}  // namespace

std::vector<Seed> seeds_of(const Reader& reader) {
  std::vector<Seed> list;
  const fs::path corpus = source_file("tests/fuzz/corpus/" + reader.name);
  if (fs::is_directory(corpus)) add_files(corpus, "", list);
  for (const std::string& seed : reader.seeds) {
    const std::size_t star = seed.find("/*");
    if (star == std::string::npos)
      list.push_back({source_file(seed), content_of(source_file(seed))});
    else
      add_files(source_file(seed.substr(0, star)), seed.substr(star + 2), list);
  }
  if (list.empty() && !reader.choices) throw std::runtime_error(reader.name + " has no seeds");
  return list;
}

std::vector<std::string> words_of(const Reader& reader, const std::vector<Seed>& seeds) {
  if (reader.choices) return {};
  constexpr std::size_t kMostWords = 3000;
  std::set<std::string> words;
  if (reader.scenario_keys) add_scenario_words(words);
  for (const Seed& seed : seeds) {
    if (words.size() >= kMostWords) break;
    split(seed.content, words);
  }
  return {words.begin(), words.end()};
}

std::string dictionary_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += '"';
    for (const char c : word) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    text += "\"\n";
  }
  return text;
}

}  // namespace rehearse::fuzz
