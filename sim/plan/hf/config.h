// A config.json while it is translated: typed access that keeps account of what was read, of what was missing and
// taken as transformers has it, and of what is in the file besides.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/plan/hf/translate.h"

namespace rehearse::plan::hf {

// The file's text as a mapping with places. Throws InputError if it cannot be read or is no JSON object.
Document open_config(const std::string& path, Diagnostics& diagnostics);

class Config {
 public:
  // Writes to `model`; a key that `own` has is not written.
  Config(const Node& file, const Node& own, std::string kind, Document& model)
      : file_(file), own_(own), kind_(std::move(kind)), model_(model) {}
  const std::string& kind() const { return kind_; }  // model_type

  // The value of `hf` goes to our key `ours`. Required: an error if it is missing or null.
  std::int64_t shape(std::string_view hf, std::string_view ours);
  // Optional: nothing is written where it is missing or null; what holds then is noted as `otherwise`.
  std::optional<std::int64_t> shape_or(std::string_view hf, std::string_view ours, const std::string& otherwise);
  // The same with a number that transformers has as default.
  std::int64_t shape_or(std::string_view hf, std::string_view ours, std::int64_t fallback);
  // A number that may be 0, as null is.
  std::int64_t count_or(std::string_view hf, std::string_view ours, std::int64_t fallback);
  double number_or(std::string_view hf, std::string_view ours, double fallback);

  // One of these again; 0: it was not read, or is missing.
  std::int64_t shape_read(std::string_view hf) const;

  // Without a key of ours. A default that matters is noted.
  std::int64_t integer(std::string_view hf, std::int64_t fallback);
  bool flag(std::string_view hf, bool fallback);
  std::string text(std::string_view hf, const std::string& fallback);
  double number(std::string_view hf, double fallback);
  // Within a mapping: whether it is there and not null; its text, "" without one; a number. Each notes the path as
  // asked for.
  bool within(const std::vector<std::string>& path);
  std::string text_within(const std::vector<std::string>& path);
  double number_within(const std::vector<std::string>& path, double fallback);
  // Keys of the mapping at `path` with values that nothing asked for.
  std::vector<std::string> not_asked_within(const std::vector<std::string>& path) const;
  bool is_mapping(std::string_view hf);
  void number_within(const std::vector<std::string>& path, std::string_view ours, double fallback);
  std::size_t elements(std::string_view hf);                      // of a list; 0 without one
  std::vector<std::string> words(std::string_view hf);            // a list's texts; of what is no text ""
  std::size_t entries(std::string_view hf, std::size_t without);  // of a mapping
  bool lists(std::string_view hf, std::string_view word);         // whether a list has that text
  bool has(std::string_view hf) const { return file_.has(hf); }   // null too
  bool given(std::string_view hf) const;                          // and not null

  // Our key with a value that follows from `hf`.
  void put(std::string_view ours, const std::string& value, std::string_view hf);
  // The same, noted as read or as transformers' default.
  void derived(std::string_view hf, std::string_view ours, std::int64_t value);
  void derived_within(const std::vector<std::string>& path, std::string_view ours, std::int64_t value);
  // An error at `hf`: what it asks for is not there.
  void refuse(std::string_view hf, const std::string& what, const std::string& hint = "");
  // Refuses a flag that is not `wanted`.
  void require(std::string_view hf, bool fallback, bool wanted, const std::string& what);
  // What is known and not taken: of no matter to time or memory; left to the scenario's own keys; or not simulated.
  void no_matter(const std::vector<std::string_view>& keys, const std::string& why);
  void for_scenario(std::string_view hf, std::string_view key);
  void left_out(std::string_view hf, const std::string& what);
  void left_out_of_kind(const std::string& what) { left_out_.push_back(what); }

  // Reports keys that look like a misspelt one; the rest goes into the notes.
  void finish(Translated& out);

 private:
  Node node(const std::vector<std::string>& path) const;
  Node node(std::string_view hf) { return file_.get(hf); }
  std::optional<std::int64_t> integer_at(std::string_view hf, std::int64_t least);
  void assume(std::string_view hf, const std::string& what);
  void note_read(std::string_view hf, std::string_view ours, const std::string& value);
  bool known(std::string_view hf) const;

  Node file_, own_;
  std::string kind_;
  Document& model_;
  // Every key that was asked for; those of them with a value to take.
  std::vector<std::string> known_ = {"model_type", "architectures"}, taken_, required_;
  std::set<std::vector<std::string>> asked_within_;
  std::map<std::string, std::int64_t, std::less<>> shapes_;
  std::vector<std::string> read_, assumed_, for_scenario_, left_out_;
  std::vector<std::pair<std::string, std::vector<std::string>>> no_matter_;  // by the reason
};

}  // namespace rehearse::plan::hf
