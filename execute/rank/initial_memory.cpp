// See initial_memory.h.
#include "execute/rank/initial_memory.h"

#include <algorithm>
#include <map>

#include "execute/rank/initial_values.h"
#include "execute/rank/parameters.h"
#include "sim/base/check.h"
#include "sim/base/half.h"
#include "sim/base/in_parallel.h"

namespace rehearse::execute {
namespace {

using program::Buffer;
using program::BufferId;
using Kind = program::Init::Kind;

constexpr std::int64_t kBlock = 65536;                  // elements
constexpr std::int64_t kZeros = std::int64_t{4} << 20;  // bytes

}  // namespace

InitialMemory::InitialMemory(const Timeline& timeline, const plan::RankGrid& grid, int rank, std::int64_t seed,
                             const std::set<BufferId>& others)
    : timeline_(timeline), grid_(grid), rank_(rank), seed_(seed) {
  const auto& buffers = timeline.role->buffers;
  for (std::size_t id = 0; id < buffers.size(); ++id) {
    if (timeline.persistent[id] < 0) continue;
    const Buffer& b = buffers[id];
    zeros_.push_back({timeline.persistent[id], b.bytes()});
    // Of states beside parameters those that are drawn have a scale; else `normal` says only that there is something.
    const bool drawn = b.cls == program::BufferClass::optimizer && b.init.kind == Kind::normal && b.init.scale > 0;
    if (is_parameter(b) || (b.init.kind != Kind::ones && b.init.kind != Kind::first && !drawn)) continue;
    REHEARSE_CHECK(b.dtype == DType::f32, "{} begins with what is not 0", b.name);
    add(static_cast<BufferId>(id), 0, b.elements(), {{timeline.persistent[id], DType::f32, 0}});
  }
  for (const Piece& p : state_pieces(timeline, grid, rank, "outer"))
    add(p.buffer, p.first, p.first + p.count, {{p.offset, p.type, 0}});
  std::map<BufferId, std::vector<Piece>> pieces;  // of a parameter, of its fp32 copy
  for (const auto& kind : {parameter_pieces(timeline, grid, rank), master_pieces(timeline, grid, rank)})
    for (const Piece& p : kind) pieces[p.buffer].push_back(p);
  for (const auto& [buffer, of] : pieces) {
    if (others.contains(buffer)) continue;
    std::vector<std::int64_t> cuts;
    for (const Piece& p : of) cuts.insert(cuts.end(), {p.first, p.first + p.count});
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<Place> places;
      for (const Piece& p : of)
        if (p.first <= cuts[c] && cuts[c] < p.first + p.count)
          places.push_back({p.offset + (cuts[c] - p.first) * size_of(p.type), p.type, 0});
      if (!places.empty()) add(buffer, cuts[c], cuts[c + 1], std::move(places));
    }
  }
}

void InitialMemory::add(BufferId buffer, std::int64_t first, std::int64_t end, std::vector<Place> places) {
  for (std::int64_t i = first; i < end; i += kBlock) {
    Block block{buffer, i, std::min(kBlock, end - i), {}};
    REHEARSE_CHECK(places.size() <= block.places.size(), "a parameter in {} places", places.size());
    for (std::size_t p = 0; p < places.size(); ++p) {
      const std::int64_t size = size_of(places[p].type);
      block.places[p] = {places[p].offset + (i - first) * size, places[p].type, block.count * size};
    }
    blocks_.push_back(block);
  }
}

void InitialMemory::make(const Block& block, std::array<std::byte*, 2> to) const {
  const Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(block.buffer)];
  float* drawn = nullptr;
  for (std::size_t p = 0; p < to.size(); ++p)
    if (block.places[p].offset >= 0 && block.places[p].type == DType::f32) drawn = reinterpret_cast<float*>(to[p]);
  std::vector<float> own;
  if (drawn == nullptr) {
    own.resize(static_cast<std::size_t>(block.count));
    drawn = own.data();
  }
  draw_part(b, grid_.coordinate(rank_, Axis::tensor), seed_, block.first, block.count, drawn,
            grid_.position(rank_, b.init.spread));
  keep(block, drawn, to);
}

void InitialMemory::keep(const Block& block, const float* values, std::array<std::byte*, 2> to) {
  for (std::size_t p = 0; p < to.size(); ++p)
    if (block.places[p].offset >= 0 && reinterpret_cast<float*>(to[p]) != values)
      from_float(block.places[p].type, values, block.count, to[p]);
}

void initialise(const InitialMemory& initial, int threads, const RankMemory& memory) {
  std::vector<InitialMemory::Zeros> zeros;
  for (const InitialMemory::Zeros& z : initial.zeros())
    for (std::int64_t i = 0; i < z.bytes; i += kZeros) zeros.push_back({z.offset + i, std::min(kZeros, z.bytes - i)});
  in_parallel(threads, zeros.size(),
              [&](std::size_t i) { std::fill_n(memory.at(zeros[i].offset), zeros[i].bytes, std::byte{0}); });
  in_parallel(threads, initial.blocks().size(), [&](std::size_t i) {
    const InitialMemory::Block& b = initial.blocks()[i];
    initial.make(b, {memory.at(b.places[0].offset), b.places[1].offset < 0 ? nullptr : memory.at(b.places[1].offset)});
  });
}

}  // namespace rehearse::execute
