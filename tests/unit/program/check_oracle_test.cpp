// The static check against plain executions of its definitions on random programs: every rank by itself instead of one
// a role, every path of happens-before instead of vector clocks.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::grid_view;
using testing::has;
using testing::RoleBuilder;
using testing::text_of;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937 engine_;
};

// Roles whose transfers match in number: each transfer is appended to all its participants, then neighbours change
// places, ops get streams, waits and host syncs at random. Operands are left out: who waits for whom does not depend on
// them.
Program random_ranks(Random& random, int stages) {
  Program p;
  p.micro_batches = 2;
  p.groups = {{"tensor", GroupKind::tensor, {Axis::tensor}, {}},
              {"world", GroupKind::world, {Axis::tensor, Axis::context, Axis::pipeline}, {}},
              {"ends", GroupKind::embedding, {Axis::pipeline}, {0, stages - 1}}};
  std::vector<std::vector<Op>> ops(static_cast<std::size_t>(stages));
  int count = 0;
  const auto append = [&](int stage, OpShape shape) {
    Op op;
    op.name = "op" + std::to_string(count++);
    op.shape = std::move(shape);
    ops[static_cast<std::size_t>(stage)].push_back(op);
  };
  for (int t = 1 + random.below(5); t > 0; --t) {
    const int kind = random.below(10);
    if (kind < 5) {
      const int from = random.below(stages), offset = random.chance(50) ? 1 : -1, channel = random.below(2);
      append(from, PointToPoint{{{true, Axis::pipeline, offset, channel, 8}}});
      append((from + offset + stages) % stages, PointToPoint{{{false, Axis::pipeline, -offset, channel, 8}}});
    } else if (kind < 7) {
      const int stage = random.below(stages);
      append(stage, PointToPoint{{{true, Axis::context, 1, 0, 8}}});
      append(stage, PointToPoint{{{false, Axis::context, -1, 0, 8}}});
    } else {
      const GroupId group = kind - 7;
      for (int s = 0; s < stages; ++s)
        if (group != 2 || s == 0 || s == stages - 1) append(s, Collective{CollectiveKind::all_reduce, group, 8});
    }
  }
  for (int s = 0; s < stages; ++s) {
    auto& list = ops[static_cast<std::size_t>(s)];
    for (int k = random.below(3); k > 0; --k) append(s, Elementwise{});
    if (random.chance(20)) append(s, HostSync{});
    for (std::size_t i = 0; i + 1 < list.size(); ++i)
      if (random.chance(40)) std::swap(list[i], list[i + 1]);
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {  // some neighbours become one group op
      auto* first = std::get_if<PointToPoint>(&list[i].shape);
      auto* second = std::get_if<PointToPoint>(&list[i + 1].shape);
      if (first == nullptr || second == nullptr || !random.chance(25)) continue;
      first->legs.insert(first->legs.end(), second->legs.begin(), second->legs.end());
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
    RoleBuilder b("stage" + std::to_string(s), s);
    for (int i = 0; i < 3; ++i) b.stream("s" + std::to_string(i));
    const BodyId body = b.body("body");
    for (Op& op : list) {
      op.stream = random.below(3);
      op.records = b.event("e" + op.name);
      b.role.bodies[0].ops.push_back(op);
    }
    for (Op& op : b.role.bodies[0].ops)
      if (random.chance(30)) op.waits.push_back(random.below(static_cast<int>(b.role.events.size())));
    b.slot(body, 0);
    b.slot(body, 1);
    p.roles.push_back(b.role);
  }
  return p;
}

// Every rank of the grid executes its own ops until nothing moves.
class EveryRank {
 public:
  EveryRank(const Program& program, const GridView& grid) : program_(program), grid_(grid) {
    for (int rank = 0; rank < grid.ranks; ++rank) {
      const Role& role = role_of(rank);
      auto& list = instances_.emplace_back();
      for (const Slot& slot : role.slots)
        for (const Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) list.push_back({&op, false, false});
      for (int i = 0; i < static_cast<int>(list.size()); ++i) enumerate(rank, i);
    }
  }

  bool drains() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < grid_.ranks; ++rank)
        for (int i = 0; i < static_cast<int>(list(rank).size()); ++i) moved = step(rank, i) || moved;
    }
    for (const auto& ranks : instances_)
      for (const Instance& in : ranks)
        if (!in.done) return false;
    return true;
  }

 private:
  struct Instance {
    const Op* op;
    bool posted, done;
  };
  using Key =
      std::tuple<int, int, int, int>;  // sends: 0, from, to, channel; receives: 1; collectives: 2, group, rank, 0

  std::vector<Instance>& list(int rank) { return instances_[static_cast<std::size_t>(rank)]; }
  const Role& role_of(int rank) const { return program_.roles[static_cast<std::size_t>(grid_.role(rank))]; }

  Key key_of(int rank, const Leg& leg) const {
    const int peer = grid_.peer(rank, leg.axis, leg.offset);
    return leg.send ? Key{0, rank, peer, leg.channel} : Key{1, peer, rank, leg.channel};
  }
  void enumerate(int rank, int i) {
    const Op& op = *list(rank)[static_cast<std::size_t>(i)].op;
    const auto call = [&](Key key) {
      ordinal_[{rank, i}].emplace_back(key, static_cast<int>(calls_[key].size()));
      calls_[key].emplace_back(rank, i);
    };
    if (const auto* c = std::get_if<Collective>(&op.shape)) call({2, c->group, rank, 0});
    if (const auto* p = std::get_if<PointToPoint>(&op.shape))
      for (const Leg& leg : p->legs) call(key_of(rank, leg));
  }

  bool may_start(int rank, int i) {
    const auto& ops = list(rank);
    const Op& op = *ops[static_cast<std::size_t>(i)].op;
    for (int j = 0; j < i; ++j) {
      const Instance& before = ops[static_cast<std::size_t>(j)];
      const bool blocks = before.op->stream == op.stream || std::holds_alternative<HostSync>(before.op->shape);
      if (blocks && !before.done) return false;
    }
    for (const EventId e : op.waits) {
      for (int j = i - 1; j >= 0; --j) {
        if (ops[static_cast<std::size_t>(j)].op->records != e) continue;
        if (!ops[static_cast<std::size_t>(j)].done) return false;
        break;
      }
    }
    return true;
  }
  bool posted(const Key& key, int k) {
    const auto [rank, i] = calls_.at(key).at(static_cast<std::size_t>(k));
    return list(rank)[static_cast<std::size_t>(i)].posted;
  }
  bool met(int rank, int i) {
    const Op& op = *list(rank)[static_cast<std::size_t>(i)].op;
    for (const auto& [key, k] : ordinal_[{rank, i}]) {
      const auto [kind, a, b, channel] = key;
      if (kind < 2 && !posted({1 - kind, a, b, channel}, k)) return false;
      if (kind < 2) continue;
      const Group& group = program_.groups[static_cast<std::size_t>(std::get<Collective>(op.shape).group)];
      for (const int member : grid_.members(rank, group))
        if (!posted({2, a, member, 0}, k)) return false;
    }
    return true;
  }
  bool step(int rank, int i) {
    Instance& in = list(rank)[static_cast<std::size_t>(i)];
    if (in.done || !may_start(rank, i)) return false;
    const bool moved = !in.posted;
    in.posted = true;
    if (!met(rank, i)) return moved;
    in.done = true;
    return true;
  }

  const Program& program_;
  const GridView& grid_;
  std::vector<std::vector<Instance>> instances_;
  std::map<Key, std::vector<std::pair<int, int>>> calls_;
  std::map<std::pair<int, int>, std::vector<std::pair<Key, int>>> ordinal_;
};

