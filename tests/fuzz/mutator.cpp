// See mutator.h.
#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/base/random.h"

namespace rehearse::fuzz {
namespace {

using namespace std::string_view_literals;

// Numbers that code tends to forget: ends of types, of exactness and of ranges, and what only looks like a number.
constexpr std::array kNumbers = {"0"sv,
                                 "-1"sv,
                                 "1"sv,
                                 "2"sv,
                                 "3"sv,
                                 "7"sv,
                                 "16"sv,
                                 "64"sv,
                                 "255"sv,
                                 "1000"sv,
                                 "4096"sv,
                                 "65536"sv,
                                 "1048576"sv,
                                 "16777217"sv,
                                 "2147483647"sv,
                                 "2147483648"sv,
                                 "-2147483648"sv,
                                 "4294967296"sv,
                                 "9007199254740993"sv,
                                 "9223372036854775807"sv,
                                 "9223372036854775808"sv,
                                 "-9223372036854775808"sv,
                                 "18446744073709551616"sv,
                                 "99999999999999999999999"sv,
                                 "0.5"sv,
                                 "-0.0"sv,
                                 "1e-300"sv,
                                 "1e-30"sv,
                                 "1e9"sv,
                                 "1e18"sv,
                                 "1e19"sv,
                                 "1e300"sv,
                                 "1e400"sv,
                                 "nan"sv,
                                 "inf"sv,
                                 "-inf"sv,
                                 "0x10"sv,
                                 "1_000"sv,
                                 "٣"sv,
                                 ""sv};

// Bytes that mean something to a parser or a terminal.
constexpr auto kBytes = "\0\t\n\r\x1b\x7f\x80\x9b\xc2\xff \"'#%&*,-./:;<=>@[\\]_`{|}~"sv;
constexpr std::array kPieces = {
    "\xc2\x9b"
    "31m"sv,
    "\x1b[2J"sv,
    "\xe2\x80\xae"sv,
    "\r\n"sv,
    "---\n"sv,
    "&a [*a]"sv,
    "!!map "sv,
    "<![CDATA["sv,
    "<!--"sv,
    "\"\""sv,
    "null"sv,
    "true"sv,
    "[]"sv,
    "{}"sv,
    "[["sv,
    "{a: "sv,
    "../"sv,
    "/dev/zero"sv,
    "\\u0000"sv,
    "\xef\xbb\xbf"sv};

struct Range {
  std::size_t begin = 0, end = 0;
};

Range some_range(const std::string& text, Draws& draws, std::size_t longest) {
  if (text.empty()) return {};
  const std::size_t begin = draws.below(text.size());
  return {begin, begin + 1 + draws.below(std::min(longest, text.size() - begin))};
}

Range some_line(const std::string& text, Draws& draws) {
  if (text.empty()) return {};
  const std::size_t at = draws.below(text.size());
  const std::size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const std::size_t after = text.find('\n', at);
  return {before == std::string::npos ? 0 : before + 1, after == std::string::npos ? text.size() : after + 1};
}

// The word, or with `digits` the number, at or after a place; empty where there is none.
Range some_word(const std::string& text, Draws& draws, bool digits) {
  if (text.empty()) return {};
  const auto inside = [&](char c) {
    const bool digit = (c >= '0' && c <= '9') || c == '.';
    return digit || (!digits && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-'));
  };
  const std::size_t from = draws.below(text.size());
  const auto first = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), inside);
  auto begin = first;
  while (begin != text.begin() && inside(*(begin - 1))) --begin;
  const auto end = std::find_if_not(first, text.end(), inside);
  return {static_cast<std::size_t>(begin - text.begin()), static_cast<std::size_t>(end - text.begin())};
}

void replace(std::string& text, Range range, std::string_view with) {
  text.replace(range.begin, range.end - range.begin, with);
}

std::string part(const std::string& text, Range range) {
  return text.substr(range.begin, range.end - range.begin);
}

std::string random_bytes(Draws& draws) {
  std::string bytes(16 + draws.below(240), '\0');
  for (char& byte : bytes) byte = static_cast<char>(draws.next() & 0xFF);
  return bytes;
}

}  // namespace

