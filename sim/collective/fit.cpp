// Assignment and least squares in turn; see fit.h.
#include "sim/collective/fit.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/base/quantile.h"

namespace rehearse::collective {
namespace {

using nccl::Placement;
using program::CollectiveKind;
using Choice = FittedSystem::Choice;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Eigen::VectorXd;

constexpr int kRounds = 12, kSweeps = 3000;
constexpr double kSameTime = 1 + 1e-12;  // factor within which times differ by rounding alone
constexpr double kLarge = 64 << 20;      // where a tree is not looked for first
constexpr double kLeastUs = 1e-3;        // no collective is done sooner, whatever constants of 0 say

// Where a size is looked for first: near NCCL's usual switching points.
Protocol usual_protocol(CollectiveKind kind, const Placement& place, double bytes) {
  if (kind == CollectiveKind::all_to_all)
    return bytes / place.ranks <= nccl::kPointToPointLlBytes ? Protocol::ll : Protocol::simple;
  if (bytes <= 131072 * std::max(1.0, place.ranks / 8.0)) return Protocol::ll;
  return bytes <= (8 << 20) ? Protocol::ll128 : Protocol::simple;
}

// Minimises |X w - 1|^2 over w >= 0 by coordinate descent; columns are scaled to length one first.
VectorXd nonnegative_least_squares(Matrix x) {
  VectorXd scale = x.colwise().norm();
  for (double& s : scale)
    if (s == 0) s = 1;
  x.array().rowwise() /= scale.transpose().array();
  const Matrix gram = x.transpose() * x;
  const VectorXd target = x.colwise().sum();
  VectorXd w = VectorXd::Zero(x.cols());
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (Eigen::Index j = 0; j < w.size(); ++j)
      if (gram(j, j) > 0) w(j) = std::max(0.0, w(j) + (target(j) - gram.row(j).dot(w)) / gram(j, j));
  return w.cwiseQuotient(scale);
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
    low_ = std::min(1.0, at_rank(ratios, 0.1, Rank::nearest));
    high_ = std::max(1.0, at_rank(ratios, 0.9, Rank::nearest));
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
  struct Columns {
    Eigen::Index first = 0;            // least latency, then latency beyond it, then bytes
    double least_us = 0, most_us = 0;  // of NCCL's latencies
  };
  std::vector<nccl::Estimate> own(observations.size());
  std::map<Choice, Columns> column;
  for (std::size_t i = 0; i < observations.size(); ++i) {
    own[i] = model(assigned[i], observations[i].kind, observations[i].place, observations[i].bytes);
    const double us = own[i].latency_us;
    Columns& c = column.try_emplace(assigned[i], Columns{0, us, us}).first->second;
    c.least_us = std::min(c.least_us, us);
    c.most_us = std::max(c.most_us, us);
  }
  Eigen::Index columns = 1;
  for (auto& [choice, c] : column) {
    c.first = columns;
    columns += 3;
  }
  const bool copy_shows = std::any_of(observations.begin(), observations.end(), [&](const Observation& o) {
    return o.place.ranks != observations.front().place.ranks;
  });
  Matrix x = Matrix::Zero(static_cast<Eigen::Index>(observations.size()), columns);
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const Observation& o = observations[i];
    auto row = x.row(static_cast<Eigen::Index>(i));
    const Columns& c = column.at(assigned[i]);
    if (copy_shows) row(0) = o.bytes / o.place.ranks / o.time_us;
    row(c.first) = c.least_us / o.time_us;
    row(c.first + 1) = (own[i].latency_us - c.least_us) / o.time_us;
    row(c.first + 2) = (own[i].time_us - own[i].latency_us) / o.time_us;
  }
  const VectorXd w = nonnegative_least_squares(std::move(x));
  copy_ = w(0);
  constants_.clear();
  for (const auto& [choice, c] : column) {
    const bool hops_show = c.most_us > c.least_us;
    const double latency = w(hops_show ? c.first + 1 : c.first);
    constants_[choice] = {w(c.first) * c.least_us, c.least_us, latency, w(c.first + 2), hops_show};
  }
}

double FittedSystem::time(const Choice& choice, CollectiveKind kind, const Placement& place, double bytes) const {
  const Constants& c = constants_.at(choice);
  const nccl::Estimate own = model(choice, kind, place, bytes);
  const double latency = c.least_us + c.latency * (own.latency_us - c.reference_us);
  return std::max(copy_ * bytes / place.ranks + latency + c.per_byte * (own.time_us - own.latency_us), kLeastUs);
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
    // Of two that take the same time the later, which is the one for larger sizes.
    if (fastest.second < 0 || us <= fastest.second * kSameTime) fastest = {choice, us};
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
