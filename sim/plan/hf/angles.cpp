// What configurations say of rotated positions; see parts.h. Keys and defaults are those of transformers'
// modeling_rope_utils.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

// A file that an older transformers wrote may have both; transformers 5 goes by rope_parameters.
std::vector<std::string> path_of_scaling(Config& c) {
  if (!c.given("rope_parameters")) return {"rope_scaling"};
  if (c.within({"rope_parameters", "full_attention"})) return {"rope_parameters", "full_attention"};
  return {"rope_parameters"};
}

namespace {

std::string kind_within(Config& c, std::vector<std::string> path) {
  std::string kind;
  for (const char* leaf : {"type", "rope_type"}) {  // the second is the newer word
    path.emplace_back(leaf);
    if (const std::string word = c.text_within(path); !word.empty()) kind = word;
    path.pop_back();
  }
  return kind;
}

// A part of yarn that is given and is not as the angles here have it; "" without one. What transformers has where
// nothing is said may be written out: pairs between 32 and 1 turns, bounds that are whole numbers, and vectors longer
// by 0.1 ln(factor) + 1.
std::string unusual_yarn(Config& c, std::vector<std::string> path) {
  const auto at = [&](const char* leaf) {
    std::vector<std::string> one = path;
    one.emplace_back(leaf);
    return one;
  };
  const double factor = c.within(at("attention_factor")) ? c.number_within(at("factor"), 1) : 1;
  const double longer = factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
  const std::pair<const char*, double> usual[] = {{"beta_fast", 32}, {"beta_slow", 1}, {"attention_factor", longer}};
  std::string unusual;
  // Of latent attention both are given, and scores are longer in the place of what is rotated (DeepSeek-V3: 1 and 1).
  const bool latent = c.given("kv_lora_rank");
  for (const char* leaf : {"mscale", "mscale_all_dim"})
    if (latent ? c.number_within(at(leaf), 0) != 1 : c.within(at(leaf))) unusual = leaf;
  for (const auto& [leaf, value] : usual)
    if (!(std::abs(c.number_within(at(leaf), value) - value) <= 1e-6 * value)) unusual = leaf;
  if (const std::string truncated = c.text_within(at("truncate")); !truncated.empty() && truncated != "true")
    unusual = "truncate";
  return unusual;
}

// Keys of the mapping that nothing above read.
void report_unread(Config& c, const std::vector<std::string>& path) {
  for (const std::string& key : c.not_asked_within(path))
    c.left_out_of_kind(fmt::format("{}.{} (not known here)", fmt::join(path, "."), key));
}

// The mapping's kind and numbers; false: none of these angles are simulated.
bool take_scaling(Config& c, const std::vector<std::string>& scaling) {
  const auto at = [&](const char* leaf) {
    std::vector<std::string> path = scaling;
    path.emplace_back(leaf);
    return path;
  };
  const std::string kind = kind_within(c, scaling);
  if (kind.empty() || kind == "default") return true;
  if (kind != "linear" && kind != "llama3" && kind != "yarn") {
    c.left_out(scaling.front(), fmt::format("angles of the kind '{}'", kind));
    return false;
  }
  if (kind == "yarn")
    if (const std::string more = unusual_yarn(c, scaling); !more.empty()) {
      c.left_out(scaling.front(), fmt::format("yarn with '{}', which has the usual value here alone", more));
      return false;
    }
  c.put("rope_scaling", kind, scaling.front());
  c.number_within(at("factor"), "rope_factor", 1);
  if (kind == "linear") return true;
  c.number_within(at("original_max_position_embeddings"), "rope_trained_len",
                  static_cast<double>(c.shape_read("max_position_embeddings")));
  if (kind != "llama3") return true;
  c.number_within(at("low_freq_factor"), "rope_low_freq_factor", 1);
  c.number_within(at("high_freq_factor"), "rope_high_freq_factor", 4);
  return true;
}

}  // namespace

void angles(Config& c, double base, std::string_view key) {
  const std::vector<std::string> scaling = path_of_scaling(c);
  if (c.given(scaling.front()) && !c.is_mapping(scaling.front()))
    return c.refuse(scaling.front(), "expected a mapping or null", "{\"rope_type\": \"linear\", \"factor\": 4.0}");
  const std::vector<std::string> local = {"rope_parameters", "sliding_attention"};
  if (c.given("rope_parameters")) {
    std::vector<std::string> theta = scaling;
    theta.emplace_back("rope_theta");
    c.number_within(theta, "rope_base", base);
    if (c.within(local)) {
      c.number_within({local[0], local[1], "rope_theta"}, "rope_base_local", 10000);
      if (const std::string kind = kind_within(c, local); !kind.empty() && kind != "default")
        c.left_out_of_kind(fmt::format("{} (angles of the kind '{}')", fmt::join(local, "."), kind));
    }
    c.no_matter({key, "rope_scaling"}, "rope_parameters says it");
  } else {
    c.number_or(key, "rope_base", base);
    c.no_matter({"rope_parameters"}, "rope_scaling says it");
  }
  if (!c.given(scaling.front())) return c.no_matter({scaling.front()}, "null: angles are not scaled");
  if (!take_scaling(c, scaling)) return;
  c.no_matter({scaling.front()}, "its parts are taken");
  report_unread(c, scaling);
  if (scaling.size() > 1) report_unread(c, {"rope_parameters"});
  if (c.within(local)) report_unread(c, local);
}

}  // namespace rehearse::plan::hf
