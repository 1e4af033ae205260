#include "sim/plan/hf/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/edit_distance.h"
#include "sim/base/text_check.h"

namespace rehearse::plan::hf {

namespace {

constexpr std::int64_t kMost = INT64_MAX;

// What is wrong at byte `at`.
Diagnostic placed(const std::string& path, const std::string& text, std::size_t at, std::string message,
                  std::string hint) {
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  const std::size_t start = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const std::size_t column = start == std::string::npos ? at + 1 : at - start;
  return {path, static_cast<int>(line), static_cast<int>(column), "", std::move(message), std::move(hint)};
}

// nlohmann counts bytes: "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong".
Diagnostic not_json(const std::string& path, const std::string& text, const nlohmann::json::parse_error& error) {
  std::string what = error.what();
  const std::size_t said = what.find("syntax error");
  if (said != std::string::npos) what = what.substr(said);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool page = first != std::string::npos && text[first] == '<';
  return placed(path, text, std::min(error.byte > 0 ? error.byte - 1 : 0, text.size()), "not JSON: " + what,
                page ? "a web page, as it seems: download the file itself, huggingface.co/NAME/resolve/main/config.json"
                     : "expected the config.json of a model, an object in braces");
}

// "[json.exception.out_of_range.406] number overflow parsing '1e400'".
Diagnostic too_large(const std::string& path, const std::string& text, std::string_view what) {
  const std::size_t quote = what.find('\'');
  const std::string number(quote == std::string_view::npos ? "" : what.substr(quote + 1, what.size() - quote - 2));
  const std::size_t at = text.find(number);
  return placed(path, text, at == std::string::npos ? 0 : at,
                fmt::format("the number {} does not fit in 64 bits", rehearse::detail::shown(number)), "");
}

// Python's json writes numbers that JSON has not ("time_step_limit": [0.0, Infinity]). For the check alone they are
// zeros, padded so that places stay.
std::string with_finite_numbers(std::string text) {
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (quoted && text[at] == '\\') ++at;
    if (quoted) continue;
    for (const std::string_view name : {"-Infinity", "Infinity", "NaN"})
      if (text.compare(at, name.size(), name) == 0)
        text.replace(at, name.size(), "0" + std::string(name.size() - 1, ' '));
  }
  return text;
}

}  // namespace

Document open_config(const std::string& path, Diagnostics& diagnostics) {
  const std::string text = read_text_file(path);
  if (const auto problem = rehearse::detail::not_text(text)) throw InputError(Diagnostic{path, 0, 0, "", *problem, ""});
  // JSON proper first, since what reads it with places is a reader of YAML, which takes more.
  try {
    const auto parsed = nlohmann::json::parse(with_finite_numbers(text), nullptr, true, false);
    if (!parsed.is_object())
      throw InputError(Diagnostic{path, 1, 1, "", fmt::format("is {}, expected an object", parsed.type_name()),
                                  "the config.json of a model: {\"model_type\": \"llama\", ...}"});
  } catch (const nlohmann::json::parse_error& error) {
    throw InputError(not_json(path, text, error));
  } catch (const nlohmann::json::out_of_range& error) {
    throw InputError(too_large(path, text, error.what()));
  }
  return Document::from_text(path, text, diagnostics);
}

bool Config::known(std::string_view hf) const {
  return std::find(known_.begin(), known_.end(), hf) != known_.end();
}

bool Config::given(std::string_view hf) const {
  const Node value = file_.get(hf);
  return value && value.kind() != Node::Kind::null;
}

void Config::assume(std::string_view hf, const std::string& what) {
  assumed_.push_back(fmt::format("{} {}", hf, what));
}

void Config::note_read(std::string_view hf, std::string_view ours, const std::string& value) {
  const bool over = !ours.empty() && own_.has(ours);
  read_.push_back(fmt::format("{} {}{}", hf, value, over ? fmt::format(" (the scenario has {})", ours) : ""));
}

std::optional<std::int64_t> Config::integer_at(std::string_view hf, std::int64_t least) {
  known_.emplace_back(hf);
  taken_.emplace_back(hf);
  if (!given(hf)) return std::nullopt;
  return shapes_[std::string(hf)] = file_.integer(hf, least, least, kMost);
}

std::int64_t Config::shape_read(std::string_view hf) const {
  const auto found = shapes_.find(hf);
  return found == shapes_.end() ? 0 : found->second;
}

void Config::put(std::string_view ours, const std::string& value, std::string_view hf) {
  if (!own_.has(ours)) model_.put(std::string(ours), value, node(hf) ? node(hf) : file_);
}

