// TOML by toml++; see document_settings.h.
#include <fmt/format.h>

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "launch/document_settings.h"
#include "sim/base/text_check.h"

namespace rehearse::launch {
namespace {

constexpr int kMostKeyParts = 40;

// "a.a.a..." is a table in a table for each dot, which the parser takes without end.
void check_key_parts(const std::string& file, const std::string& text) {
  int line = 1, dots = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line, start = i + 1;
    if (std::string_view("\n,=[]{}#").find(c) != std::string_view::npos) dots = 0;
    if (c == '.' && ++dots >= kMostKeyParts)
      throw InputError(Diagnostic{file, line, static_cast<int>(i - start) + 1, "",
                                  fmt::format("a key of more than {} parts", kMostKeyParts), ""});
  }
}

std::string toml_scalar(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return "";  // dates, tables in lists
}

void flatten_toml(const toml::table& table, const std::string& prefix, std::vector<Setting>& out) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix.empty() ? std::string(key.str()) : fmt::format("{}.{}", prefix, key.str());
    if (const toml::table* inner = node.as_table()) {
      flatten_toml(*inner, name, out);
      continue;
    }
    const toml::source_position at = node.source().begin;
    Setting setting{name, {}, static_cast<int>(at.line), static_cast<int>(at.column), ""};
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& one : *list) setting.values.push_back(toml_scalar(one));
    } else {
      setting.values.push_back(toml_scalar(node));
    }
    out.push_back(std::move(setting));
  }
}

}  // namespace

std::vector<Setting> toml_settings(const std::string& file, const std::string& text) {
  if (const auto problem = detail::not_text(text)) throw InputError(Diagnostic{file, 0, 0, "", *problem, ""});
  check_key_parts(file, text);
  std::vector<Setting> all;
  try {
    flatten_toml(toml::parse(text), "", all);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw InputError(Diagnostic{file, static_cast<int>(at.line), static_cast<int>(at.column), "",
                                "not TOML: " + one_line(error.description()), ""});
  }
  return all;
}

}  // namespace rehearse::launch
