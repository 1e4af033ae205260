#include "execute/rank/expert_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {

Parts parts_of(const program::Op& op, const program::Collective& c, int rank, std::span<const int> members,
               kernels::In counts) {
  const auto n = static_cast<std::int64_t>(members.size());
  const auto own = static_cast<std::int64_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  REHEARSE_CHECK(own < n && c.experts % n == 0, "'{}' of {} experts over {} ranks", op.name, c.experts, n);
  const auto* chosen = static_cast<const float*>(counts.data);
  const std::int64_t each = c.experts / n;
  // Rows of `from`'s tokens for the experts of `to`.
  const auto rows = [&](std::int64_t from, std::int64_t to) {
    double sum = 0;
    for (std::int64_t e = to * each; e < (to + 1) * each; ++e) sum += static_cast<double>(chosen[from * c.experts + e]);
    return static_cast<std::int64_t>(sum);
  };
  for (std::int64_t to = 0; to < n; ++to) {
    std::int64_t come = 0;
    for (std::int64_t from = 0; from < n; ++from) come += rows(from, to);
    if (come * c.row > c.own)
      throw InputError(Diagnostic{"", 0, 0, "model.buffer_factor",
                                  fmt::format("{} rows come to the experts of rank {} in '{}', which has room for {}",
                                              come, members[static_cast<std::size_t>(to)], op.name, c.own / c.row),
                                  "a larger model.buffer_factor, or a capacity"});
  }
  Parts parts;
  for (std::int64_t m = 0; m < n; ++m) {
    // Forward we send what m's experts take of our tokens; on the way back what ours took of m's.
    const std::int64_t there = rows(own, m) * c.row, here = rows(m, own) * c.row;
    parts.sent.push_back(c.back ? here : there);
    parts.received.push_back(c.back ? there : here);
    std::int64_t before = 0;
    for (std::int64_t other = 0; other < own; ++other) before += c.back ? rows(other, m) : rows(m, other);
    parts.begins.push_back(before * c.row);
  }
  return parts;
}

Parts stated_parts(const program::Op& op, const program::Collective& c, int rank, std::span<const int> members,
                   const std::vector<std::int64_t>& elements) {
  const std::size_t n = members.size();
  const auto own = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  REHEARSE_CHECK(own < n && elements.size() == n, "'{}' has {} parts for {} members", op.name, elements.size(), n);
  Parts parts;
  const std::int64_t before =
      std::accumulate(elements.begin(), elements.begin() + static_cast<std::ptrdiff_t>(own), std::int64_t{0});
  for (std::size_t m = 0; m < n; ++m) {
    parts.sent.push_back(c.back ? elements[own] : elements[m]);
    parts.received.push_back(c.back ? elements[m] : elements[own]);
    // Where ours begins of what m sends.
    parts.begins.push_back(c.back ? static_cast<std::int64_t>(own) * elements[m] : before);
  }
  return parts;
}

void receive_rows(const program::Router& r, int place, const float* counts, std::int32_t* places, float* loads) {
  const std::int64_t first = place * r.own, in_slice = r.sources / r.slices, room = r.tokens / r.slices;
  const auto count = [&](std::int64_t source, std::int64_t e) {
    return static_cast<std::int64_t>(counts[source * r.experts + first + e]);
  };
  // The row where the next one of an expert goes.
  std::vector<std::int64_t> next(static_cast<std::size_t>(r.own), 0);
  std::int64_t all = 0;
  for (std::int64_t e = 0; e < r.own; ++e) {
    next[static_cast<std::size_t>(e)] = all;
    std::int64_t load = 0;
    for (std::int64_t s = 0; s < r.sources; ++s) load += count(s, e);
    loads[e] = static_cast<float>(load);
    all += load;
  }
  std::fill_n(places, r.tokens, -1);
  for (std::int64_t slice = 0; slice < r.slices; ++slice) {
    std::int64_t row = slice * room;
    for (std::int64_t s = slice * in_slice; s < (slice + 1) * in_slice; ++s)
      for (std::int64_t e = 0; e < r.own; ++e)
        for (std::int64_t i = 0; i < count(s, e) && row < (slice + 1) * room; ++i)
          places[row++] = static_cast<std::int32_t>(next[static_cast<std::size_t>(e)]++);
  }
}

namespace {

[[noreturn]] void no_room(const program::Router& r, std::int64_t first, std::int64_t come) {
  throw InputError(Diagnostic{
      "", 0, 0, "model.buffer_factor",
      fmt::format("{} rows come to experts {} to {}, which have room for {}", come, first, first + r.own - 1, r.room),
      "a larger model.buffer_factor"});
}

}  // namespace

void check_room(const program::Router& r, int place, const float* loads) {
  const auto come = static_cast<std::int64_t>(std::accumulate(loads, loads + r.own, 0.0));
  if (come > r.room) no_room(r, place * r.own, come);
}

void place_own_rows(const program::Router& r, int place, const std::int32_t* chosen, std::int32_t* places,
                    float* loads) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(r.experts), 0);
  for (std::int64_t i = 0; i < r.tokens * r.top_k; ++i) ++counts[static_cast<std::size_t>(chosen[i])];
  for (auto first = counts.begin(); first != counts.end(); first += r.own) {
    const std::int64_t come = std::accumulate(first, first + r.own, std::int64_t{0});
    if (come > r.room) no_room(r, first - counts.begin(), come);
  }
  const std::int64_t first = place * r.own;
  std::vector<std::int64_t> next(static_cast<std::size_t>(r.own), 0);
  for (std::int64_t e = 0, row = 0; e < r.own; ++e) {
    const std::int64_t load = counts[static_cast<std::size_t>(first + e)];
    next[static_cast<std::size_t>(e)] = row;
    loads[e] = static_cast<float>(load);
    row += load;
  }
  for (std::int64_t i = 0; i < r.tokens * r.top_k; ++i) {
    const std::int64_t own = chosen[i] - first;
    places[i] = own < 0 || own >= r.own ? -1 : static_cast<std::int32_t>(next[static_cast<std::size_t>(own)]++);
  }
}

}  // namespace rehearse::execute
