#include "sim/plan/hf/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/edit_distance.h"
#include "sim/base/text_check.h"
#include "sim/plan/hf/families.h"

namespace rehearse::plan::hf {

namespace {

namespace fs = std::filesystem;

std::string file_of(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? (fs::path(path) / "config.json").string() : path;
}

std::string first_architecture(const Node& file) {
  const Node list = file.get("architectures");
  return list.kind() == Node::Kind::sequence && list.size() > 0 ? list.at(0).as_text().value_or("") : "";
}

const Kind* find_kind(const std::string& model_type, const std::string& architecture) {
  for (const Kind& kind : translated_kinds())
    if (kind.model_type == model_type || (model_type.empty() && kind.architecture == architecture)) return &kind;
  return nullptr;
}

// The kind that was meant by a slip; not another number of the same: Qwen 2 is not meant by Qwen 4.
std::string meant_kind(const std::string& name) {
  const auto letters = [](std::string text) {
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    return text;
  };
  const std::string near = nearest(name, kinds());
  constexpr std::size_t kSlip = 2;
  return near.empty() || edit_distance(name, near) > kSlip || letters(name) == letters(near) ? std::string() : near;
}

void refuse_kind(const Node& file, const std::string& model_type, const std::string& architecture) {
  if (const Node given = file.get("model_type"); given && !given.as_text())
    return given.error("expected text", "expected as in \"model_type\": \"llama\"");
  const std::string known = fmt::format("available: {}", fmt::join(kinds(), ", "));
  if (model_type.empty() && architecture.empty())
    return file.error("neither model_type nor architectures says what kind of model this is",
                      file.has("text_config") ? "a model in several parts is not available"
                                              : "expected as in \"model_type\": \"llama\"");
  const Node place = model_type.empty() ? file.get("architectures") : file.get("model_type");
  const std::string& name = model_type.empty() ? architecture : model_type;
  const std::string_view missing = missing_for(model_type);
  if (!missing.empty())
    return place.error(fmt::format("models of the kind {} cannot be read: {}", name, missing), known);
  const std::string near = meant_kind(name);
  place.error(fmt::format("models of the kind {} are not known", rehearse::detail::shown(name)),
              near.empty() ? known : fmt::format("did you mean '{}'? {}", near, known));
}

// Of a model for images and text its part for text, where that is a whole decoder of its own.
bool reads_text_part(const Node& root) {
  const std::string kind = root.get("model_type").as_text().value_or("");
  return (kind == "llama4" || kind == "gemma3" || kind == "mistral3") &&
         root.get("text_config").kind() == Node::Kind::mapping;
}

// "meta-llama/Llama-2-7b-hf" of _name_or_path, without what comes before the last slash.
std::string name_in(const Node& file) {
  std::string name = file.get("_name_or_path").as_text().value_or("");
  while (name.ends_with('/')) name.pop_back();
  return name.substr(name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1);
}

}  // namespace

std::vector<std::string> kinds() {
  std::vector<std::string> all;
  for (const Kind& kind : translated_kinds()) all.emplace_back(kind.model_type);
  return all;
}

std::optional<Translated> translate(const std::string& path, const Node& own, Diagnostics& diagnostics) {
  const std::string file_path = file_of(path);
  const std::size_t problems = diagnostics.list().size();
  const Document document = open_config(file_path, diagnostics);
  const bool part = reads_text_part(document.root());
  const Node file = part ? document.root().get("text_config") : document.root();
  const std::string model_type = file.get("model_type").as_text().value_or("");
  const std::string architecture = first_architecture(file);
  const Kind* kind = find_kind(model_type, architecture);
  if (kind == nullptr) {
    refuse_kind(file, model_type, architecture);
    return std::nullopt;
  }
  Translated out{Document::to_fill(file_path, diagnostics), name_in(file), std::string(kind->model_type), {}, {}};
  if (out.name.empty()) out.name = out.kind;
  if (!architecture.empty()) out.kind += fmt::format(" ({})", architecture);
  Config config(file, own, std::string(kind->model_type), out.model);
  common(config);
  if (part) config.left_out_of_kind("what is beside text_config: images");
  kind->translate(config);
  config.finish(out);
  if (diagnostics.list().size() != problems) return std::nullopt;
  return out;
}

}  // namespace rehearse::plan::hf
