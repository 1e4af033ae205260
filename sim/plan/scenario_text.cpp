// A scenario file with what is assigned to it, written anew: mappings as blocks, everything below a list in one line.
#include <fmt/format.h>

#include <filesystem>

#include "sim/plan/sections.h"

namespace rehearse::plan {
namespace {

// A file beside the scenario, or what is assigned beside the working directory, which the text may be read far from.
// A key that can only be a file's is looked for in both, whatever the file is called.
std::string found_from(const Node& node, const std::string& key, const std::string& folder) {
  const auto text = node.as_text();
  const bool file = key == "routing_file";
  if (!text || text->empty()) return {};
  if (!file && text->find('/') == std::string::npos && !std::filesystem::path(*text).has_extension()) return {};
  const bool assigned = node.file() == "--set";
  std::error_code error;
  for (const std::string& from : {assigned ? std::string() : folder, file ? std::string() : folder})
    if (const std::filesystem::path path = std::filesystem::path(from) / *text;
        std::filesystem::is_regular_file(path, error))
      return detail::quoted_text(std::filesystem::absolute(path, error).lexically_normal().string());
  return {};
}

// A value in one line, with the whole paths of files that it names, in lists of files and of mappings too. What a job
// beside this one is assigned is that file's matter.
std::string text_with_paths(const Node& node, const std::string& key, const std::string& folder) {
  std::string text;
  if (node.kind() == Node::Kind::sequence) {
    for (std::size_t i = 0; i < node.size(); ++i)
      text += (i > 0 ? ", " : "") + text_with_paths(node.at(i), key, folder);
    return "[" + text + "]";
  }
  if (node.kind() == Node::Kind::mapping && key != "set") {
    for (const std::string& inner : node.keys())
      text += (text.empty() ? "" : ", ") + inner + ": " + text_with_paths(node.get(inner), inner, folder);
    return "{" + text + "}";
  }
  const std::string path = found_from(node, key, folder);
  return path.empty() ? detail::flow_text(node) : path;
}

void write(const Node& node, const std::string& indent, const std::string& folder, std::string& out) {
  for (const std::string& key : node.keys()) {
    const Node child = node.get(key);
    if (child.kind() == Node::Kind::mapping && !child.keys().empty()) {
      out += fmt::format("{}{}:\n", indent, key);
      write(child, indent + "  ", folder, out);
      continue;
    }
    out += fmt::format("{}{}: {}\n", indent, key, text_with_paths(child, key, folder));
  }
}

}  // namespace

std::string scenario_text(const std::string& path, const std::vector<std::string>& assignments,
                          const std::string& comment) {
  Diagnostics diagnostics;
  const Document document = detail::opened({path, assignments, ""}, diagnostics);
  diagnostics.throw_if_any();
  std::string out = "# " + comment + "\n";
  write(document.root(), "", std::filesystem::path(path).parent_path().string(), out);
  return out;
}

}  // namespace rehearse::plan
