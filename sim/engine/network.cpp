// Activities in flight: loads, components of overloaded resources, rates and ends. See network.h for units and rules.
#include "sim/engine/network.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::engine {

namespace {

constexpr int kRateBits = 32;
constexpr std::uint64_t kFullRate = std::uint64_t{1} << kRateBits;

}  // namespace

Network::Network(const cluster::Cluster& cluster, EventQueue& queue, std::uint32_t target_base, ResourceClasses classes)
    : queue_(queue),
      target_base_(target_base),
      classes_(std::move(classes)),
      ports_(classes_.any() ? classes_.first.size() : cluster.resources().size()) {
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    const std::size_t resource = classes_.any() ? static_cast<std::size_t>(classes_.first[p]) : p;
    ports_[p].capacity = cluster.resources()[resource].capacity.per_s();
  }
}

// Of g alike activities that each put the same bytes on n of the c alike resources, g n / c put them on each of these.
ActivityId Network::define(const collective::Activity& activity, std::int64_t alike, PartId part) {
  Defined defined;
  defined.part = part;
  defined.duration = activity.min_duration;
  defined.first = static_cast<std::int32_t>(uses_.size());
  REHEARSE_CHECK(defined.duration > Time(), "an activity that takes no time");
  for (const collective::Use& use : activity.uses) defined.bytes = std::max(defined.bytes, use.bytes);
  const auto add = [&](std::int32_t port, std::int64_t bytes, std::int64_t times) {
    const std::int64_t weight = mul_div_up(bytes, kWeightOne, defined.bytes);
    const std::int64_t load = mul_div_up(bytes, kPicosecondsPerSecond, defined.duration.ps());
    uses_.push_back({port, weight * times, load * times});
    use_bytes_.push_back({bytes, times});
  };
  if (classes_.any()) {
    std::map<std::pair<std::int32_t, std::int64_t>, std::int64_t> uses;  // port and bytes: resources
    for (const collective::Use& use : activity.uses)
      if (use.bytes > 0) ++uses[{port_of(use.resource), use.bytes}];
    for (const auto& [what, resources] : uses) {
      const std::int64_t all = resources * alike, ports = classes_.alike[static_cast<std::size_t>(what.first)];
      REHEARSE_CHECK(all % ports == 0, "{} uses of {} resources that are alike", all, ports);
      add(what.first, what.second, all / ports);
    }
  } else {
    for (const collective::Use& use : activity.uses)
      if (use.bytes > 0) add(use.resource, use.bytes, 1);
  }
  defined.last = static_cast<std::int32_t>(uses_.size());
  if (defined.bytes > 0) defined.limit = mul_div_up(defined.bytes, kPicosecondsPerSecond, defined.duration.ps());
  return defined_.push_back(defined);
}

void Network::touch(std::int32_t id) {
  Port& port = ports_[static_cast<std::size_t>(id)];
  if (port.touched) return;
  port.touched = true;
  touched_.push_back(id);
}

