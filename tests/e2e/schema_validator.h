// A judge of JSON against the part of JSON Schema draft 07 (https://json-schema.org/draft-07) that
// scenarios/schema.json uses; a keyword it does not know is an error, so that none is passed over. And YAML as an
// editor's core schema has it.
#pragma once

#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

namespace rehearse::e2e {

using nlohmann::json;

inline json yaml_as_json(const YAML::Node& node) {
  if (node.IsMap()) {
    json object = json::object();
    for (const auto& pair : node) object[pair.first.as<std::string>()] = yaml_as_json(pair.second);
    return object;
  }
  if (node.IsSequence()) {
    json list = json::array();
    for (const auto& element : node) list.push_back(yaml_as_json(element));
    return list;
  }
  if (!node.IsScalar()) return nullptr;
  const std::string text = node.Scalar();
  static const std::regex number(R"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)"), integer("[-+]?[0-9]+");
  if (node.Tag() == "!") return text;  // quoted
  if (text == "true" || text == "false") return text == "true";
  if (std::regex_match(text, integer)) return std::stoll(text);
  if (std::regex_match(text, number)) return std::stod(text);
  return text;
}

inline bool is_type(const json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

// What is wrong with `value`, each as "/plan/zero: ..."; empty if the schema takes it.
inline std::vector<std::string> violations(const json& schema, const json& value, const std::string& at = "") {
  std::vector<std::string> wrong;
  const auto fail = [&](const std::string& what) { wrong.push_back(at + ": " + what + ", found " + value.dump()); };
  const auto valid = [&](const json& other, const json& v) { return violations(other, v).empty(); };
  const auto into = [&](const json& other, const json& v, const std::string& place) {
    for (std::string& one : violations(other, v, place)) wrong.push_back(std::move(one));
  };
  for (const auto& [word, rule] : schema.items()) {
    if (word == "type") {
      const json types = rule.is_array() ? rule : json::array({rule});
      bool any = false;
      for (const json& type : types) any = any || is_type(value, type);
      if (!any) fail("expected type " + rule.dump());
    } else if (word == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end()) fail("expected one of " + rule.dump());
    } else if (word == "const") {
      if (value != rule) fail("expected " + rule.dump());
    } else if (word == "minimum") {
      if (value.is_number() && value < rule) fail("expected at least " + rule.dump());
    } else if (word == "maximum") {
      if (value.is_number() && value > rule) fail("expected at most " + rule.dump());
    } else if (word == "exclusiveMaximum") {
      if (value.is_number() && value >= rule) fail("expected below " + rule.dump());
    } else if (word == "pattern") {
      if (value.is_string() && !std::regex_search(value.get<std::string>(), std::regex(rule.get<std::string>())))
        fail("expected the form " + rule.dump());
    } else if (word == "required") {
      for (const json& key : rule)
        if (value.is_object() && !value.contains(key.get<std::string>())) fail("lacks " + key.dump());
    } else if (word == "properties") {
      for (const auto& [key, property] : rule.items())
        if (value.is_object() && value.contains(key)) into(property, value[key], at + "/" + key);
    } else if (word == "additionalProperties") {
      if (rule != false) throw std::runtime_error("additionalProperties other than false");
      const json object = value.is_object() ? value : json::object();
      for (const auto& [key, unused] : object.items())
        if (!schema.contains("properties") || !schema["properties"].contains(key)) fail("unknown key " + key);
    } else if (word == "propertyNames") {
      if (value.is_object())
        for (const auto& [key, unused] : value.items()) into(rule, key, at);
    } else if (word == "maxProperties") {
      if (value.is_object() && value.size() > rule) fail("too many keys");
    } else if (word == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i)
        into(rule, value[i], at + "/" + std::to_string(i));
    } else if (word == "minItems") {
      if (value.is_array() && value.size() < rule) fail("too short");
    } else if (word == "maxItems") {
      if (value.is_array() && value.size() > rule) fail("too long");
    } else if (word == "uniqueItems") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i)
        if (std::count(value.begin(), value.end(), value[i]) > 1) fail("twice the same");
    } else if (word == "anyOf") {
      bool any = false;
      for (const json& other : rule) any = any || valid(other, value);
      if (!any) fail("none of the forms fits");
    } else if (word == "allOf") {
      for (const json& other : rule) into(other, value, at);
    } else if (word == "not") {
      if (valid(rule, value)) fail("not allowed");
    } else if (word == "if") {
      if (valid(rule, value)) into(schema.at("then"), value, at);
    } else if (word != "then" && word != "$schema" && word != "title" && word != "description" && word != "default" &&
               word != "examples") {
      throw std::runtime_error("a keyword the validator does not know: " + word);
    }
  }
  return wrong;
}

}  // namespace rehearse::e2e
