// Reads a mapping of a scenario by the table of keys: every key of it whose row has a field gets its value from the
// file, or its default. Problems are reported with their place, and the value stays the default.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/document.h"
#include "sim/plan/keys.h"

namespace rehearse::plan::detail {

// The text of a key's default where it is the framework's.
using DefaultText = std::function<std::string(const Key&)>;

// The value of `key` in the mapping `node`: nothing if it is not given (or given as auto) and has no default of its
// own. Keys and values that this program does not have yet are refused, saying what is available.
std::optional<Value> read_value(const Node& node, const Key& key, const DefaultText& framework_default);

// Reads the keys `prefix`NAME, such as "plan." or "noise.links[].", into `section`.
template <class S>
void read_keys(const Node& node, std::string_view prefix, S& section, const DefaultText& framework_default = {}) {
  for (const Key& key : keys()) {
    const bool below = key.path.starts_with(prefix);
    if (!below || key.path.find_first_of(".[", prefix.size()) != std::string_view::npos || !key.read_by_table())
      continue;
    const std::optional<Value> value = read_value(node, key, framework_default);
    if (value && key.field.readable()) key.field.set(section, *value, key.values);
  }
}

}  // namespace rehearse::plan::detail
