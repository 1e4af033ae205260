// Builds activities edge by edge from the cluster's routes; see wire.h for the structures and what they leave out.
#include "sim/collective/wire.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::collective {
namespace {

using cluster::Cluster;
using program::CollectiveKind;

constexpr auto by_resource = [](const Use& a, const Use& b) { return a.resource < b.resource; };

// Adds up neighbouring entries of the same resource.
Activity added_up(std::vector<Use> uses) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (kept > 0 && uses[kept - 1].resource == uses[i].resource) {
      uses[kept - 1].bytes += uses[i].bytes;
    } else {
      uses[kept++] = uses[i];
    }
  }
  uses.resize(kept);
  return {std::move(uses), {}};
}

// A mesh's rings (Cluster::rings), each once in either direction; one carries parts / of of the bytes.
struct DirectedRing {
  std::vector<int> order;
  int parts, of;
};
std::vector<DirectedRing> directed(const std::vector<cluster::NodeRing>& rings) {
  int of = 0;
  for (const cluster::NodeRing& ring : rings) of += 2 * ring.parts;
  std::vector<DirectedRing> both;
  for (const cluster::NodeRing& ring : rings) {
    both.push_back({ring.order, ring.parts, of});
    both.push_back({{ring.order.rbegin(), ring.order.rend()}, ring.parts, of});
  }
  return both;
}

// Whether bytes go over the edge of a ring: what has a root goes down a line from it, or up one to it.
bool used(CollectiveKind kind, const Group& group, int from, int to) {
  return kind == CollectiveKind::broadcast ? to != group.root : kind != CollectiveKind::reduce || from != group.root;
}

Activity node_ring(const Cluster& cluster, const Group& group, std::int64_t edge, CollectiveKind kind) {
  std::vector<Use> uses;
  uses.reserve(2 * group.members.size());
  if (const std::vector<cluster::NodeRing> own = cluster.rings(group.members); !own.empty() && !has_root(kind)) {
    for (const DirectedRing& ring : directed(own))
      for (std::size_t i = 0; i < ring.order.size(); ++i)
        append_route(uses, cluster.route(ring.order[i], ring.order[(i + 1) % ring.order.size()]),
                     scaled_up(edge, ring.parts, ring.of));
    return merged(std::move(uses));
  }
  cluster::Route route;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const int to = group.members[(i + 1) % group.members.size()];
    if (!used(kind, group, group.members[i], to)) continue;
    cluster.find_route(group.members[i], to, route);
    append_route(uses, route, edge);
  }
  return merged(std::move(uses));
}

// An intra-node edge's resource, and the channel that does not use it: channel c goes c -> c+1 -> ... -> c-1 inside a
// node, where the last member hands over to the NIC of member c, beside it (GPUDirect).
struct IntraUse {
  cluster::ResourceId resource;
  std::size_t unused_by;
  int part = 1, of = 1;  // of a channel's bytes: those that go this way where a mesh's rings share them
};

// Of all nodes, sorted by resource: the same for every channel, so collected once.
std::vector<IntraUse> intra_uses(const Cluster& cluster, const Group& group, CollectiveKind kind) {
  std::vector<IntraUse> uses;
  uses.reserve(2 * group.members.size());
  cluster::Route route;
  for (std::size_t k = 0; k < group.nodes(); ++k) {
    const std::size_t begin = group.begins[k];
    const std::size_t count = group.begins[k + 1] - begin;
    if (count < 2) continue;
    const auto first = group.members.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::vector<int> here(first, first + static_cast<std::ptrdiff_t>(count));
    const std::vector<cluster::NodeRing> own = has_root(kind) ? std::vector<cluster::NodeRing>{} : cluster.rings(here);
    for (const DirectedRing& ring : directed(own))
      for (std::size_t i = 0; i < count; ++i)
        for (const cluster::ResourceId id : cluster.route(ring.order[i], ring.order[(i + 1) % count]).resources)
          uses.push_back({id, count, ring.parts, ring.of});
    for (std::size_t i = 0; own.empty() && i < count; ++i) {
      const std::size_t next = (i + 1) % count;
      if (!used(kind, group, group.members[begin + i], group.members[begin + next])) continue;
      cluster.find_route(group.members[begin + i], group.members[begin + next], route);
      for (const cluster::ResourceId id : route.resources) uses.push_back({id, next, 1, 1});
    }
  }
  std::sort(uses.begin(), uses.end(), [](const IntraUse& a, const IntraUse& b) { return a.resource < b.resource; });
  return uses;
}

