// A YAML file read with positions and strict keys. Parameters are spelled required / optional with default where they
// are used; finish() reports every key nobody asked for, with the nearest one that was. All problems go to one
// Diagnostics. Not supported on purpose, each an error with its position: anchors and aliases, tags, a second document,
// duplicate keys (the first holds), over 100 levels or a million values; files that are not regular (a pipe, a
// directory) are never read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/base/units.h"

namespace rehearse {

namespace detail {
struct Value;
}

inline constexpr std::int64_t kMaxFileBytes = 16 << 20;

// Reads a whole regular file of at most kMaxFileBytes. Throws InputError (missing, directory, pipe, too large, NUL
// bytes). Notes it as an input (input_files.h).
std::string read_text_file(const std::string& path);

// One value of the document with its position. A Node is a light handle; it is valid while its Document lives.
class Node {
 public:
  enum class Kind { missing, null, scalar, sequence, mapping };
  Kind kind() const;
  explicit operator bool() const { return kind() != Kind::missing; }

  // Mapping access. get() returns a missing node if the key is absent and marks the key as known either way.
  Node get(std::string_view key) const;
  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;
  // Sequence access.
  std::size_t size() const;
  Node at(std::size_t index) const;

  // Scalars. Without a default the key is required: a missing one is reported and a neutral value returned, so that
  // reading goes on and all problems are found in one pass. A value of the wrong type or out of [min, max] is reported
  // too.
  std::int64_t integer(std::string_view key, std::optional<std::int64_t> fallback = {}, std::int64_t min = INT64_MIN,
                       std::int64_t max = INT64_MAX) const;
  double number(std::string_view key, std::optional<double> fallback = {}, double min = -1e300,
                double max = 1e300) const;
  bool boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string text(std::string_view key, std::optional<std::string> fallback = {}) const;
  // One of `choices`; returns its index.
  int choice(std::string_view key, const std::vector<std::string>& choices, std::optional<int> fallback = {}) const;
  Bytes bytes(std::string_view key, std::optional<Bytes> fallback = {}) const;
  Bandwidth bandwidth(std::string_view key, std::optional<Bandwidth> fallback = {}) const;
  Time time(std::string_view key, std::optional<Time> fallback = {}) const;
  FlopRate flop_rate(std::string_view key, std::optional<FlopRate> fallback = {}) const;
  // The scalar itself (for elements of sequences and either-or keys); nullopt if it is not one.
  std::optional<std::int64_t> as_integer() const;
  std::optional<double> as_number() const;
  std::optional<std::string> as_text() const;

  // Reports it where `value`, which was read of `key`, is below kLowestBandwidth.
  void check_lowest(std::string_view key, Bandwidth value, std::string hint = "") const;

  // Reports a problem at this node's position (at the parent's if it is missing).
  void error(std::string message, std::string hint = "") const;
  // Reports keys of this mapping that were never asked for. Call once per mapping, after reading it.
  void finish() const;
  std::string file() const;  // the document's, or "--set" for a value from the command line
  int line() const;
  int column() const;
  const std::string& path() const;  // "plan.tensor"

 private:
  friend class Document;
  struct Impl;
  // The scalar of `child`, a key of this node, or nullptr, reported unless it is absent with a default.
  const detail::Value* scalar(const Node& child, bool has_default, const std::string& expected) const;
  std::shared_ptr<const Impl> impl_;
};

// Files that are read many times, with the same content each time: what was parsed without a problem is kept. Safe for
// several threads.
class ParsedFiles {
 public:
  ParsedFiles();
  ~ParsedFiles();

 private:
  friend class Document;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Document {
 public:
  // Throws InputError at once if the file cannot be read or is not YAML; later problems go to `diagnostics`. `files`:
  // the file as it was when it was first read through them; nullptr: as it is.
  static Document from_file(const std::string& path, Diagnostics& diagnostics);
  static Document from_file(const std::string& path, Diagnostics& diagnostics, ParsedFiles* files);
  static Document from_text(const std::string& name, const std::string& text, Diagnostics& diagnostics);
  // An empty mapping, to be filled by put(): what a file of another format says, in keys of ours.
  static Document to_fill(const std::string& name, Diagnostics& diagnostics);
  // Gives the root a key with a scalar, written as in YAML, that is reported where `from` stands in its file.
  void put(const std::string& key, const std::string& value, const Node& from);
  // Overrides "plan.tensor=4" (the value is YAML). Intermediate mappings are created. Problems are reported with file
  // "--set". Call before reading.
  void set(const std::string& assignment);
  Node root() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rehearse
