#include "sim/plan/read_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/text_check.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

using rehearse::detail::shown;

constexpr double kBelow = 1e-12;  // how far below a limit that is itself out

std::string example_of(const Key& key) {
  return fmt::format("e.g. '{}: {}'", key.leaf(), key.example);
}

// "auto, or a list of integers, 1 to 4096".
void expect_list(const Node& list, const Key& key) {
  std::string what = type_text(key);
  what.insert(what.find("list"), "a ");
  list.error("expected " + what, example_of(key));
}

bool in_range(const Key& key, double value) {
  const bool above = key.max && (key.below_max ? value >= *key.max : value > *key.max);
  return (!key.min || value >= *key.min) && !above;
}

// The elements of a list as `read` takes them; nothing if the list or one of them is none.
template <class T, class Read>
std::optional<Value> read_list(const Node& list, const Key& key, const char* item_is, Read read) {
  const bool listed = list.kind() == Node::Kind::sequence && list.size() > 0;
  if (!listed || (key.length > 0 && list.size() != key.length)) {
    expect_list(list, key);
    return std::nullopt;
  }
  std::vector<T> values;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::optional<T> value = read(list.at(i));
    if (value && in_range(key, static_cast<double>(*value)))
      values.push_back(*value);
    else
      list.at(i).error(fmt::format("expected {}{}{}", key.item.empty() ? "" : fmt::format("a {}: ", key.item), item_is,
                                   range_text(key)));
  }
  return values.size() == list.size() ? std::optional<Value>(values) : std::nullopt;
}

// Words of `key.values`, each at most once; of a permutation all of them.
std::optional<Value> read_words(const Node& list, const Key& key) {
  const bool all = key.type == KeyType::permutation;
  const std::vector<std::string> names(key.values.begin(), key.values.end());
  const std::string expected =
      fmt::format("expected a {} of [{}]", all ? "permutation" : "list of one or more", fmt::join(names, ", "));
  const std::string more = fmt::format("rehearse explain {}", key.path);
  if (list.kind() != Node::Kind::sequence || (!all && list.size() == 0)) {
    list.error(expected, more);
    return std::nullopt;
  }
  std::vector<std::string> words;
  bool sound = true;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node item = list.at(i);
    const std::string name = item.as_text().value_or("");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const std::string near = nearest(name, names);
      item.error(fmt::format("unknown {} {}; {}", key.item, shown(name), expected),
                 near.empty() ? more : fmt::format("did you mean '{}'?", near));
      sound = false;
    } else if (std::find(words.begin(), words.end(), name) != words.end()) {
      item.error(fmt::format("{} {} is listed twice; {}", key.item, name, expected), more);
      sound = false;
    } else {
      words.push_back(name);
    }
  }
  if (!sound) return std::nullopt;
  if (!all || words.size() == names.size()) return words;
  std::vector<std::string> absent;
  for (const std::string& name : names)
    if (std::find(words.begin(), words.end(), name) == words.end()) absent.push_back(name);
  list.error(fmt::format("not listed: {}; {}", fmt::join(absent, ", "), expected), more);
  return std::nullopt;
}

// The word of the key's list of those to come with which the value begins ("fp8_e4m3" with fp8); "" if there is none.
std::string_view later_word(const Key& key, const std::optional<std::string>& text) {
  for (const std::string_view word : key.later)
    if (text && text->starts_with(word)) return word;
  return "";
}

void refuse(const Node& value, const Key& key, const std::string& what, std::string available) {
  const std::string name = key.later_is.empty() ? what : fmt::format("{} ({})", what, key.later_is);
  not_available(value, name, key.instead.empty() ? std::move(available) : std::string(key.instead));
}

std::optional<Value> read_choice(const Node& node, const Key& key, const std::optional<Value>& fallback) {
  const Node value = node.get(key.leaf());
  if (const std::string_view word = later_word(key, value.as_text()); !word.empty()) {
    refuse(value, key, fmt::format("{} {}", key.leaf(), word), fmt::format("{}", fmt::join(key.values, ", ")));
    return fallback;
  }
  const std::vector<std::string> words(key.values.begin(), key.values.end());
  std::optional<int> index;
  if (fallback)
    index = static_cast<int>(std::find(words.begin(), words.end(), std::get<std::string>(*fallback)) - words.begin());
  return words.at(static_cast<std::size_t>(node.choice(key.leaf(), words, index)));
}

std::optional<Value> read_integer(const Node& node, const Key& key, const std::optional<Value>& fallback) {
  std::optional<std::int64_t> given;
  if (fallback) given = std::get<std::int64_t>(*fallback);
  const auto min = key.min ? static_cast<std::int64_t>(*key.min) : INT64_MIN;
  const auto max = key.max ? static_cast<std::int64_t>(*key.max) : INT64_MAX;
  // Beyond what there is yet lies what there will be.
  const std::int64_t value = node.integer(key.leaf(), given, min, key.later.empty() ? max : kMaxRanks);
  if (value <= max) return value;
  refuse(node.get(key.leaf()), key, fmt::format("{} {}", key.leaf(), key.later.front()),
         fmt::format("{}: {}", key.leaf(), max));
  return fallback;
}

std::optional<Value> read_boolean(const Node& node, const Key& key, const std::optional<Value>& fallback) {
  std::optional<bool> given;
  if (fallback) given = std::get<bool>(*fallback);
  const bool value = node.boolean(key.leaf(), given);
  if (later_word(key, value ? "true" : "false").empty()) return value;
  refuse(node.get(key.leaf()), key, fmt::format("{} {}", key.leaf(), value), fmt::format("{}", !value));
  return fallback;
}

