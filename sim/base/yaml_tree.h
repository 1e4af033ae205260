// The tree behind Document and Node: what yaml-cpp reported, event by event, with the position of every key and value.
// Built from events and not from YAML::Node, because only the events still show duplicate keys, anchors, tags, quotes.
// Not accepted, each an error with its position: anchors and aliases (a few lines of them can stand for gigabytes),
// tags, several documents in a file, keys that are not text, more than kMaxDepth levels or kMaxValues values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/base/document.h"

namespace rehearse::detail {

inline constexpr int kMaxDepth = 100;
inline constexpr std::size_t kMaxValues = 1'000'000;

struct Place {
  int line = 0, column = 0;  // 1-based; 0: none, as for values given on the command line
  bool command_line = false;
};

struct Value;

struct Entry {
  std::string key;
  Place place;  // of the key
  std::unique_ptr<Value> value;
  mutable bool asked = false;  // by a reader
};

struct Mapping {
  std::vector<Entry> entries;                             // in file order
  std::map<std::string, std::size_t, std::less<>> index;  // of many entries
  // Keys that a reader asked for and that are not there, perhaps more than once: finish() names them.
  mutable std::vector<std::string> missed;

  const Entry* find(std::string_view key) const;
  // The same, for a reader.
  const Entry* ask(std::string_view key) const;
  // All keys that a reader asked for, present or not.
  std::vector<std::string> asked() const;
  Entry& add(std::string key, Place place);
};

struct Value {
  Node::Kind kind = Node::Kind::null;
  bool quoted = false;
  mutable bool complained = false;  // "expected a mapping" is said once, not for each key asked for
  Place place;
  std::string text;                              // of a scalar
  std::vector<std::unique_ptr<Value>> elements;  // of a sequence
  std::unique_ptr<Mapping> mapping;              // of a mapping

  void become_mapping();
};

// Parses one document. Throws InputError if the text is not YAML or is beyond the limits; duplicate keys go to
// `diagnostics` (the first one holds). `path` prefixes the key paths of what is reported.
std::unique_ptr<Value> parse_yaml(const std::string& file, const std::string& text, const std::string& path,
                                  Diagnostics& diagnostics);

std::string child_path(const std::string& parent, std::string_view key);

}  // namespace rehearse::detail
