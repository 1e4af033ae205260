// See fields.h.
#include "launch/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/check.h"
#include "sim/base/harmless_text.h"
#include "sim/base/text_check.h"

namespace rehearse::launch {
namespace {

std::optional<double> as_double(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool automatic_layers(const plan::Scenario& s) {
  const auto stages = static_cast<std::int64_t>(s.plan.layers_per_stage.size());
  const std::int64_t layers = plan::unit_count(s.model);
  return layers >= stages && s.plan.layers_per_stage == plan::auto_layers(layers, stages);
}

bool same_value(std::string_view a, std::string_view b) {
  if (a == b) return true;
  const auto x = as_double(a), y = as_double(b);
  return x && y && *x == *y;
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line = escaped_controls(text);
  constexpr std::size_t kMost = 300;
  if (line.size() > kMost) {
    line.resize(kMost);
    while (!line.empty() && detail::not_text(line)) line.pop_back();
    line += "...";
  }
  return line;
}

Nodes nodes_of(std::int64_t gpus, std::int64_t gpus_a_node) {
  gpus_a_node = std::max<std::int64_t>(1, gpus_a_node);
  if (gpus <= gpus_a_node) return {gpus, 1};
  while (gpus % gpus_a_node != 0) --gpus_a_node;
  return {gpus_a_node, gpus / gpus_a_node};
}

Said::Said(const plan::Scenario& scenario, std::string_view framework)
    : scenario_(scenario), profile_(*plan::find_framework(framework)) {
  if (scenario.framework_why.empty() && scenario.framework.name != framework)
    left_out("framework", fmt::format("{}: the file is for other software, whose launches {} stands for",
                                      scenario.framework.name, framework));
}

std::string Said::value(std::string_view key) {
  const plan::Key* row = plan::find_key(key);
  REHEARSE_CHECK(row != nullptr, "no key {}", key);
  said(key);
  const auto text = plan::value_text(*row, scenario_);
  REHEARSE_CHECK(text.has_value(), "{} has no value", key);
  return *text;
}

void Said::left_out(std::string_view key, std::string why) {
  said(key);
  left_out_.push_back({std::string(key), std::move(why)});
}

std::optional<std::string> Said::field(const FieldRow& row) {
  const std::string ours = value(row.ours);
  switch (row.kind) {
    case Mapped::flag:
      return ours == "true" ? std::optional<std::string>("") : std::nullopt;
    case Mapped::no_flag:
      return ours == "false" ? std::optional<std::string>("") : std::nullopt;
    case Mapped::word: {
      if (!row.absent.empty() && ours == row.absent) return std::nullopt;
      for (const auto& [our, their] : row.words)
        if (our == ours) return std::string(their);
      left_out(row.ours, fmt::format("{} has no word for {}", row.theirs, ours));
      return std::nullopt;
    }
    case Mapped::integer:
    case Mapped::number:
      break;
  }
  if (!row.absent.empty() && same_value(ours, row.absent)) return std::nullopt;
  return ours;
}

namespace {
bool fills_by_default(const plan::Scenario& s) {
  return s.training.deterministic && s.framework.fills_new_tensors;
}

// Keys of what the plan has not: groups, shards, a kind of attention.
bool of_nothing(std::string_view key, const plan::Scenario& s) {
  const plan::Plan& p = s.plan;
  if (key == "plan.fused_latent_rope") return !s.model.latent_attention();
  if (key == "plan.overlap_tensor_backward") return p.tensor == 1;
  if (key == "plan.overlap_grad_reduce") return p.data * p.context == 1;
  if (key == "plan.reuse_distance") return p.zero < 3;
  return false;
}
}  // namespace

std::vector<LeftOut> Said::finish() {
  const std::string family = plan::value_text(*plan::find_key("model.family"), scenario_).value_or("");
  for (const plan::Key& key : plan::keys()) {
    const std::string_view section = key.section();
    const bool model = section == "model" && says_model_ && key.origin == plan::Default::value;
    if ((section != "plan" && section != "training" && !model) || said_.contains(key.path)) continue;
    if (!key.of_family(family)) continue;
    const auto value = plan::value_text(key, scenario_);
    if (!value) continue;
    if (key.path == "training.lora_alpha" && !scenario_.training.lora()) continue;
    if (key.path == "training.document_length" && scenario_.training.document_length == 0) continue;
    if (key.path == "training.document_lengths" && scenario_.training.document_lengths.empty()) continue;
    if (key.path.starts_with("training.base_") && scenario_.training.base_batch == 0) continue;
    if (key.path == "plan.bucket" && !scenario_.plan.bucket_given) continue;
    if (of_nothing(key.path, scenario_)) continue;
    if (key.path == "plan.layers_per_stage" && automatic_layers(scenario_)) continue;
    if (key.path == "training.seq_len" && !scenario_.model.reads_text()) continue;
    std::string usual(key.fallback);
    if (key.origin == plan::Default::framework) usual = plan::default_of(key, profile_);
    if (key.path == "plan.expert_tensor" && scenario_.plan.expert == 1) continue;
    if (*value == "0" && usual == "auto") continue;
    // Only ZeRO-1 and 2 gather what was updated.
    if (key.path == "plan.overlap_param_gather" && (scenario_.plan.zero == 0 || scenario_.plan.zero == 3)) continue;
    if (key.path == "training.fill_uninitialized" &&
        scenario_.training.fill_uninitialized == fills_by_default(scenario_))
      continue;
    if (same_value(*value, usual)) continue;
    left_out_.push_back({std::string(key.path), fmt::format("{}: the format has no field for it", *value)});
  }
  return left_out_;
}

Taken::Taken(std::string file, std::vector<Setting> settings, std::string prefix)
    : file_(std::move(file)), prefix_(std::move(prefix)), settings_(std::move(settings)) {}

bool Taken::has(std::string_view key) {
  asked_.emplace(key);
  return holds(key);
}

bool Taken::holds(std::string_view key) const {
  return std::any_of(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.key == key; });
}

const Setting* Taken::find(std::string_view key) {
  asked_.emplace(key);
  const Setting* last = nullptr;
  for (const Setting& setting : settings_) {
    if (setting.key != key) continue;
    used_.insert(&setting);
    last = &setting;
  }
  return last;
}

const Setting* Taken::peek(std::string_view key) const {
  const auto last =
      std::find_if(settings_.rbegin(), settings_.rend(), [&](const Setting& one) { return one.key == key; });
  return last == settings_.rend() ? nullptr : &*last;
}

void Taken::error(const Setting& at, std::string message, std::string hint) {
  problems_.add({file_, at.line, at.column, one_line(name_of(at)), std::move(message), std::move(hint)});
}

std::optional<std::string> Taken::text(std::string_view key) {
  const Setting* setting = find(key);
  if (setting == nullptr) return std::nullopt;
  if (!setting->unset.empty() && (setting->values.empty() || setting->values.front().empty())) {
    error(*setting, fmt::format("the value is ${}, which the file does not set", one_line(setting->unset)),
          "put NAME=value before it, or the value itself");
    return std::nullopt;
  }
  if (setting->values.empty()) {
    error(*setting, "expected a value after it");
    return std::nullopt;
  }
  return setting->values.front();
}

std::optional<std::int64_t> Taken::integer(std::string_view key) {
  const auto given = text(key);
  if (!given) return std::nullopt;
  // 5e8 and 1_000 are integers to the programs that read these files.
  std::string digits = *given;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const auto value = as_double(digits);
  if (!value || *value != std::floor(*value) || std::fabs(*value) > 9e15) {
    error(*find(key), fmt::format("expected an integer, found {}", detail::shown(*given)));
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<double> Taken::number(std::string_view key) {
  const auto given = text(key);
  if (!given) return std::nullopt;
  const auto value = as_double(*given);
  if (!value) error(*find(key), fmt::format("expected a number, found {}", detail::shown(*given)));
  return value;
}

bool Taken::flag(std::string_view key) {
  const Setting* setting = find(key);
  if (setting == nullptr) return false;
  if (setting->values.empty()) return true;
  const std::string& value = setting->values.front();
  return value != "false" && value != "False" && value != "0" && value != "null" && value != "no";
}

void Taken::used(const Setting& setting, const std::string& ours) {
  if (setting.line == 0) return;
  std::string value;
  if (setting.as.empty())
    for (const std::string& one : setting.values) {
      if (value.size() > 60) break;
      value += " " + one;
    }
  report_.used.push_back(one_line(fmt::format("{}{}: {}", name_of(setting), value, ours)));
}

void Taken::put(std::string_view key, std::string value, const Setting* from) {
  REHEARSE_CHECK(plan::find_key(key) != nullptr, "no key {}", key);
  if (from != nullptr) {
    used(*from, fmt::format("{} {}", key, value));
    places_[std::string(key)] = {file_, from->line, from->column, "", one_line(name_of(*from)), ""};
  }
  keys_[std::string(key)] = std::move(value);
}

void Taken::put_over(std::string_view key, std::string value, const Setting* from) {
  put(key, value, from);
  over_[std::string(key)] = std::move(value);
}

bool Taken::all_used() const {
  return std::all_of(settings_.begin(), settings_.end(), [&](const Setting& one) { return used_.contains(&one); });
}

std::string Taken::value_of(std::string_view key) const {
  const auto found = keys_.find(std::string(key));
  return found == keys_.end() ? std::string() : found->second;
}

void Taken::row(const FieldRow& row) {
  if (!has(row.theirs)) {
    if (!row.absent.empty()) put(row.ours, std::string(row.absent), nullptr);
    return;
  }
  const Setting* setting = find(row.theirs);
  switch (row.kind) {
    case Mapped::flag:
      return put(row.ours, flag(row.theirs) ? "true" : "false", setting);
    case Mapped::no_flag:
      return put(row.ours, flag(row.theirs) ? "false" : "true", setting);
    case Mapped::integer:
      if (const auto value = integer(row.theirs)) put(row.ours, fmt::format("{}", *value), setting);
      return;
    case Mapped::number:
      if (const auto value = number(row.theirs)) put(row.ours, fmt::format("{}", *value), setting);
      return;
    case Mapped::word:
      break;
  }
  const auto value = text(row.theirs);
  if (!value) return;
  std::vector<std::string> known;
  for (const auto& [ours, theirs] : row.words) {
    if (theirs == *value) return put(row.ours, std::string(ours), setting);
    known.emplace_back(theirs);
  }
  const std::string near = nearest(*value, known);
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  error(*setting, fmt::format("{} is not available, expected one of {}", detail::shown(*value), list),
        near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

}  // namespace rehearse::launch
