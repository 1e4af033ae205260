// See refinement.h.
#include "sim/engine/folding/refinement.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "sim/base/interrupt.h"
#include "sim/base/random.h"

namespace rehearse::engine {

namespace {

std::uint64_t mixed(std::uint64_t a, std::int64_t b) {
  return mix_key(a, static_cast<std::uint64_t>(b));
}

// Numbers of hashes in the order in which they first come: a table of a power of 2 places, at most half of them taken,
// each hash at the first free one from where its low bits say.
class HashNumbers {
 public:
  std::int32_t of(std::uint64_t hash) {
    if (2 * hashes_.size() >= places_.size()) grow();
    std::int32_t& number = place(hash);
    if (number >= 0) return number;
    hashes_.push_back(hash);
    return number = static_cast<std::int32_t>(hashes_.size()) - 1;
  }
  std::size_t size() const { return hashes_.size(); }

 private:
  std::int32_t& place(std::uint64_t hash) {
    std::size_t at = hash & (places_.size() - 1);
    while (places_[at] >= 0 && hashes_[static_cast<std::size_t>(places_[at])] != hash)
      at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }
  void grow() {
    places_.assign(std::max<std::size_t>(64, 2 * places_.size()), -1);
    for (std::size_t i = 0; i < hashes_.size(); ++i) place(hashes_[i]) = static_cast<std::int32_t>(i);
  }

  std::vector<std::int32_t> places_;  // -1: free
  std::vector<std::uint64_t> hashes_;
};

// New colours by hashes, numbered by first appearance; returns how many.
std::size_t number(const std::vector<std::uint64_t>& hashes, Colours& colours) {
  HashNumbers numbers;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    colours[i] = i > 0 && hashes[i] == hashes[i - 1] ? colours[i - 1] : numbers.of(hashes[i]);
  return numbers.size();
}

// One round: every colour with those of its neighbours, whose order means nothing unless it is said to in the header.
std::size_t split(FoldGraph& graph) {
  const auto at = [](const Colours& colours, std::int32_t index) { return colours[static_cast<std::size_t>(index)]; };
  std::vector<std::uint64_t> of_group(graph.groups.size()), of_resource(graph.resources.size());
  for (std::size_t r = 0; r < of_resource.size(); ++r) of_resource[r] = mixed(0, graph.resources[r]);
  std::vector<std::uint64_t> hashes(graph.activities.size());
  for (std::size_t g = 0; g < of_group.size(); ++g)
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a) {
      std::uint64_t sum = mixed(static_cast<std::uint64_t>(graph.activities[a]), graph.groups[g]);
      for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
        sum += mixed(static_cast<std::uint64_t>(graph.uses[u].bytes), at(graph.resources, graph.uses[u].resource));
      hashes[a] = sum;
    }
  std::size_t colours = number(hashes, graph.activities);
  for (std::size_t g = 0; g < of_group.size(); ++g) {
    std::uint64_t sum = 0;
    for (std::size_t m = graph.first_member[g]; m < graph.first_member[g + 1]; ++m) {
      const std::uint64_t place = graph.channel[g] != 0 ? m - graph.first_member[g] + 1 : 0;
      sum += mixed(place, at(graph.ranks, graph.members[m]));
    }
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a) {
      sum += mixed(3, graph.activities[a]);
      for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
        of_resource[static_cast<std::size_t>(graph.uses[u].resource)] +=
            mixed(static_cast<std::uint64_t>(graph.uses[u].bytes), graph.activities[a]);
    }
    of_group[g] = mixed(sum, graph.groups[g]);
  }
  colours += number(of_group, graph.groups) + number(of_resource, graph.resources);
  hashes.assign(graph.ranks.size(), 0);
  for (std::size_t r = 0; r < hashes.size(); ++r) {
    auto hash = static_cast<std::uint64_t>(graph.ranks[r]);
    for (std::size_t s = graph.first_group[r]; s < graph.first_group[r + 1]; ++s)
      hash = mixed(hash, at(graph.groups, graph.rank_groups[s]));
    hashes[r] = hash;
  }
  return colours + number(hashes, graph.ranks);
}