std::vector<Activity> rings(const Cluster& cluster, const Group& group, EdgeBytes bytes, CollectiveKind kind) {
  const std::vector<IntraUse> intra = intra_uses(cluster, group, kind);
  const auto channels = static_cast<std::size_t>(group.place.per_node);
  const std::size_t nodes = group.nodes();
  const auto share = [channels](std::int64_t total, std::size_t c) {
    const auto n = static_cast<std::int64_t>(channels);
    return total / n + (static_cast<std::int64_t>(c) < total % n ? 1 : 0);
  };
  std::vector<Activity> activities;
  cluster::Route route;
  for (std::size_t c = 0; c < channels; ++c) {
    std::vector<Use> inter;
    inter.reserve(4 * nodes);
    for (std::size_t k = 0; k < nodes; ++k) {
      const int from = group.members[group.begins[k] + c];
      const int to = group.members[group.begins[(k + 1) % nodes] + c];
      if (!used(kind, group, from, to)) continue;
      cluster.find_route(from, to, route);
      append_route(inter, route, share(bytes.inter, c));
    }
    Activity activity = merged(std::move(inter));
    const std::size_t from_nodes = activity.uses.size();
    activity.uses.reserve(from_nodes + intra.size());
    const std::int64_t each = share(bytes.intra, c);
    for (const IntraUse& use : intra)
      if (use.unused_by != c && each > 0) activity.uses.push_back({use.resource, scaled_up(each, use.part, use.of)});
    // Two sorted runs. NVLink ports and NICs are different resources; PCIe lanes may be in both.
    std::inplace_merge(activity.uses.begin(), activity.uses.begin() + static_cast<std::ptrdiff_t>(from_nodes),
                       activity.uses.end(), by_resource);
    activities.push_back(added_up(std::move(activity.uses)));
  }
  return activities;
}

// What each member of a group gets from each other one, or on the way back sends to each, in the group's order; or a
// row of these for each member, in bytes of the way that is gone.
struct ExchangeParts {
  std::vector<std::int64_t> of;
  bool back = false;
  std::size_t senders = 0;  // with a row for each: how many
  std::int64_t bytes(std::size_t from, std::size_t to) const {
    return senders > 0 ? of[from * senders + to] : of[back ? from : to];
  }
};

// What the members [begin, end) of a node, which send others than each other, send the rest of the group.
void append_own_exchange(std::vector<Use>& uses, const Cluster& cluster, const Group& group, std::size_t begin,
                         std::size_t end, const ExchangeParts& parts) {
  std::vector<std::size_t> on_rail(static_cast<std::size_t>(cluster.devices_per_node()), end);
  for (std::size_t i = begin; i < end; ++i)
    on_rail[static_cast<std::size_t>(cluster.local_index(group.members[i]))] = i;
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> pairs;
  for (std::size_t i = begin; i < end; ++i)
    for (std::size_t j = 0; j < group.members.size(); ++j) {
      const bool here = j >= begin && j < end;
      const std::size_t relay = here ? end : on_rail[static_cast<std::size_t>(cluster.local_index(group.members[j]))];
      if (relay < end && relay != i) pairs[{i, relay}] += parts.bytes(i, j);
      if (i != j) pairs[{relay < end ? relay : i, j}] += parts.bytes(i, j);
    }
  for (const auto& [pair, bytes] : pairs)
    append_route(uses, cluster.route(group.members[pair.first], group.members[pair.second]), bytes);
}

// What the members of node k send to the rest of the group.
void append_exchange(std::vector<Use>& uses, const Cluster& cluster, const Group& group, std::size_t k,
                     const ExchangeParts& parts) {
  const std::size_t begin = group.begins[k];
  const std::size_t end = group.begins[k + 1];
  if (parts.senders > 0) return append_own_exchange(uses, cluster, group, begin, end, parts);
  const auto local = static_cast<std::int64_t>(end - begin);
  const auto sum = [&](std::size_t first, std::size_t last) {
    return std::accumulate(parts.of.begin() + static_cast<std::ptrdiff_t>(first),
                           parts.of.begin() + static_cast<std::ptrdiff_t>(last), std::int64_t{0});
  };
  const std::int64_t of_node = sum(begin, end);
  const int rails = cluster.devices_per_node();
  // Of each local member that forwards for others: how many messages of each of them, and their bytes.
  std::vector<std::int64_t> relayed(end - begin, 0), relayed_bytes(end - begin, 0);
  std::vector<std::size_t> on_rail(static_cast<std::size_t>(rails), end);
  for (std::size_t i = begin; i < end; ++i)
    on_rail[static_cast<std::size_t>(cluster.local_index(group.members[i]))] = i;
  for (std::size_t j = 0; j < group.members.size(); ++j) {
    if (j >= begin && j < end) continue;
    const std::size_t relay = on_rail[static_cast<std::size_t>(cluster.local_index(group.members[j]))];
    if (relay < end) {
      append_route(uses, cluster.route(group.members[relay], group.members[j]),
                   parts.back ? of_node : local * parts.of[j]);
      ++relayed[relay - begin];
      relayed_bytes[relay - begin] += parts.of[j];
    } else {
      for (std::size_t i = begin; i < end; ++i)
        append_route(uses, cluster.route(group.members[i], group.members[j]), parts.bytes(i, j));
    }
  }
  for (std::size_t i = begin; i < end; ++i)
    for (std::size_t j = begin; j < end; ++j) {
      if (i == j) continue;
      const std::int64_t forwarded = parts.back ? parts.of[i] * relayed[j - begin] : relayed_bytes[j - begin];
      append_route(uses, cluster.route(group.members[i], group.members[j]), parts.bytes(i, j) + forwarded);
    }
}

