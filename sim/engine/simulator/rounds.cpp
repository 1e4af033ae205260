// See rounds.h.
#include "sim/engine/simulator/rounds.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::engine {

namespace {

// The longest period looked for, in rounds.
constexpr std::size_t kLongestPeriod = 4;

// States are read in the first rounds that take equal times, so many, and then in every other run of so many rounds:
// stages that get ahead of the slowest by a little each round come to repeat late.
constexpr int kFirstLooks = 24, kRunOfLooks = 8;

bool looks_in(std::int32_t round, int looked) {
  return looked < kFirstLooks || round / kRunOfLooks % 2 == 0;
}

bool irregular(const IdVector<JobId, JobCode>& codes, const Jobs& jobs, const Ranks& ranks) {
  if (jobs.noisy_kernels() || jobs.noisy_transfers()) return true;
  // Records of a host's that are under way have numbers of their own (EventKind::host_record).
  for (const RankInfo& rank : ranks)
    if (std::any_of(rank.code->syncs.begin(), rank.code->syncs.end(), [](const SyncCode& s) { return s.awaited; }))
      return true;
  return std::any_of(codes.begin(), codes.end(), [](const JobCode& code) {
    return code.job->loaders != nullptr || code.job->attention_loads != nullptr ||
           code.job->collectives.buffered_messages();
  });
}

std::vector<program::BodyId> bodies_of_segments(const RoleCode& code) {
  std::vector<program::BodyId> bodies(code.segments.size());
  for (const SegmentId id : code.segments.ids()) bodies[id.index()] = code.ops[code.segments[id].ops.first].body;
  return bodies;
}

}  // namespace

Rounds::Rounds(Options::Rounds simulated, Clock& clock, const IdVector<JobId, JobCode>& codes, const Ranks& ranks,
               Jobs& jobs, Accounts& accounts, OpRecords& records, Streams& streams, Hosts& hosts, Kernels& kernels,
               Devices& devices, Transfers& transfers, StagedSends& staged_sends, Matching& matching, Network& network)
    : clock_(clock),
      ranks_(ranks),
      jobs_(jobs),
      accounts_(accounts),
      records_(records),
      streams_(streams),
      hosts_(hosts),
      kernels_(kernels),
      devices_(devices),
      transfers_(transfers),
      staged_sends_(staged_sends),
      matching_(matching),
      network_(network) {
  if (simulated == Options::Rounds::all || irregular(codes, jobs, ranks)) return;
  part(simulated == Options::Rounds::unlike_by_part);
  if (parts_.empty()) return;
  for (const RankInfo& rank : ranks) {
    std::vector<Waited>& waited = waited_[rank.code];
    if (!waited.empty()) continue;
    const RoleCode& code = *rank.code;
    const std::vector<program::BodyId> bodies = bodies_of_segments(code);
    const auto add = [&](program::BodyId body, IdRange<WaitId> waits) {
      for (const WaitId id : waits) {
        const Wait& wait = code.waits[id];
        waited.push_back({body, wait.row, wait.stream, wait.segment, wait.per_step});
      }
    };
    for (const SegmentId id : code.segments.ids()) add(bodies[id.index()], code.segments[id].waits);
    for (const SyncCode& sync : code.syncs) add(sync.body, sync.waits);
    std::sort(waited.begin(), waited.end());
    waited.erase(std::unique(waited.begin(), waited.end()), waited.end());
  }
}

// What is left out together: of each part, or not `apart` of all ranks.
void Rounds::part(bool apart) {
  of_ = parts_of_rounds(ranks_, matching_, apart);
  parts_.clear();
  std::map<const RoleCode*, program::Repetition> repeats;
  for (std::size_t p = 0; p < of_.ranks.size(); ++p) {
    const RankInfo& first = ranks_[of_.ranks[p].front()];
    if (!first.main_stream.exists()) continue;
    if (!repeats.contains(first.code)) repeats[first.code] = program::repetition_of(*first.code->role);
    if (repeats[first.code].times == 0) continue;
    Part& part = parts_.emplace_back();
    part.id = PartId(p), part.ranks = &of_.ranks[p], part.watched = first.main_stream;
    part.repeats = repeats[first.code];
  }
}

