// See packing.h. Sequences are large (longer than half a row), medium (a third), small (a sixth) or tiny.
#include "sim/run/reinforcement/packing.h"

#include <functional>
#include <iterator>
#include <set>

#include "sim/base/check.h"

namespace rehearse::run {
namespace {

using Lengths = std::multiset<std::int64_t>;

struct Row {
  std::int64_t room = 0;
  bool has_medium = false;
};

// Takes the longest that fits; false where none does.
bool place_longest(Lengths& from, Row& row) {
  const auto behind = from.upper_bound(row.room);
  if (behind == from.begin()) return false;
  const auto longest = std::prev(behind);
  row.room -= *longest;
  from.erase(longest);
  return true;
}

void place_two(Lengths& small, Row& row) {
  if (small.size() < 2 || *small.begin() + *std::next(small.begin()) > row.room) return;
  row.room -= *small.begin();
  small.erase(small.begin());
  place_longest(small, row);
}

}  // namespace

PackedRows pack_sequences(const std::vector<std::int64_t>& lengths, std::int64_t row) {
  PackedRows packed;
  std::multiset<std::int64_t, std::greater<>> large;
  Lengths medium, small, left;
  for (const std::int64_t length : lengths) {
    REHEARSE_CHECK(length >= 1 && length <= row, "{} tokens in a row of {}", length, row);
    packed.squares += static_cast<double>(length) * static_cast<double>(length);
    if (2 * length > row)
      large.insert(length);
    else
      (3 * length > row ? medium : 6 * length > row ? small : left).insert(length);
  }
  std::vector<Row> rows;
  for (const std::int64_t length : large) rows.push_back({row - length});
  for (Row& each : rows) each.has_medium = place_longest(medium, each);
  for (auto each = rows.rbegin(); each != rows.rend(); ++each)
    if (!each->has_medium) place_two(small, *each);
  left.merge(medium), left.merge(small);
  // First-fit decreasing fills its rows one after the other, each with the longest that fits again and again.
  for (std::size_t i = 0; i < rows.size() || !left.empty(); ++i) {
    if (i == rows.size()) rows.push_back({row});
    while (place_longest(left, rows[i])) {
    }
  }
  packed.rows = static_cast<std::int64_t>(rows.size());
  for (const Row& each : rows) packed.squares += static_cast<double>(each.room) * static_cast<double>(each.room);
  return packed;
}

}  // namespace rehearse::run
