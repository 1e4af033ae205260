// Whether a role's tables hang together: ids, views and micro-batches are in range, and every event has exactly one op
// that records it. The other checks index by these ids without looking.
#include <fmt/format.h>

#include <numeric>
#include <set>

#include "sim/base/interrupt.h"
#include "sim/program/check_parts.h"
#include "sim/program/describe.h"

namespace rehearse::program {

std::string* ViolationList::add(std::string_view rule, BodyId body, int op, BufferId buffer) {
  const auto [it, added] = index_.emplace(std::tuple(std::string(rule), body, op, buffer), entries_.size());
  if (!added) {
    ++entries_[it->second].count;
    return nullptr;
  }
  entries_.push_back({{std::string(rule), ""}, 1});
  return &entries_.back().violation.message;
}

std::vector<Violation> ViolationList::take() {
  std::vector<Violation> result;
  for (Entry& e : entries_) {
    if (e.count > 1) e.violation.message += fmt::format(" (the first of {})", e.count);
    result.push_back(std::move(e.violation));
  }
  entries_.clear();
  index_.clear();
  return result;
}

namespace {

template <typename Table>
bool in_range(std::int32_t id, const Table& table) {
  return id >= 0 && id < static_cast<std::int32_t>(table.size());
}

class ReferenceCheck {
 public:
  ReferenceCheck(const Program& program, RoleId role, ViolationList& list)
      : program_(program), role_(program.roles[static_cast<std::size_t>(role)]), list_(list) {}

  void run() {
    buffers_ok_ = true;
    for (BufferId b = 0; b < static_cast<BufferId>(role_.buffers.size()); ++b) check_buffer(b);
    for (BodyId b = 0; b < static_cast<BodyId>(role_.bodies.size()); ++b) {
      const auto& ops = role_.bodies[static_cast<std::size_t>(b)].ops;
      for (int i = 0; i < static_cast<int>(ops.size()); ++i) check_op(b, i, ops[static_cast<std::size_t>(i)]);
      check_every(b);
    }
    deltas_.resize(role_.bodies.size());
    if (buffers_ok_) collect_deltas();
    for (int s = 0; s < static_cast<int>(role_.slots.size()); ++s) {
      check_interrupt();
      check_slot(s);
    }
    check_rounds();
  }

 private:
  struct Delta {
    int op;
    BufferId buffer;
    int delta;
  };

  void bad(BodyId body, int op, BufferId buffer, const std::string& what) {
    std::string* text = list_.add("bad-reference", body, op, buffer);
    if (text == nullptr) return;
    *text = role_.name + ": ";
    if (body >= 0) {
      const Body& b = role_.bodies[static_cast<std::size_t>(body)];
      *text += fmt::format("'{}' of body {} ", b.ops[static_cast<std::size_t>(op)].name, b.name);
    }
    *text += what;
  }

  void check_buffer(BufferId id) {
    const Buffer& b = role_.buffers[static_cast<std::size_t>(id)];
    if (!b.is_view()) return;
    std::string what;
    if (!in_range(b.base, role_.buffers)) {
      what = fmt::format("is a view of buffer {}, of which there are {}", b.base, role_.buffers.size());
    } else {
      const Buffer& base = role_.buffers[static_cast<std::size_t>(b.base)];
      if (base.is_view()) {
        what = fmt::format("is a view of '{}', which is a view itself", base.name);
      } else if (b.offset < 0 || b.shard_stride < 0 || b.turn < 0 || b.begin() + b.elements() > base.elements()) {
        what = fmt::format("views elements [{}, {}) of '{}', which has {}", b.begin(), b.begin() + b.elements(),
                           base.name, base.elements());
      }
    }
    if (what.empty()) return;
    buffers_ok_ = false;
    bad(-1, -1, id, fmt::format("buffer '{}' {}", b.name, what));
  }

  void check_operand_ids(BodyId body, int i, const std::vector<Operand>& operands) {
    for (const Operand& o : operands) {
      if (in_range(o.buffer, role_.buffers)) continue;
      buffers_ok_ = false;
      bad(body, i, o.buffer, fmt::format("names buffer {}, of which there are {}", o.buffer, role_.buffers.size()));
    }
  }

  // Of a body that is not run in every step nothing but what is kept may be read elsewhere: it would be of an earlier
  // step, or of none.
  void check_every(BodyId body) {
    const Body& b = role_.bodies[static_cast<std::size_t>(body)];
    if (b.every < 1) bad(-1, -1, -1, fmt::format("body {} is run every {} steps", b.name, b.every));
    if (b.every <= 1 || !buffers_ok_) return;
    for (int i = 0; i < static_cast<int>(b.ops.size()); ++i)
      for (const Operand& o : b.ops[static_cast<std::size_t>(i)].writes) {
        const Buffer& written = role_.buffers[static_cast<std::size_t>(o.buffer)];
        const Buffer& base = written.is_view() ? role_.buffers[static_cast<std::size_t>(written.base)] : written;
        if (base.lifetime == Lifetime::persistent || base.lifetime == Lifetime::slot) continue;
        bad(body, i, o.buffer,
            fmt::format("writes '{}', which lives for a {}, in every {} steps alone", base.name,
                        base.lifetime == Lifetime::step ? "step" : "micro-batch", b.every));
      }
  }