void Rounds::look_at_parts() {
  for (Part& part : parts_) {
    if (part.back > Time() && clock_.now() >= part.back) come_back(part);
    const Place& place = streams_.place(part.watched);
    if (place.slot == part.seen && place.step == part.step) continue;
    if (place.step != part.step) {
      REHEARSE_CHECK(!part.open, "a period of rounds goes on over the end of its step");
      part.past.clear();
      part.looked = 0;
      if (part.alone_since >= 0) network_.unwatch(part.id);
      part.alone_since = -1;
    }
    part.seen = place.slot, part.step = place.step;
    if (part.repeats.rounds_before(place.slot.value()) >= 0) look_at(part);
    if (parts_.empty()) return;
  }
}

// No part is left out any more apart from the others.
void Rounds::leave_apart() {
  for (const Part& part : parts_) {
    if (of_.ranks.size() > 1 && (part.open || part.back > Time())) throw PartsMeet();
    if (part.alone_since >= 0) network_.unwatch(part.id);
  }
}

// Whether the part has been alone on its ports for a period; else it is watched from now on.
bool Rounds::tried(Part& part, std::int32_t round, std::int32_t period) {
  if (part.alone_since < 0 && network_.watch(part.id)) part.alone_since = round;
  return part.alone_since >= 0 && round - part.alone_since >= period;
}

// A round of the part has begun.
void Rounds::look_at(Part& part) {
  Beginning now;
  now.round = part.repeats.rounds_before(part.seen.value());
  now.time = clock_.now();
  // Also where another part's have begun since: messages are events that `concerns` does not know.
  const bool alone = of_.ranks.size() == 1;
  for (const PlanCode& plan : matching_.plans())
    if (plan.steps.exists() && !(alone && part.open)) {  // message by message
      leave_apart();
      return parts_.clear();
    }
  if (part.open) {
    if (now.round == part.open->begin.round + part.open->begin.period) close(part, read(part));
    return;
  }
  for (const Beginning& before : part.past) {
    if (before.period != now.round - before.round || before.period == 0) continue;
    now = read(part);
    const auto growth = StateReader::growth(*before.state, *now.state, now.time - before.time);
    const std::int64_t times = growth && apart(part, before, now) ? periods(part, before, now) : 0;
    if (times < 2) break;
    now.period = before.period;
    if (of_.ranks.size() > 1 && !tried(part, now.round, before.period)) break;
    for (const RankId rank : *part.ranks) accounts_.set_stands_for(rank, times);
    part.open = Open{times, std::move(now), records_.kept(), network_.log().size()};
    return;
  }
  // The state is looked at where times have come to repeat.
  std::deque<Beginning>& past = part.past;
  const std::size_t longest = looks_in(now.round, part.looked) ? kLongestPeriod : 0;
  for (std::size_t period = 1; period <= longest && 2 * period <= past.size(); ++period) {
    const Time one = past[period - 1].time, two = past[2 * period - 1].time;
    if (now.time - one != one - two) continue;
    if (!now.state) now = read(part);
    now.period = static_cast<std::int32_t>(period);
    break;
  }
  past.push_front(std::move(now));
  if (past.size() > 2 * kLongestPeriod) past.pop_back();
}

// Whether nothing that the part does, or waits for, from one beginning to the other is of others too, and no step can
// end without it.
bool Rounds::apart(const Part& part, const Beginning& before, const Beginning& now) const {
  if (of_.ranks.size() == 1) return true;
  for (const StreamId id : streams_.ids())
    if (streams_.status(id) != Status::done && streams_.place(id).step < part.step) return false;
  for (const TransferId id : matching_.live())
    if (!matching_.group(matching_.transfer(id).group).part.exists()) return false;
  for (const RankId rank : *part.ranks) {
    const RoleCode& code = *ranks_[rank].code;
    const auto slots = passed(rank, before, now);
    if (!slots) return false;
    std::set<program::BodyId> bodies;
    for (std::int32_t slot = slots->first; slot <= slots->last; ++slot) bodies.insert(code.slot_body[SlotId(slot)]);
    for (const program::BodyId body : bodies)
      for (std::int32_t stream = 0; stream < code.streams; ++stream)
        for (const SegmentId id : code.segments_of(body, stream))
          if (!own(part, rank, code.segments[id])) return false;
  }
  return true;
}

