// Integers as $((...)) of bash works them out: + - * / %, brackets, variables with and without '$'.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace rehearse::formats {

// Of a variable's name: its first character, and the others.
inline bool name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool name_char(char c) {
  return name_start(c) || (c >= '0' && c <= '9');
}

// Nothing if it is no such expression, divides by zero, leaves 64 bits, or names a variable without a value.
std::optional<std::int64_t> shell_arithmetic(
    const std::string& expression, const std::function<std::optional<std::string>(const std::string&)>& value_of);

}  // namespace rehearse::formats
