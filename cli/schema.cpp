// rehearse schema: a JSON Schema (draft 07, https://json-schema.org/draft-07) of scenario files for editors: they then
// complete keys, show what a key means and underline what cannot be. It says no more than one key at a time can: which
// combinations can be is the reader's to judge. The file scenarios/schema.json is this command's output.
#include "cli/schema.h"

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/names.h"
#include "cli/paths.h"
#include "sim/plan/keys.h"

namespace rehearse::cli {
namespace {

using Json = nlohmann::ordered_json;
using plan::Default;
using plan::Key;
using plan::KeyType;

// Quantities as sim/base/units.h reads them; zero needs no unit.
constexpr const char* kBytes = "^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)? *(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)$";
constexpr const char* kBytesOrShare = "^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)? *(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB|%)$";
constexpr const char* kBandwidth =
    "^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)? *((B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)/s|(|k|M|G|T)bps)$";
constexpr const char* kTime = "^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)? *(ps|ns|us|ms|s|min|h)$";

Json number(const Key& key, const char* type) {
  Json j = {{"type", type}};
  const auto bound = [&](const char* name, double value) {
    const auto whole = static_cast<std::int64_t>(value);
    if (static_cast<double>(whole) == value) {
      j[name] = whole;
    } else {
      j[name] = value;
    }
  };
  if (key.min) bound("minimum", *key.min);
  if (key.max) bound(key.below_max ? "exclusiveMaximum" : "maximum", *key.max);
  return j;
}

Json text() {
  return {{"type", "string"}};
}

// A path may stand where only names can be listed: those are offered, others are taken.
Json name(const Key& key, const std::string& root) {
  Json j = text();
  j[key.or_path ? "examples" : "enum"] = names_of(key.names_of, root);
  return j;
}

Json list(const Key& key, const char* item) {
  Json j = {{"type", "array"}, {"items", number(key, item)}, {"minItems", std::max<std::size_t>(1, key.length)}};
  if (key.length > 0) j["maxItems"] = key.length;
  return j;
}

Json object_of(const std::string& prefix, const std::string& root);

Json plain(const Key& key, const std::string& root) {
  switch (key.type) {
    case KeyType::integer:
      return number(key, "integer");
    case KeyType::number:
      return number(key, "number");
    case KeyType::boolean:
      return key.later.empty() ? Json{{"type", "boolean"}} : Json{{"type", "boolean"}, {"enum", {false}}};
    case KeyType::text:
      return {{"type", {"string", "number", "boolean"}}};  // a bare number is text too
    case KeyType::choice:
      return {{"type", "string"}, {"enum", key.values}};
    case KeyType::choice_or_integer:
      return {{"anyOf", {{{"enum", key.values}}, number(key, "integer")}}};
    case KeyType::bytes:
      return {{"type", "string"}, {"pattern", kBytes}};
    case KeyType::bytes_or_share:
      return {{"anyOf", {{{"type", "string"}, {"pattern", kBytesOrShare}}, {{"const", 0}}}}};
    case KeyType::bandwidth:
      return {{"type", "string"}, {"pattern", kBandwidth}};
    case KeyType::time:
      return {{"type", "string"}, {"pattern", kTime}};
    case KeyType::name:
      return name(key, root);
    case KeyType::names:
      return {{"anyOf", {name(key, root), {{"type", "array"}, {"items", text()}}}}};
    case KeyType::integers:
      if (!key.values.empty()) return {{"anyOf", {{{"enum", key.values}}, list(key, "integer")}}};
      return list(key, "integer");
    case KeyType::numbers:
      return list(key, "number");
    case KeyType::number_rows: {
      const Json numbers = {{"type", "array"}, {"items", {{"type", "number"}, {"minimum", 0}}}};
      const Json rows = {{"type", "array"}, {"items", numbers}};
      return {{"type", {"array", "null"}}, {"items", {{"anyOf", {numbers.at("items"), numbers, rows}}}}};
    }
    case KeyType::permutation:
      return {{"type", "array"},
              {"items", {{"type", "string"}, {"enum", key.values}}},
              {"minItems", key.values.size()},
              {"maxItems", key.values.size()},
              {"uniqueItems", true}};
    case KeyType::choices:
      return {{"type", "array"},
              {"items", {{"type", "string"}, {"enum", key.values}}},
              {"minItems", 1},
              {"uniqueItems", true}};
    case KeyType::mapping:
      return object_of(std::string(key.path) + ".", root);
    case KeyType::mappings:
      return {{"type", "array"}, {"items", object_of(std::string(key.path) + "[].", root)}, {"minItems", 1}};
    case KeyType::free_mapping:
      return {{"type", {"object", "null"}}};
    case KeyType::free_list:
      if (key.or_path) return {{"type", {"array", "string", "integer", "null"}}};
      return {{"type", {"array", "null"}}, {"items", {{"type", "object"}}}};
    case KeyType::model:
      return {{"anyOf", {name(key, root), object_of(std::string(key.path) + ".", root)}}};
  }
  return {};
}

// A default that YAML and JSON write alike.
void add_default(const Key& key, Json& j) {
  if (key.origin != Default::value) return;
  const Json value = Json::parse(key.fallback, nullptr, false);
  j["default"] = value.is_discarded() ? Json(key.fallback) : value;
}

Json property(const Key& key, const std::string& root) {
  Json j = {{"description", plan::meaning_text(key) + "."}};
  Json value = plain(key, root);
  if (key.or_auto) value = {{"anyOf", {{{"const", "auto"}}, value}}};
  j.update(value);
  if (!key.available() && key.type == KeyType::text) j["not"] = Json::object();
  add_default(key, j);
  return j;
}

// The keys right below `prefix` ("plan.", "" for the top).
std::vector<const Key*> below(const std::string& prefix) {
  std::vector<const Key*> list;
  for (const Key& key : plan::keys())
    if (key.path.starts_with(prefix) && key.path.find('.', prefix.size()) == std::string_view::npos)
      list.push_back(&key);
  return list;
}

// What a model's family asks for and knows, unless it starts from a preset or another's file.
Json family_rules() {
  Json rules = Json::array();
  const std::vector<const Key*> all = below("model.");
  for (const std::string_view family : plan::find_key("model.family")->values) {
    Json required = Json::array(), known = Json::array();
    for (const Key* key : all) {
      if (!key->of_family(family)) continue;
      known.push_back(key->leaf());
      // Of llama and moe layers may be of one branch each, none of them attention, or none with a feed-forward layer.
      const bool heads = key->path == "model.heads" && family != "llama" && family != "moe";
      if ((key->origin == Default::required && !key->families.empty()) || heads) required.push_back(key->leaf());
    }
    const Json of_family = {{"properties", {{"family", {{"const", family}}}}},
                            {"required", {"family"}},
                            {"not", {{"anyOf", {{{"required", {"preset"}}}, {{"required", {"hf"}}}}}}}};
    rules.push_back({{"if", of_family}, {"then", {{"required", required}, {"propertyNames", {{"enum", known}}}}}});
  }
  return rules;
}

Json object_of(const std::string& prefix, const std::string& root) {
  // An empty section is one with its defaults.
  Json j = {{"type", {"object", "null"}}, {"additionalProperties", false}};
  Json required = Json::array();
  for (const Key* key : below(prefix)) {
    j["properties"][std::string(key->leaf())] = property(*key, root);
    if (key->origin == Default::required && prefix != "model.") required.push_back(key->leaf());
  }
  if (prefix == "model.") {
    j["type"] = "object";
    j["anyOf"] = {{{"required", {"preset"}}}, {{"required", {"hf"}}}, {{"required", {"family"}}}};
    j["allOf"] = family_rules();
  }
  if (!required.empty()) {
    j["type"] = "object";
    j["required"] = required;
  }
  return j;
}

int schema() {
  print(scenario_schema(data_root()).dump(1, ' ') + '\n');
  return kDone;
}

}  // namespace

Json scenario_schema(const std::string& root) {
  Json j = {{"$schema", "http://json-schema.org/draft-07/schema#"},
            {"title", "Rehearse scenario"},
            {"description", "A training plan for Rehearse. `rehearse explain` says more of each key."}};
  j.update(object_of("", root));
  return j;
}

void add_schema(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("schema", "Print the JSON Schema of scenario files");
  command->footer(
      "For editors; docs/scenario.md says how.\n"
      "Example:\n  rehearse schema > scenario.schema.json");
  command->callback([&action] { action = schema; });
}

}  // namespace rehearse::cli
