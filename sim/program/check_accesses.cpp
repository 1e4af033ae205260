// The life of every buffer instance and the order of conflicting accesses, by walking two steps of a role in program
// order. Two, because persistent buffers are also used across the border of steps; other instances end with their step.
//
// Order is happens-before by vector clocks (Lamport 1978; Fidge 1988): clock[t] of an op = how many ops of stream t are
// known to be done when it starts. An op starts after the op before it on its stream, after the latest record, in
// program order, of each event it waits for, and after every host sync issued before it (a host sync is done when its
// own waits are; it says nothing of its stream). Two accesses to one cell, one of them a write, race if neither knows
// the other. A cell is a range of one instance that views cannot split further, so ops on disjoint views do not
// conflict. Views that depend on a coordinate are taken at coordinate 0. Left out: order that only comes about
// through another rank; the memory a release makes room for (the memory plan follows program order, and who performs it
// orders reuse).
//
// Rounds of slots that repeat (link/repetition.h) are walked until one has moved every clock on as far as the round
// before did; the others are left out. In a round left out an access would meet the access of the round before it,
// which it knows or not as that one knew the one it met: a number that moves on has passed all that stand still (which
// are at most those of the repetition's beginning), and numbers that move on do so alike. So it finds what the last
// round found, which is nothing: where there is something to report, all is walked again, every round.
#include <fmt/format.h>

#include <algorithm>

#include "sim/base/interrupt.h"
#include "sim/program/check_parts.h"
#include "sim/program/describe.h"
#include "sim/program/link/instances.h"
#include "sim/program/link/repetition.h"

namespace rehearse::program {
namespace {

struct Access {
  BufferId buffer;        // base
  int delta;              // micro-batch, relative to the slot's
  int cell_begin, cells;  // in its instance
};

struct CompiledOp {
  int stream, records, waits_begin, waits_end;
  int reads_begin, writes_begin, releases_begin, end;  // ranges of accesses
  bool host_sync;
};

struct CompiledBody {
  std::vector<CompiledOp> ops;
  std::vector<EventId> waits;
  std::vector<Access> accesses;
  std::vector<BufferId> slot_buffers;  // written by it, with the lifetime of a slot
};

// A base buffer's instances: their life in instances_, their cells in cells_, one after the other.
struct Layout {
  Lifetime lifetime = Lifetime::slot;
  bool ready = false;  // filled before the first step
  int cells = 0;       // an instance
  std::size_t first_cell = 0;
};

enum class Life : unsigned char { unwritten, live, released };
struct Instance {
  int era = -1;  // the step, or the slot counted over steps, that `life` is about; any other one: unwritten
  Life life = Life::unwritten;
  int released_slot = -1, released_op = -1;
};

// Cells are runs of 2 + streams numbers: stream of the last write (-1: none), its position, then for each stream 1 +
// the position of its last read (0: none).
constexpr std::size_t kReads = 2;

class AccessWalk {
 public:
  // `repeats`: rounds that need not all be walked; none: all slots are.
  AccessWalk(const Program& program, RoleId role, const Repetition& repeats, ViolationList& list);
  void run();

 private:
  void lay_out();
  void compile();
  Access access_of(const Operand& operand) const;
  void visit(const CompiledBody& body, int op);
  void synchronize(const CompiledBody& body, const CompiledOp& op);
  void read(const Access& access);
  void write(const Access& access);
  void release(const Access& access);
  void end_slot(const CompiledBody& body);
  void end_step();

  // What is known of streams' progress, at the beginning of a round.
  struct Clocks {
    std::vector<std::int32_t> streams, events, host, issued;
    std::vector<bool> behind_host;  // by stream: it has host syncs to join
  };
  void leave_out_rounds();
  Clocks clocks() const;
  bool moved_alike(const Clocks& before, const Clocks& now) const;

  std::size_t instance_index(const Access& access) const;
  Instance& instance(const Access& access);
  std::int32_t* cell(const Access& access, int i) {
    const Layout& l = layouts_[static_cast<std::size_t>(access.buffer)];
    const std::size_t index =
        l.first_cell + (instance_index(access) - numbers_.first(access.buffer)) * static_cast<std::size_t>(l.cells) +
        static_cast<std::size_t>(access.cell_begin + i);
    return &cells_[index * (kReads + streams_)];
  }
  std::int32_t* clock(std::vector<std::int32_t>& table, std::int32_t row) const {
    return &table[static_cast<std::size_t>(row) * streams_];
  }
  void join(std::int32_t* into, const std::int32_t* from) const {
    for (std::size_t t = 0; t < streams_; ++t) into[t] = std::max(into[t], from[t]);
  }

