// Which experts every token of a step that was performed chose: what `rehearse execute --record-routing FILE` writes
// besides the counts of recorded_routing.h, and what `execute` of a scenario with model.routing: recorded takes. The
// table has three columns more: sequences, those of the step whose tokens a row is of ("4-5", from 0), positions, of
// each the runs of tokens ("0-3 12-15"), and chosen, numbers of experts with blanks between: token by token, at each
// position one of each sequence, the best expert of a token first.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/model/recorded_routing.h"

namespace rehearse::model {

// Of one rank's tokens of a micro-batch, in one layer.
struct RoutedChoices : RoutedTokens {
  std::int64_t first_sequence = 0, sequences = 0;
  std::vector<std::int64_t> positions = {};  // runs: pairs of the first one and how many
  std::vector<std::int32_t> chosen = {};
};

// The table, its rows in the order of place().
std::string routing_table_text(std::vector<RoutedChoices> all);

// The choices of every token of a step, or of several: what `execute` replays with model.routing: recorded.
class RecordedChoices {
 public:
  // Of the model and the batch that are to choose alike: `layers` with experts from first_layer on, `sequences` of
  // `positions` tokens a step, each of which chooses top_k of `experts`.
  struct Sizes {
    std::int64_t first_layer = 0, layers = 0, sequences = 0, positions = 0, experts = 0, top_k = 0;
  };
  // Null if the table has no choices (one of before they were written). `step`: the only one that is read, or 0: all.
  // Throws InputError with file and line: of what is no such table, or of another model or batch, of a token that has
  // no choices or has them twice, of choices that are not those that `rows` counts.
  static std::shared_ptr<const RecordedChoices> read(const std::string& file, std::int64_t step, const Sizes& sizes);

  bool has(std::int64_t step) const { return steps_.contains(step); }  // from 1
  std::int64_t first_step() const { return steps_.begin()->first; }
  std::int64_t last_step() const { return steps_.rbegin()->first; }
  // top_k numbers of experts, in a step that it has.
  const std::int32_t* of(std::int64_t step, std::int64_t layer, std::int64_t sequence, std::int64_t position) const {
    return steps_.at(step).data() + at(layer, sequence, position);
  }

 private:
  explicit RecordedChoices(const Sizes& sizes) : sizes_(sizes) {}
  std::size_t at(std::int64_t layer, std::int64_t sequence, std::int64_t position) const {
    return static_cast<std::size_t>(
        (((layer - sizes_.first_layer) * sizes_.sequences + sequence) * sizes_.positions + position) * sizes_.top_k);
  }
  // What keeps the row from being of these sizes; empty: nothing, and it is taken.
  std::string take(const RoutedChoices& tokens);

  Sizes sizes_;
  std::map<std::int64_t, std::vector<std::int32_t>> steps_;
};

}  // namespace rehearse::model
