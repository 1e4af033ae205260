// Collectives of ranks that are threads (execute/transport/local/local_communicator.cpp). The time alone is the
// measured one: its part at the smallest size is start-up (waking who slept), which nothing stretches; the rest is work
// of as many cores as there are participants, or as the host has, and competes with everything else that runs on them.
//
// A message is buffered: half of what its bytes take is the sender's copy into the mailbox, half the receiver's out of
// it, and the rest is what waking a receiver that came first takes.
//
// Groups of a size not measured take the most alike one's time. A member's own share of the work falls or grows with
// the number of members n, over min(n, cores) cores: all-reduce reads and writes n elements an element, so its work a
// byte is n; all-gather, broadcast and all-to-all n, reduce and reduce-scatter 1. A kind not measured takes
// all-reduce's.
#include "sim/collective/local_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/collective/transfer_table.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr double kOtherSize = 1.5;  // a group of another size may be off by this much; a judgement

// Passes over the full size that all members make together.
double passes(CollectiveKind kind, int ranks) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::reduce ? 1 : ranks;
}

class LocalModel final : public CollectiveModel {
 public:
  LocalModel(const cluster::Cluster& cluster, const cost::Calibration& calibration)
      : cores_(std::max(1, cluster.host_sharing().cores)) {
    for (const cost::CalibratedTransfer& t : calibration.transfers) {
      if (t.transport != cost::Transport::local) continue;
      (t.send ? send_ : groups_[{t.kind, t.ranks}]).add(t.bytes, t.time);
    }
    const bool any_group = !groups_.empty();
    if ((any_group && !send_.empty()) || cluster.devices() < 2) return;
    throw InputError(Diagnostic{calibration.file, 0, 0, "transfers",
                                any_group ? "holds no local 'send': messages between ranks have no time"
                                          : "holds no local collective: transfers between ranks have no time",
                                "`rehearse calibrate` measures both"});
  }

  bool buffered_messages() const override { return true; }

  TransferPlan collective(CollectiveKind kind, const std::vector<int>& members, Bytes bytes) const override {
    TransferPlan plan;
    plan.coverage = Coverage::exact;
    plan.algorithm = "local";
    if (members.size() <= 1 || bytes.count() == 0) return plan;
    const int ranks = static_cast<int>(members.size());
    plan.threads = std::min(ranks, cores_);
    const auto& [measured, table] = most_alike(kind, ranks);
    TransferTable::Answer answer = table.at(bytes.count());
    const double fixed = std::min(answer.seconds, table.fixed());
    double moving = answer.seconds - fixed;
    if (measured.second != ranks || measured.first != kind) {
      const auto each = [&](CollectiveKind k, int n) { return passes(k, n) / std::min(n, cores_); };
      moving *= each(kind, ranks) / each(measured.first, measured.second);
      answer.coverage = Coverage::extrapolated;
      answer.low /= kOtherSize, answer.high *= kOtherSize;
    }
    plan.coverage = answer.coverage, plan.low = answer.low, plan.high = answer.high;
    plan.startup = Time::from_seconds(fixed);
    plan.activities = {{{}, Time::from_seconds(moving)}};
    return plan;
  }

  TransferPlan send(int from, int to, Bytes bytes) const override {
    TransferPlan plan;
    plan.coverage = Coverage::exact;
    plan.algorithm = "local";
    if (from == to || bytes.count() == 0) return plan;
    const TransferTable::Answer answer = send_.at(bytes.count());
    const double fixed = std::min(answer.seconds, send_.fixed());
    plan.coverage = answer.coverage, plan.low = answer.low, plan.high = answer.high;
    plan.startup = Time::from_seconds(fixed);
    plan.copy_out = plan.copy_in = Time::from_seconds((answer.seconds - fixed) / 2);
    return plan;
  }

 private:
  using Key = std::pair<CollectiveKind, int>;

  const std::pair<const Key, TransferTable>& most_alike(CollectiveKind kind, int ranks) const {
    const auto far = [&](const Key& key) {
      const double other = key.first == kind ? 0 : key.first == CollectiveKind::all_reduce ? 100 : 200;
      return other + std::abs(std::log2(static_cast<double>(key.second) / ranks));
    };
    return *std::min_element(groups_.begin(), groups_.end(),
                             [&](const auto& a, const auto& b) { return far(a.first) < far(b.first); });
  }

  int cores_;
  std::map<Key, TransferTable> groups_;
  TransferTable send_;
};

}  // namespace

std::unique_ptr<CollectiveModel> make_local_model(const cluster::Cluster& cluster,
                                                  const cost::Calibration& calibration) {
  return std::make_unique<LocalModel>(cluster, calibration);
}

}  // namespace rehearse::collective