std::optional<Value> read_size_or_share(const Node& node, const Key& key, const std::optional<Value>& fallback) {
  const Node given = node.get(key.leaf());
  if (!given) return fallback;
  const std::optional<std::string> text = given.as_text();
  if (const auto value = text ? parse_size_or_share(*text) : std::nullopt) return *value;
  given.error(fmt::format("expected a {}, found {}", type_text(key), text ? shown(*text) : "none"), example_of(key));
  return fallback;
}

std::optional<Value> read_choice_or_integer(const Node& node, const Key& key, const std::optional<Value>& fallback) {
  const Node given = node.get(key.leaf());
  if (!given) return fallback;
  const std::optional<std::int64_t> number = given.as_integer();
  if (number && in_range(key, static_cast<double>(*number))) return *number;
  const std::string text = given.as_text().value_or("");
  if (std::find(key.values.begin(), key.values.end(), text) != key.values.end()) return text;
  const std::string near = nearest(text, std::vector<std::string>(key.values.begin(), key.values.end()));
  given.error(fmt::format("expected {}, found {}", type_text(key), text.empty() ? "none" : shown(text)),
              near.empty() ? example_of(key) : fmt::format("did you mean '{}'?", near));
  return fallback;
}

template <class T>
std::optional<T> as(const std::optional<Value>& value) {
  return value ? std::optional<T>(std::get<T>(*value)) : std::nullopt;
}

std::optional<Value> read_given(const Node& node, const Key& key, const std::optional<Value>& fallback) {
  const std::string_view leaf = key.leaf();
  switch (key.type) {
    case KeyType::integer:
      return read_integer(node, key, fallback);
    case KeyType::number:
      return node.number(leaf, as<double>(fallback), key.min.value_or(-1e300),
                         key.max ? *key.max - (key.below_max ? kBelow : 0) : 1e300);
    case KeyType::boolean:
      return read_boolean(node, key, fallback);
    case KeyType::text:
      return node.text(leaf, as<std::string>(fallback));
    case KeyType::choice:
      return read_choice(node, key, fallback);
    case KeyType::choice_or_integer:
      return read_choice_or_integer(node, key, fallback);
    case KeyType::bytes:
      return node.bytes(leaf, as<Bytes>(fallback));
    case KeyType::bytes_or_share:
      return read_size_or_share(node, key, fallback);
    case KeyType::bandwidth:
      return node.bandwidth(leaf, as<Bandwidth>(fallback));
    case KeyType::time:
      return node.time(leaf, as<Time>(fallback));
    case KeyType::integers:
      return read_list<std::int64_t>(node.get(leaf), key, "an integer", [](const Node& n) { return n.as_integer(); });
    case KeyType::numbers:
      return read_list<double>(node.get(leaf), key, "a number", [](const Node& n) { return n.as_number(); });
    case KeyType::permutation:
    case KeyType::choices:
      return read_words(node.get(leaf), key);
    default:
      REHEARSE_CHECK(false, "{} is read by its section", key.path);
  }
}

// A default is read as if the file had it.
std::optional<Value> parsed(const Key& key, std::string_view text) {
  Diagnostics problems;
  const Document document = Document::from_text("default", fmt::format("{}: {}\n", key.leaf(), text), problems);
  std::optional<Value> value = read_given(document.root(), key, {});
  REHEARSE_CHECK(problems.list().empty(), "the default of {}, {}, cannot be read", key.path, text);
  return value;
}

std::map<std::string_view, std::optional<Value>> defaults_of_table() {
  std::map<std::string_view, std::optional<Value>> all;
  for (const Key& key : keys())
    if (key.read_by_table() && key.origin == Default::value && !(key.or_auto && key.fallback == "auto"))
      all[key.path] = parsed(key, key.fallback);
  return all;
}

// What frameworks have as their defaults are a few texts, which every plan of a search reads again.
std::optional<Value> parsed_once(const Key& key, const std::string& text) {
  static std::mutex mutex;
  static std::map<std::pair<std::string_view, std::string>, std::optional<Value>> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find({key.path, text});
  if (found != known.end()) return found->second;
  return known.emplace(std::pair(key.path, text), parsed(key, text)).first->second;
}

std::optional<Value> default_value(const Key& key, const DefaultText& framework_default) {
  static const std::map<std::string_view, std::optional<Value>> table = defaults_of_table();
  if (key.origin == Default::framework) return parsed_once(key, framework_default(key));
  const auto found = table.find(key.path);
  return found == table.end() ? std::nullopt : found->second;
}

}  // namespace

std::optional<Value> read_value(const Node& node, const Key& key, const DefaultText& framework_default) {
  const Node given = node.get(key.leaf());
  const std::optional<Value> fallback = default_value(key, framework_default);
  if (key.or_auto && given.as_text() == "auto") return fallback;
  const auto word = key.type == KeyType::integers ? given.as_text() : std::nullopt;
  if (word && std::find(key.values.begin(), key.values.end(), *word) != key.values.end()) return *word;
  if (!given && key.origin != Default::required) return fallback;
  const std::optional<Value> value = read_given(node, key, fallback);
  return value ? value : fallback;
}

}  // namespace rehearse::plan::detail