Activity exchange_of(const Cluster& cluster, const Group& group, const ExchangeParts& parts) {
  std::vector<Use> uses;
  for (std::size_t k = 0; k < group.nodes(); ++k) append_exchange(uses, cluster, group, k, parts);
  return merged(std::move(uses));
}

// The dimensions of a torus that the members fill, one on each node; none unless they are whole.
void place_on_torus(const Cluster& cluster, Group& group) {
  const std::vector<int> sizes = cluster.torus();
  if (sizes.empty() || group.place.nodes < 2 || group.place.per_node != 1 || !group.place.uniform) return;
  for (const int member : group.members) group.routers.push_back(cluster.torus_router(cluster.node_of(member)));
  std::int64_t filled = 1;
  int stride = 1;
  bool whole = true;
  for (const int size : sizes) {
    std::set<int> seen;
    for (const int router : group.routers) seen.insert(router / stride % size);
    if (seen.size() > 1) {
      whole = whole && static_cast<int>(seen.size()) == size;
      group.torus.push_back({size, stride});
      filled *= size;
    }
    stride *= size;
  }
  group.place.torus = whole && filled == group.place.ranks;
}

}  // namespace

void append_route(std::vector<Use>& uses, const cluster::Route& route, std::int64_t bytes) {
  if (bytes == 0) return;
  for (std::size_t i = 0; i < route.resources.size(); ++i)
    uses.push_back({route.resources[i], route.carried(i, bytes)});
}

Activity merged(std::vector<Use> uses) {
  std::sort(uses.begin(), uses.end(), by_resource);
  return added_up(std::move(uses));
}

Group group_of(const Cluster& cluster, const std::vector<int>& members) {
  REHEARSE_CHECK(!members.empty(), "a collective without members");
  Group group;
  group.members = members;
  group.root = members.front();
  const auto by_node = [&](int a, int b) {
    const int node = cluster.node_of(a), other = cluster.node_of(b);
    return node != other ? node < other : a < b;
  };
  if (!std::is_sorted(group.members.begin(), group.members.end(), by_node))
    std::sort(group.members.begin(), group.members.end(), by_node);
  REHEARSE_CHECK(std::adjacent_find(group.members.begin(), group.members.end()) == group.members.end(),
                 "a device is twice in a group");
  for (std::size_t i = 0; i < group.members.size(); ++i)
    if (i == 0 || cluster.node_of(group.members[i]) != cluster.node_of(group.members[i - 1])) group.begins.push_back(i);
  group.begins.push_back(group.members.size());
  group.place.ranks = static_cast<int>(members.size());
  group.place.nodes = static_cast<int>(group.begins.size()) - 1;
  group.place.per_node = group.place.ranks;
  for (std::size_t k = 0; k < group.nodes(); ++k) {
    const auto count = static_cast<int>(group.begins[k + 1] - group.begins[k]);
    if (k > 0 && count != group.place.per_node) group.place.uniform = false;
    group.place.per_node = std::min(group.place.per_node, count);
  }
  place_on_torus(cluster, group);
  return group;
}

double wire_factor(CollectiveKind kind, int ranks) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2.0 * (ranks - 1) / ranks;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return (ranks - 1.0) / ranks;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return 1;
  }
  return 1;
}