void Config::derived(std::string_view hf, std::string_view ours, std::int64_t value) {
  known_.emplace_back(hf);
  taken_.emplace_back(hf);
  if (given(hf))
    note_read(hf, ours, fmt::format("{}: {} {}", file_.get(hf).as_text().value_or(""), ours, value));
  else
    assume(hf, fmt::format(": {} {}", ours, value));
  put(ours, fmt::to_string(value), hf);
}

void Config::derived_within(const std::vector<std::string>& path, std::string_view ours, std::int64_t value) {
  note_read(path.back(), ours, fmt::format("{}: {} {}", text_within(path), ours, value));
  put(ours, fmt::to_string(value), path.front());
}

std::int64_t Config::shape(std::string_view hf, std::string_view ours) {
  required_.emplace_back(hf);
  const auto value = integer_at(hf, 1);
  if (!value) {
    const std::vector<std::string> keys = file_.keys();
    const std::string near = nearest(hf, keys);
    node(hf).error(node(hf) ? "is null, expected an integer" : "required key is missing, expected an integer",
                   near.empty() || near == hf ? "" : fmt::format("is it '{}'?", near));
    return 1;
  }
  put(ours, fmt::to_string(*value), hf);
  note_read(hf, ours, fmt::to_string(*value));
  return *value;
}

std::optional<std::int64_t> Config::shape_or(std::string_view hf, std::string_view ours, const std::string& otherwise) {
  const auto value = integer_at(hf, 1);
  if (!value) {
    assume(hf, otherwise);
    return std::nullopt;
  }
  put(ours, fmt::to_string(*value), hf);
  note_read(hf, ours, fmt::to_string(*value));
  return value;
}

std::int64_t Config::shape_or(std::string_view hf, std::string_view ours, std::int64_t fallback) {
  const auto value = shape_or(hf, ours, fmt::to_string(fallback));
  if (!value) put(ours, fmt::to_string(fallback), hf);
  return value.value_or(fallback);
}

std::int64_t Config::count_or(std::string_view hf, std::string_view ours, std::int64_t fallback) {
  const auto value = integer_at(hf, 0);
  const std::int64_t taken = value.value_or(has(hf) ? 0 : fallback);
  put(ours, fmt::to_string(taken), hf);
  if (has(hf))
    note_read(hf, ours, fmt::to_string(taken));
  else
    assume(hf, fmt::to_string(taken));
  return taken;
}

double Config::number(std::string_view hf, double fallback) {
  known_.emplace_back(hf);
  return given(hf) ? file_.number(hf, fallback) : fallback;
}

Node Config::node(const std::vector<std::string>& path) const {
  Node at = file_;
  for (const std::string& key : path) at = at.kind() == Node::Kind::mapping ? at.get(key) : Node();
  return at;
}

bool Config::within(const std::vector<std::string>& path) {
  asked_within_.insert(path);
  const Node value = node(path);
  return value && value.kind() != Node::Kind::null;
}

std::string Config::text_within(const std::vector<std::string>& path) {
  return within(path) ? node(path).as_text().value_or("") : "";
}

double Config::number_within(const std::vector<std::string>& path, double fallback) {
  if (!within(path)) return fallback;
  return node(std::vector<std::string>(path.begin(), path.end() - 1)).number(path.back(), fallback);
}

std::vector<std::string> Config::not_asked_within(const std::vector<std::string>& path) const {
  std::vector<std::string> all;
  const Node mapping = node(path);
  if (mapping.kind() != Node::Kind::mapping) return all;
  for (const std::string& key : mapping.keys()) {
    std::vector<std::string> one = path;
    one.push_back(key);
    if (!asked_within_.contains(one) && mapping.get(key).kind() != Node::Kind::null) all.push_back(key);
  }
  return all;
}

bool Config::is_mapping(std::string_view hf) {
  known_.emplace_back(hf);
  return file_.get(hf).kind() == Node::Kind::mapping;
}

void Config::number_within(const std::vector<std::string>& path, std::string_view ours, double fallback) {
  const double value = number_within(path, fallback);
  if (within(path))
    note_read(path.back(), ours, fmt::format("{}", value));
  else
    assume(path.back(), fmt::format("{}", value));
  put(ours, fmt::format("{}", value), path.front());
}

std::size_t Config::elements(std::string_view hf) {
  known_.emplace_back(hf);
  const Node list = node(hf);
  return list.kind() == Node::Kind::sequence ? list.size() : 0;
}

std::vector<std::string> Config::words(std::string_view hf) {
  std::vector<std::string> all(elements(hf));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = node(hf).at(i).as_text().value_or("");
  return all;
}

std::size_t Config::entries(std::string_view hf, std::size_t without) {
  known_.emplace_back(hf);
  taken_.emplace_back(hf);
  const Node mapping = node(hf);
  const bool read = mapping.kind() == Node::Kind::mapping;
  if (!read) assume(hf, fmt::format(": {} entries", without));
  return read ? mapping.keys().size() : without;
}

