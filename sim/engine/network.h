// What is in flight and how fast it moves. An activity (collective.h) that runs alone takes its min_duration to the
// picosecond; where activities together would load a resource beyond its capacity they get max-min fair shares
// (max_min.h).
//
// Progress. `left` counts picoseconds at full rate in units of 2^-32; `rate` is the share of the full rate in the same
// units, rounded down. After dt picoseconds left has gone down by rate * dt, and an activity ends at now + ceil(left /
// rate).
//
// Which activities are solved together. A resource is overloaded while the full rates of its activities add up to more
// than its capacity; no other can limit anything, so an activity that touches none runs at its full rate and never
// meets the solver. When an activity starts on or leaves an overloaded resource, the activities connected to that
// resource through overloaded ones are solved again, once, at the end of the instant (settle). Of those connected only
// the next end, or ends, are scheduled: with these the others are solved again, since an activity that leaves touches
// every overloaded resource through which it was connected to them.
//
// Host cores are not a resource here: moving bytes takes no cores from the kernels of a shared host.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/ids.h"
#include "sim/engine/max_min.h"
#include "sim/engine/noise.h"

namespace rehearse::engine {

// Resources that carry the same at all times, one port for each class of them; none given: each is a class of its own.
struct ResourceClasses {
  std::vector<std::int32_t> of;     // by resource
  std::vector<std::int32_t> first;  // by class: the lowest
  std::vector<std::int64_t> alike;  // by class: how many
  bool any() const { return !of.empty(); }
};

class Network {
 public:
  // Ends are pushed to `queue` as events with target `target_base | slot`. Both must outlive the network.
  Network(const cluster::Cluster& cluster, EventQueue& queue, std::uint32_t target_base, ResourceClasses classes = {});

  // Registers an activity of a plan, which stands for `alike` of them; the id is for start(). min_duration must be
  // positive. `part`: whose ranks alone it is between.
  ActivityId define(const collective::Activity& activity, std::int64_t alike = 1, PartId part = {});
  // The bytes of a defined activity begin to move; `owner` comes back from finish(). Its end is scheduled by settle().
  // They take `factor` (noise.h) times as long as alone they would.
  void start(ActivityId defined, std::int32_t owner, Time now, Factor factor = kFactorOne);
  std::int32_t owner(std::uint32_t slot) const { return flights_[slot].owner; }
  bool current(std::uint32_t slot, std::uint32_t version) const { return flights_[slot].version == version; }
  // The end event of `slot` came up and is current. Returns the owner.
  std::int32_t finish(std::uint32_t slot);
  // All starts and ends of this instant are in: shares are solved where they changed, ends scheduled.
  void settle(Time now) {
    if (!fresh_.empty() || !touched_.empty()) settle_changes(now);
  }
  // A link fault begins or ends; settle() then shares what there is.
  void set_capacity(cluster::ResourceId resource, std::int64_t per_s);
  std::int64_t solves() const { return solves_; }

  // What ended once more, so many times, a period later each time.
  struct Again {
    std::int32_t times = 0;
    Time period;
  };
  // What has ended since open_log(), in order, for link_use.h; there is one for every transfer.
  struct Flown {
    ActivityId defined;
    std::int32_t again = -1;  // in again_; -1: it ended once
    Time begin, end;
  };
  static_assert(sizeof(Flown) == 24);
  void open_log() { logging_ = true; }
  void close_log() { logging_ = false; }
  // What has ended of a part's (none: of all) since the log's entry number `first`, which is new, ended once more, so
  // many times, `period` later each time.
  void log_again(std::size_t first, std::int64_t times, Time period, PartId part);
  // From now on what a part loads each port with counts as the most it has loaded it with since, also while it loads it
  // with less. parts_meet(): a port has been overloaded so by a part that is watched and by others together. False, and
  // it is not watched: one is already.
  bool watch(PartId part);
  void unwatch(PartId part);
  bool parts_meet() const { return parts_meet_; }
  // What is in flight, and whose it is; and of one of these its state.
  struct InFlight {
    std::int32_t owner;
    ActivityId defined;
    std::uint32_t slot;
  };
  std::vector<InFlight> in_flight() const;
  template <class Visitor>
  void show(std::uint32_t slot, Visitor& visitor) {
    Flight& flight = flights_[slot];
    visitor.same(flight.defined);
    visitor.same(flight.share);
    visitor.same(flight.rate);
    visitor.same(static_cast<std::int64_t>(flight.left >> 64));
    visitor.same(static_cast<std::int64_t>(flight.left));
    visitor.same(flight.scheduled);
    visitor.recent(flight.begun);
    visitor.recent(flight.since);
    visitor.recent(flight.end);
  }
  std::size_t ports() const { return ports_.size(); }
  const ResourceClasses& classes() const { return classes_; }
  const std::vector<Flown>& log() const { return log_; }
  Again again(const Flown& flown) const {
    return flown.again < 0 ? Again() : again_[static_cast<std::size_t>(flown.again)];
  }
  // The id that the next activity defined gets.
  ActivityId definitions() const { return defined_.next(); }
  // Calls use(port, bytes, times) for what a defined activity puts on each port, so many times the bytes; without
  // classes of resources a port is a resource.
  template <class Function>
  void for_uses(ActivityId defined, Function&& use) const {
    const Defined& what = defined_[defined];
    for (auto u = static_cast<std::size_t>(what.first); u < static_cast<std::size_t>(what.last); ++u)
      use(uses_[u].port, use_bytes_[u].bytes, use_bytes_[u].times);
  }
  // Bytes/s on a resource now, for tests: sum over its activities, rounded up.
  std::int64_t flow(cluster::ResourceId resource) const;

