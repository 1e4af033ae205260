// Writes JSON text in the order of the calls, indented by two spaces. A document model would hold numbers as doubles;
// here a time in picoseconds becomes its exact decimal number of seconds, so the bytes are stable and read as they were
// computed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rehearse::result {

// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);
// The shortest decimal that reads back as the same double, always with a point or an exponent; "null" if not finite.
std::string number(double value);
// Picoseconds as seconds, exactly: 1500000000000 -> "1.5".
std::string exact_seconds(std::int64_t ps);

class JsonWriter {
 public:
  JsonWriter& open(char bracket);  // '{' or '['; as a value or at the top
  JsonWriter& close(char bracket);
  JsonWriter& key(std::string_view name);
  JsonWriter& raw(std::string_view token);  // a number, true, false or null already in JSON
  JsonWriter& text(std::string_view value) { return raw(json_quoted(value)); }
  JsonWriter& real(double value) { return raw(number(value)); }
  JsonWriter& integer(std::int64_t value) { return raw(std::to_string(value)); }
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& seconds(std::int64_t ps) { return raw(exact_seconds(ps)); }

  const std::string& str() const { return out_; }

 private:
  void separate();

  std::string out_;
  int depth_ = 0;
  bool first_ = true, after_key_ = false;
};

}  // namespace rehearse::result
