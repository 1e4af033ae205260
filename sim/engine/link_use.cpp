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
constexpr std::size_t kBins = 100, kWindow = 10;  // the busiest window is a tenth of the step, found to a hundredth

const char* name_of(cluster::ResourceKind kind) {
  constexpr const char* names[] = {"nvlink", "pcie", "nic", "link", "loopback", "host"};
  return names[static_cast<std::size_t>(kind)];
}

struct Interval {
  Time begin, end;
  std::int64_t bytes;
};

class LinkUses {
 public:
  LinkUses(const Network& network, const Matching& matching, const cluster::Cluster& cluster, Time from, Time to)
      : network_(network), matching_(matching), resources_(cluster.resources()), from_(from), to_(to) {}

  void describe(Outcome& outcome) {
    add_up();
    outcome.link_bytes = bytes_;
    outcome.links.known = true;
    outcome.links.bytes = std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
    outcome.links.used = std::count_if(bytes_.begin(), bytes_.end(), [](std::int64_t b) { return b > 0; });
    gather_classes();
    choose();
    find_times();
    for (const Class& c : classes_) outcome.links.busiest.push_back(use_of(c));
  }

 private:
  struct Class {
    std::size_t first = 0;
    std::int64_t alike = 1;
    std::vector<Interval> intervals;
  };

  bool in_step(const Network::Flown& flown) const { return flown.end > from_ && flown.end <= to_; }
  const std::int64_t* row(std::size_t resource) const { return &by_user_[resource * matching_.users().size()]; }

  void add_up() {
    IdVector<ActivityId, std::int64_t> runs(network_.definitions().index());
    for (const Network::Flown& flown : network_.log())
      if (in_step(flown)) ++runs[flown.defined];
    const std::size_t users = matching_.users().size();
    bytes_.assign(resources_.size(), 0);
    by_user_.assign(resources_.size() * users, 0);
    for (const ActivityId d : runs.ids()) {
      check_interrupt();
      if (runs[d] == 0) continue;
      const auto user = static_cast<std::size_t>(matching_.user(d));
      network_.for_uses(d, [&](std::int32_t resource, std::int64_t bytes) {
        const auto r = static_cast<std::size_t>(resource);
        bytes_[r] += runs[d] * bytes;
        by_user_[r * users + user] += runs[d] * bytes;
      });
    }
  }