// Whether all that the segment posts is between the part's ranks.
bool Rounds::own(const Part& part, RankId rank, const Segment& segment) const {
  bool all = true;
  for_sequences(*ranks_[rank].code, segment, [&](std::int32_t sequence) {
    const ProcessGroupId group = matching_.group_of(rank, sequence);
    all = all && group.exists() && matching_.group(group).part == part.id;
  });
  return all;
}

Rounds::Beginning Rounds::read(Part& part) {
  Beginning now;
  ++part.looked;
  now.round = part.repeats.rounds_before(part.seen.value());
  now.time = clock_.now();
  now.state.emplace();
  show(part, *now.state);
  for (const RankId rank : *part.ranks) {
    const bool running =
        ranks_[rank].main_stream.exists() && streams_.status(ranks_[rank].main_stream) == Status::running;
    const Time since = running ? clock_.now() : streams_.asked_since(rank);
    if (since == Time::max()) continue;  // nobody asks
    for (const StreamId id : ranks_[rank].streams()) accounts_.histories().show(Accounts::cause(id), since, *now.state);
    accounts_.histories().show(accounts_.host(rank), since, *now.state);
  }
  for (const StreamId id : streams_.ids()) {
    now.slots.push_back(streams_.place(id).slot);
    now.progress.push_back(streams_.progress(id));
  }
  for (const RankId rank : ranks_.ids()) {
    const RoleCode& code = *ranks_[rank].code;
    now.slots.push_back(code.syncs.empty() ? SlotId(0) : code.syncs[hosts_.sync(rank)].slot);
    now.progress.push_back(hosts_.progress(rank));
    now.late.push_back(hosts_.late(rank));
  }
  return now;
}

// All but histories, of which part is read and all is moved.
template <class Visitor>
void Rounds::show(const Part& part, Visitor& visitor) {
  visitor.thing();
  visitor.same(accounts_.opened());
  for (const RankId rank : *part.ranks) {
    visitor.thing();
    visitor.same(devices_.state(rank));
    hosts_.show(rank, visitor);
    for (const StreamId id : ranks_[rank].streams()) {
      visitor.thing();
      streams_.show(id, visitor);
      const Status status = streams_.status(id);
      if (status == Status::running) kernels_.show(id, visitor);
      if (status == Status::transferring || status == Status::copying) transfers_.show(id, visitor);
      staged_sends_.show(id, visitor);
      if (records_.wanted(rank, streams_.place(id).step)) records_.show(id, visitor);
    }
  }
  const bool all = of_.ranks.size() == 1;
  std::vector<TransferId> live = matching_.live();
  std::erase_if(live,
                [&](TransferId id) { return !all && matching_.group(matching_.transfer(id).group).part != part.id; });
  for (const TransferId id : live) {
    visitor.thing();
    matching_.show(id, visitor);
  }
  std::vector<std::int32_t> order(live.empty() ? 0 : std::max_element(live.begin(), live.end())->index() + 1, -1);
  for (std::size_t i = 0; i < live.size(); ++i) order[live[i].index()] = static_cast<std::int32_t>(i);
  std::vector<Network::InFlight> in_flight = network_.in_flight();
  for (Network::InFlight& one : in_flight) {
    const auto owner = static_cast<std::size_t>(one.owner);
    one.owner = owner < order.size() ? order[owner] : -1;
  }
  std::erase_if(in_flight, [](const Network::InFlight& one) { return one.owner < 0; });
  std::sort(in_flight.begin(), in_flight.end(), [](const Network::InFlight& a, const Network::InFlight& b) {
    return std::pair(a.owner, a.defined) < std::pair(b.owner, b.defined);
  });
  for (const Network::InFlight& one : in_flight) {
    visitor.thing();
    visitor.same(one.owner);
    network_.show(one.slot, visitor);
  }
}

