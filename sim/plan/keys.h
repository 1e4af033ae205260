// What a scenario file may say: one table of its keys, one row a key (key_table*.cpp). From a row the key is read
// (read_keys.h: type, range, default, what is not available yet), explained (`rehearse explain`, `init`, the JSON
// schema for editors, the tables of docs/scenario.md), said in results and compared between ranks. Keys whose row has
// no field are read by their section's own code. Leaves out: which combinations can be (feasibility.cpp, schedule/),
// the keys of topology and device files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/field.h"
#include "sim/plan/framework.h"

namespace rehearse::plan {

enum class KeyType : unsigned char {
  integer,
  number,
  boolean,
  text,
  choice,
  choice_or_integer,  // one of `values` or a number
  bytes,              // a size with its unit
  bytes_or_share,     // that, or a percentage
  bandwidth,          // likewise
  time,               // likewise
  name,               // of something that can be listed (names_of), or a path where paths are taken
  names,              // one of those or a list of them
  integers,           // a list
  numbers,            // a list
  number_rows,        // a list, a list of such lists, or a list of these
  permutation,        // a list with each of `values` once
  choices,            // a list with one or more of `values`, each once at most
  mapping,            // with the keys that begin with this one's path
  mappings,           // a list of those
  free_mapping,       // keys of another file
  free_list,          // entries that another file's reader judges; where paths are taken also one text
  model               // a preset's name or a mapping
};

// Where the value comes from when the file does not give one.
enum class Default : unsigned char {
  required,
  value,      // `fallback` is it, as it would be written
  framework,  // the profile's: Key::framework
  derived     // from other keys; `fallback` says how
};

struct Key {
  std::string_view path;  // "plan.tensor"; "model.convolutions[].kernel" inside a list
  KeyType type = KeyType::mapping;
  Default origin = Default::value;
  std::string_view fallback = {};
  std::vector<std::string_view> values = {};  // of a choice, choices or a permutation
  // Values of the format that this program refuses, saying what is available; {"all"}: the whole key.
  std::vector<std::string_view> later = {};
  std::optional<double> min = {}, max = {};  // of a number, or of each in a list
  bool below_max = false;                    // `max` itself is out
  std::size_t length = 0;                    // of a list; 0: any but empty
  bool or_auto = false;                      // also the word auto
  std::string_view names_of = {};            // models, topologies, devices, frameworks
  bool or_path = false;
  std::string_view families = {};  // of models that have the key, blanks between; empty: all
  std::string_view item = {};      // what one of a list is: "number of layers"
  std::string_view meaning = {};   // for people, with `code` marks
  std::string_view example = {};   // a value that may be given
  std::string_view related = {};   // paths, blanks between
  Field field = {};
  std::string (*framework)(const FrameworkProfile&) = nullptr;  // the profile's default, as a file would say it
  bool in_result = false;                                       // stands in result.json
  // For the refusal of what is not available yet: what it is ("hybrid sharding"), and what to write instead.
  std::string_view later_is = {}, instead = {};

  std::string_view section() const;  // "plan"; "" at the top level
  std::string_view leaf() const;     // "tensor"
  bool available() const;
  bool of_family(std::string_view family) const;
  bool read_by_table() const { return field.readable() || (!later.empty() && available()); }
};

// In the order of the file: top level, model, cluster, plan, training, data, costs, noise, failures, checkpoint,
// reinforcement; then as a reader wants to meet them.
const std::vector<Key>& keys();
const Key* find_key(std::string_view path);
std::vector<std::string> key_paths();

// ", 1 to 4096", "" without a range.
std::string range_text(const Key& key);
// "integer, 1 to 4096", "one of none, selective, full", for people.
std::string type_text(const Key& key);
// The value that `profile` gives a key of Default::framework, as a file would say it.
std::string default_of(const Key& key, const FrameworkProfile& profile);
// "required", "1", "the framework's", "4 x hidden".
std::string default_text(const Key& key);
// The meaning with what is not available yet, in Markdown; without the marks for a terminal.
std::string meaning_markdown(const Key& key);
std::string meaning_text(const Key& key);
// What a scenario was resolved to at a key, as a file would say it; nothing for a key without a field, or of a list's
// entries.
struct Scenario;
std::optional<std::string> value_text(const Key& key, const Scenario& scenario);
// The key's row in docs/scenario.md.
std::string markdown_row(const Key& key);

namespace detail {
std::vector<Key> top_keys(), model_keys(), vision_keys(), layer_keys(), expert_keys(), latent_attention_keys(),
    llama_like_keys(), mixer_keys(), prediction_keys(), cluster_keys(), plan_keys(), replica_keys(), training_keys(),
    data_keys(), costs_keys(), noise_keys(), failure_keys(), checkpoint_keys(), reinforcement_keys();
}

}  // namespace rehearse::plan