  // Used links, the busiest first; of alike ones the first stands for all.
  void gather_classes() {
    std::vector<std::size_t> used;
    for (std::size_t r = 0; r < bytes_.size(); ++r)
      if (bytes_[r] > 0) used.push_back(r);
    const std::size_t users = matching_.users().size();
    const auto order = [&](std::size_t a, std::size_t b) {
      const auto &x = resources_[a], &y = resources_[b];
      if (x.capacity != y.capacity || bytes_[a] != bytes_[b]) {
        const Int128 left = static_cast<Int128>(bytes_[a]) * y.capacity.per_s();
        const Int128 right = static_cast<Int128>(bytes_[b]) * x.capacity.per_s();
        if (left != right) return left > right;
        return x.capacity > y.capacity;
      }
      if (x.kind != y.kind) return x.kind < y.kind;
      const int rows = compare_rows(a, b, users);
      return rows != 0 ? rows < 0 : a < b;
    };
    std::sort(used.begin(), used.end(), order);
    for (const std::size_t r : used) {
      const bool same = !classes_.empty() && resources_[classes_.back().first].kind == resources_[r].kind &&
                        resources_[classes_.back().first].capacity == resources_[r].capacity &&
                        compare_rows(classes_.back().first, r, users) == 0;
      if (same)
        ++classes_.back().alike;
      else
        classes_.push_back({r, 1, {}});
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
    std::vector<Class> chosen;
    std::vector<char> taken(classes_.size(), 0);
    std::size_t count = 0;
    for (std::size_t i = 0; i < classes_.size(); ++i)
      if (kinds.insert(resources_[classes_[i].first].kind).second) taken[i] = 1, ++count;
    for (std::size_t i = 0; i < classes_.size() && count < kLinksReported; ++i)
      if (!taken[i]) taken[i] = 1, ++count;
    for (std::size_t i = 0; i < classes_.size(); ++i)
      if (taken[i]) chosen.push_back(std::move(classes_[i]));
    classes_ = std::move(chosen);
  }

  void find_times() {
    std::vector<std::int32_t> class_of(resources_.size(), -1);
    for (std::size_t c = 0; c < classes_.size(); ++c) class_of[classes_[c].first] = static_cast<std::int32_t>(c);
    IdVector<ActivityId, std::vector<std::pair<std::int32_t, std::int64_t>>> uses(network_.definitions().index());
    for (const ActivityId d : uses.ids())
      network_.for_uses(d, [&](std::int32_t resource, std::int64_t bytes) {
        const std::int32_t c = class_of[static_cast<std::size_t>(resource)];
        if (c >= 0) uses[d].emplace_back(c, bytes);
      });
    for (const Network::Flown& flown : network_.log())
      if (in_step(flown))
        for (const auto& [c, bytes] : uses[flown.defined])
          classes_[static_cast<std::size_t>(c)].intervals.push_back({flown.begin - from_, flown.end - from_, bytes});
  }

  result::LinkUse use_of(const Class& c) const {
    const cluster::Resource& resource = resources_[c.first];
    result::LinkUse use;
    use.name = resource.name, use.kind = name_of(resource.kind);
    use.alike = c.alike;
    use.capacity = resource.capacity.per_s();
    use.bytes = bytes_[c.first];
    for (std::size_t u = 0; u < matching_.users().size(); ++u)
      if (row(c.first)[u] > 0) use.users.push_back({matching_.users()[u], row(c.first)[u]});
    std::sort(use.users.begin(), use.users.end(),
              [](const auto& a, const auto& b) { return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name); });
    add_busy(c.intervals, use);
    add_window(c.intervals, use);
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

  void add_window(const std::vector<Interval>& intervals, result::LinkUse& use) const {
    const std::int64_t step = (to_ - from_).ps();
    std::array<double, kBins> bins{};
    const double width = static_cast<double>(step) / kBins;
    for (const Interval& i : intervals) {
      const double rate =
          static_cast<double>(i.bytes) / static_cast<double>(std::max<std::int64_t>(1, (i.end - i.begin).ps()));
      const double begin = static_cast<double>(std::max<std::int64_t>(0, i.begin.ps())),
                   end = static_cast<double>(i.end.ps());
      auto bin = std::min(kBins - 1, static_cast<std::size_t>(begin / width));
      for (; bin < kBins && static_cast<double>(bin) * width < end; ++bin) {
        const double low = std::max(begin, static_cast<double>(bin) * width);
        bins[bin] += rate * std::max(0.0, std::min(end, static_cast<double>(bin + 1) * width) - low);
      }
    }
    double most = -1;
    for (std::size_t first = 0; first + kWindow <= kBins; ++first) {
      const double sum = std::accumulate(bins.begin() + static_cast<std::ptrdiff_t>(first),
                                         bins.begin() + static_cast<std::ptrdiff_t>(first + kWindow), 0.0);
      if (sum <= most * (1 + 1e-9)) continue;
      most = sum;
      use.window_from_ps = mul_div_down(step, static_cast<std::int64_t>(first), kBins);
    }
    use.window_ps = step / static_cast<std::int64_t>(kBins / kWindow);
    // Transfers that contended did not move evenly, so the estimate may be above what the link carries.
    use.window_bytes =
        std::min(static_cast<std::int64_t>(most), mul_div_down(use.capacity, use.window_ps, kPicosecondsPerSecond));
  }

  const Network& network_;
  const Matching& matching_;
  const std::vector<cluster::Resource>& resources_;
  Time from_, to_;
  std::vector<std::int64_t> bytes_, by_user_;  // by resource; by resource and user
  std::vector<Class> classes_;
};

}  // namespace

void describe_links(const Network& network, const Matching& matching, const cluster::Cluster& cluster, Time from,
                    Time to, Outcome& outcome) {
  if (to > from) LinkUses(network, matching, cluster, from, to).describe(outcome);
}

}  // namespace rehearse::engine
