// Typed access to one value of a document. Every accessor either returns what the file says or reports the problem at
// its position and returns something harmless (the default, or the smallest value in range), so that one pass over a
// file finds everything that is wrong with it.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/check.h"
#include "sim/base/document_impl.h"
#include "sim/base/text_check.h"

namespace rehearse {
namespace {

using detail::Value;

enum class NumberError { none, syntax, range };

// Decimal digits with an optional sign. No leading zeros: YAML 1.1 reads 010 as 8, YAML 1.2 as 10.
NumberError parse_integer(std::string_view text, std::int64_t& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return NumberError::syntax;
  if (digits.size() > 1 && digits[0] == '0') return NumberError::syntax;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? NumberError::none : NumberError::range;
}

NumberError parse_number(std::string_view text, double& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits.find_first_not_of("0123456789.eE+-") != std::string_view::npos) {
    return NumberError::syntax;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return NumberError::syntax;
  return error == std::errc() && std::isfinite(value) ? NumberError::none : NumberError::range;
}

bool is_plain_scalar(const Value& value) {
  return value.kind == Node::Kind::scalar && !value.quoted;
}

std::string range_text(const std::string& low, const std::string& high) {
  if (low.empty()) return "at most " + high;
  return high.empty() ? "at least " + low : fmt::format("{} to {}", low, high);
}

std::string joined_choices(const std::vector<std::string>& choices) {
  std::string text;
  for (const std::string& choice : choices) text += (text.empty() ? "" : ", ") + choice;
  return text;
}

const char* quote_hint(const Value& value) {
  return value.quoted ? "remove the quotes" : "";
}

template <typename Quantity>
Quantity read_quantity(const Node& child, const Value* scalar, Quantity neutral, std::string_view key,
                       std::optional<Quantity> (*parse)(std::string_view), const char* what, const char* units,
                       const char* example) {
  if (scalar == nullptr) return neutral;
  if (const auto parsed = parse(scalar->text)) return *parsed;
  double number = 0;
  const NumberError bare = parse_number(scalar->text, number);
  const std::string found = detail::shown(scalar->text);
  if (scalar->text.starts_with('-')) {
    child.error(fmt::format("{} cannot be negative, found {}", what, found));
  } else if (bare != NumberError::syntax) {
    child.error(fmt::format("{} needs its unit, found the bare number {}", what, found),
                fmt::format("e.g. '{}: {}'", key, example));
  } else {
    child.error(fmt::format("expected {} with its unit ({}) that fits in 64 bits, found {}", what, units, found),
                fmt::format("e.g. '{}: {}'", key, example));
  }
  return neutral;
}

}  // namespace

namespace detail {

std::string described(const Value& value) {
  switch (value.kind) {
    case Node::Kind::mapping:
      return "a mapping";
    case Node::Kind::sequence:
      return "a list";
    case Node::Kind::scalar:
      return (value.quoted ? "the text " : "") + shown(value.text);
    default:
      return "nothing";
  }
}

}  // namespace detail

Node::Kind Node::kind() const {
  return impl_ && impl_->value != nullptr ? impl_->value->kind : Kind::missing;
}

// A value that is not a mapping is reported once, however many keys are asked of it.
Node Node::get(std::string_view key) const {
  Node child;
  if (!impl_) return child;
  const Value* const value = impl_->value;
  auto impl = std::make_shared<Impl>(Impl{impl_->tree, nullptr, value != nullptr ? value->place : impl_->parent_place,
                                          impl_, std::string(key), -1, ""});
  if (value != nullptr && value->mapping) {
    if (const detail::Entry* entry = value->mapping->ask(key)) impl->value = entry->value.get();
  } else if (value != nullptr && value->kind != Kind::null && !value->complained) {
    value->complained = true;
    error(fmt::format("expected a mapping ('key: value'), found {}", detail::described(*value)));
  }
  child.impl_ = std::move(impl);
  return child;
}

bool Node::has(std::string_view key) const {
  if (kind() != Kind::mapping) return false;
  return impl_->value->mapping->ask(key) != nullptr;
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> keys;
  if (kind() != Kind::mapping) return keys;
  for (const detail::Entry& entry : impl_->value->mapping->entries) keys.push_back(entry.key);
  return keys;
}

std::size_t Node::size() const {
  return kind() == Kind::sequence ? impl_->value->elements.size() : 0;
}

Node Node::at(std::size_t index) const {
  Node child;
  if (!impl_) return child;
  const Value* const element = index < size() ? impl_->value->elements[index].get() : nullptr;
  child.impl_ = std::make_shared<const Impl>(Impl{impl_->tree, element,
                                                  impl_->value != nullptr ? impl_->value->place : impl_->parent_place,
                                                  impl_, "", static_cast<std::int64_t>(index), ""});
  return child;
}

const detail::Value* Node::scalar(const Node& child, bool has_default, const std::string& expected) const {
  REHEARSE_CHECK(impl_, "a value was read from a node that belongs to no document");
  const Value* const value = child.impl_->value;
  if (value != nullptr && value->kind == Kind::scalar) return value;
  const bool parent_complained = impl_->value != nullptr && impl_->value->complained;
  if (value != nullptr) {
    child.error(fmt::format("expected {}, found {}", expected, detail::described(*value)));
  } else if (!has_default && !parent_complained) {
    child.error(fmt::format("required key is missing, expected {}", expected));
  }
  return nullptr;
}

std::int64_t Node::integer(std::string_view key, std::optional<std::int64_t> fallback, std::int64_t min,
                           std::int64_t max) const {
  const Node child = get(key);
  const std::int64_t neutral = fallback.value_or(std::clamp<std::int64_t>(0, min, max));
  const Value* const found = scalar(child, fallback.has_value(), "an integer");
  if (found == nullptr) return neutral;
  std::int64_t value = 0;
  const NumberError problem = found->quoted ? NumberError::syntax : parse_integer(found->text, value);
  if (problem == NumberError::syntax) {
    child.error(fmt::format("expected an integer (digits only), found {}", detail::described(*found)),
                quote_hint(*found));
  } else if (problem == NumberError::range) {
    child.error(fmt::format("{} does not fit in 64 bits", detail::shown(found->text)));
  } else if (value < min || value > max) {
    const std::string range =
        range_text(min == INT64_MIN ? "" : std::to_string(min), max == INT64_MAX ? "" : std::to_string(max));
    child.error(fmt::format("{} is out of range, expected {}", value, range));
  } else {
    return value;
  }
  return neutral;
}

double Node::number(std::string_view key, std::optional<double> fallback, double min, double max) const {
  const Node child = get(key);
  const double neutral = fallback.value_or(std::clamp(0.0, min, max));
  const Value* const found = scalar(child, fallback.has_value(), "a number");
  if (found == nullptr) return neutral;
  double value = 0;
  const NumberError problem = found->quoted ? NumberError::syntax : parse_number(found->text, value);
  if (problem == NumberError::syntax) {
    child.error(fmt::format("expected a number, found {}", detail::described(*found)), quote_hint(*found));
  } else if (problem == NumberError::range) {
    child.error(fmt::format("{} does not fit in a double", detail::shown(found->text)));
  } else if (value < min || value > max) {
    const std::string range =
        range_text(min <= -1e300 ? "" : fmt::format("{}", min), max >= 1e300 ? "" : fmt::format("{}", max));
    child.error(fmt::format("{} is out of range, expected {}", value, range));
  } else {
    return value;
  }
  return neutral;
}

bool Node::boolean(std::string_view key, std::optional<bool> fallback) const {
  const Node child = get(key);
  const Value* const found = scalar(child, fallback.has_value(), "true or false");
  if (found == nullptr) return fallback.value_or(false);
  if (is_plain_scalar(*found) && found->text == "true") return true;
  if (is_plain_scalar(*found) && found->text == "false") return false;
  child.error(fmt::format("expected true or false, found {}", detail::described(*found)), quote_hint(*found));
  return fallback.value_or(false);
}

std::string Node::text(std::string_view key, std::optional<std::string> fallback) const {
  const Node child = get(key);
  const Value* const found = scalar(child, fallback.has_value(), "text");
  return found != nullptr ? found->text : fallback.value_or("");
}

int Node::choice(std::string_view key, const std::vector<std::string>& choices, std::optional<int> fallback) const {
  const Node child = get(key);
  const Value* const found = scalar(child, fallback.has_value(), "one of " + joined_choices(choices));
  if (found == nullptr) return fallback.value_or(0);
  const auto match = std::find(choices.begin(), choices.end(), found->text);
  if (match != choices.end()) return static_cast<int>(match - choices.begin());
  const std::string near = nearest(found->text, choices);
  child.error(fmt::format("expected one of {}, found {}", joined_choices(choices), detail::shown(found->text)),
              near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return fallback.value_or(0);
}

Bytes Node::bytes(std::string_view key, std::optional<Bytes> fallback) const {
  const Node child = get(key);
  const Value* const found = scalar(child, fallback.has_value(), "a size such as 25MiB");
  return read_quantity(child, found, fallback.value_or(Bytes()), key, &parse_bytes, "a size",
                       "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB", "25MiB");
}

Bandwidth Node::bandwidth(std::string_view key, std::optional<Bandwidth> fallback) const {
  const Node child = get(key);
  const Value* const found = scalar(child, fallback.has_value(), "a bandwidth such as 400Gbps");
  return read_quantity(child, found, fallback.value_or(Bandwidth()), key, &parse_bandwidth, "a bandwidth",
                       "bps, kbps, Mbps, Gbps, Tbps, or bytes as in GB/s", "400Gbps");
}

void Node::check_lowest(std::string_view key, Bandwidth value, std::string hint) const {
  const auto text = get(key).as_text();
  if (text && parse_bandwidth(*text) && value < kLowestBandwidth)
    get(key).error(fmt::format("{} is out of range, expected at least 1MB/s", *text), std::move(hint));
}

Time Node::time(std::string_view key, std::optional<Time> fallback) const {
  const Node child = get(key);
  const Value* const found = scalar(child, fallback.has_value(), "a time such as 5us");
  return read_quantity(child, found, fallback.value_or(Time()), key, &parse_time, "a time", "ps, ns, us, ms, s, min, h",
                       "5us");
}

FlopRate Node::flop_rate(std::string_view key, std::optional<FlopRate> fallback) const {
  const Node child = get(key);
  const Value* const found = scalar(child, fallback.has_value(), "a rate such as 312TFLOPS");
  return read_quantity(child, found, fallback.value_or(FlopRate()), key, &parse_flop_rate, "a rate",
                       "FLOPS, kFLOPS, MFLOPS, GFLOPS, TFLOPS, PFLOPS", "312TFLOPS");
}

std::optional<std::int64_t> Node::as_integer() const {
  std::int64_t value = 0;
  if (kind() != Kind::scalar || impl_->value->quoted) return std::nullopt;
  if (parse_integer(impl_->value->text, value) != NumberError::none) return std::nullopt;
  return value;
}

std::optional<double> Node::as_number() const {
  double value = 0;
  if (kind() != Kind::scalar || impl_->value->quoted) return std::nullopt;
  if (parse_number(impl_->value->text, value) != NumberError::none) return std::nullopt;
  return value;
}

std::optional<std::string> Node::as_text() const {
  return kind() == Kind::scalar ? std::optional(impl_->value->text) : std::nullopt;
}

void Node::error(std::string message, std::string hint) const {
  REHEARSE_CHECK(impl_, "an error was reported at a node that belongs to no document: {}", message);
  impl_->tree->diagnostics->add({file(), line(), column(), impl_->path(), std::move(message), std::move(hint)});
}

void Node::finish() const {
  if (kind() != Kind::mapping) return;
  const detail::Mapping& mapping = *impl_->value->mapping;
  for (const detail::Entry& entry : mapping.entries) {
    if (entry.asked) continue;
    const std::vector<std::string> known = mapping.asked();
    const std::string near = nearest(entry.key, known);
    std::string hint;
    if (!near.empty()) hint = fmt::format("did you mean '{}'?", near);
    if (near.empty() && !known.empty()) hint = "known keys: " + joined_choices(known);
    impl_->tree->diagnostics->add({entry.place.command_line ? detail::kCommandLineFile : impl_->tree->file,
                                   entry.place.line, entry.place.column, detail::child_path(impl_->path(), entry.key),
                                   "unknown key", std::move(hint)});
  }
}

std::string Node::file() const {
  if (!impl_) return "";
  const detail::Place& place = impl_->value != nullptr ? impl_->value->place : impl_->parent_place;
  return place.command_line ? detail::kCommandLineFile : impl_->tree->file;
}

int Node::line() const {
  if (!impl_) return 0;
  return impl_->value != nullptr ? impl_->value->place.line : impl_->parent_place.line;
}

int Node::column() const {
  if (!impl_) return 0;
  return impl_->value != nullptr ? impl_->value->place.column : impl_->parent_place.column;
}

const std::string& Node::path() const {
  static const std::string none;
  return impl_ ? impl_->path() : none;
}

}  // namespace rehearse
