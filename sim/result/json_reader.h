// Typed access to a JSON document of ours: what is missing or of another type is noted with its path and line, a
// neutral value returned, and reading goes on, so that all problems of a file are found in one pass.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "sim/base/diagnostics.h"
#include "sim/result/result.h"

namespace rehearse::result {

using Json = nlohmann::json;

class JsonReader {
 public:
  JsonReader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  void fail(const std::string& path, std::string message) {
    const std::string name = '"' + path.substr(path.find_last_of('.') + 1) + '"';
    const std::size_t at = text_.find(name);
    const auto line = at == std::string_view::npos ? 1 : 1 + std::count(text_.begin(), text_.begin() + at, '\n');
    problems_.add({file_, static_cast<int>(line), 1, path, std::move(message), ""});
  }

  const Json* find(const Json& object, const std::string& parent, std::string_view key) {
    const auto found = object.find(key);
    if (found != object.end()) return &*found;
    problems_.add(
        {file_, 1, 1, join(parent, key), "is missing", "rehearse simulate -o and rehearse execute -o write it"});
    return nullptr;
  }
  const Json& object(const Json& parent_object, const std::string& parent, std::string_view key) {
    static const Json empty = Json::object();
    return typed(parent_object, parent, key, "an object", &Json::is_object, empty);
  }
  const Json& array(const Json& parent_object, const std::string& parent, std::string_view key) {
    static const Json empty = Json::array();
    return typed(parent_object, parent, key, "a list", &Json::is_array, empty);
  }
  std::string text(const Json& parent_object, const std::string& parent, std::string_view key) {
    static const Json empty = "";
    return typed(parent_object, parent, key, "text", &Json::is_string, empty).get<std::string>();
  }
  double number(const Json& parent_object, const std::string& parent, std::string_view key) {
    static const Json zero = 0;
    const Json& value = typed(parent_object, parent, key, "a number", &Json::is_number, zero);
    const auto read = value.get<double>();
    if (std::isfinite(read) && std::abs(read) < 1e30) return read;
    fail(join(parent, key), "expected a number of usual size");
    return 0;
  }
  std::int64_t integer(const Json& parent_object, const std::string& parent, std::string_view key) {
    static const Json zero = 0;
    const Json& value = typed(parent_object, parent, key, "an integer", &Json::is_number_integer, zero);
    const bool fits = !value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
    if (fits) return value.get<std::int64_t>();
    fail(join(parent, key), fmt::format("expected an integer below 2^63, found {}", value.dump()));
    return 0;
  }
  bool boolean(const Json& parent_object, const std::string& parent, std::string_view key) {
    static const Json yes = true;
    return typed(parent_object, parent, key, "true or false", &Json::is_boolean, yes).get<bool>();
  }
  std::int64_t picoseconds(const Json& parent_object, const std::string& parent, std::string_view key) {
    const double seconds = number(parent_object, parent, key);
    if (is_time(std::abs(seconds))) return std::llround(seconds * 1e12);
    fail(join(parent, key), "expected less than 100 days, in seconds");
    return 0;
  }
  // Seconds that a count of picoseconds holds: int64 has 106 days.
  static bool is_time(double seconds) { return seconds >= 0 && seconds < 9e6; }
  void finish() { problems_.throw_if_any(); }

 private:
  static std::string join(const std::string& parent, std::string_view key) {
    return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
  }
  const Json& typed(const Json& object, const std::string& parent, std::string_view key, std::string_view expected,
                    bool (Json::*is)() const noexcept, const Json& neutral) {
    const Json* value = find(object, parent, key);
    if (value == nullptr) return neutral;
    if ((value->*is)()) return *value;
    fail(join(parent, key), fmt::format("expected {}, found {}", expected, value->type_name()));
    return neutral;
  }

  const std::string& file_;
  std::string_view text_;
  Diagnostics problems_;
};

// The parts of result.json that not every result has: links, samples, noise, what_if, jobs, notes.
void read_answers(JsonReader& in, const Json& document, Result& r);

}  // namespace rehearse::result
