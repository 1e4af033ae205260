// rehearse explain: what a key of the scenario file means, what it takes, its default, an example, its relatives; or
// all keys by section. Everything said comes from the table of sim/plan/keys.h.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/names.h"
#include "cli/paths.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/plan/keys.h"

namespace rehearse::cli {
namespace {

using plan::Default;
using plan::Key;
using plan::KeyType;

struct ExplainArguments {
  std::string key;
  bool json = false, markdown = false, names = false, values = false;
};

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> list;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

// "Default   0", the value wrapped beside its label.
std::string labelled(const std::string& label, const std::string& value) {
  constexpr std::size_t kIndent = 12;
  std::string block = reports::wrap(value, kIndent);
  if (block.empty()) return "";
  block.replace(0, kIndent, reports::left("  " + label, kIndent));
  return block;
}

std::string default_line(const Key& key) {
  std::string text = plan::default_text(key);
  text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
  if (key.origin != Default::framework) return text;
  for (const std::string& name : plan::framework_names())
    text += fmt::format("{} {} {}", name == plan::framework_names().front() ? ":" : ",", name,
                        plan::default_of(key, *plan::find_framework(name)));
  return text;
}

// The key as it stands in a file: "plan: {zero: 1}".
std::string in_a_file(const Key& key) {
  const std::string own = fmt::format("{}: {}", key.leaf(), key.example);
  if (key.section().empty()) return own;
  std::string middle(key.path.substr(key.section().size() + 1));
  middle.erase(middle.size() - key.leaf().size());
  if (middle.empty()) return fmt::format("{}: {{{}}}", key.section(), own);
  const bool list = middle.ends_with("[].");
  middle.erase(middle.size() - (list ? 3 : 1));
  const std::string inner = list ? "[{" + own + "}]" : "{" + own + "}";
  return fmt::format("{}: {{{}: {}}}", key.section(), middle, inner);
}

std::string article(const Key& key, const std::string& root) {
  std::string out = std::string(key.path) + "\n\n" + reports::wrap(plan::meaning_text(key), 2) + "\n";
  out += labelled("Type", plan::type_text(key));
  if (!key.names_of.empty()) out += labelled("Known", fmt::format("{}", fmt::join(listed_values(key, root), ", ")));
  out += labelled("Default", default_line(key));
  if (!key.families.empty()) out += labelled("Models", fmt::format("{}", fmt::join(words(key.families), ", ")));
  if (key.available()) {
    out += labelled("Example", in_a_file(key));
    if (key.path.find("[]") == std::string_view::npos && key.type != KeyType::mapping && key.path != "rehearse")
      out += labelled("", fmt::format("--set '{}={}'", key.path, key.example));
  }
  return out + labelled("Related", fmt::format("{}", fmt::join(words(key.related), ", ")));
}

// The meaning up to its first stop, for one line.
std::string gist(const Key& key) {
  std::string text = plan::meaning_markdown(key);
  std::size_t end = text.size();
  for (const char* stop : {"; ", " (", ". ", ": `"}) end = std::min(end, text.find(stop));
  text.erase(end);
  text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
  return key.available() ? text : text + "; not available yet";
}

std::string short_default(const Key& key) {
  if (key.origin == Default::framework) return "framework's";
  return key.origin == Default::derived ? "derived" : reports::clip(plan::default_text(key), 12);
}

constexpr std::size_t kNameColumns = 28, kMeaningColumn = 2 + kNameColumns + 13;

std::string section_list(std::string_view section) {
  std::string out = section.empty() ? "Top level\n" : std::string(section) + "\n";
  for (const Key& key : plan::keys()) {
    if (key.section() != section) continue;
    const std::string_view name = section.empty() ? key.path : key.path.substr(section.size() + 1);
    std::string line = reports::wrap(gist(key), kMeaningColumn);
    line.replace(0, kMeaningColumn, "  " + reports::left(name, kNameColumns) + reports::left(short_default(key), 13));
    out += line;
  }
  return out;
}

bool holds_keys(std::string_view section) {
  return std::any_of(plan::keys().begin(), plan::keys().end(),
                     [&](const Key& key) { return key.section() == section; });
}

std::vector<std::string_view> sections() {
  std::vector<std::string_view> list;
  for (const Key& key : plan::keys())
    if (list.empty() || list.back() != key.section()) list.push_back(key.section());
  return list;
}

std::string overview() {
  std::string out = reports::left("key", 26) + reports::left("default", 13) + "meaning\n";
  for (const std::string_view section : sections()) out += (section.empty() ? "" : "\n") + section_list(section);
  return out + "\nrehearse explain KEY says more, for example rehearse explain plan.zero\n";
}

// docs/scenario.md's tables.
std::string markdown() {
  std::string out;
  for (const std::string_view section : sections()) {
    out += fmt::format("{}## {}\n\n| key | default | meaning |\n|---|---|---|\n", out.empty() ? "" : "\n",
                       section.empty() ? "Top level" : fmt::format("`{}`", section));
    for (const Key& key : plan::keys())
      if (key.section() == section) out += plan::markdown_row(key) + '\n';
  }
  return out;
}

nlohmann::ordered_json as_json(const Key& key, const std::string& root) {
  nlohmann::ordered_json j;
  j["key"] = key.path;
  j["type"] = plan::type_text(key);
  j["required"] = key.origin == Default::required;
  j["default"] = default_line(key);
  j["values"] = listed_values(key, root);
  j["families"] = words(key.families);
  j["available"] = key.available();
  j["not_available"] = key.available() ? key.later : std::vector<std::string_view>();
  j["meaning"] = plan::meaning_text(key);
  j["example"] = key.example;
  j["related"] = words(key.related);
  return j;
}

// The key that is meant: its path, or its last part if only one key ends so ("zero").
const Key& meant(const std::string& given) {
  std::string path = given;
  for (std::size_t at = path.find('['); at != std::string::npos; at = path.find('[', at + 2))  // a[3].b: a[].b
    path.replace(at, std::min(path.find(']', at), path.size() - 1) - at + 1, "[]");
  if (const Key* key = plan::find_key(path)) return *key;
  std::vector<std::string> ending, leaves;
  for (const Key& key : plan::keys()) {
    if (key.leaf() == path) ending.emplace_back(key.path);
    leaves.emplace_back(key.leaf());
  }
  if (ending.size() == 1) return *plan::find_key(ending.front());
  Diagnostic unknown;
  unknown.message = fmt::format("no key of a scenario file is called '{}'", reports::clip(given, 60));
  if (ending.size() > 1) {
    unknown.message = fmt::format("several keys are called '{}': {}", given, fmt::join(ending, ", "));
  } else if (path.starts_with("cluster.overrides.")) {
    unknown.hint = "below cluster.overrides stand the keys of the topology file, docs/data.md";
  } else {
    std::string near = nearest(path, plan::key_paths());
    if (near.empty()) near = nearest(path, leaves);
    unknown.hint = near.empty() ? "rehearse explain lists all keys" : fmt::format("did you mean '{}'?", near);
  }
  throw InputError(std::move(unknown));
}

int explain(const ExplainArguments& a) {
  if (a.key.empty()) {
    if (a.names) {
      print(fmt::format("{}\n", fmt::join(plan::key_paths(), "\n")));
    } else if (a.json) {
      auto all = nlohmann::ordered_json::array();
      for (const Key& key : plan::keys()) all.push_back(as_json(key, data_root()));
      print(all.dump(2) + '\n');
    } else {
      print(a.markdown ? markdown() : overview());
    }
    return kDone;
  }
  const Key& key = meant(a.key);
  const std::string root = data_root();
  if (a.values) {
    for (const std::string& value : listed_values(key, root)) print(value + '\n');
  } else if (a.json) {
    print(as_json(key, root).dump(2) + '\n');
  } else if (a.markdown) {
    print(plan::markdown_row(key) + '\n');
  } else {
    print(article(key, root) + (holds_keys(key.path) ? "\n" + section_list(key.path) : ""));
  }
  return kDone;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto a = std::make_shared<ExplainArguments>();
  CLI::App* command = app.add_subcommand("explain", "What a key of the scenario file means");
  command->add_option("KEY", a->key, "A key, as plan.zero or zero; without one: all keys")->type_name("");
  CLI::Option* json = command->add_flag("--json", a->json, "The same for programs");
  CLI::Option* markdown =
      command->add_flag("--markdown", a->markdown, "The tables of docs/scenario.md")->excludes(json);
  CLI::Option* names = command->add_flag("--names", a->names, "The paths of all keys alone")->excludes(json, markdown);
  command->add_flag("--values", a->values, "The values of KEY alone, where they can be listed")
      ->excludes(json, markdown, names);
  command->footer(
      "Examples:\n"
      "  rehearse explain\n"
      "  rehearse explain plan.zero\n"
      "  rehearse explain --json | jq '.[] | select(.required).key'");
  command->callback([a, &action] { action = [a] { return explain(*a); }; });
}

}  // namespace rehearse::cli
