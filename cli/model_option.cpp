// See model_option.h.
#include "cli/model_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/names.h"
#include "cli/refuse.h"
#include "reports/text.h"
#include "sim/base/document.h"
#include "sim/plan/read_model.h"

namespace rehearse::cli {

bool is_configuration(const std::string& model) {
  return model.find('/') != std::string::npos || model.ends_with(".json");
}

std::string model_value(const std::string& model) {
  if (!is_configuration(model)) return model;
  std::string quoted = model;
  for (std::size_t at = 0; (at = quoted.find('\'', at)) != std::string::npos; at += 2) quoted.insert(at, 1, '\'');
  return fmt::format("{{hf: '{}'}}", quoted);
}

void check_name(const std::string& option, std::string_view kind, const std::string& name, const std::string& root) {
  const std::vector<std::string> names = names_of(kind, root);
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  constexpr std::size_t kMostListed = 40;
  const std::string near = nearest(name, names);
  const std::string known = names.size() > kMostListed ? fmt::format("the {} {}", names.size(), kind)
                                                       : fmt::format("{}", fmt::join(names, ", "));
  const std::string other = kind == "models" ? " names them; or a model's config.json from Hugging Face" : "";
  refuse(option, fmt::format("'{}' is none of {}", reports::clip(name, 60), known),
         near.empty() ? fmt::format("rehearse list {}{}", kind, other) : fmt::format("did you mean '{}'?", near));
}

model::Model model_option(const std::string& option, const std::string& name, const std::string& root) {
  if (!is_configuration(name)) check_name(option, "models", name, root);
  Diagnostics problems;
  const Document document = Document::from_text(option, "model: " + model_value(name), problems);
  model::Model model =
      plan::read_model(document.root().get("model"), *plan::find_framework("rehearse"), root, problems);
  Diagnostics placed;
  for (Diagnostic d : problems.list()) {
    if (d.file == option) d.line = d.column = 0, d.path.clear();
    placed.add(std::move(d));
  }
  placed.throw_if_any();
  return model;
}

}  // namespace rehearse::cli
