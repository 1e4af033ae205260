// Look-up and interpolation of kernel_table.h.
#include "sim/cost/kernel_table.h"

#include <algorithm>
#include <cmath>

namespace rehearse::cost {
namespace {

double size_of_work(const KernelPoint& point) {
  return point.flops > 0 ? point.flops : point.bytes;
}

bool same(double a, double b) {
  return std::fabs(a - b) <= 1e-9 * std::max(std::fabs(a), std::fabs(b));
}

}  // namespace

KernelTable::KernelTable(const std::vector<KernelPoint>& points, Time fixed) : fixed_(fixed.seconds()) {
  for (const KernelPoint& point : points) {
    std::vector<KernelPoint>& list = by_kind_[{point.kind, point.dtype}];
    const auto equal = std::find_if(list.begin(), list.end(), [&](const KernelPoint& other) {
      return same(other.flops, point.flops) && same(other.bytes, point.bytes);
    });
    if (equal == list.end()) {
      list.push_back(point);
    } else {
      *equal = point;
    }
  }
  for (auto& [key, list] : by_kind_)
    std::stable_sort(list.begin(), list.end(),
                     [](const KernelPoint& a, const KernelPoint& b) { return size_of_work(a) < size_of_work(b); });
}

std::optional<KernelTable::Answer> KernelTable::find(std::string_view kind, program::DType dtype, double flops,
                                                     double bytes) const {
  const auto entry = by_kind_.find(Key(kind, dtype));
  if (entry == by_kind_.end()) return std::nullopt;
  const std::vector<KernelPoint>& list = entry->second;
  for (const KernelPoint& point : list)
    if (same(point.flops, flops) && same(point.bytes, bytes)) return Answer{point.seconds, Coverage::exact};
  const double size = flops > 0 ? flops : bytes;
  const auto above =
      std::find_if(list.begin(), list.end(), [&](const KernelPoint& p) { return size_of_work(p) >= size; });
  if (above == list.begin() || above == list.end()) {
    const KernelPoint& end = above == list.end() ? list.back() : list.front();
    const double fixed = std::min(fixed_, end.seconds);
    return Answer{fixed + (end.seconds - fixed) * size / size_of_work(end), Coverage::extrapolated};
  }
  const KernelPoint &low = *(above - 1), &high = *above;
  const double span = std::log(size_of_work(high) / size_of_work(low));
  const double share = span > 0 ? std::log(size / size_of_work(low)) / span : 0;
  return Answer{low.seconds * std::pow(high.seconds / low.seconds, share), Coverage::interpolated};
}

}  // namespace rehearse::cost
