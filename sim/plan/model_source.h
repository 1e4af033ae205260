// Where a model's keys are looked up: in the scenario's own section, and in the preset's file that it names.
#pragma once

#include <string_view>
#include <utility>

#include "sim/base/document.h"

namespace rehearse::plan::detail {

// Where a key's value is read: the scenario's own mapping if it has the key, else the preset's. Asking marks the key as
// known in both, so that finish() of each reports only what no model has.
class ModelSource {
 public:
  ModelSource(Node own, Node preset) : own_(std::move(own)), preset_(std::move(preset)) {}

  bool given(std::string_view key) const {
    const bool in_preset = preset_.has(key);
    return own_.has(key) || in_preset;
  }
  const Node& of(std::string_view key) const {
    const bool in_preset = preset_.has(key);
    return in_preset && !own_.has(key) ? preset_ : main();
  }
  // Where what is missing is reported.
  const Node& main() const { return own_ ? own_ : preset_; }
  // The node that has the key's value, or lacks it.
  Node value(std::string_view key) const { return of(key).get(key); }
  // Of a key that is a mapping, whose keys have an order of their own.
  ModelSource within(std::string_view key) const { return {own_.get(key), preset_.get(key)}; }
  void finish() const {
    own_.finish();
    preset_.finish();
  }

 private:
  Node own_, preset_;
};

}  // namespace rehearse::plan::detail
