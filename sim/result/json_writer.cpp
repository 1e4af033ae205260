// See json_writer.h. Strings are escaped by nlohmann-json; numbers come from std::to_chars and integer arithmetic.
#include "sim/result/json_writer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/harmless_text.h"

namespace rehearse::result {

std::string json_quoted(std::string_view text) {
  const std::string json = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return escaped_controls(json);  // what is left above U+001F: \u009b means the same in JSON, and no terminal obeys it
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string exact_seconds(std::int64_t ps) {
  constexpr std::uint64_t kPerSecond = 1'000'000'000'000;
  const std::uint64_t magnitude = ps < 0 ? 0 - static_cast<std::uint64_t>(ps) : static_cast<std::uint64_t>(ps);
  std::string text = fmt::format("{}{}.{:012}", ps < 0 ? "-" : "", magnitude / kPerSecond, magnitude % kPerSecond);
  while (text.back() == '0' && text[text.size() - 2] != '.') text.pop_back();
  return text;
}

void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (depth_ == 0) return;
  if (!first_) out_ += ',';
  out_ += '\n';
  out_.append(static_cast<std::size_t>(depth_) * 2, ' ');
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  ++depth_;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  --depth_;
  if (!first_) {
    out_ += '\n';
    out_.append(static_cast<std::size_t>(depth_) * 2, ' ');
  }
  out_ += bracket;
  if (depth_ == 0) out_ += '\n';
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += json_quoted(name);
  out_ += ": ";
  after_key_ = true;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view token) {
  separate();
  out_ += token;
  first_ = false;
  return *this;
}

}  // namespace rehearse::result
