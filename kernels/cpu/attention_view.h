// Where a head's rows lie in packed qkv [seq, micro_batch, kv_heads, (group + 1) * head_dim + value_dim] and in outputs
// [seq, micro_batch, heads, value_dim]. With keys of another sequence, in q [seq, micro_batch, heads, head_dim] and kv
// [keys, micro_batch, kv_heads, head_dim + value_dim].
#pragma once

#include "kernels/device.h"

namespace rehearse::kernels::cpu {

struct AttentionView {
  std::int64_t group;       // query heads a key head serves
  std::int64_t kv_group;    // columns of a key head and what it serves
  std::int64_t qkv_stride;  // between positions of one sequence
  std::int64_t query_stride, key_stride;
  std::int64_t out_stride;
  const AttentionShape& s;

  explicit AttentionView(const AttentionShape& shape)
      : group(shape.heads / shape.kv_heads),
        kv_group((group + 1) * shape.head_dim + shape.values()),
        qkv_stride(shape.micro_batch * shape.kv_heads * kv_group),
        query_stride(shape.keys > 0 ? shape.micro_batch * shape.heads * shape.head_dim : qkv_stride),
        key_stride(shape.keys > 0 ? shape.micro_batch * shape.kv_heads * (shape.head_dim + shape.values())
                                  : qkv_stride),
        out_stride(shape.micro_batch * shape.heads * shape.values()),
        s(shape) {}

  // Offsets of position 0; `head` is a query head.
  std::int64_t query(std::int64_t batch, std::int64_t head) const {
    return s.keys > 0 ? (batch * s.heads + head) * s.head_dim : slot(batch, head / group, head % group);
  }
  std::int64_t key(std::int64_t batch, std::int64_t head) const {
    return s.keys > 0 ? (batch * s.kv_heads + head / group) * (s.head_dim + s.values())
                      : slot(batch, head / group, group);
  }
  std::int64_t value(std::int64_t batch, std::int64_t head) const {
    return s.keys > 0 ? key(batch, head) + s.head_dim : slot(batch, head / group, group + 1);
  }
  std::int64_t out(std::int64_t batch, std::int64_t head) const { return (batch * s.heads + head) * s.values(); }
  // Of logsumexp [seq, micro_batch, heads].
  std::int64_t per_row(std::int64_t position, std::int64_t batch, std::int64_t head) const {
    return (position * s.micro_batch + batch) * s.heads + head;
  }

 private:
  std::int64_t slot(std::int64_t batch, std::int64_t kv_head, std::int64_t index) const {
    return (batch * s.kv_heads + kv_head) * kv_group + index * s.head_dim;
  }
};

}  // namespace rehearse::kernels::cpu