// One representative a role finds a deadlock exactly when a run of all 4 to 12 ranks gets stuck.
TEST(CheckRanksOracle, RepresentativesDeadlockExactlyWhenAllRanksDo) {
  int stuck = 0, free = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const int stages = 1 + random.below(3);
    const Program p = random_ranks(random, stages);
    const GridView grid = grid_view(2, stages, 1, 1 + random.below(3));
    const auto found = check_ranks(p, grid);
    ASSERT_LE(found.size(), 1U) << "seed " << seed << "\n" << text_of(found);
    if (!found.empty()) {
      ASSERT_EQ(found[0].rule, "deadlock") << "seed " << seed << "\n" << text_of(found);
    }
    const bool drains = EveryRank(p, grid).drains();
    ASSERT_EQ(drains, found.empty()) << "seed " << seed << "\n" << text_of(found);
    ++(drains ? free : stuck);
  }
  EXPECT_GT(stuck, 300);
  EXPECT_GT(free, 300);
}

// A role of one or two bodies on three streams, with buffers of which some are halves of others.
Program random_role(Random& random) {
  RoleBuilder b("stage0");
  for (int i = 0; i < 3; ++i) b.stream("s" + std::to_string(i));
  for (int i = 0; i < 2; ++i)
    b.buffer("b" + std::to_string(i), {8}, Lifetime::persistent, BufferClass::activation, Init::Kind::zeros);
  for (int i = 0; i < 4; ++i) b.view("v" + std::to_string(i), i / 2, 2 * (i % 2), 4);
  const int bodies = 1 + random.below(2);
  for (int i = 0; i < bodies; ++i) {
    const BodyId body = b.body("body" + std::to_string(i));
    for (int o = 1 + random.below(5); o > 0; --o) {
      const std::string name = "op" + std::to_string(i) + "." + std::to_string(o);
      Op& op = b.op(body, name, Elementwise{}, random.below(3));
      if (random.chance(15)) {
        op.shape = HostSync{};
      } else {
        if (random.chance(60)) op.reads.push_back({random.below(6), 0});
        if (random.chance(40)) op.writes.push_back({random.below(6), 0});
      }
      if (random.chance(80)) op.records = b.event("e" + name);
    }
  }
  for (Body& body : b.role.bodies)
    for (Op& op : body.ops)
      for (int w = random.below(3); w > 0 && !b.role.events.empty(); --w)
        op.waits.push_back(random.below(static_cast<int>(b.role.events.size())));
  for (int s = 1 + random.below(3); s > 0; --s) b.slot(random.below(bodies));
  Program p;
  p.roles = {b.role};
  return p;
}