bool Config::lists(std::string_view hf, std::string_view word) {
  const std::vector<std::string> all = words(hf);
  return std::find(all.begin(), all.end(), word) != all.end();
}

double Config::number_or(std::string_view hf, std::string_view ours, double fallback) {
  known_.emplace_back(hf);
  taken_.emplace_back(hf);
  const double value = given(hf) ? file_.number(hf, fallback) : fallback;
  if (given(hf))
    note_read(hf, ours, fmt::format("{}", value));
  else
    assume(hf, fmt::format("{}", value));
  put(ours, fmt::format("{}", value), hf);
  return value;
}

std::int64_t Config::integer(std::string_view hf, std::int64_t fallback) {
  const auto value = integer_at(hf, 0);
  if (value) note_read(hf, "", fmt::to_string(*value));
  return value.value_or(fallback);
}

bool Config::flag(std::string_view hf, bool fallback) {
  known_.emplace_back(hf);
  taken_.emplace_back(hf);
  const bool value = given(hf) ? file_.boolean(hf, fallback) : fallback;
  if (given(hf))
    note_read(hf, "", fmt::format("{}", value));
  else
    assume(hf, fmt::format("{}", value));
  return value;
}

std::string Config::text(std::string_view hf, const std::string& fallback) {
  known_.emplace_back(hf);
  taken_.emplace_back(hf);
  const std::string value = given(hf) ? file_.text(hf, fallback) : fallback;
  if (given(hf))
    note_read(hf, "", value);
  else
    assume(hf, value);
  return value;
}

void Config::refuse(std::string_view hf, const std::string& what, const std::string& hint) {
  node(hf).error(what, hint);
}

void Config::require(std::string_view hf, bool fallback, bool wanted, const std::string& what) {
  if (flag(hf, fallback) != wanted) refuse(hf, fmt::format("{}: {}", !wanted, what));
}

void Config::no_matter(const std::vector<std::string_view>& keys, const std::string& why) {
  for (const std::string_view hf : keys) {
    known_.emplace_back(hf);
    if (!file_.has(hf)) continue;
    auto group =
        std::find_if(no_matter_.begin(), no_matter_.end(), [&](const auto& each) { return each.first == why; });
    if (group == no_matter_.end()) group = no_matter_.insert(group, {why, {}});
    group->second.emplace_back(hf);
  }
}

void Config::for_scenario(std::string_view hf, std::string_view key) {
  known_.emplace_back(hf);
  if (given(hf)) for_scenario_.push_back(fmt::format("{} ({})", hf, key));
}

void Config::left_out(std::string_view hf, const std::string& what) {
  known_.emplace_back(hf);
  if (!given(hf)) return;
  const Node value = node(hf);
  const auto text = value.as_text();
  if (text == "0" || text == "0.0" || text == "false") return;
  left_out_.push_back(text ? fmt::format("{} {} ({})", hf, *text, what) : fmt::format("{} ({})", hf, what));
}

void Config::finish(Translated& out) {
  // A key that has to be there may be meant by one of much the same name; one that may be missing by a slip alone,
  // since files have keys of other versions and of other programs.
  constexpr std::size_t kSlip = 2;
  std::vector<std::string> absent, strange;
  for (const std::string& key : required_)
    if (!file_.has(key)) absent.push_back(key);
  for (const std::string& key : file_.keys()) {
    if (known(key)) continue;
    std::string near = nearest(key, absent);
    if (near.empty()) {
      const auto slip = std::find_if(taken_.begin(), taken_.end(), [&](const std::string& one) {
        return !file_.has(one) && edit_distance(key, one) <= kSlip;
      });
      if (slip != taken_.end()) near = *slip;
    }
    if (near.empty())
      strange.push_back(key);
    else
      node(key).error("unknown key, and one of much the same name is missing", fmt::format("did you mean '{}'?", near));
  }
  out.read = read_;
  const auto say = [&](const std::string& what, const std::vector<std::string>& list) {
    if (!list.empty()) out.notes.push_back(fmt::format("{}: {}.", what, fmt::join(list, ", ")));
  };
  say("Missing or null, so as transformers has it", assumed_);
  say("Left to the scenario", for_scenario_);
  say("Not simulated", left_out_);
  say("Not known here, and not taken", strange);
  std::vector<std::string> groups;
  for (const auto& [why, list] : no_matter_) groups.push_back(fmt::format("{} ({})", fmt::join(list, ", "), why));
  if (!groups.empty()) out.notes.push_back(fmt::format("Of no matter to time or memory: {}.", fmt::join(groups, "; ")));
}

}  // namespace rehearse::plan::hf