  const Slot& slot() const { return role_.slots[static_cast<std::size_t>(slot_)]; }
  // Of rounds left out the last one walked stands for the last of them, with its micro-batches.
  int micro_batch() const { return slot().micro_batch - left_out_; }
  std::string* report(std::string_view rule, const Access& access) {
    return list_.add(rule, slot().body, op_, access.buffer);
  }
  std::string here() const { return fmt::format("{}: {}", role_.name, place_text(role_, slot_, op_)); }
  std::string buffer_text(const Access& access) const;
  void report_race(const Access& access, const char* verb, int other_stream, std::int32_t other_position,
                   const char* other_verb);
  std::string place_on_stream(int stream, std::int32_t position) const;

  const Role& role_;
  const Repetition repeats_;
  ViolationList& list_;
  const int micro_batches_;
  const BufferInstances numbers_;
  const std::size_t streams_;
  std::vector<Layout> layouts_;
  std::vector<std::vector<std::int64_t>> cuts_;  // by base buffer: where its views begin and end
  std::vector<CompiledBody> bodies_;
  std::vector<Instance> instances_;
  std::vector<std::int32_t> cells_;
  std::vector<std::int32_t> stream_clocks_, event_clocks_;  // rows of streams_ numbers
  std::vector<std::int32_t> host_clock_;
  std::vector<int> stream_saw_host_;  // how many host syncs a stream's clock has joined
  int host_syncs_ = 0;
  int step_ = 0, slot_ = 0, op_ = 0, stream_ = 0;
  int live_in_slot_ = 0;                     // instances of the slot's own
  int left_out_ = 0;                         // micro-batches of the step that have been
  std::vector<std::int32_t> at_repetition_;  // of the step: ops issued when it begins, by stream
  Clocks round_;                             // when the last round began
};

AccessWalk::AccessWalk(const Program& program, RoleId role, const Repetition& repeats, ViolationList& list)
    : role_(program.roles[static_cast<std::size_t>(role)]),
      repeats_(repeats),
      list_(list),
      micro_batches_(program.micro_batches),
      numbers_(role_, micro_batches_),
      streams_(role_.streams.size()),
      stream_clocks_(streams_ * streams_, 0),
      event_clocks_(role_.events.size() * streams_, 0),
      host_clock_(streams_, 0),
      stream_saw_host_(streams_, 0) {
  lay_out();
  compile();
}

void AccessWalk::lay_out() {
  cuts_.resize(role_.buffers.size());
  layouts_.resize(role_.buffers.size());
  for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
    const Buffer& buffer = role_.buffers[b];
    const std::size_t base = buffer.is_view() ? static_cast<std::size_t>(buffer.base) : b;
    const std::int64_t begin = buffer.begin();
    cuts_[base].push_back(begin);
    cuts_[base].push_back(begin + buffer.elements());
    if (buffer.init.kind != Init::Kind::none) layouts_[base].ready = true;
  }
  std::size_t cells = 0;
  for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
    auto& cuts = cuts_[b];
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    Layout& l = layouts_[b];
    l.lifetime = role_.buffers[b].lifetime;
    if (role_.buffers[b].is_view()) continue;
    const std::size_t count = l.lifetime == Lifetime::micro_batch ? static_cast<std::size_t>(micro_batches_) : 1;
    l.cells = static_cast<int>(cuts.size()) - 1;
    l.first_cell = cells;
    cells += count * static_cast<std::size_t>(l.cells);
  }
  instances_.resize(numbers_.size());
  cells_.assign(cells * (kReads + streams_), 0);
  for (std::size_t i = 0; i < cells_.size(); i += kReads + streams_) cells_[i] = -1;
}

Access AccessWalk::access_of(const Operand& operand) const {
  const Buffer& b = role_.buffers[static_cast<std::size_t>(operand.buffer)];
  const BufferId base = b.is_view() ? b.base : operand.buffer;
  const auto& cuts = cuts_[static_cast<std::size_t>(base)];
  const std::int64_t begin = b.begin();
  const auto lo = std::lower_bound(cuts.begin(), cuts.end(), begin) - cuts.begin();
  const auto hi = std::lower_bound(cuts.begin(), cuts.end(), begin + b.elements()) - cuts.begin();
  return {base, operand.micro_batch_delta, static_cast<int>(lo), static_cast<int>(hi - lo)};
}