// How many periods from now on go as the one from `before` to now.
std::int64_t Rounds::periods(const Part& part, const Beginning& before, const Beginning& now) const {
  std::int64_t most = INT32_MAX;
  for (const RankId rank : *part.ranks) {
    const auto slots = passed(rank, before, now);
    if (!slots) return 0;
    most = std::min(most, periods_of_code(rank, *slots, before, now));
    most = std::min(most, periods_of_waits(rank, before, now));
    most = std::min(most, periods_of_host(rank, *slots, before, now));
  }
  return most;
}

// All that moves has passed the same slots.
std::optional<Rounds::Passed> Rounds::passed(RankId rank, const Beginning& before, const Beginning& now) const {
  std::optional<Passed> all;
  const std::int32_t streams = ranks_[rank].code->streams;
  for (std::int32_t stream = -1; stream < streams; ++stream) {
    const std::size_t i = place(rank, stream);
    if (!moved(i, before, now)) continue;
    const Passed own{now.slots[i] - before.slots[i], before.slots[i].value(), now.slots[i].value()};
    if (own.slots <= 0 || (all && all->slots != own.slots)) return std::nullopt;
    if (!all) all = own;
    all->first = std::min(all->first, own.first), all->last = std::max(all->last, own.last);
  }
  return all;
}

// As far as bodies repeat, and waits refer to what was as long ago, or to nothing that has changed.
std::int64_t Rounds::periods_of_code(RankId rank, const Passed& passed, const Beginning& before,
                                     const Beginning& now) const {
  const RoleCode& code = *ranks_[rank].code;
  const auto slots = static_cast<std::int32_t>(code.slot_body.size());
  std::int32_t until = passed.first;
  while (until + passed.slots < slots && code.slot_body[SlotId(until)] == code.slot_body[SlotId(until + passed.slots)])
    ++until;
  for (const Waited& waited : waited_.at(&code))
    until = std::min(until, alike_until(waited, rank, passed, until, before, now));
  return until <= passed.last ? 0 : (until - 1 - passed.last) / passed.slots + 1;
}

// Until where slots have waits, each and the one a period later, that refer to what is as long ago, or that were met
// before their period began and so hold nothing.
std::int32_t Rounds::alike_until(const Waited& waited, RankId rank, const Passed& passed, std::int32_t until,
                                 const Beginning& before, const Beginning& now) const {
  const RoleCode& code = *ranks_[rank].code;
  const std::size_t of = place(rank, waited.stream);
  const std::int64_t progress = grown(of, before, now);
  const std::int64_t known = before.progress[of] - waited.before - waited.per_step * step_of(rank);
  const std::int32_t* const row = code.progress.data() + waited.row;
  const std::int32_t highest = passed.last - passed.slots;  // that anything of the rank was at
  for (std::int32_t first = passed.first; first < std::min(passed.first + passed.slots, until); ++first) {
    if (code.slot_body[SlotId(first)] != waited.body) continue;
    bool moves = true, met = true;
    for (std::int32_t slot = first; slot < until + passed.slots; slot += passed.slots) {
      met = met && row[slot] <= known + std::max(0, slot - highest) / passed.slots * progress;
      moves = moves && (slot == first || row[slot] - row[slot - passed.slots] == progress);
      if (!met && !moves) until = slot - passed.slots;
    }
  }
  return until;
}

std::int32_t Rounds::step_of(RankId rank) const {
  const RankInfo& info = ranks_[rank];
  return streams_.place(info.main_stream.exists() ? info.main_stream : info.first_stream).step;
}

// Until what stands still would go on.
std::int64_t Rounds::periods_of_waits(RankId rank, const Beginning& before, const Beginning& now) const {
  std::int64_t most = INT32_MAX;
  const auto limit = [&](const UnmetWait& wait) {
    const std::size_t of = place(rank, wait.stream);
    const std::int64_t progress = grown(of, before, now);
    if (progress > 0) most = std::min(most, (wait.needed - now.progress[of] - 1) / progress);
  };
  const RankInfo& info = ranks_[rank];
  for (const StreamId id : info.streams()) {
    if (moved(id.index(), before, now)) continue;
    const Status status = streams_.status(id);
    if (status == Status::waiting)
      limit(streams_.held_by(id));
    else if (status != Status::done && status != Status::held_by_host && status != Status::transferring)
      return 0;
  }
  if (!info.code->syncs.empty() && !moved(host(rank), before, now) && hosts_.held_by(rank).wait.exists())
    limit(hosts_.held_by(rank));
  return most;
}

