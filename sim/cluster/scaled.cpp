// See scaled.h. Forwards all that Cluster has: what is added there belongs here too. Only rates are its own.
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
  Scaled(const Cluster& original, const LinkScale& scale)
      : original_(original), scale_(scale), resources_(original.resources()) {
    for (Resource& r : resources_) r.capacity = times(r.capacity, on_network(r.kind) ? scale.network : scale.inside);
  }
  const std::string& name() const override { return original_.name(); }
  const std::string& device_name() const override { return original_.device_name(); }
  std::vector<std::string> device_names() const override { return original_.device_names(); }
  int kind_of(int device) const override { return original_.kind_of(device); }
  int devices() const override { return original_.devices(); }
  int devices_per_node() const override { return original_.devices_per_node(); }
  int nodes() const override { return original_.nodes(); }
  int node_of(int device) const override { return original_.node_of(device); }
  std::vector<int> devices_of(int node) const override { return original_.devices_of(node); }
  int local_index(int device) const override { return original_.local_index(device); }
  int rail_of(int device) const override { return original_.rail_of(device); }
  NodeView node_view(int node) const override {
    NodeView view = original_.node_view(node);
    if (view.port.per_s() > 0) view.port = times(view.port, scale_.inside);
    if (view.nic.per_s() > 0) view.nic = times(view.nic, scale_.network);
    return view;
  }
  const std::vector<Resource>& resources() const override { return resources_; }
  Route route(int from, int to) const override { return original_.route(from, to); }
  Route route(int from, int to, int channel) const override { return original_.route(from, to, channel); }
  std::vector<NodeRing> rings(const std::vector<int>& members) const override { return original_.rings(members); }
  HostSharing host_sharing() const override { return original_.host_sharing(); }
  bool network_adds_up() const override { return original_.network_adds_up(); }
  Bytes nvls_tree_chunk() const override { return original_.nvls_tree_chunk(); }
  bool gpudirect() const override { return original_.gpudirect(); }
  std::vector<int> torus() const override { return original_.torus(); }
  int torus_router(int node) const override { return original_.torus_router(node); }
  bool explicit_links() const override { return original_.explicit_links(); }

 private:
  const Cluster& original_;
  LinkScale scale_;
  std::vector<Resource> resources_;
};

}  // namespace

std::unique_ptr<Cluster> scaled(const Cluster& original, const LinkScale& scale) {
  return std::make_unique<Scaled>(original, scale);
}

}  // namespace rehearse::cluster
