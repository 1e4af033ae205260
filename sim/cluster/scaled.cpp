// See scaled.h. Forwards what Cluster has; only capacities are its own.
#include "sim/cluster/scaled.h"

#include <algorithm>
#include <cmath>

namespace rehearse::cluster {
namespace {

bool on_network(ResourceKind kind) {
  return kind == ResourceKind::nic || kind == ResourceKind::link;
}

Bandwidth times(Bandwidth rate, double factor) {
  return Bandwidth(std::max<std::int64_t>(1, std::llround(static_cast<double>(rate.per_s()) * factor)));
}

class Scaled final : public Cluster {
 public:
  Scaled(const Cluster& original, const LinkScale& scale) : original_(original), resources_(original.resources()) {
    for (Resource& r : resources_) r.capacity = times(r.capacity, on_network(r.kind) ? scale.network : scale.inside);
  }
  const std::string& name() const override { return original_.name(); }
  const std::string& device_name() const override { return original_.device_name(); }
  int devices() const override { return original_.devices(); }
  int devices_per_node() const override { return original_.devices_per_node(); }
  const std::vector<Resource>& resources() const override { return resources_; }
  Route route(int from, int to) const override { return original_.route(from, to); }
  HostSharing host_sharing() const override { return original_.host_sharing(); }
  bool explicit_links() const override { return original_.explicit_links(); }

 private:
  const Cluster& original_;
  std::vector<Resource> resources_;
};

}  // namespace

std::unique_ptr<Cluster> scaled(const Cluster& original, const LinkScale& scale) {
  return std::make_unique<Scaled>(original, scale);
}

}  // namespace rehearse::cluster
