// See keys.h. The table itself is in key_table*.cpp; this is what is said of every key alike.
#include "sim/plan/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/plan/scenario.h"

namespace rehearse::plan {

namespace {

std::vector<Key> all_keys() {
  std::vector<Key> all;
  for (auto part : {detail::top_keys, detail::model_keys, detail::cluster_keys, detail::plan_keys,
                    detail::training_keys, detail::data_keys, detail::costs_keys, detail::noise_keys,
                    detail::failure_keys, detail::checkpoint_keys, detail::reinforcement_keys}) {
    std::vector<Key> some = part();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

// 1000000 -> "1,000,000", 0.999 -> "0.999".
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (value < 1e4 || value >= 1e15 || text.find_first_not_of("0123456789") != std::string::npos) return text;
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

// "models" -> "model", "topologies" -> "topology".
std::string singular(std::string_view plural) {
  if (plural.ends_with("ies")) return std::string(plural.substr(0, plural.size() - 3)) + "y";
  return std::string(plural.substr(0, plural.size() - 1));
}

std::string counted(const Key& key) {
  return key.length > 0 ? fmt::format("{} ", key.length) : "";
}

std::string plain_type(const Key& key) {
  const std::string one_of = fmt::format("{}", fmt::join(key.values, ", "));
  switch (key.type) {
    case KeyType::integer:
      return "integer" + range_text(key);
    case KeyType::number:
      return "number" + range_text(key);
    case KeyType::boolean:
      return "true or false";
    case KeyType::text:
      return "text";
    case KeyType::choice:
      return (key.values.size() > 1 ? "one of " : "") + one_of;
    case KeyType::choice_or_integer:
      return one_of + ", or an integer" + range_text(key);
    case KeyType::bytes:
      return "size with its unit (B, kB, MB, GB, KiB, MiB, GiB)";
    case KeyType::bytes_or_share:
      return "size with its unit (B, kB, MB, GB, KiB, MiB, GiB), or a percentage below 100%";
    case KeyType::bandwidth:
      return "bandwidth with its unit (B/s, kB/s, MB/s, GB/s, or bits: kbps, Mbps, Gbps)";
    case KeyType::time:
      return "time with its unit (ps, ns, us, ms, s, min, h)";
    case KeyType::name:
      return fmt::format("name of a {}{}", singular(key.names_of), key.or_path ? ", or a path" : "");
    case KeyType::names:
      return fmt::format("name of a {}, a path, or a list of these", singular(key.names_of));
    case KeyType::integers:
      return (key.values.empty() ? "" : one_of + ", or ") +
             fmt::format("list of {}integers{}", counted(key), range_text(key));
    case KeyType::numbers:
      return fmt::format("list of {}numbers{}", counted(key), range_text(key));
    case KeyType::number_rows:
      return "list of numbers, or list of such lists, or of lists of these";
    case KeyType::permutation:
      return fmt::format("list of {}, each once", one_of);
    case KeyType::choices:
      return fmt::format("list of one or more of {}, each once at most", one_of);
    case KeyType::mapping:
      return "mapping";
    case KeyType::mappings:
      return "list of mappings";
    case KeyType::free_mapping:
      return "mapping of keys of the topology file to values";
    case KeyType::free_list:
      return key.or_path ? "list, one entry, or the path of a file of entries" : "list of mappings";
    case KeyType::model:
      return "name of a model, or a mapping";
  }
  return "";
}

}  // namespace

std::string range_text(const Key& key) {
  if (key.min && key.max) {
    return fmt::format(", {} {} {}", number_text(*key.min), key.below_max ? "to below" : "to", number_text(*key.max));
  }
  return key.min ? fmt::format(", at least {}", number_text(*key.min)) : "";
}

std::string_view Key::section() const {
  const std::size_t dot = path.find('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view Key::leaf() const {
  return path.substr(path.rfind('.') == std::string_view::npos ? 0 : path.rfind('.') + 1);
}

bool Key::available() const {
  return std::find(later.begin(), later.end(), "all") == later.end();
}

bool Key::of_family(std::string_view family) const {
  return families.empty() || has_word(families, family);
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = all_keys();
  return all;
}

const Key* find_key(std::string_view path) {
  const auto found = std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.path == path; });
  return found == keys().end() ? nullptr : &*found;
}

std::vector<std::string> key_paths() {
  std::vector<std::string> paths;
  for (const Key& key : keys()) paths.emplace_back(key.path);
  return paths;
}

std::string type_text(const Key& key) {
  return (key.or_auto ? "auto, or " : "") + plain_type(key);
}

std::string default_of(const Key& key, const FrameworkProfile& profile) {
  REHEARSE_CHECK(key.framework != nullptr, "{} has no default of a framework", key.path);
  return key.framework(profile);
}

std::string default_text(const Key& key) {
  if (key.origin == Default::required) return "required";
  if (key.origin == Default::framework) return "the framework's";
  return std::string(key.fallback);
}

std::string meaning_markdown(const Key& key) {
  std::string text(key.meaning);
  const std::string gap = text.empty() ? "" : "; ";
  if (!key.available()) return text + gap + "not available yet";
  if (key.later.empty()) return text;
  std::string list;
  for (const std::string_view value : key.later) {
    const bool words = value.find(' ') != std::string_view::npos;
    list += (list.empty() ? "" : ", ") + (words ? std::string(value) : fmt::format("`{}`", value));
  }
  return text + gap + list + " not available yet";
}

std::string meaning_text(const Key& key) {
  std::string text = meaning_markdown(key);
  text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
  return text;
}

std::optional<std::string> value_text(const Key& key, const Scenario& scenario) {
  std::optional<std::string> text;
  const auto try_section = [&](const auto& section) {
    if (key.field.is_of<std::decay_t<decltype(section)>>()) text = text_of(key.field.get(section, key.values));
  };
  try_section(scenario.model);
  try_section(scenario.cluster);
  try_section(scenario.plan);
  try_section(scenario.training);
  try_section(scenario.data);
  try_section(scenario.noise);
  try_section(scenario.reinforcement);
  try_section(scenario.reinforcement.generation);
  return text;
}

std::string text_of(const Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, Bytes>)
          return fmt::format("{}B", v.count());
        else if constexpr (std::is_same_v<T, Bandwidth>)
          return fmt::format("{}B/s", v.per_s());
        else if constexpr (std::is_same_v<T, SizeOrShare>)
          return rehearse::text_of(v);
        else if constexpr (std::is_same_v<T, Time>)
          return format_time(v);
        else if constexpr (requires { v.begin(); } && !std::is_same_v<T, std::string>)
          return fmt::format("[{}]", fmt::join(v, ", "));
        else
          return fmt::format("{}", v);
      },
      value);
}

std::string markdown_row(const Key& key) {
  const std::string fallback = default_text(key);
  const bool code = key.origin == Default::value && !fallback.empty();
  // Below its section: `image.channels` of model, but the section's own name at the top.
  const std::string_view name = key.section().empty() ? key.path : key.path.substr(key.section().size() + 1);
  return fmt::format("| `{}` | {} | {} |", name, code ? fmt::format("`{}`", fallback) : fallback,
                     meaning_markdown(key));
}

}  // namespace rehearse::plan
