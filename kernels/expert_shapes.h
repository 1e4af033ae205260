// Shapes of what experts need: routers, rows in the order of experts, and products of groups of rows.
#pragma once

#include <cstdint>

namespace rehearse::kernels {

// Of `tokens` tokens each goes to the top_k of `experts` experts with the highest scores.
struct RouterShape {
  std::int64_t tokens = 0, experts = 0, top_k = 0;
  std::int64_t capacity = 0;                      // rows of an expert; 0: as many as come
  bool sigmoid = false;                           // scores: else softmax over the experts
  std::int64_t groups = 1, groups_per_token = 1;  // of experts: program::Router
  bool raw = false;                               // weights are the scores, not scaled to add to 1
};

// Rows that came in from `sources` ranks, each sorted by expert, for the experts [first, first + own) of `experts`: in
// `slices` of equal room, of sources / slices ranks each. `rows`: the room of all.
struct ReceivedRows {
  std::int64_t rows = 0, experts = 0, first = 0, own = 0, sources = 0, slices = 1;
};
// Of all ranks' tokens, with the experts that they chose, those for the experts [first, first + own).
struct OwnRows {
  std::int64_t tokens = 0, top_k = 0, first = 0, own = 0;
};

// Between tokens [tokens, cols] and rows [rows, cols] that are sorted by experts. places [tokens, top_k]: the row of
// each of a token's choices, -1 where there is none.
struct PermuteShape {
  std::int64_t tokens = 0, top_k = 0, rows = 0, cols = 0;
};

// Products of groups of rows with a matrix each, w [groups, n, k]. forward: y [rows, n] = x w^T; backward_input: dx
// [rows, k] = dy w; backward_weight: dw (+)= dy^T x of each group. Groups have as many rows each, or loads[group].
enum class GroupedPart : unsigned char { forward, backward_input, backward_weight };
struct GroupedShape {
  GroupedPart part = GroupedPart::forward;
  std::int64_t groups = 1, rows = 0, n = 0, k = 0;
  bool accumulate = false;
};

// Of groups' rows [rows, n] and a bias each [groups, n], of which 1 / shares is added.
struct GroupedBiasShape {
  std::int64_t groups = 1, rows = 0, n = 0, shares = 1;
};

}  // namespace rehearse::kernels
