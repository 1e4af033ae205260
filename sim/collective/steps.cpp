// Agents, edges and stages of each algorithm; see steps.h.
#include "sim/collective/steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/check.h"
#include "sim/collective/rounds.h"

namespace rehearse::collective {
namespace {

using cluster::Cluster;
using program::CollectiveKind;
using Ids = std::vector<std::int32_t>;

class Builder {
 public:
  std::int32_t agent() {
    drafts_.emplace_back();
    return static_cast<std::int32_t>(drafts_.size() - 1);
  }
  Ids agents(std::size_t count) {
    Ids ids;
    for (std::size_t i = 0; i < count; ++i) ids.push_back(agent());
    return ids;
  }
  std::int32_t edge(int from, int to, std::int64_t bytes, std::int32_t receiver) {
    steps_.edges.push_back({from, to, std::max<std::int64_t>(1, bytes), receiver, {}});
    return static_cast<std::int32_t>(steps_.edges.size() - 1);
  }
  void stage(std::int32_t agent, Ids waits, Ids sends, std::int64_t repeat = 1) {
    if (repeat > 0) drafts_[static_cast<std::size_t>(agent)].push_back({std::move(waits), std::move(sends), repeat});
  }
  // Latencies of the longest chain add up; pipelines run side by side.
  void deepen(std::int64_t depth, double fill = 0) {
    steps_.depth = std::max(steps_.depth, depth);
    steps_.fill = std::max(steps_.fill, fill);
  }
  void concurrent() { steps_.concurrent = true; }

  Steps finish() {
    const auto append = [](Ids& all, const Ids& some) {
      Steps::Range range{static_cast<std::int32_t>(all.size()), 0};
      all.insert(all.end(), some.begin(), some.end());
      range.last = static_cast<std::int32_t>(all.size());
      return range;
    };
    for (const std::vector<Draft>& agent : drafts_) {
      steps_.first_stage.push_back(static_cast<std::int32_t>(steps_.stages.size()));
      for (const Draft& d : agent)
        steps_.stages.push_back({append(steps_.waits, d.waits), append(steps_.sends, d.sends), d.repeat});
    }
    steps_.first_stage.push_back(static_cast<std::int32_t>(steps_.stages.size()));
    return std::move(steps_);
  }

