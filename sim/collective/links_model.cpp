// Which bytes cross which links, as Gloo's algorithms send them: all-reduce, all-gather and reduce-scatter go round a
// ring in the group's order (2(n-1), n-1 and n-1 steps of 1/n each; Patarasuk and Yuan 2009, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations"), broadcast down a binomial tree whose rounds follow one another,
// all-to-all from each to each, a message straight. Each step waits for the longest way's latency. What other transfers
// leave of the links is the engine's to say; links that one transfer crosses several times carry the sum.
//
// What the library takes itself (system calls, copies, waking) is what the calibration measured over this machine's
// loopback, where the network is free: the part at the smallest size is added to each transfer, and the rest limits the
// rate where the links are faster. Messages are buffered. Leaves out: TCP's start, and the cores that sockets take.
#include "sim/collective/links_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/collective/transfer_table.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr std::pair<double, double> kWithoutLibrary{0.7, 2.0}, kWithLibrary{0.8, 1.25};  // judgements

class LinksModel final : public CollectiveModel {
 public:
  LinksModel(const cluster::Cluster& cluster, const std::optional<cost::Calibration>& calibration) : cluster_(cluster) {
    if (!calibration) return;
    for (const cost::CalibratedTransfer& t : calibration->transfers)
      if (t.transport == cost::Transport::gloo) (t.send ? send_ : groups_[{t.kind, t.ranks}]).add(t.bytes, t.time);
  }

  bool buffered_messages() const override { return true; }

  TransferPlan collective(CollectiveKind kind, const std::vector<int>& members, Bytes bytes) const override {
    const auto n = static_cast<std::int64_t>(members.size());
    if (n <= 1 || bytes.count() == 0) return nothing();
    Crossing crossing(cluster_);
    const std::int64_t part = (bytes.count() + n - 1) / n;
    switch (kind) {
      case CollectiveKind::all_reduce:
        ring(members, 2 * (n - 1), part, crossing);
        break;
      case CollectiveKind::all_gather:
      case CollectiveKind::reduce_scatter:
        ring(members, n - 1, part, crossing);
        break;
      case CollectiveKind::broadcast:
        tree(members, bytes.count(), crossing);
        break;
      case CollectiveKind::reduce:  // all to the root, which adds up
        for (const int from : members) crossing.add(from, members.front(), bytes.count());
        crossing.end_of_round(1);
        break;
      case CollectiveKind::all_to_all:
        for (const int from : members)
          for (const int to : members) crossing.add(from, to, part);
        crossing.end_of_round(n - 1);
        break;
    }
    const TransferTable* table = nullptr;
    if (const auto found = groups_.find({kind, static_cast<int>(n)}); found != groups_.end()) table = &found->second;
    return plan_of(crossing, table, bytes,
                   kind == CollectiveKind::broadcast ? "tree"
                   : kind == CollectiveKind::reduce  ? "direct"
                                                     : "ring");
  }

  TransferPlan send(int from, int to, Bytes bytes) const override {
    if (from == to || bytes.count() == 0) return nothing();
    Crossing crossing(cluster_);
    crossing.add(from, to, bytes.count());
    crossing.end_of_round(1);
    return plan_of(crossing, send_.empty() ? nullptr : &send_, bytes, "direct");
  }

 private:
  // What has crossed each link, round after round, and how long the rounds take on links of their own.
  class Crossing {
   public:
    explicit Crossing(const cluster::Cluster& cluster) : cluster_(cluster) {}
    void add(int from, int to, std::int64_t bytes) {
      if (from == to) return;
      const cluster::Route route = cluster_.route(from, to);
      for (std::size_t i = 0; i < route.resources.size(); ++i) round_[route.resources[i]] += route.carried(i, bytes);
      longest_ = std::max(longest_, route.latency);
    }
    // The round is over; it consisted of `steps` that each wait for what came over the longest way.
    void end_of_round(std::int64_t steps) {
      Time slowest;
      for (const auto& [link, bytes] : round_) {
        const Bandwidth capacity = cluster_.resources()[static_cast<std::size_t>(link)].capacity;
        slowest =
            std::max(slowest, Time::from_seconds(static_cast<double>(bytes) / static_cast<double>(capacity.per_s())));
        total_[link] += bytes;
      }
      moving_ += slowest;
      latency_ += longest_ * steps;
      round_.clear();
      longest_ = Time();
    }
    Time moving() const { return moving_; }
    Time latency() const { return latency_; }
    std::vector<Use> uses() const {
      std::vector<Use> uses;
      for (const auto& [link, bytes] : total_) uses.push_back({link, bytes});
      return uses;
    }

   private:
    const cluster::Cluster& cluster_;
    std::map<cluster::ResourceId, std::int64_t> round_, total_;
    Time longest_, moving_, latency_;
  };

  static TransferPlan nothing() {
    TransferPlan plan;
    plan.coverage = Coverage::exact;
    plan.algorithm = "local";
    return plan;
  }

  static void ring(const std::vector<int>& members, std::int64_t steps, std::int64_t part, Crossing& crossing) {
    for (std::size_t i = 0; i < members.size(); ++i)
      crossing.add(members[i], members[(i + 1) % members.size()], steps * part);
    crossing.end_of_round(steps);
  }

  // In round k whoever has it sends it to the member 2^k further on.
  static void tree(const std::vector<int>& members, std::int64_t bytes, Crossing& crossing) {
    for (std::size_t have = 1; have < members.size(); have *= 2) {
      for (std::size_t i = 0; i < have && i + have < members.size(); ++i)
        crossing.add(members[i], members[i + have], bytes);
      crossing.end_of_round(1);
    }
  }

  static TransferPlan plan_of(const Crossing& crossing, const TransferTable* library, Bytes bytes,
                              const char* algorithm) {
    TransferPlan plan;
    plan.startup = crossing.latency();
    Time moving = crossing.moving();
    auto interval = kWithoutLibrary;
    if (library != nullptr) {
      const double seconds = library->at(bytes.count()).seconds, fixed = std::min(seconds, library->fixed());
      plan.startup += Time::from_seconds(fixed);
      moving = std::max(moving, Time::from_seconds(seconds - fixed));
      plan.coverage = Coverage::interpolated;
      interval = kWithLibrary;
    }
    plan.low = interval.first, plan.high = interval.second;
    plan.activities = {{crossing.uses(), moving}};
    plan.algorithm = algorithm;
    return plan;
  }

  const cluster::Cluster& cluster_;
  std::map<std::pair<CollectiveKind, int>, TransferTable> groups_;
  TransferTable send_;
};

}  // namespace

std::unique_ptr<CollectiveModel> make_links_model(const cluster::Cluster& cluster,
                                                  const std::optional<cost::Calibration>& calibration) {
  return std::make_unique<LinksModel>(cluster, calibration);
}

}  // namespace rehearse::collective
