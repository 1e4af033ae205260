#include "sim/plan/expert_loads.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "sim/base/check.h"
#include "sim/base/random.h"

namespace rehearse::plan {
namespace {

constexpr std::uint64_t kHotExperts = 0x6578706572747321;  // separates these draws from all others of the seed

// The rank that each expert has in the law.
std::vector<std::size_t> drawn_ranks(std::size_t experts, std::int64_t seed, std::int64_t layer,
                                     std::int64_t micro_batch) {
  std::vector<std::size_t> ranks(experts);
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  const std::uint64_t key =
      mix_key(mix_key(static_cast<std::uint64_t>(seed), kHotExperts), static_cast<std::uint64_t>(micro_batch));
  for (std::size_t i = experts; i > 1; --i) {
    const auto words = Philox::draw(key, i, static_cast<std::uint64_t>(layer));
    std::swap(ranks[i - 1], ranks[(std::uint64_t{words[0]} << 32 | words[1]) % i]);
  }
  return ranks;
}

void scale_to_one(std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
}

// No share above `most`; what is cut off goes to the others in proportion, until none is above.
void cut(std::vector<double>& shares, double most) {
  std::vector<char> full(shares.size(), 0);
  for (bool found = true; found;) {
    found = false;
    double rest = 1, sum = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (full[i])
        rest -= most;
      else
        sum += shares[i];
    }
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (full[i]) continue;
      shares[i] *= std::max(rest, 0.0) / sum;
      if (shares[i] <= most) continue;
      shares[i] = most;
      full[i] = found = true;
    }
  }
}

}  // namespace

std::vector<double> expert_shares(const model::Model& model, std::int64_t seed, std::int64_t layer,
                                  std::int64_t micro_batch) {
  const auto experts = static_cast<std::size_t>(model.experts);
  std::vector<double> shares(experts, 1);
  if (model.routing == model::Routing::table) {
    const std::int64_t each = model.routing_table_batches;
    const std::int64_t row = model.routing_table.size() == 1 ? 0 : model.expert_layers(layer) * each;
    shares = model.routing_table.at(static_cast<std::size_t>(row + micro_batch % each));
  } else if (model.routing == model::Routing::zipf) {
    const bool anew = model.routing_per == model::RoutingPer::micro_batch;
    const std::vector<std::size_t> ranks = drawn_ranks(experts, seed, layer, anew ? micro_batch : 0);
    for (std::size_t i = 0; i < experts; ++i)
      shares[i] = std::pow(static_cast<double>(ranks[i] + 1), -model.routing_exponent);
  }
  scale_to_one(shares);
  if (model.routing != model::Routing::uniform) cut(shares, 1 / static_cast<double>(model.experts_per_token));
  return shares;
}

double expected_experts(const std::vector<double>& shares, std::int64_t experts_per_token, std::int64_t tokens) {
  std::vector<double> ordered = shares;  // layers of one law are alike to the last bit
  std::sort(ordered.begin(), ordered.end());
  double sum = 0;
  for (const double share : ordered)
    sum += 1 - std::pow(std::max(0.0, 1 - static_cast<double>(experts_per_token) * share), static_cast<double>(tokens));
  return sum;
}

std::vector<std::int64_t> expert_rows(const std::vector<double>& shares, std::int64_t tokens, std::int64_t choices) {
  std::vector<std::int64_t> rows;
  std::vector<double> remainders;
  for (const double share : shares) {
    const double exact = share * static_cast<double>(choices);
    rows.push_back(std::min(tokens, static_cast<std::int64_t>(exact)));
    remainders.push_back(exact - static_cast<double>(rows.back()));
  }
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  std::int64_t left = choices - std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  REHEARSE_CHECK(left >= 0 && choices <= tokens * static_cast<std::int64_t>(rows.size()), "{} of {} choices too many",
                 -left, choices);
  while (left > 0)
    for (const std::size_t expert : order) {
      if (left == 0 || rows[expert] == tokens) continue;
      ++rows[expert];
      --left;
    }
  return rows;
}