void AccessWalk::compile() {
  for (const Body& body : role_.bodies) {
    CompiledBody c;
    const auto mark = [&c] { return static_cast<int>(c.accesses.size()); };
    for (const Op& op : body.ops) {
      CompiledOp o{op.stream, op.records, static_cast<int>(c.waits.size()),          0, 0, 0,
                   0,         0,          std::holds_alternative<HostSync>(op.shape)};
      c.waits.insert(c.waits.end(), op.waits.begin(), op.waits.end());
      o.waits_end = static_cast<int>(c.waits.size());
      o.reads_begin = mark();
      for (const Operand& r : op.reads) c.accesses.push_back(access_of(r));
      o.writes_begin = mark();
      for (const Operand& w : op.writes) {
        c.accesses.push_back(access_of(w));
        const BufferId base = c.accesses.back().buffer;
        if (layouts_[static_cast<std::size_t>(base)].lifetime == Lifetime::slot) c.slot_buffers.push_back(base);
      }
      o.releases_begin = mark();
      for (const Operand& r : op.releases) c.accesses.push_back(access_of(r));
      o.end = mark();
      c.ops.push_back(o);
    }
    std::sort(c.slot_buffers.begin(), c.slot_buffers.end());
    c.slot_buffers.erase(std::unique(c.slot_buffers.begin(), c.slot_buffers.end()), c.slot_buffers.end());
    bodies_.push_back(std::move(c));
  }
}

void AccessWalk::run() {
  for (step_ = 0; step_ < 2; ++step_) {
    left_out_ = 0;
    for (slot_ = 0; slot_ < static_cast<int>(role_.slots.size()); ++slot_) {
      check_interrupt();
      leave_out_rounds();
      if (slot_ == static_cast<int>(role_.slots.size())) break;
      const CompiledBody& body = bodies_[static_cast<std::size_t>(slot().body)];
      for (int i = 0; i < static_cast<int>(body.ops.size()); ++i) visit(body, i);
      if (live_in_slot_ != 0) end_slot(body);
    }
    if (step_ == 0) end_step();
  }
}

// At the beginning of a round: if the one before it went as its predecessor did, goes on behind the others.
void AccessWalk::leave_out_rounds() {
  const std::int32_t done = repeats_.rounds_before(slot_);
  if (done < 0 || left_out_ > 0) return;
  Clocks now = clocks();
  if (done == 0) at_repetition_ = now.issued;
  const std::int32_t rounds = done < 2 ? 0 : repeats_.most_left_out(done);
  if (rounds > 0 && moved_alike(round_, now)) {
    slot_ += rounds * repeats_.period;
    left_out_ = rounds * repeats_.advance;
  }
  round_ = std::move(now);
}

AccessWalk::Clocks AccessWalk::clocks() const {
  Clocks now{stream_clocks_, event_clocks_, host_clock_, {}, {}};
  for (std::size_t t = 0; t < streams_; ++t) {
    now.issued.push_back(stream_clocks_[t * streams_ + t]);
    now.behind_host.push_back(stream_saw_host_[t] != host_syncs_);
  }
  return now;
}

// Whether every number either stands still, at what was issued when the repetition began or less, or has moved on with
// its stream.
bool AccessWalk::moved_alike(const Clocks& before, const Clocks& now) const {
  const auto alike = [&](const std::vector<std::int32_t>& was, const std::vector<std::int32_t>& is) {
    for (std::size_t i = 0; i < is.size(); ++i) {
      const std::size_t t = i % streams_;
      const bool stands = is[i] == was[i] && is[i] <= at_repetition_[t];
      const bool moves = is[i] - was[i] == now.issued[t] - before.issued[t] && was[i] >= at_repetition_[t];
      if (!stands && !moves) return false;
    }
    return true;
  };
  return before.behind_host == now.behind_host && alike(before.streams, now.streams) &&
         alike(before.events, now.events) && alike(before.host, now.host);
}

void AccessWalk::visit(const CompiledBody& body, int i) {
  const CompiledOp& op = body.ops[static_cast<std::size_t>(i)];
  op_ = i;
  stream_ = op.stream;
  synchronize(body, op);
  const Access* accesses = body.accesses.data();
  for (int a = op.reads_begin; a < op.writes_begin; ++a) read(accesses[a]);
  for (int a = op.writes_begin; a < op.releases_begin; ++a) write(accesses[a]);
  std::int32_t* mine = clock(stream_clocks_, stream_);
  ++mine[stream_];
  if (op.records >= 0) std::copy(mine, mine + streams_, clock(event_clocks_, op.records));
  for (int a = op.releases_begin; a < op.end; ++a) release(accesses[a]);
}

