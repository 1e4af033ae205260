// What Document and Node share: the tree with its file name and collector, and a node's own state.
#pragma once

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
  std::string path;
};

}  // namespace rehearse