namespace {

std::int64_t patterns_of(const model::Model& m, std::int64_t micro_batches) {
  if (m.routing == model::Routing::table) return std::min(m.routing_table_batches, micro_batches);
  if (m.routing == model::Routing::recorded) return micro_batches;
  const bool anew = m.routing == model::Routing::zipf && m.routing_per == model::RoutingPer::micro_batch;
  return anew ? micro_batches : 1;
}

}  // namespace

ExpertLoads::ExpertLoads(const Scenario& scenario) {
  const Plan& p = scenario.plan;
  if (scenario.model.family != model::Family::moe) return;
  model::Model m = scenario.model;
  if (scenario.purpose == Purpose::perform) m.routing = model::Routing::uniform;
  first_ = m.dense_layers;
  const std::int64_t tokens =
      p.micro_batch * scenario.training.seq_len / p.context / (p.sequence_parallel && p.tensor > 1 ? p.tensor : 1);
  choices_ = tokens * m.experts_per_token;
  const std::int64_t capacity = m.capacity_factor > 0 ? m.expert_capacity(tokens) : 0, own = m.experts / p.expert;
  patterns_ = patterns_of(m, std::max<std::int64_t>(1, scenario.training.micro_batches(p)));
  if (m.routing == model::Routing::recorded) {
    add_recorded(scenario, capacity);
    return;
  }
  sources_ = p.expert;
  for (std::int64_t i = 0; i < (m.blocks() - first_) * patterns_; ++i) {
    LayerLoads& loads = layers_.emplace_back();
    const std::int64_t layer = first_ + i / patterns_;
    if (!m.has_experts(layer)) {  // model.experts_every: nobody asks for its loads
      loads.parts.assign(static_cast<std::size_t>(p.expert), 1);
      continue;
    }
    loads.rows = expert_rows(expert_shares(m, scenario.training.seed, layer, i % patterns_), tokens, choices_);
    loads.parts.assign(static_cast<std::size_t>(p.expert), 0);
    for (std::int64_t e = 0; e < m.experts; ++e) {
      const std::int64_t rows = loads.rows[static_cast<std::size_t>(e)];
      loads.parts[static_cast<std::size_t>(e / own)] += capacity > 0 ? capacity : rows;
      if (capacity > 0) loads.dropped += std::max<std::int64_t>(0, rows - capacity);
    }
  }
}

namespace {

// The ranks of an expert group, in its order: those of the first stage and the first tensor rank where these have the
// same tokens.
std::vector<int> members_of_group(const Plan& p, const RankGrid& grid, std::int64_t group) {
  Coordinates first{};
  first[static_cast<std::size_t>(Axis::data)] = static_cast<int>(group) % grid.size(Axis::data);
  first[static_cast<std::size_t>(Axis::replica)] = static_cast<int>(group) / grid.size(Axis::data);
  std::vector<Axis> axes{Axis::context, Axis::expert};
  if (p.whole_experts()) axes.push_back(Axis::tensor);
  return grid.members(grid.rank(first), axes);
}

// What a rank's tokens chose.
const std::vector<std::int64_t>& recorded_rows(const model::RecordedRouting& all, const RankGrid& grid, int rank,
                                               std::int64_t micro_batch, std::int64_t layer) {
  return all
      .of(micro_batch, layer, grid.position(rank, {Axis::expert, Axis::data, Axis::replica}),
          grid.coordinate(rank, Axis::context), grid.coordinate(rank, Axis::tensor))
      .rows;
}

// Choices beyond the capacity of the experts of each rank's tokens, of all ranks.
std::int64_t dropped_of_all(const model::RecordedRouting& all, std::int64_t capacity, std::int64_t micro_batch,
                            std::int64_t layer) {
  std::int64_t dropped = 0;
  for (std::int64_t data = 0; data < all.data(); ++data)
    for (std::int64_t context = 0; context < all.context(); ++context)
      for (std::int64_t tensor = 0; tensor < all.tensor(); ++tensor)
        for (const std::int64_t rows : all.of(micro_batch, layer, data, context, tensor).rows)
          dropped += std::max<std::int64_t>(0, rows - capacity);
  return dropped;
}

}  // namespace