std::int64_t wire_bytes(CollectiveKind kind, int ranks, std::int64_t bytes) {
  if (has_root(kind)) return bytes;
  return scaled_up(bytes, (kind == CollectiveKind::all_reduce ? 2 : 1) * (std::int64_t{ranks} - 1), ranks);
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t scaled_up(std::int64_t a, std::int64_t b, std::int64_t c) {
  if (b == c) return a;
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>((Wide{a} * b + c - 1) / c);
}

std::int64_t double_tree_bytes(int nodes, std::int64_t bytes) {
  return scaled_up(bytes, 2 * (nodes - 1), nodes);
}

std::vector<Activity> ring_activities(const Cluster& cluster, const Group& group, CollectiveKind kind,
                                      EdgeBytes bytes) {
  if (group.place.nodes == 1) return {node_ring(cluster, group, bytes.intra, kind)};
  return rings(cluster, group, bytes, kind);
}

Activity exchange_activity(const Cluster& cluster, const Group& group, std::int64_t bytes) {
  const std::int64_t each = scaled_up(bytes, 1, group.place.ranks);
  return exchange_of(cluster, group, {std::vector<std::int64_t>(group.members.size(), each)});
}

Activity uneven_exchange_activity(const Cluster& cluster, const Group& group, const std::vector<int>& members,
                                  const Exchange& what) {
  const std::size_t n = members.size();
  const bool rows = n > 1 && what.parts.size() == n * n;
  REHEARSE_CHECK(rows || what.parts.size() == n, "{} parts for {} members", what.parts.size(), n);
  std::map<int, std::size_t> place;
  for (std::size_t i = 0; i < n; ++i) place[members[i]] = i;
  ExchangeParts sorted;
  sorted.back = what.back;
  if (rows) sorted.senders = n;
  for (const int member : group.members) {
    const std::size_t i = place.at(member);
    if (!rows) sorted.of.push_back(what.parts[i].count());
    for (std::size_t to = 0; rows && to < n; ++to) {
      const std::size_t j = place.at(group.members[to]);
      sorted.of.push_back(what.parts[what.back ? j * n + i : i * n + j].count());
    }
  }
  return exchange_of(cluster, group, sorted);
}

Activity send_activity(const Cluster& cluster, int from, int to, std::int64_t bytes) {
  std::vector<Use> uses;
  append_route(uses, cluster.route(from, to), bytes);
  return merged(std::move(uses));
}

namespace {

// Times of bytes over resources, most of which carry as much as the one before.
class TransferTimes {
 public:
  Time of(std::int64_t bytes, Bandwidth bandwidth) {
    if (bytes != bytes_ || bandwidth != bandwidth_)
      bytes_ = bytes, bandwidth_ = bandwidth, time_ = transfer_time(Bytes(bytes), bandwidth);
    return time_;
  }

 private:
  std::int64_t bytes_ = -1;
  Bandwidth bandwidth_;
  Time time_;
};

}  // namespace

Bottleneck bottleneck(const Cluster& cluster, const std::vector<Activity>& activities) {
  const std::vector<cluster::Resource>& resources = cluster.resources();
  Bottleneck longest;
  TransferTimes links, ports;
  const auto look = [&](cluster::ResourceId id, std::int64_t bytes) {
    const cluster::Resource& resource = resources[static_cast<std::size_t>(id)];
    // What a port lacks of its nominal rate no measurement of sound ones knows of: it counts as a link does.
    const bool sound = resource.nominal.per_s() == 0;
    if (resource.kind == cluster::ResourceKind::link || !sound)
      longest.links = std::max(longest.links, links.of(bytes, resource.capacity));
    if (resource.kind != cluster::ResourceKind::link)
      longest.ports = std::max(longest.ports, ports.of(bytes, sound ? resource.capacity : resource.nominal));
  };
  if (activities.size() == 1) {  // which has each resource once
    for (const Use& use : activities.front().uses) look(use.resource, use.bytes);
    return longest;
  }
  constexpr auto kNone = std::numeric_limits<cluster::ResourceId>::max();
  std::vector<std::size_t> next(activities.size(), 0);
  std::vector<cluster::ResourceId> heads;  // of each activity the resource of its next use
  const auto head = [&](std::size_t a) {
    const std::vector<Use>& uses = activities[a].uses;
    return next[a] < uses.size() ? uses[next[a]].resource : kNone;
  };
  for (std::size_t a = 0; a < activities.size(); ++a) heads.push_back(head(a));
  while (true) {
    cluster::ResourceId id = kNone;
    for (const cluster::ResourceId one : heads) id = std::min(id, one);
    if (id == kNone) return longest;
    std::int64_t bytes = 0;
    for (std::size_t a = 0; a < heads.size(); ++a) {
      if (heads[a] != id) continue;
      bytes += activities[a].uses[next[a]++].bytes;
      heads[a] = head(a);
    }
    look(id, bytes);
  }
}

}  // namespace rehearse::collective