// Whether signature(i), in any order, is that of the first of i's colour, for all. signature(i, add) adds its items.
template <class Item, class Signature>
bool same_in_classes(const Colours& colours, const Signature& signature) {
  struct OfFirst {
    std::vector<Item> items, sorted;
  };
  std::vector<OfFirst> of_first;
  std::vector<Item> own;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    if (static_cast<std::size_t>(colours[i]) == of_first.size()) {
      std::vector<Item>& items = of_first.emplace_back().items;
      signature(i, [&](const Item& item) { items.push_back(item); });
      continue;
    }
    OfFirst& first = of_first[static_cast<std::size_t>(colours[i])];
    std::size_t seen = 0;
    bool in_order = true;  // which is usual
    signature(i, [&](const Item& item) {
      in_order = in_order && seen < first.items.size() && first.items[seen] == item;
      ++seen;
    });
    if (in_order && seen == first.items.size()) continue;
    own.clear();
    signature(i, [&](const Item& item) { own.push_back(item); });
    if (first.sorted.empty()) {
      first.sorted = first.items;
      std::sort(first.sorted.begin(), first.sorted.end());
    }
    std::sort(own.begin(), own.end());
    if (own != first.sorted) return false;
  }
  return true;
}

}  // namespace

void refine(FoldGraph& graph, std::vector<FoldColours>* history) {
  if (history != nullptr) history->push_back(graph);
  for (std::size_t before = 0;;) {
    check_interrupt();
    const std::size_t colours = split(graph);
    if (history != nullptr) history->push_back(graph);
    if (colours == before) return;
    before = colours;
  }
}

// `facts`: the graph's colours before refinement.
bool equitable(const FoldGraph& graph, const FoldColours& facts) {
  using Item = std::tuple<std::int32_t, std::int64_t, std::int64_t>;  // what it is of, and twice what it says
  enum Of : std::int32_t { facts_of, member, activity, use };
  const auto at = [](const Colours& colours, std::int32_t index) { return colours[static_cast<std::size_t>(index)]; };
  // The uses of each resource, one resource after the other.
  std::vector<std::size_t> first_user(graph.resources.size() + 1, 0);
  for (const collective::Use& one : graph.uses) ++first_user[static_cast<std::size_t>(one.resource) + 1];
  std::partial_sum(first_user.begin(), first_user.end(), first_user.begin());
  struct User {
    std::int32_t activity;
    std::int64_t bytes;
  };
  std::vector<User> users(graph.uses.size());
  std::vector<std::size_t> next(first_user.begin(), first_user.end() - 1);
  std::vector<std::int32_t> group_of(graph.activities.size());
  for (std::size_t g = 0; g < graph.groups.size(); ++g)
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a) {
      group_of[a] = graph.groups[g];
      for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
        users[next[static_cast<std::size_t>(graph.uses[u].resource)]++] = {graph.activities[a], graph.uses[u].bytes};
    }
  const auto of_resource = [&](std::size_t r, const auto& add) {
    for (std::size_t u = first_user[r]; u < first_user[r + 1]; ++u) add(Item(use, users[u].activity, users[u].bytes));
    add(Item(facts_of, facts.resources[r], 0));
  };
  const auto of_activity = [&](std::size_t a, const auto& add) {
    add(Item(facts_of, facts.activities[a], group_of[a]));
    for (std::size_t u = graph.first_use[a]; u < graph.first_use[a + 1]; ++u)
      add(Item(use, graph.uses[u].bytes, at(graph.resources, graph.uses[u].resource)));
  };
  const auto of_group = [&](std::size_t g, const auto& add) {
    add(Item(facts_of, facts.groups[g], 0));
    for (std::size_t m = graph.first_member[g]; m < graph.first_member[g + 1]; ++m)
      add(Item(member, graph.channel[g] != 0 ? static_cast<std::int64_t>(m - graph.first_member[g]) : 0,
               at(graph.ranks, graph.members[m])));
    for (std::size_t a = graph.first_activity[g]; a < graph.first_activity[g + 1]; ++a)
      add(Item(activity, graph.activities[a], 0));
  };
  const auto of_rank = [&](std::size_t r, const auto& add) {
    add(Item(facts_of, facts.ranks[r], 0));
    for (std::size_t s = graph.first_group[r]; s < graph.first_group[r + 1]; ++s)
      add(Item(member, static_cast<std::int64_t>(s - graph.first_group[r]), at(graph.groups, graph.rank_groups[s])));
  };
  return same_in_classes<Item>(graph.resources, of_resource) && same_in_classes<Item>(graph.activities, of_activity) &&
         same_in_classes<Item>(graph.groups, of_group) && same_in_classes<Item>(graph.ranks, of_rank);
}

}  // namespace rehearse::engine