 private:
  struct Draft {
    Ids waits, sends;
    std::int64_t repeat;
  };
  Steps steps_;
  std::vector<std::vector<Draft>> drafts_;
};

std::int64_t part(std::int64_t bytes, std::int64_t parts) {
  return (bytes + parts - 1) / parts;
}

struct Way {
  int from, to;  // devices
};

// `count` messages round a closed ring; ways[i] leads from agents[i] to the next.
void ring(Builder& b, const Ids& agents, const std::vector<Way>& ways, std::int64_t count, std::int64_t message) {
  const std::size_t n = agents.size();
  Ids edges;
  for (std::size_t i = 0; i < n; ++i) edges.push_back(b.edge(ways[i].from, ways[i].to, message, agents[(i + 1) % n]));
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t out = edges[i], in = edges[(i + n - 1) % n];
    b.stage(agents[i], {}, {out});
    b.stage(agents[i], {in}, {out}, count - 1);
    b.stage(agents[i], {in}, {});
  }
}

// `chunks` messages down a line of agents, the first of which has them.
void line(Builder& b, const Ids& agents, const std::vector<Way>& ways, std::int64_t chunks, std::int64_t message) {
  Ids edges;
  for (std::size_t i = 0; i + 1 < agents.size(); ++i)
    edges.push_back(b.edge(ways[i].from, ways[i].to, message, agents[i + 1]));
  for (std::size_t i = 0; i < agents.size(); ++i)
    b.stage(agents[i], i > 0 ? Ids{edges[i - 1]} : Ids{}, i + 1 < agents.size() ? Ids{edges[i]} : Ids{}, chunks);
}

std::size_t node_size(const Group& group, std::size_t k) {
  return group.begins[k + 1] - group.begins[k];
}
int member(const Group& group, std::size_t node, std::size_t i) {
  return group.members[group.begins[node] + i % node_size(group, node)];
}

// Which way of channel c's ring (below) leads on from a device.
std::size_t place_in_ring(const Group& group, std::size_t c, int device) {
  std::size_t place = 0;
  for (std::size_t k = 0; k + 1 < group.begins.size(); ++k)
    for (std::size_t i = 0; i < node_size(group, k); ++i, ++place)
      if (member(group, k, c + i) == device) return place;
  REHEARSE_CHECK(false, "device {} is not in the group", device);
}
// The ways of channel c's ring as wire.h has them: through each node from its member c on, then over c's own NIC.
std::vector<Way> ring_ways(const Group& group, std::size_t c) {
  const std::size_t nodes = group.begins.size() - 1;
  std::vector<Way> ways;
  for (std::size_t k = 0; k < nodes; ++k) {
    for (std::size_t i = 0; i + 1 < node_size(group, k); ++i)
      ways.push_back({member(group, k, c + i), member(group, k, c + i + 1)});
    ways.push_back(nodes == 1 ? Way{member(group, k, c + node_size(group, k) - 1), member(group, k, c)}
                              : Way{member(group, k, c), member(group, (k + 1) % nodes, c)});
  }
  return ways;
}

std::size_t channels_of(const Group& group) {
  return group.place.nodes == 1 ? 1 : static_cast<std::size_t>(group.place.per_node);
}

void rings(Builder& b, const Group& group, CollectiveKind kind, std::int64_t bytes, std::int64_t chunk) {
  const std::size_t channels = channels_of(group), n = group.members.size();
  const auto ranks = static_cast<std::int64_t>(n);
  for (std::size_t c = 0; c < channels; ++c) {
    std::vector<Way> ways = ring_ways(group, c);
    const std::int64_t share = part(bytes, static_cast<std::int64_t>(channels));
    const Ids agents = b.agents(n);
    if (has_root(kind)) {  // a line from the root, or to it: without the way into it, or out of it
      const std::size_t first = place_in_ring(group, c, group.root) + (kind == CollectiveKind::reduce ? 1 : 0);
      std::rotate(ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(first), ways.end());
      const std::int64_t chunks = std::max<std::int64_t>(1, part(share, chunk));
      line(b, agents, ways, chunks, part(share, chunks));
      b.deepen(ranks - 1, static_cast<double>(ranks - 2) / static_cast<double>(chunks));
    } else {
      const std::int64_t count = (kind == CollectiveKind::all_reduce ? 2 : 1) * (ranks - 1);
      ring(b, agents, ways, count, part(share, ranks));
      b.deepen(count);
    }
  }
}

// NCCL's binary tree over n nodes (src/graph/trees.cc ncclGetBtree): the parent clears the lowest set bit and sets the
// next one, or only clears it where that is beyond n. Parent of node i, -1 for the root 0.
int tree_parent(int i, int n) {
  if (i == 0) return -1;
  int bit = 1;
  while ((i & bit) == 0) bit <<= 1;
  const int up = (i ^ bit) | (bit << 1);
  return up >= n ? i ^ bit : up;
}

// Of the two complementary trees (ncclGetDtree).
int dtree_parent(int i, int n, bool second) {
  if (!second) return tree_parent(i, n);
  if (n % 2 == 0) {
    const int up = tree_parent(n - 1 - i, n);
    return up < 0 ? -1 : n - 1 - up;
  }
  const int up = tree_parent((i - 1 + n) % n, n);
  return up < 0 ? -1 : (up + 1) % n;
}

// Parents of all ranks: chains inside nodes from member c on, whose heads form the tree over nodes.
std::vector<int> rank_parents(const Group& group, std::size_t c, bool second) {
  const auto nodes = static_cast<int>(group.begins.size()) - 1;
  std::vector<int> parent(group.members.size(), -1);
  for (int k = 0; k < nodes; ++k) {
    const auto node = static_cast<std::size_t>(k);
    const std::size_t size = node_size(group, node), begin = group.begins[node];
    for (std::size_t i = 1; i < size; ++i)
      parent[begin + (c + i) % size] = static_cast<int>(begin + (c + i - 1) % size);
    if (const int up = dtree_parent(k, nodes, second); up >= 0) {
      const auto above = static_cast<std::size_t>(up);
      parent[begin + c % size] = static_cast<int>(group.begins[above] + c % node_size(group, above));
    }
  }
  return parent;
}

// Reduction up and broadcast down one tree, chunk after chunk.
void one_tree(Builder& b, const Group& group, const std::vector<int>& parent, std::int64_t chunks,
              std::int64_t message) {
  const std::size_t n = parent.size();
  const Ids up = b.agents(n), down = b.agents(n);
  std::vector<Ids> from_children(n), to_children(n);
  Ids up_edge(n, -1), down_edge(n, -1);
  std::int64_t deepest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t depth = 0;
    for (int at = parent[i]; at >= 0; at = parent[static_cast<std::size_t>(at)]) ++depth;
    deepest = std::max(deepest, depth);
    if (parent[i] < 0) continue;
    const auto p = static_cast<std::size_t>(parent[i]);
    up_edge[i] = b.edge(group.members[i], group.members[p], message, up[p]);
    down_edge[i] = b.edge(group.members[p], group.members[i], message, down[i]);
    from_children[p].push_back(up_edge[i]);
    to_children[p].push_back(down_edge[i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const bool root = parent[i] < 0;
    b.stage(up[i], from_children[i], root ? to_children[i] : Ids{up_edge[i]}, chunks);
    if (!root) b.stage(down[i], {down_edge[i]}, to_children[i], chunks);
  }
  b.deepen(2 * deepest, static_cast<double>(2 * deepest - 1) / static_cast<double>(chunks));
}

void trees(Builder& b, const Group& group, std::int64_t bytes, std::int64_t chunk) {
  const std::size_t channels = channels_of(group);
  const std::int64_t half = part(bytes, 2 * static_cast<std::int64_t>(channels));
  const std::int64_t chunks = std::max<std::int64_t>(1, part(half, chunk));
  for (std::size_t c = 0; c < channels; ++c)
    for (const bool second : {false, true})
      one_tree(b, group, rank_parents(group, c, second), chunks, part(half, chunks));
}

// Round after round: an agent sends its messages of a round when those of the one before have come.
void in_order(Builder& b, const Group& group, const std::vector<Round>& rounds) {
  const std::size_t n = group.members.size();
  const Ids agents = b.agents(n);
  std::vector<Ids> pending(n);
  std::int64_t depth = 0;
  for (const Round& round : rounds) {
    std::vector<Ids> in(n), out(n);
    for (const Round::Message& m : round.messages) {
      const std::int32_t e = b.edge(group.members[m.from], group.members[m.to], m.bytes, agents[m.to]);
      out[m.from].push_back(e);
      in[m.to].push_back(e);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (out[i].size() > 1) b.concurrent();
      if (out[i].empty() && in[i].empty()) continue;
      b.stage(agents[i], std::move(pending[i]), out[i]);
      b.stage(agents[i], in[i], out[i], round.repeat - 1);
      pending[i] = std::move(in[i]);
    }
    depth += round.repeat;
  }
  for (std::size_t i = 0; i < n; ++i) b.stage(agents[i], std::move(pending[i]), {});
  b.deepen(depth);
}

// A message over rails goes in parts of NCCL's NVLink p2p chunk (512 KiB), so that a relay sends what has come while
// the rest is coming; in at most so many of them, which keeps the number of messages in bounds.
constexpr std::int64_t kMostParts = 16;

// Of the time that the busiest NIC needs, what goes by before it has anything to send: the first part of all local
// messages to the relay. Where ports are slower than NICs nothing: they have work from the beginning.
double rails_fill(const cluster::NodeView& view, std::int64_t local, std::int64_t nodes, std::int64_t parts) {
  if (view.port.per_s() == 0 || view.nic.per_s() == 0) return 0;
  const double port = static_cast<double>(local - 1) / static_cast<double>(view.port.per_s());
  const double nic = static_cast<double>(local * (nodes - 1)) / static_cast<double>(view.nic.per_s());
  return static_cast<double>(nodes) * port > nic ? 0 : port / static_cast<double>(parts) / nic;
}

// Rails: messages for member i of another node go to the local member i first, one a node after the other, and from
// there to all of that node's together (NCCL's PXN), part by part.
void over_rails(Builder& b, const Cluster& cluster, const Group& group, std::int64_t each, std::int64_t chunk) {
  const std::size_t nodes = group.begins.size() - 1, local = node_size(group, 0);
  const auto g = static_cast<std::int64_t>(local), m = static_cast<std::int64_t>(nodes);
  const std::int64_t parts = std::clamp<std::int64_t>(part(each, chunk), 1, kMostParts);
  const std::int64_t message = part(each, parts);
  const std::size_t n = group.members.size();
  const Ids senders = b.agents(n), relays = b.agents(n), receivers = b.agents(n);
  std::vector<Ids> to_relay(n), in(n), out(n);
  for (std::size_t k = 0; k < nodes; ++k)
    for (std::size_t i = 0; i < local; ++i) {
      const std::size_t at = group.begins[k] + i;
      for (std::size_t d = 1; d < local; ++d) {
        const std::size_t relay = group.begins[k] + (i + d) % local;
        const std::int32_t e = b.edge(group.members[at], group.members[relay], message, relays[relay]);
        out[at].push_back(e);
        to_relay[relay].push_back(e);
      }
    }
  for (std::size_t k = 0; k < nodes; ++k)
    for (std::size_t i = 0; i < local; ++i) {
      const std::size_t at = group.begins[k] + i;
      b.stage(senders[at], {}, out[at], m * parts);
      for (std::size_t d = 1; d < nodes; ++d) {
        const std::size_t to = group.begins[(k + d) % nodes] + i;
        const std::int32_t e = b.edge(group.members[at], group.members[to], g * message, receivers[to]);
        b.stage(relays[at], to_relay[at], {e}, parts);
        in[to].push_back(e);
      }
      b.stage(relays[at], to_relay[at], {}, parts);
    }
  for (std::size_t i = 0; i < n; ++i) b.stage(receivers[i], in[i], {}, parts);
  b.deepen(2, rails_fill(cluster.node_view(cluster.node_of(group.members.front())), g, m, parts));
  b.concurrent();
}

void all_to_all(Builder& b, const Cluster& cluster, const Group& group, std::int64_t bytes, std::int64_t chunk) {
  const std::int64_t each = part(bytes, group.place.ranks);
  bool rails = group.place.nodes > 1 && group.uniform;
  for (std::size_t k = 1; rails && k + 1 < group.begins.size(); ++k)
    for (std::size_t i = 0; i < node_size(group, 0); ++i)
      rails = rails && cluster.local_index(member(group, k, i)) == cluster.local_index(member(group, 0, i));
  if (rails && group.place.per_node > 1)
    over_rails(b, cluster, group, each, chunk);
  else
    in_order(b, group, rounds_of(group, CollectiveKind::all_to_all, nccl::Algorithm::direct, bytes));
}

}  // namespace

std::int64_t Steps::messages() const {
  std::int64_t sum = 0;
  for (const Stage& s : stages) sum += (s.sends.last - s.sends.first) * s.repeat;
  return sum;
}

bool has_steps(CollectiveKind kind, nccl::Algorithm algorithm) {
  const bool gathers = kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter;
  const bool reduces = kind == CollectiveKind::all_reduce;
  switch (algorithm) {
    case nccl::Algorithm::ring:
      return kind != CollectiveKind::all_to_all;
    case nccl::Algorithm::tree:
    case nccl::Algorithm::hierarchical:
      return reduces;
    case nccl::Algorithm::pat:
      return gathers;
    case nccl::Algorithm::direct:
      return !has_root(kind);
    case nccl::Algorithm::halving_doubling:
      return gathers || reduces;
    default:  // switches add up: there are no messages between ranks
      return false;
  }
}

Steps steps_of(const Cluster& cluster, const Group& group, CollectiveKind kind, nccl::Algorithm algorithm,
               std::int64_t bytes, std::int64_t chunk) {
  REHEARSE_CHECK(has_steps(kind, algorithm) && group.place.ranks > 1 && chunk > 0, "steps of algorithm {} for {}",
                 nccl::name_of(algorithm), static_cast<int>(kind));
  Builder b;
  if (algorithm == nccl::Algorithm::ring)
    rings(b, group, kind, bytes, chunk);
  else if (algorithm == nccl::Algorithm::tree)
    trees(b, group, bytes, chunk);
  else if (kind == CollectiveKind::all_to_all)
    all_to_all(b, cluster, group, bytes, chunk);
  else
    in_order(b, group, rounds_of(group, kind, algorithm, bytes));
  Steps steps = b.finish();
  set_times(steps, cluster, 1, false, Time());
  return steps;
}

void set_times(Steps& steps, const Cluster& cluster, double slower, bool inflate, Time latency) {
  steps.latency = latency;
  for (Steps::Edge& edge : steps.edges) {
    const cluster::Route route = cluster.route(edge.from, edge.to);
    edge.activity.uses.clear();
    Time longest = Time::from_ps(1);
    for (std::size_t i = 0; i < route.resources.size(); ++i) {
      const std::int64_t carried = route.carried(i, edge.bytes);
      const auto taken = std::max<std::int64_t>(1, std::llround(static_cast<double>(carried) * slower));
      const Bandwidth capacity = cluster.resources()[static_cast<std::size_t>(route.resources[i])].capacity;
      longest = std::max(longest, transfer_time(Bytes(taken), capacity));
      edge.activity.uses.push_back({route.resources[i], inflate ? taken : std::max<std::int64_t>(1, carried)});
    }
    std::sort(edge.activity.uses.begin(), edge.activity.uses.end(),
              [](const Use& a, const Use& b) { return a.resource < b.resource; });
    edge.activity.min_duration = longest;
  }
}

}  // namespace rehearse::collective
