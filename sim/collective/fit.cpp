// Assignment and least squares in turn; see fit.h.
#include "sim/collective/fit.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::collective {
namespace {

using nccl::Placement;
using program::CollectiveKind;
using Choice = FittedSystem::Choice;
using Row = std::vector<double>;

constexpr int kRounds = 12, kSweeps = 3000;
constexpr double kLarge = 64 << 20;  // where a tree is not looked for first
constexpr double kLeastUs = 1e-3;    // no collective is done sooner, whatever constants of 0 say

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

FittedSystem::FittedSystem(const std::vector<Observation>& observations, const nccl::Machine& machine)
    : machine_(machine) {
  REHEARSE_CHECK(!observations.empty(), "no measured collective to fit");
  FittedSystem fastest = *this;
  as_nccl_chooses_ = true;
  if (const double nccl = settle(observations); fastest.settle(observations) < nccl) *this = fastest;
}

// Assigns sizes and solves until nothing moves; the sum of the relative errors that are left.
double FittedSystem::settle(const std::vector<Observation>& observations) {
  std::vector<Choice> assigned = first_guess(observations);
  FittedSystem best = *this;
  double least = -1;
  for (int round = 0; round < kRounds; ++round) {
    check_interrupt();
    solve(observations, assigned);
    std::vector<double> ratios;
    std::vector<Choice> next;
    double sum = 0;
    for (const Observation& o : observations) {
      const auto [choice, us] = chosen(o.kind, o.place, o.bytes);
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
  return least;
}

std::vector<Choice> FittedSystem::first_guess(const std::vector<Observation>& observations) const {
  std::vector<Choice> assigned;
  for (const Observation& o : observations) {
    if (as_nccl_chooses_) {
      const nccl::Estimate own = nccl::best(machine_, o.place, o.kind, o.bytes);
      assigned.emplace_back(own.algorithm, own.protocol);
      continue;
    }
    // The last that has the protocol: NVLS and its tree rather than rings for large sizes, trees for small ones.
    const Protocol usual = usual_protocol(o.kind, o.place, o.bytes);
    const std::vector<Choice> choices = offered(o.kind, o.place);
    const auto found =
        std::find_if(choices.rbegin(), choices.rend(), [&](const Choice& c) { return c.second == usual; });
    const bool large_tree = o.bytes >= kLarge && found->first == Algorithm::tree;
    assigned.push_back(large_tree ? Choice{Algorithm::ring, usual} : *found);
  }
  return assigned;
}

// All that NCCL offers there; but not its trees on one node, which are chains.
std::vector<Choice> FittedSystem::offered(CollectiveKind kind, const Placement& place) const {
  std::vector<Choice> choices;
  for (int a = 0; a < kAlgorithms; ++a)
    for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
      const auto algorithm = static_cast<Algorithm>(a);
      if (algorithm == Algorithm::tree && place.nodes == 1) continue;
      if (nccl::offers(machine_, place, kind, algorithm, protocol)) choices.emplace_back(algorithm, protocol);
    }
  return choices;
}

nccl::Estimate FittedSystem::model(const Choice& choice, CollectiveKind kind, const Placement& place,
                                   double bytes) const {
  if (kind == CollectiveKind::all_to_all) return nccl::all_to_all(machine_, place, bytes);
  return nccl::estimate(machine_, place, nccl::ring_channels(machine_, place), kind, choice.first, choice.second,
                        bytes);
}

void FittedSystem::solve(const std::vector<Observation>& observations, const std::vector<Choice>& assigned) {
  std::map<Choice, std::size_t> column;
  for (const Choice& c : assigned) column.try_emplace(c, 0);
  std::size_t columns = 1;
  for (auto& [choice, first] : column) {
    first = columns;
    columns += 2;
  }
  const bool copy_shows = std::any_of(observations.begin(), observations.end(), [&](const Observation& o) {
    return o.place.ranks != observations.front().place.ranks;
  });
  std::vector<Row> x;
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const Observation& o = observations[i];
    const nccl::Estimate own = model(assigned[i], o.kind, o.place, o.bytes);
    Row row(columns, 0);
    const std::size_t c = column.at(assigned[i]);
    if (copy_shows) row[0] = o.bytes / o.place.ranks / o.time_us;
    row[c] = own.latency_us / o.time_us;
    row[c + 1] = (own.time_us - own.latency_us) / o.time_us;
    x.push_back(std::move(row));
  }
  const Row w = nonnegative_least_squares(std::move(x));
  copy_ = w[0];
  constants_.clear();
  for (const auto& [choice, first] : column) constants_[choice] = {w[first], w[first + 1]};
}

double FittedSystem::time(const Choice& choice, CollectiveKind kind, const Placement& place, double bytes) const {
  const Constants& c = constants_.at(choice);
  const nccl::Estimate own = model(choice, kind, place, bytes);
  const double us =
      copy_ * bytes / place.ranks + c.latency * own.latency_us + c.per_byte * (own.time_us - own.latency_us);
  return std::max(us, kLeastUs);
}

std::pair<Choice, double> FittedSystem::chosen(CollectiveKind kind, const Placement& place, double bytes) const {
  if (as_nccl_chooses_) {
    const nccl::Estimate own = nccl::best(machine_, place, kind, bytes);
    const Choice choice{own.algorithm, own.protocol};
    if (constants_.contains(choice)) return {choice, time(choice, kind, place, bytes)};
  }
  std::pair<Choice, double> fastest{{}, -1};
  for (const Choice& choice : offered(kind, place)) {
    if (!constants_.contains(choice)) continue;
    const double us = time(choice, kind, place, bytes);
    if (fastest.second < 0 || us < fastest.second) fastest = {choice, us};
  }
  REHEARSE_CHECK(fastest.second >= kLeastUs, "no algorithm was fitted for collective {}", static_cast<int>(kind));
  return fastest;
}

bool FittedSystem::knows(CollectiveKind kind, const Placement& place) const {
  const std::vector<Choice> choices = offered(kind, place);
  return std::any_of(choices.begin(), choices.end(), [this](const Choice& c) { return constants_.contains(c); });
}

FittedSystem::Prediction FittedSystem::predict(CollectiveKind kind, const Placement& place, double bytes) const {
  const auto [choice, us] = chosen(kind, place, bytes);
  return {us, us * low_, us * high_, choice.first, choice.second};
}

}  // namespace rehearse::collective
