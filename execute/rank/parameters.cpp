// Parameters are views of buckets or, with ZeRO-3, of buckets that only exist while gathered: then the shard holds the
// elements [n * place, + n) of its bucket, place among the ranks that shard together, and a parameter may lie in
// several ranks' shards.
#include "execute/rank/parameters.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "execute/rank/initial_values.h"
#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using program::Buffer;
using program::BufferId;

bool is_parameter(const Buffer& b) {
  return b.init.kind != program::Init::Kind::none && !b.init.global_shape.empty();
}

namespace {

// -1: there is none.
BufferId find_any(const program::Role& role, const std::string& name) {
  for (BufferId b = 0; b < static_cast<BufferId>(role.buffers.size()); ++b)
    if (role.buffers[static_cast<std::size_t>(b)].name == name) return b;
  return -1;
}

BufferId find(const program::Role& role, const std::string& name) {
  const BufferId found = find_any(role, name);
  REHEARSE_CHECK(found >= 0, "{}: no buffer '{}'", role.name, name);
  return found;
}

// Of the bucket "param.bucketN": "param.shard.bucketN", "master.bucketN".
std::string beside(const Buffer& bucket, const std::string& what) {
  constexpr std::string_view kWhole = "param.";
  REHEARSE_CHECK(bucket.name.starts_with(kWhole), "'{}' is no bucket of parameters", bucket.name);
  return what + "." + bucket.name.substr(kWhole.size());
}

struct PieceFinder {
  const Timeline& timeline;
  const plan::RankGrid& grid;
  int rank;
  std::vector<Piece> pieces;

  const Buffer& buffer(BufferId id) const { return timeline.role->buffers[static_cast<std::size_t>(id)]; }
  BufferId base_of(BufferId id) const { return buffer(id).is_view() ? buffer(id).base : id; }

  // A state of its bucket; -1: there is none.
  BufferId state_of(BufferId id, const std::string& state) const {
    if (!is_parameter(buffer(id)) || is_narrow(buffer(id).dtype)) return -1;
    return find_any(*timeline.role, beside(buffer(base_of(id)), state));
  }
  // Its bucket's fp32 copy; -1: there is none, as of what is frozen, or in fp32 unless the optimizer is on the host.
  BufferId master_of(BufferId id) const { return state_of(id, "master"); }

  // The piece of parameter `id` that lies in `holder`: the whole of the parameter's bucket, or our slice of it.
  void add(BufferId id, BufferId holder) {
    const Buffer &p = buffer(id), &h = buffer(holder);
    const std::int64_t whole = buffer(base_of(id)).elements(), n = h.elements();
    const std::int64_t first = n == whole ? 0 : grid.position(rank, h.shard_axes) * n;
    const std::int64_t from = p.is_view() ? p.offset : 0;
    const std::int64_t begin = std::max(from, first), end = std::min(from + p.elements(), first + n);
    if (begin >= end) return;
    pieces.push_back({id, begin - from, end - begin,
                      timeline.persistent[static_cast<std::size_t>(holder)] + size_of(h.dtype) * (begin - first),
                      h.dtype});
  }
};

}  // namespace

std::vector<Piece> parameter_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank) {
  PieceFinder finder{timeline, grid, rank, {}};
  for (BufferId id = 0; id < static_cast<BufferId>(timeline.role->buffers.size()); ++id) {
    if (!is_parameter(finder.buffer(id))) continue;
    const BufferId base = finder.base_of(id);
    const bool kept = timeline.persistent[static_cast<std::size_t>(base)] >= 0;
    finder.add(id, kept ? base : find(*timeline.role, beside(finder.buffer(base), "param.shard")));
  }
  return finder.pieces;
}

std::vector<Piece> state_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank,
                                const std::string& state) {
  PieceFinder finder{timeline, grid, rank, {}};
  for (BufferId id = 0; id < static_cast<BufferId>(timeline.role->buffers.size()); ++id) {
    const BufferId holder = finder.state_of(id, state);
    if (holder >= 0 && finder.buffer(holder).dtype != DType::u8) finder.add(id, holder);
  }
  return finder.pieces;
}

std::vector<Piece> master_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank) {
  return state_pieces(timeline, grid, rank, "master");
}

namespace {

// Where values are kept in their best precision.
std::vector<Piece> value_pieces(const Timeline& timeline, const plan::RankGrid& grid, int rank) {
  const PieceFinder finder{timeline, grid, rank, {}};
  std::vector<Piece> pieces = master_pieces(timeline, grid, rank);
  for (const Piece& piece : parameter_pieces(timeline, grid, rank))
    if (finder.master_of(piece.buffer) < 0) pieces.push_back(piece);
  return pieces;
}

}  // namespace

std::vector<float> parameter_values(const Timeline& timeline, const plan::RankGrid& grid, int rank,
                                    const RankMemory& memory) {
  std::vector<float> values;
  for (const Piece& p : value_pieces(timeline, grid, rank)) {
    values.resize(values.size() + static_cast<std::size_t>(p.count));
    to_float(p.type, memory.at(p.offset), p.count, values.data() + values.size() - p.count);
  }
  return values;
}

std::vector<float> loss_scale(const Timeline& timeline, const RankMemory& memory) {
  const auto& buffers = timeline.role->buffers;
  for (std::size_t id = 0; id < buffers.size(); ++id) {
    if (buffers[id].name != "loss_scale") continue;
    std::vector<float> state(static_cast<std::size_t>(buffers[id].elements()));
    to_float(buffers[id].dtype, memory.at(timeline.persistent[id]), buffers[id].elements(), state.data());
    return state;
  }
  return {};
}

void collect(const Timeline& timeline, const plan::RankGrid& grid, int rank, std::span<const float> held,
             Parameters& whole) {
  const float* part = held.data();
  for (const Piece& p : value_pieces(timeline, grid, rank)) {
    const Buffer& b = timeline.role->buffers[static_cast<std::size_t>(p.buffer)];
    const auto& shape = b.init.global_shape;
    std::vector<float>& values = whole[parameter_name(b)];
    values.resize(
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
    for (const Extent& extent :
         extents_of(b, grid.coordinate(rank, Axis::tensor), grid.position(rank, b.init.spread))) {
      const std::int64_t begin = std::max(extent.local, p.first),
                         end = std::min(extent.local + extent.count, p.first + p.count);
      if (begin < end)
        std::copy(part + (begin - p.first), part + (end - p.first),
                  values.begin() + (extent.global + begin - extent.local));
    }
    part += p.count;
  }
}

}  // namespace rehearse::execute
