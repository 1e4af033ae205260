// See link_use.h. Links of one kind and capacity that carried the same for the same users are one entry, under the name
// of the first: on a cluster of 1,024 devices there are few different ones. Only those that are reported are looked up
// in time.
#include "sim/engine/link_use.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "sim/base/interrupt.h"

namespace rehearse::engine {

namespace {

constexpr std::size_t kLinksReported = 10;
constexpr std::int64_t kBins = 100, kWindow = 10;  // the busiest window is a tenth of the step, found to a hundredth

const char* name_of(cluster::ResourceKind kind) {
  constexpr const char* names[] = {"nvlink", "pcie", "nic", "link", "loopback", "host"};
  return names[static_cast<std::size_t>(kind)];
}

// Of `times` transfers, each of which moved so many bytes.
struct Interval {
  Time begin, end;
  std::int64_t bytes, times;
};

class LinkUses {
 public:
  LinkUses(const Network& network, const Matching& matching, const cluster::Cluster& cluster, Time from, Time to)
      : network_(network),
        matching_(matching),
        classes_(network.classes()),
        resources_(cluster.resources()),
        from_(from),
        to_(to) {}

  void describe(Outcome& outcome) {
    add_up();
    outcome.link_bytes.resize(resources_.size());
    for (std::size_t r = 0; r < resources_.size(); ++r)
      outcome.link_bytes[r] = bytes_[classes_.any() ? static_cast<std::size_t>(classes_.of[r]) : r];
    outcome.links.known = true;
    for (std::size_t p = 0; p < bytes_.size(); ++p) {
      outcome.links.bytes += bytes_[p] * alike(p);
      outcome.links.used += bytes_[p] > 0 ? alike(p) : 0;
    }
    gather_lines();
    choose();
    find_times();
    for (const Line& line : lines_) outcome.links.busiest.push_back(use_of(line));
  }

 private:
  // Of the result: links of one kind and capacity that carried the same for the same users.
  struct Line {
    std::size_t first = 0;  // port
    std::int64_t alike = 0;
    std::vector<Interval> intervals;
  };

  // The resource that stands for a port, and how many there are like it.
  std::size_t first(std::size_t port) const {
    return classes_.any() ? static_cast<std::size_t>(classes_.first[port]) : port;
  }
  const cluster::Resource& resource(std::size_t port) const { return resources_[first(port)]; }
  std::int64_t alike(std::size_t port) const { return classes_.any() ? classes_.alike[port] : 1; }

  bool in_step(Time end) const { return end > from_ && end <= to_; }
  // Calls see(begin, end) for each time that a transfer ended in the step.
  template <class Function>
  void each_in_step(const Network::Flown& flown, Function&& see) const {
    const Network::Again again = network_.again(flown);
    Time begin = flown.begin, end = flown.end;
    for (std::int32_t time = 0; time <= again.times; ++time, begin += again.period, end += again.period)
      if (in_step(end)) see(begin, end);
  }
  std::int64_t times_in_step(const Network::Flown& flown) const {
    const Network::Again again = network_.again(flown);
    if (in_step(flown.end) && in_step(flown.end + again.period * again.times)) return again.times + 1;
    std::int64_t times = 0;
    each_in_step(flown, [&](Time, Time) { ++times; });
    return times;
  }
  const std::int64_t* row(std::size_t port) const { return &by_user_[port * matching_.users().size()]; }

  void add_up() {
    IdVector<ActivityId, std::int64_t> runs(network_.definitions().index());
    for (const Network::Flown& flown : network_.log()) runs[flown.defined] += times_in_step(flown);
    const std::size_t users = matching_.users().size();
    bytes_.assign(network_.ports(), 0);
    by_user_.assign(network_.ports() * users, 0);
    for (const ActivityId d : runs.ids()) {
      check_interrupt();
      if (runs[d] == 0) continue;
      const auto user = static_cast<std::size_t>(matching_.user(d));
      network_.for_uses(d, [&](std::int32_t port, std::int64_t bytes, std::int64_t times) {
        const auto p = static_cast<std::size_t>(port);
        bytes_[p] += runs[d] * bytes * times;
        by_user_[p * users + user] += runs[d] * bytes * times;
      });
    }
  }

  // Used links, the busiest first; of alike ones the first stands for all.
  void gather_lines() {
    std::vector<std::size_t> used;
    for (std::size_t p = 0; p < bytes_.size(); ++p)
      if (bytes_[p] > 0) used.push_back(p);
    const std::size_t users = matching_.users().size();
    const auto order = [&](std::size_t a, std::size_t b) {
      const auto &x = resource(a), &y = resource(b);
      if (x.capacity != y.capacity || bytes_[a] != bytes_[b]) {
        const Int128 left = static_cast<Int128>(bytes_[a]) * y.capacity.per_s();
        const Int128 right = static_cast<Int128>(bytes_[b]) * x.capacity.per_s();
        if (left != right) return left > right;
        return x.capacity > y.capacity;
      }
      if (x.kind != y.kind) return x.kind < y.kind;
      const int rows = compare_rows(a, b, users);
      return rows != 0 ? rows < 0 : first(a) < first(b);
    };
    std::sort(used.begin(), used.end(), order);
    for (const std::size_t p : used) {
      const bool same = !lines_.empty() && resource(lines_.back().first).kind == resource(p).kind &&
                        resource(lines_.back().first).capacity == resource(p).capacity &&
                        compare_rows(lines_.back().first, p, users) == 0;
      if (!same) lines_.push_back({p, 0, {}});
      lines_.back().alike += alike(p);
    }
  }