 private:
  struct Use {
    std::int32_t port;
    std::int64_t weight;  // as MaxMin
    std::int64_t load;    // bytes/s at full rate, those of one activity rounded up
  };
  struct UseBytes {
    std::int64_t bytes, times;
  };
  struct Defined {
    std::int32_t first = 0, last = 0;  // uses_
    Time duration;                     // alone
    std::int64_t bytes = 0;            // of its largest use
    std::int64_t limit = 0;            // bytes/s on its largest use, rounded up
    PartId part;
  };
  struct Watched {
    PartId part;
    std::vector<std::int64_t> now, most;  // by port: as Port::load
  };
  // A use that is on an overloaded port.
  struct HotUse {
    std::int32_t port, use;
    std::int64_t weight;
  };
  // What a component is made of comes first, in one cache line: of many flights memory is what solving waits for.
  struct alignas(64) Flight {
    std::vector<HotUse> hot;
    std::int64_t limit = 0, share = -1;  // bytes/s on its largest use: at most, as solved last; -1: not yet
    Time end;
    std::uint32_t version = 0, seen = 0;  // seen: stamp of the last component it was in
    ActivityId defined;
    std::int32_t owner = -1;
    Int128 left = 0;
    Time begun, since;
    std::uint64_t rate = 0;                // 0: not set yet
    bool scheduled = false;                // its end, of this version
    std::vector<std::int32_t> places;      // of each of its uses: where in the port's users
    std::vector<std::int32_t> hot_places;  // of each of its uses that is there: where in `hot`
  };
  struct Member {  // of a component
    std::int32_t flight;
    std::int64_t share;
    Time end;
  };
  struct User {
    std::int32_t flight, use;  // the use-th of the flight's uses
  };
  // The first of them lies here: of most ports it is the only one.
  class Users {
   public:
    std::size_t size() const { return static_cast<std::size_t>(count_); }
    User& operator[](std::size_t i) { return i == 0 ? first_ : others_[i - 1]; }
    const User& operator[](std::size_t i) const { return i == 0 ? first_ : others_[i - 1]; }
    void push_back(const User& user) {
      if (count_++ == 0)
        first_ = user;
      else
        others_.push_back(user);
    }
    // The last of them, taken away.
    User take_back() {
      if (--count_ == 0) return first_;
      const User last = others_.back();
      others_.pop_back();
      return last;
    }
    template <class Function>
    void each(Function&& function) const {
      if (count_ > 0) function(first_);
      for (const User& user : others_) function(user);
    }

   private:
    std::vector<User> others_;
    User first_{-1, -1};
    std::int32_t count_ = 0;
  };
  // One cache line: an activity goes through those of all devices it is on.
  struct alignas(64) Port {
    std::int64_t capacity = 0, load = 0;
    [[no_unique_address]] Users users;  // what follows may lie in the rest of its last word
    std::uint32_t seen = 0;
    std::int32_t local = -1;  // index in the system being solved
    bool touched = false;
    bool overloaded() const { return load > capacity; }
  };
  static_assert(sizeof(Port) == 64);

  void heat(const User& user);
  void cool(const User& user);
  void leave(std::int32_t flight, const Defined& what);
  std::int32_t port_of(std::int32_t resource) const {
    return classes_.any() ? classes_.of[static_cast<std::size_t>(resource)] : resource;
  }
  void touch(std::int32_t port);
  void watch_load(const Defined& what, bool more);
  bool shared_out(std::int32_t port) const;
  void settle_changes(Time now);
  void collect_component(std::int32_t port);
  void add_port(std::int32_t port);
  void solve_component(Time now);
  void schedule_component();
  void schedule(std::int32_t flight);
  void set_rate(std::int32_t flight, std::uint64_t rate, Time now);

  EventQueue& queue_;
  std::uint32_t target_base_;
  const ResourceClasses classes_;
  std::vector<Port> ports_;  // by class of resources
  std::vector<Use> uses_;
  std::vector<UseBytes> use_bytes_;
  std::vector<Flown> log_;
  std::vector<Again> again_;
  bool logging_ = false;
  std::vector<Watched> watched_;
  bool parts_meet_ = false;
  IdVector<ActivityId, Defined> defined_;
  std::vector<Flight> flights_;
  std::vector<std::int32_t> free_, fresh_, touched_;
  std::vector<Member> component_;
  std::vector<std::int32_t> frontier_;  // the component's ports
  MaxMin system_;
  std::uint32_t stamp_ = 0;
  std::int64_t solves_ = 0;
};

}  // namespace rehearse::engine
