// See faults.h.
#include "sim/cluster/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::cluster {
namespace {

constexpr std::int64_t kLeft = 20;  // 1 / kLeft of a capacity stays when others take all

class Adjusted final : public Cluster {
 public:
  Adjusted(std::unique_ptr<Cluster> whole, std::vector<int> placement)
      : whole_(std::move(whole)), placement_(std::move(placement)), resources_(whole_->resources()) {
    std::map<int, std::vector<int>> used;
    for (std::size_t r = 0; r < placement_.size(); ++r)
      used[whole_->node_of(placement_[r])].push_back(static_cast<int>(r));
    node_of_.resize(placement_.size());
    for (auto& [node, ranks] : used) {
      for (const int r : ranks) node_of_[static_cast<std::size_t>(r)] = static_cast<int>(nodes_.size());
      nodes_.emplace_back(node, std::move(ranks));
    }
  }
  const std::string& name() const override { return whole_->name(); }
  const std::string& device_name() const override { return whole_->device_name(); }
  int devices() const override { return static_cast<int>(placement_.size()); }
  int devices_per_node() const override { return whole_->devices_per_node(); }
  int nodes() const override { return static_cast<int>(nodes_.size()); }
  int node_of(int device) const override { return node_of_.at(static_cast<std::size_t>(device)); }
  std::vector<int> devices_of(int node) const override { return nodes_.at(static_cast<std::size_t>(node)).second; }
  NodeView node_view(int node) const override {
    NodeView view = whole_->node_view(nodes_.at(static_cast<std::size_t>(node)).first);
    view.devices = static_cast<int>(nodes_[static_cast<std::size_t>(node)].second.size());
    return view;
  }
  int local_index(int device) const override { return whole_->local_index(at(device)); }
  int rail_of(int device) const override { return whole_->rail_of(at(device)); }
  const std::vector<Resource>& resources() const override { return resources_; }
  Route route(int from, int to) const override { return whole_->route(at(from), at(to)); }
  Route route(int from, int to, int channel) const override { return whole_->route(at(from), at(to), channel); }
  HostSharing host_sharing() const override { return whole_->host_sharing(); }
  bool network_adds_up() const override { return whole_->network_adds_up(); }
  Bytes nvls_tree_chunk() const override { return whole_->nvls_tree_chunk(); }
  std::vector<int> torus() const override { return whole_->torus(); }
  int torus_router(int node) const override {
    return whole_->torus_router(nodes_.at(static_cast<std::size_t>(node)).first);
  }
  std::vector<Resource>& changed() { return resources_; }
  const Cluster& whole() const { return *whole_; }

 private:
  int at(int device) const { return placement_.at(static_cast<std::size_t>(device)); }
  std::unique_ptr<Cluster> whole_;
  std::vector<int> placement_;
  std::vector<Resource> resources_;
  std::vector<int> node_of_;
  std::vector<std::pair<int, std::vector<int>>> nodes_;  // used nodes, their number in the whole and their ranks
};

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  std::size_t p = 0, n = 0, star = std::string::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

void degrade(std::vector<Resource>& resources, const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    if (fault.missing) continue;
    for (Resource& r : resources) {
      if (!matches(fault.pattern, r.name)) continue;
      fault.used = true;
      const auto before = r.capacity;
      if (fault.bandwidth) r.capacity = std::min(r.capacity, *fault.bandwidth);
      r.capacity = Bandwidth(
          std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(r.capacity.per_s()) * fault.share)));
      if (r.nominal.per_s() == 0 && r.capacity < before) r.nominal = before;
    }
  }
}

void take(std::vector<Resource>& resources, const Route& route, Bandwidth rate) {
  for (std::size_t i = 0; i < route.resources.size(); ++i) {
    Resource& r = resources.at(static_cast<std::size_t>(route.resources[i]));
    const Bandwidth before = r.capacity, nominal = r.nominal.per_s() == 0 ? before : r.nominal;
    const std::int64_t left = before.per_s() - route.carried(i, rate.per_s());
    r.capacity = Bandwidth(std::min(before.per_s(), std::max(left, nominal.per_s() / kLeft)));
    if (r.capacity < before) r.nominal = nominal;
  }
}

void report_unused(const std::vector<Fault>& faults, Diagnostics& diagnostics) {
  for (const Fault& fault : faults)
    if (!fault.used)
      diagnostics.add(
          {fault.file, fault.line, fault.column, fault.path, fmt::format("no link is called '{}'", fault.pattern),
           "names look like node0/nic0-out, node0/gpu0->nvswitch, unit0/leaf0->spine0; * stands for anything"});
}

std::unique_ptr<Cluster> make_adjusted(std::unique_ptr<Cluster> whole, const Conditions& conditions, int ranks) {
  std::vector<int> placement = conditions.placement;
  for (int r = static_cast<int>(placement.size()); r < ranks; ++r) placement.push_back(r);
  auto adjusted = std::make_unique<Adjusted>(std::move(whole), std::move(placement));
  degrade(adjusted->changed(), conditions.faults);
  for (const BackgroundFlow& flow : conditions.background)
    take(adjusted->changed(), adjusted->whole().route(flow.from, flow.to), flow.rate);
  return adjusted;
}

}  // namespace rehearse::cluster
