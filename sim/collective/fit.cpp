// Assignment and least squares in turn; see fit.h.
#include "sim/collective/fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/check.h"
#include "sim/collective/wire.h"

namespace rehearse::collective {
namespace {

using nccl::Algorithm;
using nccl::Placement;
using nccl::Protocol;
using program::CollectiveKind;
using Choice = FittedSystem::Choice;
using Row = std::vector<double>;

constexpr int kRounds = 12, kSweeps = 3000;

// A step between nodes in steps inside one, by protocol: the constants of NCCL v2.28.9 src/graph/tuning.cc, NET over
// NVLink.
constexpr std::array<double, nccl::kProtocols> kRingNet = {2.7 / 0.6, 4.0 / 1.9, 14.0 / 3.4},
                                               kTreeNet = {5.0 / 0.6, 8.5 / 1.25, 14.0 / 4.0};

double hops(const Choice& choice, const Placement& place) {
  const auto& [algorithm, kind, protocol] = choice;
  const auto p = static_cast<std::size_t>(protocol);
  const double passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  const double net_steps = place.nodes > 1 ? passes * (place.nodes - 1) : 0;
  switch (algorithm) {
    case Algorithm::tree:
      return 2 * (place.per_node - 1 + std::floor(std::log2(place.nodes)) * kTreeNet[p]);
    case Algorithm::nvls:
      return 1;
    case Algorithm::nvls_tree:
      return 1 + 2 * std::floor(std::log2(place.nodes)) * kTreeNet[p];
    default:
      return passes * (place.ranks - 1) - net_steps + net_steps * kRingNet[p];
  }
}

// Where a size is looked for first: near NCCL's usual switching points.
Protocol usual_protocol(CollectiveKind kind, const Placement& place, double bytes) {
  if (kind == CollectiveKind::all_to_all)
    return bytes / place.ranks <= nccl::kPointToPointLlBytes ? Protocol::ll : Protocol::simple;
  if (bytes <= 131072 * std::max(1.0, place.ranks / 8.0)) return Protocol::ll;
  return bytes <= (8 << 20) ? Protocol::ll128 : Protocol::simple;
}

// Minimises |X w - 1|^2 over w >= 0 by coordinate descent; columns are scaled to length one first.
Row nonnegative_least_squares(std::vector<Row> x) {
  const std::size_t n = x.front().size();
  Row scale(n, 0), w(n, 0), target(n, 0);
  for (const Row& row : x)
    for (std::size_t j = 0; j < n; ++j) scale[j] += row[j] * row[j];
  for (double& s : scale) s = s > 0 ? std::sqrt(s) : 1;
  std::vector<Row> gram(n, Row(n, 0));
  for (Row& row : x) {
    for (std::size_t j = 0; j < n; ++j) row[j] /= scale[j];
    for (std::size_t j = 0; j < n; ++j) {
      target[j] += row[j];
      for (std::size_t k = 0; k < n; ++k) gram[j][k] += row[j] * row[k];
    }
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (std::size_t j = 0; j < n; ++j) {
      if (gram[j][j] <= 0) continue;
      double rest = target[j];
      for (std::size_t k = 0; k < n; ++k) rest -= gram[j][k] * w[k];
      w[j] = std::max(0.0, w[j] + rest / gram[j][j]);
    }
  for (std::size_t j = 0; j < n; ++j) w[j] /= scale[j];
  return w;
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

FittedSystem::FittedSystem(const std::vector<Observation>& observations, bool in_switch) : in_switch_(in_switch) {
  REHEARSE_CHECK(!observations.empty(), "no measured collective to fit");
  std::vector<Choice> assigned;
  for (const Observation& o : observations) {
    const Protocol usual = usual_protocol(o.kind, o.place, o.bytes);
    std::vector<Choice> choices = offered(o.kind, o.place);
    // The last that has the protocol: NVLS and its tree rather than rings for large sizes, trees for small ones.
    const auto found =
        std::find_if(choices.rbegin(), choices.rend(), [&](const Choice& c) { return std::get<2>(c) == usual; });
    const bool large = o.bytes >= (64 << 20);
    assigned.push_back(large && std::get<0>(*found) == Algorithm::tree ? Choice{Algorithm::ring, o.kind, usual}
                                                                       : *found);
  }
  FittedSystem best = *this;
  double least = -1;
  for (int round = 0; round < kRounds; ++round) {
    solve(observations, assigned);
    std::vector<double> ratios;
    std::vector<Choice> next;
    double sum = 0;
    for (const Observation& o : observations) {
      const auto [choice, us] = fastest(o.kind, o.place, o.bytes);
      next.push_back(choice);
      ratios.push_back(o.time_us / us);
      sum += std::abs(us / o.time_us - 1);
    }
    std::sort(ratios.begin(), ratios.end());
    low_ = std::min(1.0, quantile(ratios, 0.1)), high_ = std::max(1.0, quantile(ratios, 0.9));
    if (least < 0 || sum < least) {
      least = sum;
      best = *this;
    }
    if (next == assigned) break;
    assigned = std::move(next);
  }
  *this = best;
}

std::vector<Choice> FittedSystem::offered(CollectiveKind kind, const Placement& place) const {
  if (kind == CollectiveKind::all_to_all)
    return {{Algorithm::direct, kind, Protocol::ll}, {Algorithm::direct, kind, Protocol::simple}};
  std::vector<Choice> choices;
  const auto all = {Protocol::ll, Protocol::ll128, Protocol::simple};
  for (const Protocol p : all) choices.emplace_back(Algorithm::ring, kind, p);
  if (kind != CollectiveKind::all_reduce) return choices;
  if (place.nodes > 1)
    for (const Protocol p : all) choices.emplace_back(Algorithm::tree, kind, p);
  if (in_switch_ && place.nodes == 1) choices.emplace_back(Algorithm::nvls, kind, Protocol::simple);
  if (in_switch_ && place.nodes > 1) choices.emplace_back(Algorithm::nvls_tree, kind, Protocol::simple);
  return choices;
}

void FittedSystem::solve(const std::vector<Observation>& observations, const std::vector<Choice>& assigned) {
  std::map<Choice, std::size_t> column;
  for (const Choice& c : assigned) column.try_emplace(c, 0);
  std::size_t columns = 2;
  for (auto& [choice, first] : column) {
    first = columns;
    columns += 2;
  }
  std::vector<Row> x;
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const Observation& o = observations[i];
    Row row(columns, 0);
    const std::size_t c = column.at(assigned[i]);
    row[0] = 1 / o.time_us;
    row[1] = o.bytes / o.place.ranks / o.time_us;
    row[c] = hops(assigned[i], o.place) / o.time_us;
    row[c + 1] = o.bytes * wire_factor(o.kind, o.place.ranks) / o.time_us;
    x.push_back(std::move(row));
  }
  const Row w = nonnegative_least_squares(std::move(x));
  floor_us_ = w[0], copy_ = w[1];
  constants_.clear();
  for (const auto& [choice, first] : column) constants_[choice] = {w[first], w[first + 1]};
}

double FittedSystem::time(const Choice& choice, const Placement& place, double bytes) const {
  const Constants& c = constants_.at(choice);
  return floor_us_ + copy_ * bytes / place.ranks + c.latency_us * hops(choice, place) +
         c.us_per_byte * bytes * wire_factor(std::get<1>(choice), place.ranks);
}

std::pair<Choice, double> FittedSystem::fastest(CollectiveKind kind, const Placement& place, double bytes) const {
  std::pair<Choice, double> chosen{{}, -1};
  for (const Choice& choice : offered(kind, place)) {
    if (!constants_.contains(choice)) continue;
    const double us = time(choice, place, bytes);
    if (chosen.second < 0 || us < chosen.second) chosen = {choice, us};
  }
  REHEARSE_CHECK(chosen.second > 0, "no algorithm was fitted for collective {}", static_cast<int>(kind));
  return chosen;
}

bool FittedSystem::knows(CollectiveKind kind, const Placement& place) const {
  const std::vector<Choice> choices = offered(kind, place);
  return std::any_of(choices.begin(), choices.end(), [this](const Choice& c) { return constants_.contains(c); });
}

FittedSystem::Prediction FittedSystem::predict(CollectiveKind kind, const Placement& place, double bytes) const {
  const auto [choice, us] = fastest(kind, place, bytes);
  return {us, us * low_, us * high_, std::get<0>(choice), std::get<2>(choice)};
}

}  // namespace rehearse::collective
