// Documents packed into sequences (training.documents): a sequence is filled with documents of drawn lengths, one after
// the other, and the last one is cut at its end. Attention stays within a document, and positions begin again with
// each, as with Megatron-LM's --reset-attention-mask and --reset-position-ids; rotated positions (rope) are relative
// and need no reset. Lengths are drawn by (seed, number of the example since the run began) alone, so every split of a
// plan, a simulation of it and its performance see the same documents. Targets are the next tokens all the same, those
// of a document's last token too: no loss is masked.
//
//   fixed      every document has document_length tokens
//   uniform    1 to 2 document_length - 1, each as likely
//   lognormal  exp(m + sigma z), z standard normal (Box and Muller 1958), m such that the mean is document_length
//   table      one of document_lengths, each as likely
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/context_rows.h"
#include "sim/plan/plan.h"

namespace rehearse::plan {

// Lengths in tokens of the documents in example `example`, in order; they add to training.seq_len.
std::vector<std::int64_t> document_lengths(const Training& training, std::int64_t example);
// For each of its tokens the first one of the token's document; `starts` has training.seq_len places.
void document_starts(const Training& training, std::int64_t example, std::int32_t* starts);
// Pairs of a query among `tokens` and a key that it sees, in one example, through a window (0: none).
std::int64_t document_pairs(const Training& training, std::int64_t example, const std::vector<TokenRun>& tokens,
                            std::int64_t window = 0);
// Those of example `example` that a rank of a context group holds, in its order: context_tokens(), but of a ring with
// packed sequences the coordinate-th chunk from the front and from the back of each document, cut into 2 * context, as
// Transformer Engine has it (transformer_engine/pytorch/attention, get_cu_seqlens_on_cp_rank): every step of the ring
// is as much work on every rank. Documents divide as document_rules.cpp asks.
std::vector<TokenRun> held_tokens(const Plan& plan, const Training& training, std::int64_t example, int coordinate);
bool rings_by_document(const Plan& plan, const Training& training);
// The length of equal documents that have as many pairs of tokens of one document as those drawn: the sum of squared
// lengths over the sum of lengths, over the first global batch, of it the first 1,024 examples at most. Rounded; 0
// where sequences are single documents.
std::int64_t equal_document_length(const Training& training);

}  // namespace rehearse::plan
