// Parameters are views of buckets or, with ZeRO-3, of buckets that only exist while gathered: then the shard holds the
// elements [coordinate(data) * n, + n) of its bucket, and a parameter may lie in several ranks' shards.
#include "execute/parameters.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "execute/initial_values.h"
#include "sim/base/check.h"

namespace rehearse::execute {

using program::Buffer;
using program::BufferId;
using program::Init;

namespace {

bool is_parameter(const Buffer& b) {
  return b.init.kind != Init::Kind::none && !b.init.global_shape.empty();
}

BufferId find(const program::Role& role, const std::string& name) {
  for (BufferId b = 0; b < static_cast<BufferId>(role.buffers.size()); ++b)
    if (role.buffers[static_cast<std::size_t>(b)].name == name) return b;
  REHEARSE_CHECK(false, "{}: no buffer '{}'", role.name, name);
  return -1;
}

std::string shard_name(const Buffer& bucket) {
  constexpr std::string_view kWhole = "param.";
  REHEARSE_CHECK(bucket.name.starts_with(kWhole), "'{}' is no bucket of parameters", bucket.name);
  return "param.shard." + bucket.name.substr(kWhole.size());
}

// The piece of view `v` that lies in our slice of its bucket, which begins at `first` of the bucket.
Piece piece_in_shard(BufferId id, const Buffer& v, std::int64_t first, std::int64_t elements, std::int64_t offset) {
  const std::int64_t begin = std::max(v.offset, first), end = std::min(v.offset + v.elements(), first + elements);
  return {id, begin - v.offset, std::max<std::int64_t>(0, end - begin), offset + 4 * (begin - first)};
}

}  // namespace

std::vector<Piece> parameter_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank) {
  std::vector<Piece> pieces;
  const auto& buffers = timeline.role->buffers;
  for (BufferId id = 0; id < static_cast<BufferId>(buffers.size()); ++id) {
    const Buffer& b = buffers[static_cast<std::size_t>(id)];
    if (!is_parameter(b)) continue;
    const BufferId base = b.is_view() ? b.base : id;
    if (const std::int64_t offset = timeline.persistent[static_cast<std::size_t>(base)]; offset >= 0) {
      pieces.push_back({id, 0, b.elements(), offset + (b.is_view() ? 4 * b.offset : 0)});
      continue;
    }
    const BufferId shard = find(*timeline.role, shard_name(buffers[static_cast<std::size_t>(base)]));
    const std::int64_t n = buffers[static_cast<std::size_t>(shard)].elements();
    const Piece piece = piece_in_shard(id, b, grid.coordinate(rank, Axis::data) * n, n,
                                       timeline.persistent[static_cast<std::size_t>(shard)]);
    if (piece.count > 0) pieces.push_back(piece);
  }
  return pieces;
}

void initialise(const Timeline& timeline, const plan::RankGrid& grid, int rank, std::int64_t seed, std::byte* arena) {
  const auto& buffers = timeline.role->buffers;
  for (std::size_t id = 0; id < buffers.size(); ++id) {
    if (timeline.persistent[id] < 0) continue;
    const Buffer& b = buffers[id];
    if (b.init.kind == Init::Kind::ones)
      std::fill_n(reinterpret_cast<float*>(arena + timeline.persistent[id]), b.elements(), 1.0F);
    else
      std::fill_n(arena + timeline.persistent[id], b.bytes(), std::byte{0});
  }
  for (const Piece& p : parameter_pieces(timeline, grid, rank))
    draw_part(buffers[static_cast<std::size_t>(p.buffer)], grid.coordinate(rank, Axis::tensor), seed, p.first, p.count,
              reinterpret_cast<float*>(arena + p.offset));
}

std::vector<float> parameter_values(const Timeline& timeline, const plan::RankGrid& grid, int rank,
                                    const std::byte* arena) {
  std::vector<float> values;
  for (const Piece& p : parameter_pieces(timeline, grid, rank)) {
    const auto* part = reinterpret_cast<const float*>(arena + p.offset);
    values.insert(values.end(), part, part + p.count);
  }
  return values;
}

void collect(const Timeline& timeline, const plan::RankGrid& grid, int rank, std::span<const float> held,
             Parameters& whole) {
  const float* part = held.data();
  for (const Piece& p : parameter_pieces(timeline, grid, rank)) {
    const Buffer& b = timeline.role->buffers[static_cast<std::size_t>(p.buffer)];
    const auto& shape = b.init.global_shape;
    std::vector<float>& values = whole[b.name];
    values.resize(
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
    for (const Run& run : runs_of(b, grid.coordinate(rank, Axis::tensor))) {
      const std::int64_t begin = std::max(run.local, p.first), end = std::min(run.local + run.count, p.first + p.count);
      if (begin < end)
        std::copy(part + (begin - p.first), part + (end - p.first), values.begin() + (run.global + begin - run.local));
    }
    part += p.count;
  }
}

}  // namespace rehearse::execute