// Brings the stream's clock to what is known when the op starts.
void AccessWalk::synchronize(const CompiledBody& body, const CompiledOp& op) {
  std::int32_t* mine = clock(stream_clocks_, op.stream);
  int& saw = stream_saw_host_[static_cast<std::size_t>(op.stream)];
  if (saw != host_syncs_) {
    join(mine, host_clock_.data());
    saw = host_syncs_;
  }
  for (int w = op.waits_begin; w < op.waits_end; ++w) {
    const std::int32_t* event = clock(event_clocks_, body.waits[static_cast<std::size_t>(w)]);
    join(mine, event);
    if (op.host_sync) join(host_clock_.data(), event);
  }
  if (op.host_sync) ++host_syncs_;
}

std::size_t AccessWalk::instance_index(const Access& access) const {
  const bool micro_batch = layouts_[static_cast<std::size_t>(access.buffer)].lifetime == Lifetime::micro_batch;
  const int m = micro_batch ? this->micro_batch() + access.delta : 0;  // references are in range
  return numbers_.first(access.buffer) + static_cast<std::size_t>(m);
}

// The instance, unwritten again if its slot or step is a new one.
Instance& AccessWalk::instance(const Access& access) {
  const Layout& l = layouts_[static_cast<std::size_t>(access.buffer)];
  Instance& in = instances_[instance_index(access)];
  int era = step_;
  if (l.lifetime == Lifetime::persistent) era = 0;
  if (l.lifetime == Lifetime::slot) era = step_ * static_cast<int>(role_.slots.size()) + slot_;
  if (in.era != era) in = {era, l.lifetime == Lifetime::persistent && l.ready ? Life::live : Life::unwritten, -1, -1};
  return in;
}

void AccessWalk::read(const Access& access) {
  const Instance& in = instance(access);
  if (in.life != Life::live) {
    const bool early = in.life == Life::unwritten;
    if (step_ > 0) return;
    if (std::string* text = report(early ? "read-before-write" : "use-after-free", access))
      *text = early ? fmt::format("{} reads {} before any op writes it", here(), buffer_text(access))
                    : fmt::format("{} reads {} after {} released it", here(), buffer_text(access),
                                  place_text(role_, in.released_slot, in.released_op));
    return;
  }
  const std::int32_t* mine = clock(stream_clocks_, stream_);
  for (int i = 0; i < access.cells; ++i) {
    std::int32_t* c = cell(access, i);
    if (c[0] >= 0 && c[0] != stream_ && mine[c[0]] <= c[1]) report_race(access, "reads", c[0], c[1], "writes");
    c[kReads + static_cast<std::size_t>(stream_)] = mine[stream_] + 1;
  }
}

void AccessWalk::write(const Access& access) {
  Instance& in = instance(access);
  const std::int32_t* mine = clock(stream_clocks_, stream_);
  if (in.life == Life::released) {
    if (step_ > 0) return;
    if (std::string* text = report("use-after-free", access))
      *text = fmt::format("{} writes {} after {} released it", here(), buffer_text(access),
                          place_text(role_, in.released_slot, in.released_op));
    return;
  }
  if (in.life == Life::unwritten) {
    in.life = Life::live;
    const Layout& l = layouts_[static_cast<std::size_t>(access.buffer)];
    if (l.lifetime == Lifetime::slot) ++live_in_slot_;
    if (l.lifetime != Lifetime::persistent) {  // a fresh instance has no past
      const Access whole{access.buffer, access.delta, 0, l.cells};
      for (int i = 0; i < whole.cells; ++i) {
        std::int32_t* c = cell(whole, i);
        std::fill(c, c + kReads + streams_, 0);
        c[0] = -1;
      }
    }
  }
  for (int i = 0; i < access.cells; ++i) {
    std::int32_t* c = cell(access, i);
    if (c[0] >= 0 && c[0] != stream_ && mine[c[0]] <= c[1]) report_race(access, "writes", c[0], c[1], "writes");
    const std::int32_t* reads = c + kReads;
    for (int t = 0; t < static_cast<int>(streams_); ++t)
      if (reads[t] > mine[t] && t != stream_) report_race(access, "writes", t, reads[t] - 1, "reads");
    c[0] = stream_;
    c[1] = mine[stream_];
  }
}

