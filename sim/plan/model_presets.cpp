#include "sim/plan/model_presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "sim/base/text_check.h"

namespace rehearse::plan {
namespace {

namespace fs = std::filesystem;

fs::path preset_folder(const std::string& data_root) {
  return fs::path(data_root) / "scenarios" / "models";
}

// Looked up by its file, since a search reads presets by the ten thousand.
bool is_preset(const std::string& name, const std::string& data_root) {
  if (name.empty() || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) return false;
  std::error_code error;
  return fs::exists(preset_folder(data_root) / (name + ".yaml"), error);
}

}  // namespace

std::vector<std::string> preset_names(const std::string& data_root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(preset_folder(data_root), error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".yaml") names.push_back(entry->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Node open_preset(const Node& at, const std::string& name, const std::string& data_root, Diagnostics& diagnostics,
                 ParsedFiles* files) {
  if (!is_preset(name, data_root)) {
    const auto names = preset_names(data_root);
    const std::string near = nearest(name, names);
    const std::string folder = preset_folder(data_root).string();
    at.error(names.empty() ? fmt::format("there are no model presets in '{}'", folder)
                           : fmt::format("no model preset of this name, of {}", names.size()),
             near.empty() ? "rehearse list models names them; or {hf: path/config.json}"
                          : fmt::format("did you mean '{}'?", near));
    return Node();
  }
  try {
    return Document::from_file((preset_folder(data_root) / (name + ".yaml")).string(), diagnostics, files).root();
  } catch (const InputError& error) {
    for (const Diagnostic& problem : error.diagnostics()) diagnostics.add(problem);
    return Node();
  }
}

}  // namespace rehearse::plan