  // So it is of an op of some steps of a run, but for what is read again in the same ones of a slot.
  void check_steps(BodyId body, int i, const Op& op) {
    if (op.from_step == 0 && !op.ends()) return;
    if (op.from_step < 0 || (op.ends() && op.until_step <= op.from_step))
      bad(body, i, -1, fmt::format("acts from step {} until step {}", op.from_step, op.until_step));
    if (!buffers_ok_) return;
    for (const Operand& o : op.writes) {
      const Buffer& written = role_.buffers[static_cast<std::size_t>(o.buffer)];
      const Buffer& base = written.is_view() ? role_.buffers[static_cast<std::size_t>(written.base)] : written;
      if (base.lifetime == Lifetime::persistent || base.lifetime == Lifetime::slot) continue;
      bad(body, i, o.buffer,
          fmt::format("writes '{}', which lives for a {}, in some steps of a run alone", base.name,
                      base.lifetime == Lifetime::step ? "step" : "micro-batch"));
    }
  }

  // Slots that are not of every step come behind all others, and are of the same steps.
  void check_rounds() {
    std::int64_t round = 1;
    for (const Slot& slot : role_.slots) {
      if (!in_range(slot.body, role_.bodies)) return;
      const Body& body = role_.bodies[static_cast<std::size_t>(slot.body)];
      if (round > 1 && body.every != round)
        return bad(-1, -1, -1,
                   fmt::format("a slot of body {}, which is run every {} steps, comes behind one of a body run "
                               "every {} steps",
                               body.name, body.every, round));
      round = body.every;
    }
  }

  void check_op(BodyId body, int i, const Op& op) {
    check_steps(body, i, op);
    if (!in_range(op.stream, role_.streams))
      bad(body, i, -1, fmt::format("is on stream {}, of which there are {}", op.stream, role_.streams.size()));
    for (const EventId e : op.waits)
      if (!in_range(e, role_.events))
        bad(body, i, -1, fmt::format("waits for event {}, of which there are {}", e, role_.events.size()));
    if (op.records != -1 && !in_range(op.records, role_.events))
      bad(body, i, -1, fmt::format("records event {}, of which there are {}", op.records, role_.events.size()));
    check_operand_ids(body, i, op.reads);
    check_operand_ids(body, i, op.writes);
    check_operand_ids(body, i, op.releases);
    if (const auto* c = std::get_if<Collective>(&op.shape); c != nullptr && !in_range(c->group, program_.groups))
      bad(body, i, -1, fmt::format("is on group {}, of which there are {}", c->group, program_.groups.size()));
    if (const auto* c = std::get_if<Collective>(&op.shape); c != nullptr && c->parts != -1) check_parts(body, i, *c);
  }

  // Unequal parts are those of an all-to-all, and what a member sends is all of them.
  void check_parts(BodyId body, int i, const Collective& c) {
    if (!in_range(c.parts, program_.parts))
      return bad(body, i, -1, fmt::format("has parts {}, of which there are {}", c.parts, program_.parts.size()));
    const auto& parts = program_.parts[static_cast<std::size_t>(c.parts)];
    const auto sum_of = [&](std::size_t first, std::size_t n) {
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(first);
      return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(n), std::int64_t{0});
    };
    std::int64_t sum = sum_of(0, parts.size());
    // A row for each member adds up to what that one sends.
    std::size_t members = 0;
    while (members * members < parts.size()) ++members;
    if (sum != c.elements && members * members == parts.size())
      for (std::size_t row = 0; row < members && (row == 0 || sum == c.elements); ++row)
        sum = sum_of(row * members, members);
    if (c.kind != CollectiveKind::all_to_all || sum != c.elements)
      bad(body, i, -1, fmt::format("of {} elements has parts that add up to {}", c.elements, sum));
  }

  // The micro-batches each body touches, relative to its slot's own, one entry a buffer and delta.
  void collect_deltas() {
    for (std::size_t b = 0; b < role_.bodies.size(); ++b) {
      std::set<std::pair<BufferId, int>> seen;
      const auto& ops = role_.bodies[b].ops;
      for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
        const Op& op = ops[static_cast<std::size_t>(i)];
        for (const auto* operands : {&op.reads, &op.writes, &op.releases}) {
          for (const Operand& o : *operands) collect_delta(static_cast<BodyId>(b), i, o, seen);
        }
        for (const Operand& o : op.releases) {
          const Buffer& released = role_.buffers[static_cast<std::size_t>(base_of(o.buffer))];
          if (released.lifetime == Lifetime::persistent)
            bad(static_cast<BodyId>(b), i, o.buffer, fmt::format("releases '{}', which is persistent", released.name));
        }
      }
    }
  }