void ExpertLoads::add_recorded(const Scenario& scenario, std::int64_t capacity) {
  const model::Model& m = scenario.model;
  const Plan& p = scenario.plan;
  const RankGrid grid = scenario.grid();
  const auto n = static_cast<std::size_t>(p.expert);
  const std::int64_t own = m.experts / p.expert;
  groups_ = p.expert > 1 ? grid.size(Axis::data) * grid.size(Axis::replica) : 1;
  // Also of ranks whose loads are those of others here: replicas of whole experts, tensor ranks with a capacity.
  const model::RecordedRouting& all = *m.recorded_routing;
  choices_ = choices_ * all.data() * all.context() * all.tensor() / groups_;
  for (std::int64_t i = 0; i < (m.blocks() - first_) * patterns_ * groups_; ++i) {
    LayerLoads& loads = layers_.emplace_back();
    const std::int64_t layer = first_ + i / groups_ / patterns_, micro_batch = i / groups_ % patterns_;
    if (capacity > 0 && i % groups_ == 0) loads.dropped = dropped_of_all(all, capacity, micro_batch, layer);
    const std::vector<int> members = members_of_group(p, grid, i % groups_);
    loads.rows.assign(static_cast<std::size_t>(m.experts), 0);
    loads.parts.assign(n, 0);
    if (capacity == 0) loads.sent.assign(n * n, 0);
    for (std::size_t from = 0; from < n; ++from) {
      const auto& rows = recorded_rows(*m.recorded_routing, grid, members[from], micro_batch, layer);
      for (std::int64_t e = 0; e < m.experts; ++e) {
        const std::int64_t chosen = rows[static_cast<std::size_t>(e)];
        const auto to = static_cast<std::size_t>(e / own);
        loads.rows[static_cast<std::size_t>(e)] += chosen;
        loads.parts[to] += capacity > 0 ? capacity : chosen;
        if (capacity == 0) loads.sent[from * n + to] += chosen;
      }
    }
  }
}

bool ExpertLoads::even() const {
  return std::all_of(layers_.begin(), layers_.end(), [](const LayerLoads& loads) {
    const auto alike = [](const std::vector<std::int64_t>& rows) {
      return std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) == rows.end();
    };
    return alike(loads.parts) && alike(loads.sent);
  });
}

bool ExpertLoads::vary() const {
  const auto turn = static_cast<std::size_t>(patterns_ * groups_);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (const LayerLoads& first = layers_[i - i % turn + i % static_cast<std::size_t>(groups_)];
        layers_[i].parts != first.parts || layers_[i].sent != first.sent)
      return true;
  return false;
}

std::int64_t ExpertLoads::most_rows_at(std::int64_t layer, std::int64_t group, std::size_t place) const {
  std::int64_t most = 0;
  for (std::int64_t pattern = 0; pattern < patterns_; ++pattern)
    most = std::max(most, rows_at(layer, pattern, group, place));
  return most;
}

LoadBalance ExpertLoads::balance() const {
  LoadBalance out;
  if (!any()) return out;
  double sum = 0, dropped = 0;
  std::int64_t routed = 0;
  out.imbalance = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::vector<std::int64_t>& parts = layers_[i].parts;
    if (layers_[i].rows.empty()) continue;
    ++routed;
    const auto all = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    const auto most = *std::max_element(parts.begin(), parts.end());
    const double imbalance = static_cast<double>(most) * static_cast<double>(parts.size()) / static_cast<double>(all);
    if (imbalance > out.imbalance)
      out.imbalance = imbalance, out.worst_layer = first_ + static_cast<std::int64_t>(i) / patterns_ / groups_;
    sum += imbalance;
    dropped += static_cast<double>(layers_[i].dropped);
  }
  const auto layers = static_cast<double>(routed);
  out.mean_imbalance = sum / layers;
  out.dropped = dropped / layers / static_cast<double>(choices_);
  return out;
}

}  // namespace rehearse::plan