  int compare_rows(std::size_t a, std::size_t b, std::size_t users) const {
    const std::int64_t *x = row(a), *y = row(b);
    const auto [p, q] = std::mismatch(x, x + users, y);
    return p == x + users ? 0 : *p < *q ? -1 : 1;
  }

  // The busiest of each kind, and then the busiest of all.
  void choose() {
    std::set<cluster::ResourceKind> kinds;
    std::vector<Line> chosen;
    std::vector<char> taken(lines_.size(), 0);
    std::size_t count = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      if (kinds.insert(resource(lines_[i].first).kind).second) taken[i] = 1, ++count;
    for (std::size_t i = 0; i < lines_.size() && count < kLinksReported; ++i)
      if (!taken[i]) taken[i] = 1, ++count;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      if (taken[i]) chosen.push_back(std::move(lines_[i]));
    lines_ = std::move(chosen);
  }

  void find_times() {
    struct OnLine {
      std::size_t line;
      std::int64_t bytes, times;
    };
    std::vector<std::int32_t> line_of(network_.ports(), -1);
    for (std::size_t i = 0; i < lines_.size(); ++i) line_of[lines_[i].first] = static_cast<std::int32_t>(i);
    IdVector<ActivityId, std::vector<OnLine>> uses(network_.definitions().index());
    for (const ActivityId d : uses.ids())
      network_.for_uses(d, [&](std::int32_t port, std::int64_t bytes, std::int64_t times) {
        const std::int32_t line = line_of[static_cast<std::size_t>(port)];
        if (line >= 0) uses[d].push_back({static_cast<std::size_t>(line), bytes, times});
      });
    for (const Network::Flown& flown : network_.log())
      for (const OnLine& use : uses[flown.defined])
        each_in_step(flown, [&](Time begin, Time end) {
          lines_[use.line].intervals.push_back({begin - from_, end - from_, use.bytes, use.times});
        });
  }

  result::LinkUse use_of(const Line& line) const {
    const cluster::Resource& what = resource(line.first);
    result::LinkUse use;
    use.name = what.name, use.kind = name_of(what.kind);
    use.alike = line.alike;
    use.capacity = what.capacity.per_s();
    use.bytes = bytes_[line.first];
    for (std::size_t u = 0; u < matching_.users().size(); ++u)
      if (row(line.first)[u] > 0) use.users.push_back({matching_.users()[u], row(line.first)[u]});
    std::sort(use.users.begin(), use.users.end(),
              [](const auto& a, const auto& b) { return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name); });
    add_busy(line.intervals, use);
    add_window(line.intervals, use);
    return use;
  }

  // The union of the intervals, inside the step.
  static void add_busy(std::vector<Interval> intervals, result::LinkUse& use) {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    Time until, busy;
    use.first_ps = intervals.empty() ? 0 : std::max(Time(), intervals.front().begin).ps();
    for (const Interval& i : intervals) {
      busy += std::max(Time(), i.end - std::max(i.begin, until));
      until = std::max(until, i.end);
    }
    use.busy_ps = busy.ps();
    use.last_ps = until.ps();
  }

  // The bytes of a bin are counted in integers, in units of 1/65536 byte rounded down for each transfer, so that the
  // order of transfers makes no difference, nor does counting those that are alike at once.
  void add_window(const std::vector<Interval>& intervals, result::LinkUse& use) const {
    constexpr std::int64_t kUnits = 1 << 16;
    const std::int64_t step = (to_ - from_).ps();
    std::array<std::int64_t, kBins + 1> edges{};
    for (std::int64_t bin = 0; bin <= kBins; ++bin)
      edges[static_cast<std::size_t>(bin)] = mul_div_down(step, bin, kBins);
    std::array<Int128, kBins> bins{};
    for (const Interval& i : intervals) {
      const std::int64_t begin = std::max<std::int64_t>(0, i.begin.ps()), end = i.end.ps();
      const std::int64_t whole = std::max<std::int64_t>(1, (i.end - i.begin).ps());
      const auto after = std::upper_bound(edges.begin() + 1, edges.end() - 1, begin);
      for (auto bin = static_cast<std::size_t>(after - edges.begin()) - 1; bin < bins.size() && edges[bin] < end;
           ++bin) {
        const std::int64_t overlap = std::min(end, edges[bin + 1]) - std::max(begin, edges[bin]);
        if (overlap <= 0) continue;
        const Int128 units = Int128{i.bytes} * kUnits;
        bins[bin] += (overlap == whole ? units : units * overlap / whole) * i.times;
      }
    }
    Int128 most = -1;
    for (std::int64_t first = 0; first + kWindow <= kBins; ++first) {
      const Int128 sum = std::accumulate(bins.begin() + first, bins.begin() + first + kWindow, Int128{0});
      if (most >= 0 && sum <= most + most / 1'000'000'000) continue;  // more than rounding
      most = sum;
      use.window_from_ps = edges[static_cast<std::size_t>(first)];
    }
    use.window_ps = step / (kBins / kWindow);
    // Transfers that contended did not move evenly, so the estimate may be above what the link carries.
    use.window_bytes = std::min(static_cast<std::int64_t>(most / kUnits),
                                mul_div_down(use.capacity, use.window_ps, kPicosecondsPerSecond));
  }

  const Network& network_;
  const Matching& matching_;
  const ResourceClasses& classes_;
  const std::vector<cluster::Resource>& resources_;
  Time from_, to_;
  std::vector<std::int64_t> bytes_, by_user_;  // by port; by port and user
  std::vector<Line> lines_;
};

}  // namespace

void describe_links(const Network& network, const Matching& matching, const cluster::Cluster& cluster, Time from,
                    Time to, Outcome& outcome) {
  if (to > from) LinkUses(network, matching, cluster, from, to).describe(outcome);
}

}  // namespace rehearse::engine
