// See packed_rows.h.
#include "execute/rank/packed_rows.h"

#include <algorithm>
#include <cstddef>

#include "sim/base/check.h"
#include "sim/base/dtype.h"

namespace rehearse::execute {
namespace {

using kernels::Out;

Out rows_of(Out operand, std::int64_t element) {
  operand.data = static_cast<std::byte*>(operand.data) + element * size_of(operand.type);
  return operand;
}

float* sums_of(const Out& operand, std::int64_t element) {
  REHEARSE_CHECK(operand.type == DType::f32, "sums of exponentials of {}", name_of(operand.type));
  return static_cast<float*>(operand.data) + element;
}

}  // namespace

std::vector<std::int32_t> equal_starts(std::int64_t rows, std::int64_t seq, std::int64_t equal) {
  std::vector<std::int32_t> starts(static_cast<std::size_t>(rows * seq));
  for (std::size_t i = 0; i < starts.size(); ++i)
    starts[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % seq / equal * equal);
  return starts;
}

void call_ring(kernels::Device& device, const program::Attention& a, kernels::ContextPart part,
               const kernels::DropoutSite& site, kernels::AttentionShape shape, std::vector<std::int64_t> lengths,
               std::span<const Out> reads, std::span<const Out> writes) {
  REHEARSE_CHECK(shape.micro_batch == 1, "{} rows of documents in a ring", shape.micro_batch);
  const std::int64_t query = shape.heads * shape.head_dim, keys = shape.kv_heads * (shape.head_dim + shape.values());
  const std::int64_t values = shape.heads * shape.values();
  shape.document_starts = nullptr;
  const std::int64_t each = std::max<std::int64_t>(2, a.document / 2 * 2);
  const bool equal = lengths.empty();
  for (std::int64_t done = 0; equal && done < a.seq; done += each)
    lengths.push_back(std::min(each, a.seq - done) * part.ranks);
  std::int64_t done = 0;
  part.row = a.seq * part.ranks;
  for (const std::int64_t length : lengths) {
    shape.seq = length / part.ranks;
    part.first = done * part.ranks;
    const auto of = [&](std::span<const Out> operands, std::size_t i, std::int64_t width) {
      return rows_of(operands[i], done * width);
    };
    if (a.part == program::AttentionPart::flash_forward)
      device.context_forward(shape, part, site, of(reads, 0, query + keys), of(reads, 1, keys), of(writes, 0, values),
                             sums_of(writes[1], done * shape.heads));
    else
      device.context_backward(shape, part, site, of(reads, 0, values), of(reads, 1, query + keys), of(reads, 2, keys),
                              of(reads, 3, values), sums_of(reads[4], done * shape.heads), of(writes, 0, query),
                              of(writes, 1, keys));
    done += shape.seq;
  }
}

}  // namespace rehearse::execute