void AccessWalk::release(const Access& access) {
  Instance& in = instance(access);
  if (in.life == Life::live) {
    in.life = Life::released;
    in.released_slot = slot_;
    in.released_op = op_;
    if (layouts_[static_cast<std::size_t>(access.buffer)].lifetime == Lifetime::slot) --live_in_slot_;
    return;
  }
  if (step_ > 0) return;
  const bool early = in.life == Life::unwritten;
  if (std::string* text = report(early ? "release-before-write" : "double-release", access))
    *text = early ? fmt::format("{} releases {} before any op writes it", here(), buffer_text(access))
                  : fmt::format("{} releases {}, which {} released already", here(), buffer_text(access),
                                place_text(role_, in.released_slot, in.released_op));
}

void AccessWalk::end_slot(const CompiledBody& body) {
  live_in_slot_ = 0;
  if (step_ > 0) return;
  for (const BufferId b : body.slot_buffers) {
    const Access access{b, 0, 0, 0};
    if (instance(access).life != Life::live) continue;
    if (std::string* text = list_.add("leak", slot().body, -1, b))
      *text = fmt::format("{}: slot {} ({}) ends and no op released {}", role_.name, slot_, slot_text(role_, slot()),
                          buffer_text(access));
  }
}

void AccessWalk::end_step() {
  for (BufferId b = 0; b < static_cast<BufferId>(role_.buffers.size()); ++b) {
    check_interrupt();
    const Layout& l = layouts_[static_cast<std::size_t>(b)];
    if (role_.buffers[static_cast<std::size_t>(b)].is_view()) continue;
    if (l.lifetime == Lifetime::persistent || l.lifetime == Lifetime::slot) continue;
    const int count = l.lifetime == Lifetime::micro_batch ? micro_batches_ : 1;
    for (int m = 0; m < count; ++m) {
      const Instance& in = instances_[numbers_.first(b) + static_cast<std::size_t>(m)];
      if (in.era != step_ || in.life != Life::live) continue;
      const std::string which = l.lifetime == Lifetime::micro_batch ? fmt::format(" of micro-batch {}", m) : "";
      if (std::string* text = list_.add("leak", -1, -1, b))
        *text = fmt::format("{}: the step ends and no op released '{}'{}", role_.name,
                            role_.buffers[static_cast<std::size_t>(b)].name, which);
    }
  }
}

std::string AccessWalk::buffer_text(const Access& access) const {
  const Buffer& b = role_.buffers[static_cast<std::size_t>(access.buffer)];
  if (b.lifetime != Lifetime::micro_batch) return fmt::format("'{}'", b.name);
  return fmt::format("'{}' of micro-batch {}", b.name, slot().micro_batch + access.delta);
}

void AccessWalk::report_race(const Access& access, const char* verb, int other_stream, std::int32_t other_position,
                             const char* other_verb) {
  std::string* text = report("unordered-access", access);
  if (text == nullptr) return;
  *text = fmt::format("{} on stream {} {} {}, which {} on stream {} {}; no event orders them{}", here(),
                      role_.streams[static_cast<std::size_t>(stream_)].name, verb, buffer_text(access),
                      place_on_stream(other_stream, other_position),
                      role_.streams[static_cast<std::size_t>(other_stream)].name, other_verb,
                      step_ > 0 ? " (across the border of two steps, or within the second)" : "");
}

// Finds the op by counting from the first step: positions are not kept, as they are only needed for a message.
std::string AccessWalk::place_on_stream(int stream, std::int32_t position) const {
  std::int32_t left = position;
  for (int step = 0; step < 2; ++step) {
    for (int s = 0; s < static_cast<int>(role_.slots.size()); ++s) {
      const CompiledBody& body = bodies_[static_cast<std::size_t>(role_.slots[static_cast<std::size_t>(s)].body)];
      for (int i = 0; i < static_cast<int>(body.ops.size()); ++i)
        if (body.ops[static_cast<std::size_t>(i)].stream == stream && left-- == 0) return place_text(role_, s, i);
    }
  }
  return "";
}

}  // namespace

void walk_accesses(const Program& program, RoleId role, const Repetition& repeats, ViolationList& list) {
  AccessWalk(program, role, repeats, list).run();
}

void check_accesses(const Program& program, RoleId role, ViolationList& list) {
  const Repetition repeats = repetition_of(program.roles[static_cast<std::size_t>(role)]);
  if (repeats.times > 0) {
    ViolationList found;
    walk_accesses(program, role, repeats, found);
    if (found.take().empty()) return;
  }
  walk_accesses(program, role, {}, list);
}

}  // namespace rehearse::program
