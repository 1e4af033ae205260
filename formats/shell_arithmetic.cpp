// See shell_arithmetic.h. Recursive descent: sum = product {+- product}, product = factor {*/% factor}.
#include "formats/shell_arithmetic.h"

#include <charconv>

namespace rehearse::formats {
namespace {

class Arithmetic {
 public:
  Arithmetic(const std::string& text, const std::function<std::optional<std::string>(const std::string&)>& value_of)
      : text_(text), value_of_(value_of) {}

  std::optional<std::int64_t> all() {
    const auto value = sum(0);
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  using Number = std::optional<std::int64_t>;

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }
  char next() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Number sum(int depth) {
    Number left = product(depth);
    while (left && (next() == '+' || next() == '-')) {
      const char op = text_[at_++];
      const Number right = product(depth);
      if (!right) return std::nullopt;
      std::int64_t result = 0;
      if (op == '+' ? __builtin_add_overflow(*left, *right, &result) : __builtin_sub_overflow(*left, *right, &result))
        return std::nullopt;
      left = result;
    }
    return left;
  }

  Number product(int depth) {
    Number left = factor(depth);
    while (left && (next() == '*' || next() == '/' || next() == '%')) {
      const char op = text_[at_++];
      const Number right = factor(depth);
      if (!right) return std::nullopt;
      std::int64_t result = 0;
      if (op == '*') {
        if (__builtin_mul_overflow(*left, *right, &result)) return std::nullopt;
      } else {
        if (*right == 0 || (*left == INT64_MIN && *right == -1)) return std::nullopt;
        result = op == '/' ? *left / *right : *left % *right;
      }
      left = result;
    }
    return left;
  }

  Number factor(int depth) {
    if (depth > 50) return std::nullopt;
    const char c = next();
    if (c == '(') {
      ++at_;
      const Number inside = sum(depth + 1);
      if (next() != ')') return std::nullopt;
      ++at_;
      return inside;
    }
    if (c == '-') {
      ++at_;
      const Number inside = factor(depth + 1);
      if (!inside || *inside == INT64_MIN) return std::nullopt;
      return -*inside;
    }
    if (c >= '0' && c <= '9') return number(text_, at_);
    return variable();
  }

  static Number number(const std::string& text, std::size_t& at) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    at = static_cast<std::size_t>(end - text.data());
    return value;
  }

  Number variable() {
    const bool dollar = next() == '$';
    if (dollar) ++at_;
    const bool brace = dollar && at_ < text_.size() && text_[at_] == '{';
    if (brace) ++at_;
    std::string name;
    while (at_ < text_.size() && name_char(text_[at_])) name += text_[at_++];
    if (brace && (at_ >= text_.size() || text_[at_++] != '}')) return std::nullopt;
    if (name.empty() || !value_of_) return std::nullopt;
    const std::optional<std::string> value = value_of_(name);
    if (!value) return std::nullopt;
    std::size_t at = 0;
    const bool negative = !value->empty() && value->front() == '-';
    if (negative) at = 1;
    const Number read = number(*value, at);
    return read && at == value->size() ? Number(negative ? -*read : *read) : std::nullopt;
  }

  const std::string& text_;
  const std::function<std::optional<std::string>(const std::string&)>& value_of_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(
    const std::string& expression, const std::function<std::optional<std::string>(const std::string&)>& value_of) {
  return Arithmetic(expression, value_of).all();
}

}  // namespace rehearse::formats
