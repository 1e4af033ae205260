// What configurations say of rotated positions; see parts.h. Keys and defaults are those of transformers'
// modeling_rope_utils.py.
#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

namespace {

// rope_scaling, or rope_parameters, which has one for each kind of layer where these have bases of their own.
std::vector<std::string> path_of_scaling(const Config& c) {
  if (!c.given("rope_parameters")) return {"rope_scaling"};
  if (c.within({"rope_parameters", "full_attention"})) return {"rope_parameters", "full_attention"};
  return {"rope_parameters"};
}

}  // namespace

void angles(Config& c, double base, std::string_view key) {
  const std::vector<std::string> scaling = path_of_scaling(c);
  const auto at = [&](const char* leaf) {
    std::vector<std::string> path = scaling;
    path.emplace_back(leaf);
    return path;
  };
  if (c.given("rope_parameters")) {
    c.number_within(at("rope_theta"), "rope_base", base);
    if (c.within({"rope_parameters", "sliding_attention"}))
      c.number_within({"rope_parameters", "sliding_attention", "rope_theta"}, "rope_base_local", 10000);
    c.no_matter({key, "rope_scaling"}, "rope_parameters says it");
  } else {
    c.number_or(key, "rope_base", base);
    c.no_matter({"rope_parameters"}, "rope_scaling says it");
  }
  if (!c.given(scaling.front())) return c.no_matter({scaling.front()}, "null: angles are not scaled");
  c.no_matter({scaling.front()}, "its parts are taken");
  std::string kind = c.text_within(at("rope_type"));
  if (kind.empty()) kind = c.text_within(at("type"));
  if (kind.empty() || kind == "default") return;
  if (kind != "linear" && kind != "llama3" && kind != "yarn")
    return c.left_out(scaling.front(), fmt::format("angles of the kind '{}'", kind));
  for (const char* more : {"mscale", "mscale_all_dim", "attention_factor", "beta_fast", "beta_slow", "truncate"})
    if (kind == "yarn" && c.within(at(more)))
      return c.left_out(scaling.front(), fmt::format("yarn with '{}', which has the usual value here alone", more));
  c.put("rope_scaling", kind, scaling.front());
  c.number_within(at("factor"), "rope_factor", 1);
  if (kind == "linear") return;
  c.number_within(at("original_max_position_embeddings"), "rope_trained_len",
                  static_cast<double>(c.shape_read("max_position_embeddings")));
  if (kind != "llama3") return;
  c.number_within(at("low_freq_factor"), "rope_low_freq_factor", 1);
  c.number_within(at("high_freq_factor"), "rope_high_freq_factor", 4);
}

}  // namespace rehearse::plan::hf
