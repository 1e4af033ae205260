#include "sim/cluster/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::cluster {
namespace {

std::string node_name(const LinksNumbers& n, int node) {
  const auto hosts = static_cast<int>(n.hosts.size());
  return node < hosts ? n.hosts[static_cast<std::size_t>(node)] : n.switches[static_cast<std::size_t>(node - hosts)];
}

}  // namespace

// Breadth first; a node is reached over the first link in the file that leads to it from the level before.
std::vector<int> reached_over(const LinksNumbers& n, int host) {
  const auto hosts = static_cast<int>(n.hosts.size());
  std::vector<int> over(n.hosts.size() + n.switches.size(), -1);
  std::vector<int> level{host};
  while (!level.empty()) {
    std::vector<int> next;
    for (std::size_t l = 0; l < n.links.size(); ++l)
      for (const auto& [from, to] : {std::pair(n.links[l].a, n.links[l].b), std::pair(n.links[l].b, n.links[l].a)}) {
        if (std::find(level.begin(), level.end(), from) == level.end()) continue;
        if (to == host || over[static_cast<std::size_t>(to)] >= 0) continue;
        over[static_cast<std::size_t>(to)] = static_cast<int>(l);
        if (to >= hosts) next.push_back(to);  // hosts forward nothing
      }
    level = std::move(next);
  }
  return over;
}

Links::Links(LinksNumbers numbers, int devices) : numbers_(std::move(numbers)), devices_(devices) {
  for (const LinkNumbers& link : numbers_.links) {
    const std::string a = node_name(numbers_, link.a), b = node_name(numbers_, link.b);
    resources_.push_back({fmt::format("{}->{}", a, b), ResourceKind::link, link.bandwidth});
    resources_.push_back({fmt::format("{}->{}", b, a), ResourceKind::link, link.bandwidth});
  }
  for (int host = 0; host < devices; ++host) over_.push_back(reached_over(numbers_, host));
}

Route Links::route(int from, int to) const {
  REHEARSE_CHECK(from != to && from >= 0 && to >= 0 && from < devices_ && to < devices_, "route from {} to {} of {}",
                 from, to, devices_);
  const std::vector<int>& over = over_[static_cast<std::size_t>(from)];
  Route route;
  route.crosses_nodes = true;
  for (int node = to; node != from;) {
    const int l = over[static_cast<std::size_t>(node)];
    REHEARSE_CHECK(l >= 0, "no way from host {} to {}", from, to);
    const LinkNumbers& link = numbers_.links[static_cast<std::size_t>(l)];
    route.resources.push_back(2 * l + (link.b == node ? 0 : 1));
    route.latency += link.latency;
    node = link.b == node ? link.a : link.b;
  }
  std::reverse(route.resources.begin(), route.resources.end());
  return route;
}

}  // namespace rehearse::cluster
