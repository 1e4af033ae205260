// How the tokens' choices fall on the experts in a simulation, which has no router to ask: by the scenario's
// model.routing. Every rank's tokens of a micro-batch of a layer are taken to be routed alike, so that a layer has one
// load an expert, of all its micro-batches or, where the scenario says so, of each; but with routing recorded each rank
// has its own tokens' choices. Everything is whole rows, and adds up to the tokens' choices exactly.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/scenario.h"

namespace rehearse::plan {

// Of the choices of a layer (from 0), by expert; they add up to 1, and none is above 1 / experts_per_token, since no
// token chooses an expert twice: what a law gives an expert above that goes to the others in proportion. zipf: the
// expert of rank r has a share in proportion to 1 / r^exponent (Zipf 1949); ranks are a permutation of the experts that
// `seed` and the layer draw, with routing_per micro_batch anew for each micro-batch after the first.
std::vector<double> expert_shares(const model::Model& model, std::int64_t seed, std::int64_t layer,
                                  std::int64_t micro_batch = 0);

// How many experts any of `tokens` tokens is expected to choose, each of which chooses so many, an expert with the
// probability experts_per_token x share, whatever the others do: the sum over experts of 1 - (1 - that)^tokens; with
// even shares E (1 - (1 - k / E)^tokens).
double expected_experts(const std::vector<double>& shares, std::int64_t experts_per_token, std::int64_t tokens);

// The choices of `tokens` tokens by expert: share x choices, rounded down, and what then is left to the largest
// remainders, equal ones by the number of the expert. At most `tokens` each.
std::vector<std::int64_t> expert_rows(const std::vector<double>& shares, std::int64_t tokens, std::int64_t choices);

// The loads of one layer, in rows of one rank's tokens of a micro-batch; recorded, of the tokens of all ranks of an
// expert group.
struct LayerLoads {
  std::vector<std::int64_t> rows;   // by expert, as routed
  std::vector<std::int64_t> parts;  // by rank of the expert group: those of its experts that are computed
  std::int64_t dropped = 0;         // with a capacity: choices beyond it; recorded, the first group has those of all
  // Recorded, without a capacity: what each member of the group sends each, [from * members + to].
  std::vector<std::int64_t> sent = {};
};

// What a result says of them. Imbalance: the most rows of a rank of the expert group over their mean.
struct LoadBalance {
  double imbalance = 1, mean_imbalance = 1;  // of the worst layer and micro-batch; mean over them all
  std::int64_t worst_layer = 0;              // from 0; the first of equal ones
  double dropped = 0;                        // share of all choices
};

class ExpertLoads {
 public:
  // Of a resolved scenario; models without experts have none. Of what is performed nobody knows them before: they are
  // taken as even.
  explicit ExpertLoads(const Scenario& scenario);

  bool any() const { return !layers_.empty(); }
  // How many different loads a layer's micro-batches have, in turn: micro-batch m has those of m % patterns().
  std::int64_t patterns() const { return patterns_; }
  // How many expert groups have loads of their own, by their coordinate on the data axis (experts that are spread have
  // no replicas of shards): all alike is 1.
  std::int64_t groups() const { return groups_; }
  // Whether ranks of the expert group have other rows in some micro-batches than in others.
  bool vary() const;
  // Of layer `layer` of the model, which has experts.
  const LayerLoads& of(std::int64_t layer, std::int64_t pattern = 0, std::int64_t group = 0) const {
    return layers_.at(static_cast<std::size_t>(((layer - first_) * patterns_ + pattern) * groups_ + group));
  }
  // Rows that come to a place of an expert group from all of its ranks; the most in any micro-batch.
  std::int64_t rows_at(std::int64_t layer, std::int64_t pattern, std::int64_t group, std::size_t place) const {
    return of(layer, pattern, group).parts.at(place) * sources_;
  }
  std::int64_t most_rows_at(std::int64_t layer, std::int64_t group, std::size_t place) const;
  // Whether the ranks of the expert group have as many rows each. With a capacity they always do: what is missing is
  // zeros, which are computed like all else.
  bool even() const;
  LoadBalance balance() const;

 private:
  void add_recorded(const Scenario& scenario, std::int64_t capacity);

  std::int64_t first_ = 0, choices_ = 0, patterns_ = 1, groups_ = 1;
  std::int64_t sources_ = 1;        // ranks with the loads of LayerLoads each, whose rows come together
  std::vector<LayerLoads> layers_;  // [layer, pattern, group]
};

}  // namespace rehearse::plan
