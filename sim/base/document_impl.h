// What Document and Node share: the tree with its file name and collector, and a node's own state.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>

#include "sim/base/yaml_tree.h"

namespace rehearse {

namespace detail {

inline constexpr const char* kCommandLineFile = "--set";

struct Tree {
  std::string file;
  std::unique_ptr<Value> root;
  Diagnostics* diagnostics;
};

// "the text 'x'", "a list", "nothing", for "found ...".
std::string described(const Value& value);

}  // namespace detail

struct Document::Impl {
  std::shared_ptr<detail::Tree> tree;
};

struct Node::Impl {
  std::shared_ptr<detail::Tree> tree;
  const detail::Value* value;  // nullptr: missing
  detail::Place parent_place;  // where a missing one is reported
  // Its path is put together when it is asked for, which most nodes' is not.
  std::shared_ptr<const Impl> parent;  // nullptr: the root
  std::string key;                     // of the parent, a mapping
  std::int64_t index = -1;             // of the parent, a sequence
  mutable std::string known_path;

  const std::string& path() const {
    if (parent && known_path.empty())
      known_path = index < 0 ? detail::child_path(parent->path(), key) : fmt::format("{}[{}]", parent->path(), index);
    return known_path;
  }
};

}  // namespace rehearse
