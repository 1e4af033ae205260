// What the formats of this folder share: rows that map a field of a launch file to a key of the scenario, both ways;
// what an export has said of a scenario so far; and what an import has read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/launch.h"
#include "sim/plan/framework.h"
#include "sim/plan/keys.h"

namespace rehearse::launch {

// How a field's text and a key's are each other's.
enum class Mapped : unsigned char {
  integer,  // the same integer
  number,   // the same number
  flag,     // present: true
  no_flag,  // present: false
  word      // by FieldRow::words, ours first
};

struct FieldRow {
  std::string_view ours, theirs;
  Mapped kind = Mapped::integer;
  std::string_view absent = {};  // our value that is said by leaving the field out; "": the field is always there
  std::vector<std::pair<std::string_view, std::string_view>> words = {};
};

// One thing that a file says: its key, its values as words, its place.
struct Setting {
  std::string key;
  std::vector<std::string> values;
  int line = 0, column = 0;
  std::string unset;    // a variable in the first value that has none
  std::string as = {};  // as the file has it, where that is another name: "-tp 2"
};

// What an export has said of a scenario.
class Said {
 public:
  // `framework`: whose software the format starts, by the profile nearest to it.
  Said(const plan::Scenario& scenario, std::string_view framework);

  const plan::Scenario& scenario() const { return scenario_; }
  // A key's value as a file would say it, and marks the key as said.
  std::string value(std::string_view key);
  void said(std::string_view key) { said_.emplace(key); }
  // The format describes the model too: what of it was not said is left out like all else.
  void says_model() { says_model_ = true; }
  void left_out(std::string_view key, std::string why);
  // The row's field: nothing if it is to be left out. The value is "" for flags.
  std::optional<std::string> field(const FieldRow& row);
  // Every key of plan and training that was not said and is not what `framework` has by default is left out.
  std::vector<LeftOut> finish();

 private:
  const plan::Scenario& scenario_;
  const plan::FrameworkProfile& profile_;
  std::set<std::string, std::less<>> said_;
  std::vector<LeftOut> left_out_;
  bool says_model_ = false;
};

// What an import has read of a file's settings.
class Taken {
 public:
  // `prefix` stands before a setting's key where people read it: "--".
  Taken(std::string file, std::vector<Setting> settings, std::string prefix);

  bool has(std::string_view key);
  // The last setting of that name, marked as used; nullptr if there is none.
  const Setting* find(std::string_view key);
  const Setting* peek(std::string_view key) const;  // the same, not marked
  // A setting that nothing has asked for and that is named `key` but for a slip; nullptr if there is none.
  const Setting* slip_for(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key);
  std::optional<double> number(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  bool flag(std::string_view key);

  // What a preset that the file's model is taken from has (`hints.model`); nothing of a model that the file describes.
  void know_preset(const ImportHints& hints);
  // Of the file's own options or the preset.
  bool has_experts() { return has("num-experts") || preset_experts_; }
  bool has_latents() { return flag("multi-latent-attention") || preset_latents_; }

  // A key of the scenario, with the value as a file would say it; `from`: what says so, nullptr: nothing in the file.
  void put(std::string_view key, std::string value, const Setting* from);
  // A key of the model that is not its preset's.
  void put_over(std::string_view key, std::string value, const Setting* from);
  // A line of what was used, for what has no key; nothing for settings that stand at no line.
  void used(const Setting& setting, const std::string& ours);
  // Whether nothing is left that no key was taken from.
  bool all_used() const;
  // Whether an option of that name would have meant something.
  bool knows(std::string_view key) const { return asked_.contains(key); }
  bool given(std::string_view key) const { return keys_.contains(std::string(key)); }
  std::string value_of(std::string_view key) const;
  void row(const FieldRow& row);
  void assume(std::string what) { report_.assumed.push_back(std::move(what)); }
  void ignore(std::string what) { report_.ignored.push_back(std::move(what)); }
  void not_modelled(std::string what) { report_.unmodelled.push_back(std::move(what)); }
  void error(const Setting& at, std::string message, std::string hint = "");
  void stop_if_wrong() const { problems_.throw_if_any(); }

  // Model, cluster and framework where nothing gives them; the scenario's text. Throws InputError with all problems.
  Imported finish(std::string format, const ImportHints& hints, std::string_view framework);

 private:
  bool holds(std::string_view key) const;
  void drop_gpudirect_where_refused(const std::string& topology, const std::string& data_root);
  // As people read it in the file. Variables of the environment are no options.
  std::string name_of(const Setting& s) const {
    if (!s.as.empty()) return s.as;
    return (s.key.starts_with("NCCL_") || s.key.starts_with("NVTE_") ? "" : prefix_) + s.key;
  }
  std::string file_, prefix_;
  bool preset_experts_ = false, preset_latents_ = false;
  std::vector<Setting> settings_;
  std::set<const Setting*> used_;
  std::set<std::string, std::less<>> asked_;  // names that settings could have had
  std::map<std::string, std::string> keys_, over_;
  std::map<std::string, Diagnostic> places_;
  formats::Report report_;
  Diagnostics problems_;
};

// Whether a setting that no key has changes how long a step takes or what it holds; not so with the value that leaves
// it off.
bool changes_step(const Setting& setting);

// The model of a file that names none.
inline constexpr const char* kUsualModel = "llama2-7b";

// Of framework deepspeed, a profile of 2022: what the programs of today that read such files run otherwise, as far as a
// key has it, and the rest as assumed.
void take_deepspeed_of_today(Taken& taken, const ImportHints& hints);

// What the preset that `hints` name, or that of a file that names none, says under `key`; "": nothing, or there is no
// preset that can be read.
std::string preset_text(const ImportHints& hints, const char* key);

// Whether a topology is said by its path, not by its name.
bool names_file(std::string_view topology);

// NCCL's variables as lines "NAME=value" for the scenario's pinned collectives; and back, of NCCL_ALGO and NCCL_PROTO.
std::vector<std::string> nccl_variables(Said& said);
std::optional<std::string> pinned_collectives(Taken& taken);

// A text in one line, harmless, for a comment or a report.
std::string one_line(std::string_view text);
// "--nproc-per-node 8", "--nnodes 2": how ranks are spread over nodes.
struct Nodes {
  std::int64_t a_node = 1, nodes = 1;
};
Nodes nodes_of(std::int64_t gpus, std::int64_t gpus_a_node);

}  // namespace rehearse::launch
