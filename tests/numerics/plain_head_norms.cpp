// Norms of each head's queries and keys in the plain GPT (Qwen3: Yang et al. 2025, arXiv 2505.09388, section 2; as in
// transformers' modeling_qwen3_moe.py they come before the rotation): all queries of a layer have one weight of
// head_dim columns, and all its keys another. Values stay.
#include <algorithm>

#include "tests/numerics/plain_gpt.h"

namespace rehearse::numerics {

template <typename Real>
void PlainGpt<Real>::add_head_norms(Block& block, const std::string& name, const Initial& initial) {
  block.query_norm = add_norm(name + "q_norm", shape_.head_dim, initial);
  block.key_norm = add_norm(name + "k_norm", shape_.head_dim, initial);
}

// Rows of head_dim, by token and head.
template <typename Real>
auto PlainGpt<Real>::heads_of(const Values& qkv, bool keys) const -> Values {
  Values rows;
  for (auto token = qkv.begin(); token != qkv.end(); token += qkv_width())
    for (std::int64_t head = 0; head < shape_.heads; head += keys ? group() : 1) {
      const auto first = token + (keys ? key_at(head) : query_at(head));
      rows.insert(rows.end(), first, first + shape_.head_dim);
    }
  return rows;
}

template <typename Real>
void PlainGpt<Real>::put_heads(const Values& heads, bool keys, Values& qkv) const {
  auto row = heads.begin();
  for (auto token = qkv.begin(); token != qkv.end(); token += qkv_width())
    for (std::int64_t head = 0; head < shape_.heads; head += keys ? group() : 1, row += shape_.head_dim)
      std::copy_n(row, shape_.head_dim, token + (keys ? key_at(head) : query_at(head)));
}

template <typename Real>
void PlainGpt<Real>::norm_heads(const Block& block, Values& qkv, BlockTrace& trace) const {
  put_heads(norm_forward(block.query_norm, heads_of(qkv, false), trace.query_norm), false, qkv);
  put_heads(norm_forward(block.key_norm, heads_of(qkv, true), trace.key_norm), true, qkv);
}

template <typename Real>
void PlainGpt<Real>::norm_heads_backward(const Block& block, Values& d_qkv, const BlockTrace& trace) {
  put_heads(norm_backward(block.query_norm, heads_of(d_qkv, false), trace.query_norm), false, d_qkv);
  put_heads(norm_backward(block.key_norm, heads_of(d_qkv, true), trace.key_norm), true, d_qkv);
}

#define REHEARSE_PLAIN_HEAD_NORMS(Real)                                                     \
  template void PlainGpt<Real>::add_head_norms(Block&, const std::string&, const Initial&); \
  template auto PlainGpt<Real>::heads_of(const Values&, bool) const->Values;                \
  template void PlainGpt<Real>::put_heads(const Values&, bool, Values&) const;              \
  template void PlainGpt<Real>::norm_heads(const Block&, Values&, BlockTrace&) const;       \
  template void PlainGpt<Real>::norm_heads_backward(const Block&, Values&, const BlockTrace&);
REHEARSE_PLAIN_HEAD_NORMS(float)
REHEARSE_PLAIN_HEAD_NORMS(double)
#undef REHEARSE_PLAIN_HEAD_NORMS

}  // namespace rehearse::numerics
