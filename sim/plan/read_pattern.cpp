// See read_pattern.h.
#include "sim/plan/read_pattern.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "sim/plan/nearest_numbers.h"

namespace rehearse::plan::detail {

using model::Family;
using model::Model;

namespace {

void check_branches(const ModelSource& source, const Model& model) {
  const std::string &pattern = model.layer_pattern, letters = model.family == Family::moe ? "M*-E" : "M*-";
  const Node given = source.value("layer_pattern");
  if (const std::size_t wrong = pattern.find_first_not_of(letters); wrong != std::string::npos)
    return given.error(
        fmt::format("'{}' of layer {} is no kind of layer, expected M (mixer), * (attention), - "
                    "(feed-forward) or, of family moe, E (experts)",
                    pattern[wrong], wrong));
  const std::string& of_module = model.mtp_pattern;
  const Node module = source.value("mtp_pattern");
  if (model.mtp_depth > 0 && of_module.empty())
    return module.error("required key is missing: the layers of one branch of each module of multi-token prediction",
                        "mtp_pattern: \"*-\"");
  if (model.mtp_depth == 0 && !of_module.empty())
    return module.error("has no meaning without multi-token prediction", "mtp_depth: 1");
  if (const std::size_t wrong = of_module.find_first_not_of(letters); wrong != std::string::npos)
    return module.error(
        fmt::format("'{}' is no kind of layer, expected the letters of layer_pattern, {}", of_module[wrong], letters));
  if (static_cast<std::int64_t>(pattern.size()) != model.layers && model.layers > 0)
    given.error(fmt::format("a pattern of {} layers, and layers = {}", pattern.size(), model.layers),
                fmt::format("layers: {}", pattern.size()));
  if (model.family == Family::moe && pattern.find('E') == std::string::npos)
    given.error("no layer has experts", "family: llama has none");
  if (!model.has_mixers()) return;
  if (!source.given("mamba_heads"))
    source.value("mamba_heads").error("required key is missing, expected an integer: heads of the layers M");
  else if (model.mamba_groups > 0 && model.mamba_heads % model.mamba_groups != 0)
    source.value("mamba_groups")
        .error(fmt::format("{} heads do not divide into {} equal groups; nearest that do: {}", model.mamba_heads,
                           model.mamba_groups,
                           nearest_divisors(model.mamba_heads, model.mamba_groups, model.mamba_heads)));
}

// Their defaults may be said of any model of these families.
void check_no_mixers(const ModelSource& source, const Model& model) {
  const Model plain;
  const std::pair<const char*, bool> changed[] = {{"mamba_heads", model.mamba_heads != plain.mamba_heads},
                                                  {"mamba_head_dim", model.mamba_head_dim != plain.mamba_head_dim},
                                                  {"mamba_groups", model.mamba_groups != plain.mamba_groups},
                                                  {"mamba_state", model.mamba_state != plain.mamba_state},
                                                  {"mamba_conv", model.mamba_conv != plain.mamba_conv},
                                                  {"mamba_chunk", model.mamba_chunk != plain.mamba_chunk}};
  for (const auto& [key, is] : changed)
    if (is) source.value(key).error("has no meaning without a mixer among the layers", "layer_pattern: \"M-M-\"");
}

}  // namespace

void check_pattern(const ModelSource& source, const Model& model) {
  if (model.one_branch())
    check_branches(source, model);
  else if (!model.mtp_pattern.empty())
    source.value("mtp_pattern").error("modules are blocks as the layers are", "leave it out, or give layer_pattern");
  if (!model.one_branch() || !model.has_mixers()) check_no_mixers(source, model);
}

}  // namespace rehearse::plan::detail
