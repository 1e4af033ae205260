// See document_settings.h.
#include "launch/document_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/text_check.h"

namespace rehearse::launch {
namespace {

constexpr int kMostLaunchDepth = 40;

void flatten_node(const Node& node, const std::string& key, int depth, std::vector<Setting>& out) {
  if (depth > kMostLaunchDepth) return node.error(fmt::format("nested more than {} levels", kMostLaunchDepth));
  if (node.kind() == Node::Kind::mapping) {
    for (const std::string& name : node.keys())
      flatten_node(node.get(name), key.empty() ? name : key + "." + name, depth + 1, out);
    return;
  }
  Setting setting{key, {}, node.line(), node.column(), ""};
  if (node.kind() == Node::Kind::scalar) {
    setting.values.push_back(node.as_text().value_or(""));
  } else if (node.kind() == Node::Kind::sequence) {
    for (std::size_t i = 0; i < node.size(); ++i)
      setting.values.push_back(node.at(i).kind() == Node::Kind::scalar ? node.at(i).as_text().value_or("") : "");
  } else {
    return;
  }
  out.push_back(std::move(setting));
}

// Where byte `at` of the text is.
Diagnostic at_byte(const std::string& file, const std::string& text, std::size_t at, std::string message) {
  at = std::min(at, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  const std::size_t start = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const std::size_t column = start == std::string::npos ? at + 1 : at - start;
  return {file, static_cast<int>(line), static_cast<int>(column), "", std::move(message), ""};
}

}  // namespace

std::string without_json_comments(const std::string& text) {
  std::string out = text;
  bool quoted = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (quoted) {
      if (out[i] == '\\')
        ++i;
      else if (out[i] == '"' || out[i] == '\n')
        quoted = false;
      continue;
    }
    if (out[i] == '"') quoted = true;
    const bool line = out[i] == '#' || out.compare(i, 2, "//") == 0, block = out.compare(i, 2, "/*") == 0;
    if (!line && !block) continue;
    const std::size_t close = line ? out.find('\n', i) : out.find("*/", i + 2);
    const std::size_t end = close == std::string::npos ? out.size() : line ? close : close + 2;
    for (; i < end; ++i)
      if (out[i] != '\n') out[i] = ' ';
    --i;
  }
  return out;
}

std::vector<Setting> json_settings(const std::string& file, const std::string& text, std::vector<std::string>& autos) {
  if (const auto problem = detail::not_text(text)) throw InputError(Diagnostic{file, 0, 0, "", *problem, ""});
  const std::string plain = without_json_comments(text);
  try {  // JSON proper first: what reads it with places reads YAML, which takes more
    if (!nlohmann::json::parse(plain).is_object())
      throw InputError(Diagnostic{file, 1, 1, "", "expected an object in braces", ""});
  } catch (const nlohmann::json::parse_error& error) {
    std::string what = error.what();
    if (const std::size_t said = what.find("syntax error"); said != std::string::npos) what = what.substr(said);
    throw InputError(at_byte(file, plain, error.byte > 0 ? error.byte - 1 : 0, "not JSON: " + one_line(what)));
  } catch (const nlohmann::json::out_of_range&) {
    throw InputError(Diagnostic{file, 0, 0, "", "a number does not fit in 64 bits", ""});
  }
  Diagnostics problems;
  std::vector<Setting> all, kept;
  flatten_node(Document::from_text(file, plain, problems).root(), "", 0, all);
  problems.throw_if_any();
  for (Setting& one : all) {
    if (one.values.size() == 1 && one.values[0] == "auto")
      autos.push_back(one.key);
    else
      kept.push_back(std::move(one));
  }
  return kept;
}

std::vector<Setting> yaml_settings(const std::string& file, const std::string& text) {
  Diagnostics problems;
  std::vector<Setting> all;
  flatten_node(Document::from_text(file, text, problems).root(), "", 0, all);
  problems.throw_if_any();
  return all;
}

}  // namespace rehearse::launch
