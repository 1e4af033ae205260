// Collectives in a cluster of several kinds of devices. A group whose devices are of one kind goes as it would in a
// cluster of these nodes alone, corrected by what was measured of that kind. One that crosses kinds goes at what the
// links give: NCCL's model, uncorrected, with the slowest port, NIC and latencies of the kinds in it, and the constants
// of the oldest, as NCCL tunes by the lowest compute capability of a communicator; LL128 only where all are of one kind
// or Hopper and later (NCCL, src/graph/tuning.cc, v2.28.9-1).
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "sim/collective/collective.h"
#include "sim/collective/measured_model.h"
#include "sim/collective/measurements.h"

namespace rehearse::collective {
namespace {

using Kinds = std::vector<int>;  // ascending

class MixedModel final : public CollectiveModel {
 public:
  MixedModel(const cluster::Cluster& cluster, std::vector<std::optional<MeasuredData>> data, Pins pins)
      : cluster_(cluster), data_(std::move(data)), pins_(std::move(pins)) {}

  TransferPlan collective(program::CollectiveKind kind, const std::vector<int>& members, Bytes bytes) const override {
    return of(members).collective(kind, members, bytes);
  }
  TransferPlan exchange(const std::vector<int>& members, const Exchange& what) const override {
    return of(members).exchange(members, what);
  }
  TransferPlan send(int from, int to, Bytes bytes) const override { return of({from, to}).send(from, to, bytes); }

 private:
  const CollectiveModel& of(const std::vector<int>& members) const {
    std::set<int> kinds;
    for (const int device : members) kinds.insert(cluster_.kind_of(device));
    const Kinds key(kinds.begin(), kinds.end());
    const std::lock_guard lock(mutex_);
    std::unique_ptr<CollectiveModel>& model = models_[key];
    if (!model) model = made(key);
    return *model;
  }

  std::unique_ptr<CollectiveModel> made(const Kinds& kinds) const {
    const Prior rates = prior_of(cluster_, kinds);
    if (kinds.size() == 1)
      return make_measured_model(cluster_, rates, data_[static_cast<std::size_t>(kinds.front())], pins_);
    return make_unmeasured_model(cluster_, across(rates, kinds), blocks_of(kinds), pins_);
  }

  // The library of all: NCCL if it is that of each.
  Prior across(Prior prior, const Kinds& kinds) const {
    const auto all = [&](auto&& holds) {
      return std::all_of(kinds.begin(), kinds.end(), [&](int k) {
        const std::optional<MeasuredData>& data = data_[static_cast<std::size_t>(k)];
        return data && holds(data->prior);
      });
    };
    prior.nccl = all([](const Prior& p) { return p.nccl; });
    if (!prior.nccl) return prior;
    const auto generation = [&](int k) { return data_[static_cast<std::size_t>(k)]->prior.machine.generation; };
    prior.machine.generation = generation(*oldest(kinds));
    prior.machine.pat = all([](const Prior& p) { return p.machine.pat; });
    const bool intel = all([](const Prior& p) { return p.machine.cpu == nccl::Cpu::intel; });
    prior.machine.cpu = intel ? nccl::Cpu::intel : nccl::Cpu::amd;
    prior.machine.ll128 = prior.machine.generation >= nccl::Generation::hopper ||
                          all([&](const Prior& p) { return p.machine.generation == prior.machine.generation; });
    return prior;
  }

  BlockLimits blocks_of(const Kinds& kinds) const {
    const std::optional<MeasuredData>& data = data_[static_cast<std::size_t>(*oldest(kinds))];
    return data ? data->blocks : BlockLimits();
  }

  // One whose data say nothing of its library is older than any.
  Kinds::const_iterator oldest(const Kinds& kinds) const {
    const auto age = [&](int k) {
      const std::optional<MeasuredData>& data = data_[static_cast<std::size_t>(k)];
      return data ? static_cast<int>(data->prior.machine.generation) : -1;
    };
    return std::min_element(kinds.begin(), kinds.end(), [&](int a, int b) { return age(a) < age(b); });
  }

  const cluster::Cluster& cluster_;
  std::vector<std::optional<MeasuredData>> data_;  // of each kind
  Pins pins_;
  mutable std::mutex mutex_;
  mutable std::map<Kinds, std::unique_ptr<CollectiveModel>> models_;
};

}  // namespace

std::unique_ptr<CollectiveModel> make_mixed_model(const cluster::Cluster& cluster, const std::vector<KindFiles>& kinds,
                                                  const Pins& pins) {
  std::vector<std::optional<MeasuredData>> data;
  for (const KindFiles& kind : kinds) {
    data.push_back(find_measured_data(kind.device_file));
    if (data.back())
      for (const std::string& file : kind.more) add_measured_rows(file, *data.back());
  }
  return std::make_unique<MixedModel>(cluster, std::move(data), pins);
}

}  // namespace rehearse::collective