// Base buffers with two accesses, one a write, to common elements, on different streams and without a path between
// them.
std::set<BufferId> racing_buffers(const Role& role) {
  std::vector<const Op*> ops;
  for (int step = 0; step < 2; ++step)
    for (const Slot& slot : role.slots)
      for (const Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) ops.push_back(&op);
  const std::size_t n = ops.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));  // [later][earlier]: done when it starts
  for (std::size_t i = 0; i < n; ++i) {
    const auto after = [&](std::size_t j) {
      before[i][j] = true;
      for (std::size_t k = 0; k < j; ++k) before[i][k] = before[i][k] || before[j][k];
    };
    const auto waits = [&](std::size_t of) {  // the latest records before `of`, seen from i
      for (const EventId e : ops[of]->waits) {
        for (std::size_t j = of; j-- > 0;) {
          if (ops[j]->records != e) continue;
          after(j);
          break;
        }
      }
    };
    for (std::size_t j = 0; j < i; ++j) {
      if (ops[j]->stream == ops[i]->stream) after(j);
      if (std::holds_alternative<HostSync>(ops[j]->shape)) waits(j);
    }
    waits(i);
  }
  struct Range {
    BufferId base;
    std::int64_t begin, end;
  };
  const auto range = [&](const Operand& o) {
    const Buffer& b = role.buffers[static_cast<std::size_t>(o.buffer)];
    return b.is_view() ? Range{b.base, b.offset, b.offset + b.elements()} : Range{o.buffer, 0, b.elements()};
  };
  std::set<BufferId> racing;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (before[i][j]) continue;
      const auto conflict = [&](const std::vector<Operand>& x, const std::vector<Operand>& y) {
        for (const Operand& a : x) {
          for (const Operand& b : y) {
            const Range ra = range(a), rb = range(b);
            if (ra.base == rb.base && ra.begin < rb.end && rb.begin < ra.end) racing.insert(ra.base);
          }
        }
      };
      conflict(ops[i]->writes, ops[j]->writes);
      conflict(ops[i]->writes, ops[j]->reads);
      conflict(ops[i]->reads, ops[j]->writes);
    }
  }
  return racing;
}

// The walk with vector clocks names exactly the buffers that race.
TEST(CheckRoleOracle, RacesAreThePairsWithoutAPath) {
  int racing = 0, ordered = 0;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    Random random(seed);
    const Program p = random_role(random);
    const std::set<BufferId> expected = racing_buffers(p.roles[0]);
    std::set<BufferId> found;
    const auto violations = check_role(p, 0);
    for (const Violation& v : violations)
      if (v.rule == "unordered-access") found.insert(has(v.message, "'b0'") ? 0 : 1);
    ASSERT_EQ(found, expected) << "seed " << seed << "\n" << text_of(violations);
    ++(expected.empty() ? ordered : racing);
  }
  EXPECT_GT(racing, 500);
  EXPECT_GT(ordered, 500);
}

}  // namespace
}  // namespace rehearse::program
