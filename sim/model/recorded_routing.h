// How the tokens of a step that was performed chose their experts, rank by rank: what `rehearse execute
// --record-routing FILE` writes and model.routing_file reads. A comma-separated table whose first row is
// step,micro_batch,layer,data,context,tensor,rows: the step (from 1), the replica's micro-batch (from 0), the model's
// layer (from 0), whose tokens they are (the rank's place among the replicas, its context and its tensor coordinate,
// 0 where ranks of a tensor group have the same tokens), and how many of them chose each expert, numbers with blanks
// between. Every choice counts, also one that a capacity drops.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "sim/base/csv.h"

namespace rehearse::model {

// Of one rank's tokens of a micro-batch, in one layer.
struct RoutedTokens {
  std::int64_t step = 0, micro_batch = 0, layer = 0;
  std::int64_t data = 0, context = 0, tensor = 0;
  std::vector<std::int64_t> rows;  // by expert

  auto place() const { return std::tie(step, micro_batch, layer, data, context, tensor); }
};

// Of the table; recorded_choices.h writes it, and reads what may be left out, each token's choices.
CsvColumns routing_columns();

// Of one step.
class RecordedRouting {
 public:
  // `step`: 0, or the last one of the table. Throws InputError with file, line and column: what is no such table, a
  // step that it does not have, rows of unlike length, places that are there twice or missing.
  RecordedRouting(const std::string& file, std::int64_t step);

  std::int64_t step() const { return step_; }
  std::int64_t micro_batches() const { return sizes_[0]; }
  std::int64_t first_layer() const { return first_layer_; }
  std::int64_t layers() const { return sizes_[1]; }  // that have experts
  std::int64_t data() const { return sizes_[2]; }
  std::int64_t context() const { return sizes_[3]; }
  std::int64_t tensor() const { return sizes_[4]; }
  std::int64_t experts() const { return static_cast<std::int64_t>(all_.front().rows.size()); }
  // `layer`: of the model.
  const RoutedTokens& of(std::int64_t micro_batch, std::int64_t layer, std::int64_t data, std::int64_t context,
                         std::int64_t tensor) const;
  const std::vector<RoutedTokens>& all() const { return all_; }
  // The line of the table that all()[i] is in.
  int line(std::size_t i) const { return lines_[i]; }

 private:
  std::int64_t step_ = 0, first_layer_ = 0;
  std::array<std::int64_t, 5> sizes_{};  // micro-batches, layers, data, context, tensor
  std::vector<RoutedTokens> all_;        // in that order
  std::vector<int> lines_;
};

}  // namespace rehearse::model
