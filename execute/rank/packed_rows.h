// Rows that are packed of documents (sim/plan/documents.h), as device calls have them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "sim/program/op.h"

namespace rehearse::execute {

// int32 [rows, seq]: of each token the first one of its document, where all have `equal` tokens.
std::vector<std::int32_t> equal_starts(std::int64_t rows, std::int64_t seq, std::int64_t equal);

// A step of the ring over one row, of each of whose documents every rank of the context group has two chunks
// (plan::held_tokens): what follows one another in the operands is one document, and there is a call for each.
// `lengths`: tokens of the documents, multiples of 2 * part.ranks; none: equal ones, of which a rank has a.document.
void call_ring(kernels::Device& device, const program::Attention& a, kernels::ContextPart part,
               const kernels::DropoutSite& site, kernels::AttentionShape shape, std::vector<std::int64_t> lengths,
               std::span<const kernels::Out> reads, std::span<const kernels::Out> writes);

}  // namespace rehearse::execute