std::uint64_t Draws::next() {
  return mix_key(key_, count_++);
}

void Mutator::change_bytes(std::string& text, Draws& draws) const {
  if (text.empty()) text = " ";
  const std::size_t at = draws.below(text.size());
  switch (draws.below(7)) {
    case 0:
      text[at] = static_cast<char>(text[at] ^ (1 << draws.below(8)));
      break;
    case 1:
      text[at] = kBytes[draws.below(kBytes.size())];
      break;
    case 2:
      text.insert(at, kPieces[draws.below(kPieces.size())]);
      break;
    case 3:
      replace(text, some_range(text, draws, 32), "");
      break;
    case 4: {
      const Range range = some_range(text, draws, 64);
      text.insert(range.end, part(text, range));
      break;
    }
    case 5: {  // many times over
      const std::string piece = part(text, some_range(text, draws, 8));
      std::string many;
      for (std::size_t n = draws.below(4) == 0 ? 20'000 : 200; n > 0; --n) many += piece;
      text.insert(at, many);
      break;
    }
    default:
      text.resize(at);
  }
}

void Mutator::change_lines(std::string& text, Draws& draws) const {
  const Range line = some_line(text, draws);
  const std::string content = part(text, line);
  switch (draws.below(5)) {
    case 0:
      replace(text, line, "");
      break;
    case 1:
      text.insert(line.end, content);
      break;
    case 2:  // to another place
      replace(text, line, "");
      text.insert(some_line(text, draws).begin, content);
      break;
    case 3:  // deeper, or less deep
      if (draws.below(2) == 0)
        text.insert(line.begin, "  ");
      else if (content.starts_with("  "))
        text.erase(line.begin, 2);
      break;
    default: {
      std::string many;
      for (std::size_t n = 2 + draws.below(draws.below(4) == 0 ? 2000 : 40); n > 0; --n) many += content;
      text.insert(line.end, many);
    }
  }
}

void Mutator::change_words(std::string& text, Draws& draws) const {
  const bool number = draws.below(2) == 0;
  const Range word = some_word(text, draws, number);
  if (number)
    replace(text, word, kNumbers[draws.below(kNumbers.size())]);
  else if (draws.below(3) == 0)
    replace(text, word, part(text, some_word(text, draws, false)));
  else if (!words_.empty())
    replace(text, word, words_[draws.below(words_.size())]);
}

// The head of one and the tail of another, or a line of the other somewhere in it.
void Mutator::splice(std::string& text, Draws& draws) const {
  const std::string& other = seeds_[draws.below(seeds_.size())].content;
  if (draws.below(2) == 0) {
    text.insert(some_line(text, draws).begin, part(other, some_line(other, draws)));
  } else {
    text.resize(some_line(text, draws).begin);
    text += other.substr(some_line(other, draws).begin);
  }
}

void Mutator::change(std::string& text, Draws& draws) const {
  switch (draws.below(8)) {
    case 0:
    case 1:
      return change_bytes(text, draws);
    case 2:
      return change_lines(text, draws);
    case 3:
      return splice(text, draws);
    default:
      return change_words(text, draws);
  }
}

std::string Mutator::input(std::uint64_t number) const {
  Draws draws(number);
  if (seeds_.empty()) return random_bytes(draws);
  std::string text = seeds_[draws.below(seeds_.size())].content;
  std::size_t changes = 1;
  while (changes < 12 && draws.below(3) != 0) ++changes;
  for (; changes > 0; --changes) {
    change(text, draws);
    if (text.size() > kMostInputBytes) text.resize(kMostInputBytes);
  }
  return text;
}

}  // namespace rehearse::fuzz