  void collect_delta(BodyId body, int op, const Operand& o, std::set<std::pair<BufferId, int>>& seen) {
    const BufferId base = base_of(o.buffer);
    const Buffer& b = role_.buffers[static_cast<std::size_t>(base)];
    if (b.lifetime == Lifetime::micro_batch) {
      if (seen.emplace(base, o.micro_batch_delta).second)
        deltas_[static_cast<std::size_t>(body)].push_back({op, base, o.micro_batch_delta});
    } else if (o.micro_batch_delta != 0) {
      bad(body, op, o.buffer,
          fmt::format("names '{}' of micro-batch {:+d}, but it has no instance a micro-batch", b.name,
                      o.micro_batch_delta));
    }
  }

  void check_slot(int s) {
    const Slot& slot = role_.slots[static_cast<std::size_t>(s)];
    if (!in_range(slot.body, role_.bodies)) {
      bad(-1, -1, -1, fmt::format("slot {} has body {}, of which there are {}", s, slot.body, role_.bodies.size()));
      return;
    }
    if (slot.micro_batch < -1 || slot.micro_batch >= program_.micro_batches) {
      bad(-1, -1, -1,
          fmt::format("slot {} is of micro-batch {}, of which there are {}", s, slot.micro_batch,
                      program_.micro_batches));
      return;
    }
    for (const Delta& d : deltas_[static_cast<std::size_t>(slot.body)]) {
      const std::string& name = role_.buffers[static_cast<std::size_t>(d.buffer)].name;
      const int m = slot.micro_batch + d.delta;
      if (slot.micro_batch < 0)
        bad(slot.body, d.op, d.buffer,
            fmt::format("(slot {}: {}) names '{}' of a micro-batch in a slot that has none", s, slot_text(role_, slot),
                        name));
      else if (m < 0 || m >= program_.micro_batches)
        bad(slot.body, d.op, d.buffer,
            fmt::format("(slot {}: {}) names '{}' of micro-batch {}, of which there are {}", s, slot_text(role_, slot),
                        name, m, program_.micro_batches));
    }
  }

  BufferId base_of(BufferId id) const {
    const Buffer& b = role_.buffers[static_cast<std::size_t>(id)];
    return b.is_view() ? b.base : id;
  }

  const Program& program_;
  const Role& role_;
  ViolationList& list_;
  bool buffers_ok_ = false;
  std::vector<std::vector<Delta>> deltas_;  // by body
};

}  // namespace

void check_references(const Program& program, RoleId role, ViolationList& list) {
  ReferenceCheck(program, role, list).run();
}

void check_events(const Program& program, RoleId role_id, ViolationList& list) {
  const Role& role = program.roles[static_cast<std::size_t>(role_id)];
  std::vector<std::string> recorder(role.events.size());
  const auto text_of = [](const Body& body, const Op& op) {
    return fmt::format("'{}' of body {}", op.name, body.name);
  };
  for (BodyId b = 0; b < static_cast<BodyId>(role.bodies.size()); ++b) {
    const Body& body = role.bodies[static_cast<std::size_t>(b)];
    for (int i = 0; i < static_cast<int>(body.ops.size()); ++i) {
      const Op& op = body.ops[static_cast<std::size_t>(i)];
      if (op.records < 0) continue;
      std::string& first = recorder[static_cast<std::size_t>(op.records)];
      if (first.empty())
        first = text_of(body, op);
      else if (std::string* text = list.add("event-recorded-twice", b, i))
        *text = fmt::format("{}: {} and {} both record event '{}'", role.name, first, text_of(body, op),
                            role.events[static_cast<std::size_t>(op.records)].name);
    }
  }
  for (BodyId b = 0; b < static_cast<BodyId>(role.bodies.size()); ++b) {
    const Body& body = role.bodies[static_cast<std::size_t>(b)];
    for (int i = 0; i < static_cast<int>(body.ops.size()); ++i) {
      const Op& op = body.ops[static_cast<std::size_t>(i)];
      for (const EventId e : op.waits) {
        if (!recorder[static_cast<std::size_t>(e)].empty()) continue;
        if (std::string* text = list.add("unrecorded-event", b, i, e))
          *text = fmt::format("{}: {} waits for event '{}', which no op records", role.name, text_of(body, op),
                              role.events[static_cast<std::size_t>(e)].name);
      }
    }
  }
}

}  // namespace rehearse::program
