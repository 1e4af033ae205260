// See tensor_ranges.h.
#include "execute/rank/tensor_ranges.h"

#include <algorithm>

namespace rehearse::execute {
namespace {

// The elements [begin, end) of a rank's flat range that are some of a tensor's.
struct TensorRange {
  std::int64_t begin = 0, end = 0, first = 0;  // first: of the tensor
};

TensorRange range_here(std::int64_t offset, std::int64_t elements, std::int64_t here, AxisSet shards,
                       const CallContext& rank) {
  const std::int64_t place = rank.grid != nullptr && shards.bits() != 0 ? rank.grid->position(rank.rank, shards) : 0;
  const auto own = [&](std::int64_t at) { return std::clamp<std::int64_t>(at - place * here, 0, here); };
  const std::int64_t begin = own(offset);
  return {begin, own(offset + elements), place * here + begin - offset};
}

}  // namespace

std::vector<kernels::LambTensor> tensors_here(const program::Lamb& shape, const CallContext& rank) {
  std::vector<kernels::LambTensor> tensors;
  for (const program::LambTensor& tensor : shape.tensors) {
    const TensorRange range = range_here(tensor.offset, tensor.elements, shape.elements, shape.shards, rank);
    tensors.push_back({range.begin, range.end, !tensor.once || rank.tensor_coordinate == 0});
  }
  return tensors;
}

std::vector<kernels::AdafactorTensor> tensors_here(const program::AdafactorParts& shape, const CallContext& rank) {
  std::vector<kernels::AdafactorTensor> tensors;
  for (const program::AdafactorTensor& t : shape.tensors) {
    const TensorRange range = range_here(t.offset, t.elements, shape.elements, shape.shards, rank);
    kernels::AdafactorTensor here;
    here.begin = range.begin, here.end = range.end, here.first = range.first;
    here.rows = t.rows, here.cols = t.cols, here.own_cols = t.own_cols, here.block = t.block;
    here.parts = t.parts, here.place = t.parts > 1 ? rank.tensor_coordinate : 0;
    here.whole = t.whole, here.means = t.means, here.sums = t.sums;
    here.counted = !t.once || rank.tensor_coordinate == 0;
    tensors.push_back(here);
  }
  return tensors;
}

}  // namespace rehearse::execute