// A host that waits for nothing launches ahead, and further ahead with every period.
std::int64_t Rounds::periods_of_host(RankId rank, const Passed& passed, const Beginning& before,
                                     const Beginning& now) const {
  const RankInfo& info = ranks_[rank];
  const RoleCode& code = *info.code;
  if (moved(host(rank), before, now)) return INT32_MAX;
  const std::int64_t launches =
      code.slot_issue[SlotId(passed.first + passed.slots)] - code.slot_issue[SlotId(passed.first)];
  if (now.late[rank.index()] != before.late[rank.index()] || code.launch_cost * launches > now.time - before.time)
    return 0;
  if (code.syncs.empty()) return INT32_MAX;
  const std::int32_t step = step_of(rank);
  if (hosts_.step(rank) != step) return hosts_.step(rank) > step ? INT32_MAX : 0;
  const std::int32_t room = code.syncs[hosts_.sync(rank)].slot.value() - passed.last - 1;
  return std::max(0, room) / passed.slots;
}

// The period is over that stands for others: all of the part goes on as if they were over too.
void Rounds::close(Part& part, const Beginning& now) {
  const Open& open = *part.open;
  const Time period = now.time - open.begin.time;
  const auto growth = StateReader::growth(*open.begin.state, *now.state, period);
  if (!growth && of_.ranks.size() > 1) throw PartsMeet();  // before it was watched
  REHEARSE_CHECK(growth, "a round of micro-batches does not go as the one before it");
  const std::int64_t left_out = open.times - 1;
  const Time away = period * left_out;
  const auto slots_of = [&](RankId rank) {
    return of_.of_rank[rank] == part.id ? passed(rank, open.begin, now)->slots : 0;
  };
  records_.keep_again(open.records, left_out, period, slots_of);
  network_.log_again(open.flown, left_out, period, of_.ranks.size() == 1 ? PartId() : part.id);
  // What is to come is looked at as it is now.
  clock_.queue().postpone(away, [&](const Event& event) { return concerns(part, event); });
  StateMover mover(*growth, left_out);
  show(part, mover);
  for (const RankId rank : *part.ranks) {
    for (const StreamId id : ranks_[rank].streams()) accounts_.histories().move(Accounts::cause(id), away);
    accounts_.histories().move(accounts_.host(rank), away);
    accounts_.set_stands_for(rank, 1);
  }
  part.seen = streams_.place(part.watched).slot;
  part.past.clear();
  part.open.reset();
  part.back = now.time + away;
  next_back_ = std::min(next_back_, part.back);
}

// Whether an event that is to come is of the part.
bool Rounds::concerns(const Part& part, const Event& event) const {
  if (of_.ranks.size() == 1) return true;
  const auto of_transfer = [&](TransferId id) { return matching_.group(matching_.transfer(id).group).part == part.id; };
  switch (Clock::kind(event)) {
    case EventKind::kernels:
    case EventKind::launch:
    case EventKind::staged_copy:
      return of_.of_rank[streams_.place(Clock::about<StreamId>(event)).rank] == part.id;
    case EventKind::bytes:
      return of_transfer(Clock::about<TransferId>(event));
    case EventKind::activity: {
      const std::uint32_t flight = Clock::about<std::uint32_t>(event);
      return network_.current(flight, event.version) && of_transfer(TransferId(network_.owner(flight)));
    }
    default:
      REHEARSE_CHECK(false, "an event of kind {} while rounds are left out", static_cast<int>(Clock::kind(event)));
  }
}

// Its time has come.
void Rounds::come_back(Part& part) {
  network_.unwatch(part.id);
  part.alone_since = -1;
  part.back = Time();
  next_back_ = Time::max();
  for (const Part& other : parts_)
    if (other.back > Time()) next_back_ = std::min(next_back_, other.back);
}

}  // namespace rehearse::engine