void Network::start(ActivityId id, std::int32_t owner, Time now, Factor factor) {
  std::int32_t slot;
  if (free_.empty()) {
    slot = static_cast<std::int32_t>(flights_.size());
    flights_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  const Defined& what = defined_[id];
  Flight& flight = flights_[static_cast<std::size_t>(slot)];
  flight.defined = id, flight.owner = owner;
  const Time duration = factor == kFactorOne ? what.duration : std::max(Time::from_ps(1), times(what.duration, factor));
  flight.left = static_cast<Int128>(duration.ps()) << kRateBits;
  flight.begun = flight.since = now, flight.rate = 0;
  flight.limit = what.limit, flight.share = -1;
  const auto count = static_cast<std::size_t>(what.last - what.first);
  flight.places.resize(count);
  flight.hot.clear();
  flight.hot_places.resize(count);
  const Use* const uses = uses_.data() + what.first;
  std::int32_t* const places = flight.places.data();
  for (std::size_t u = 0; u < count; ++u) {
    const Use& use = uses[u];
    Port& port = ports_[static_cast<std::size_t>(use.port)];
    const User self{slot, static_cast<std::int32_t>(u)};
    const bool before = port.overloaded();
    places[u] = static_cast<std::int32_t>(port.users.size());
    port.users.push_back(self);
    port.load += use.load;
    if (!port.overloaded()) continue;
    touch(use.port);
    if (before)
      heat(self);
    else
      port.users.each([&](const User& user) { heat(user); });
  }
  fresh_.push_back(slot);
  if (!watched_.empty()) watch_load(what, true);
}

bool Network::watch(PartId part) {
  Watched& watched = watched_.emplace_back(Watched{part, {}, {}});
  watched.now.resize(ports_.size());
  bool alone = true;
  const std::vector<InFlight> flying = in_flight();
  const auto for_own = [&](const auto& function) {
    for (const InFlight& one : flying) {
      const Defined& what = defined_[one.defined];
      if (what.part != part) continue;
      for (std::int32_t u = what.first; u < what.last; ++u) function(uses_[static_cast<std::size_t>(u)]);
    }
  };
  for_own([&](const Use& use) { watched.now[static_cast<std::size_t>(use.port)] += use.load; });
  watched.most = watched.now;
  for_own([&](const Use& use) { alone = alone && !shared_out(use.port); });
  if (!alone) watched_.pop_back();
  return alone;
}

void Network::unwatch(PartId part) {
  std::erase_if(watched_, [part](const Watched& watched) { return watched.part == part; });
}

// An activity has started, or ended.
void Network::watch_load(const Defined& what, bool more) {
  for (Watched& watched : watched_)
    for (std::int32_t u = what.first; u < what.last && watched.part == what.part; ++u) {
      const Use& use = uses_[static_cast<std::size_t>(u)];
      const auto port = static_cast<std::size_t>(use.port);
      watched.now[port] += more ? use.load : -use.load;
      watched.most[port] = std::max(watched.most[port], watched.now[port]);
    }
  for (std::int32_t u = what.first; u < what.last && more; ++u)
    parts_meet_ = parts_meet_ || shared_out(uses_[static_cast<std::size_t>(u)].port);
}

// Whether a part that is watched and others may overload the port together.
bool Network::shared_out(std::int32_t id) const {
  const Port& port = ports_[static_cast<std::size_t>(id)];
  std::int64_t all = port.load, watched_most = 0, largest = 0;
  for (const Watched& watched : watched_) {
    const std::int64_t most = watched.most[static_cast<std::size_t>(id)];
    all += most - watched.now[static_cast<std::size_t>(id)];
    watched_most += most;
    largest = std::max(largest, most);
  }
  return all > port.capacity && watched_most > 0 && largest < all;
}

// The port of this use is overloaded now.
void Network::heat(const User& user) {
  Flight& flight = flights_[static_cast<std::size_t>(user.flight)];
  flight.hot_places[static_cast<std::size_t>(user.use)] = static_cast<std::int32_t>(flight.hot.size());
  const Use& use = uses_[static_cast<std::size_t>(defined_[flight.defined].first + user.use)];
  flight.hot.push_back({use.port, user.use, use.weight});
}

// It no longer is.
void Network::cool(const User& user) {
  Flight& flight = flights_[static_cast<std::size_t>(user.flight)];
  const auto use = static_cast<std::size_t>(user.use);
  const std::int32_t place = flight.hot_places[use];
  const HotUse moved = flight.hot.back();
  flight.hot[static_cast<std::size_t>(place)] = moved;
  flight.hot_places[static_cast<std::size_t>(moved.use)] = place;
  flight.hot.pop_back();
}

void Network::leave(std::int32_t slot, const Defined& what) {
  const auto count = static_cast<std::size_t>(what.last - what.first);
  const Use* const uses = uses_.data() + what.first;
  const std::int32_t* const places = flights_[static_cast<std::size_t>(slot)].places.data();
  for (std::size_t u = 0; u < count; ++u) {
    const Use& use = uses[u];
    Port& port = ports_[static_cast<std::size_t>(use.port)];
    const bool before = port.overloaded();
    if (before) touch(use.port);
    port.load -= use.load;
    const auto place = static_cast<std::size_t>(places[u]);
    if (const User moved = port.users.take_back(); place < port.users.size()) {
      port.users[place] = moved;
      flights_[static_cast<std::size_t>(moved.flight)].places[static_cast<std::size_t>(moved.use)] =
          static_cast<std::int32_t>(place);
    }
    if (before && !port.overloaded()) port.users.each([&](const User& user) { cool(user); });
  }
}

std::int32_t Network::finish(std::uint32_t slot) {
  Flight& flight = flights_[slot];
  ++flight.version;
  if (logging_) log_.push_back({flight.defined, -1, flight.begun, flight.end});
  leave(static_cast<std::int32_t>(slot), defined_[flight.defined]);
  if (!watched_.empty()) watch_load(defined_[flight.defined], false);
  free_.push_back(static_cast<std::int32_t>(slot));
  return flight.owner;
}

std::vector<Network::InFlight> Network::in_flight() const {
  std::vector<char> landed(flights_.size(), 0);
  for (const std::int32_t slot : free_) landed[static_cast<std::size_t>(slot)] = 1;
  std::vector<InFlight> all;
  for (std::size_t slot = 0; slot < flights_.size(); ++slot)
    if (landed[slot] == 0)
      all.push_back({flights_[slot].owner, flights_[slot].defined, static_cast<std::uint32_t>(slot)});
  return all;
}

void Network::log_again(std::size_t first, std::int64_t times, Time period, PartId part) {
  const auto number = static_cast<std::int32_t>(again_.size());
  again_.push_back({static_cast<std::int32_t>(times), period});
  for (std::size_t i = first; i < log_.size(); ++i) {
    Flown& flown = log_[i];
    if (part.exists() && defined_[flown.defined].part != part) continue;
    REHEARSE_CHECK(flown.again < 0, "a round is left out twice");
    flown.again = number;
  }
}

void Network::set_capacity(cluster::ResourceId resource, std::int64_t per_s) {
  const std::int32_t id = port_of(resource);
  Port& port = ports_[static_cast<std::size_t>(id)];
  const bool before = port.overloaded();
  port.capacity = per_s;
  const bool after = port.overloaded();
  if (before || after) touch(id);
  if (before == after) return;
  port.users.each([&](const User& user) { after ? heat(user) : cool(user); });
}

void Network::settle_changes(Time now) {
  for (const std::int32_t port : touched_) {
    ++stamp_;
    if (!ports_[static_cast<std::size_t>(port)].touched) continue;  // was in an earlier component
    collect_component(port);
    solve_component(now);
  }
  touched_.clear();
  for (const std::int32_t slot : fresh_) {
    if (flights_[static_cast<std::size_t>(slot)].rate != 0) continue;
    set_rate(slot, kFullRate, now);
    schedule(slot);
  }
  fresh_.clear();
}

// The flights connected to a port through overloaded ones, as a system to be solved.
void Network::collect_component(std::int32_t first) {
  component_.clear();
  frontier_.clear();
  system_.clear();
  add_port(first);
  for (std::size_t next = 0; next < frontier_.size(); ++next)
    ports_[static_cast<std::size_t>(frontier_[next])].users.each([&](const User& user) {
      Flight& flight = flights_[static_cast<std::size_t>(user.flight)];
      if (flight.seen == stamp_) return;
      flight.seen = stamp_;
      component_.push_back({user.flight, flight.share, flight.end});
      system_.add_activity(flight.limit);
      for (const HotUse& hot : flight.hot) {
        if (ports_[static_cast<std::size_t>(hot.port)].seen != stamp_) add_port(hot.port);
        system_.add_use(ports_[static_cast<std::size_t>(hot.port)].local, hot.weight);
      }
      system_.end_activity();
    });
}

void Network::add_port(std::int32_t id) {
  Port& port = ports_[static_cast<std::size_t>(id)];
  port.seen = stamp_;
  port.touched = false;
  port.local = static_cast<std::int32_t>(frontier_.size());
  frontier_.push_back(id);
  system_.capacity.push_back(port.capacity);
}

void Network::solve_component(Time now) {
  if (component_.empty()) return;
  ++solves_;
  system_.solve();
  for (std::size_t i = 0; i < component_.size(); ++i) {
    Member& member = component_[i];
    if (system_.rate[i] == member.share) continue;
    Flight& flight = flights_[static_cast<std::size_t>(member.flight)];
    flight.share = system_.rate[i];
    std::uint64_t rate = kFullRate;
    if (flight.share < flight.limit) {
      const Defined& what = defined_[flight.defined];
      const UInt128 moved = static_cast<UInt128>(flight.share) * static_cast<UInt128>(what.duration.ps());
      const UInt128 whole = static_cast<UInt128>(what.bytes) * static_cast<UInt128>(kPicosecondsPerSecond);
      rate = std::clamp<std::uint64_t>(static_cast<std::uint64_t>((moved << kRateBits) / whole), 1, kFullRate);
    }
    set_rate(member.flight, rate, now);
    member.end = flight.end;
  }
  schedule_component();
}

// A port that is overloaded no more connects its activities for this one time: the next end of one need not concern
// the others.
void Network::schedule_component() {
  Time next = Time::max();
  if (ports_[static_cast<std::size_t>(frontier_.front())].overloaded())
    for (const Member& member : component_) next = std::min(next, member.end);
  for (const Member& member : component_)
    if (member.end <= next) schedule(member.flight);
}

void Network::schedule(std::int32_t slot) {
  Flight& flight = flights_[static_cast<std::size_t>(slot)];
  if (flight.scheduled) return;
  flight.scheduled = true;
  queue_.push(flight.end, target_base_ | static_cast<std::uint32_t>(slot), flight.version);
}

void Network::set_rate(std::int32_t slot, std::uint64_t rate, Time now) {
  Flight& flight = flights_[static_cast<std::size_t>(slot)];
  if (flight.rate == rate) return;
  flight.left -= static_cast<Int128>(flight.rate) * (now - flight.since).ps();
  flight.since = now;
  flight.rate = rate;
  const Int128 left = std::max<Int128>(flight.left, 0), up = left + static_cast<Int128>(rate) - 1;
  // At the full rate, which most have, without a division of 128 bits.
  const Int128 rest = rate == kFullRate ? up >> kRateBits : up / static_cast<Int128>(rate);
  flight.end = now + Time::from_ps(static_cast<std::int64_t>(rest));
  ++flight.version;
  flight.scheduled = false;
}

std::int64_t Network::flow(cluster::ResourceId resource) const {
  const Port& port = ports_[static_cast<std::size_t>(port_of(resource))];
  Int128 sum = 0;
  port.users.each([&](const User& user) {
    const Flight& flight = flights_[static_cast<std::size_t>(user.flight)];
    const Defined& what = defined_[flight.defined];
    sum += static_cast<Int128>(uses_[static_cast<std::size_t>(what.first + user.use)].load) * flight.rate;
  });
  return static_cast<std::int64_t>((sum + kFullRate - 1) >> kRateBits);
}

}  // namespace rehearse::engine
