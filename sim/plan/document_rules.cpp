// See sections.h.
#include <fmt/format.h>

#include "sim/plan/documents.h"
#include "sim/plan/nearest_numbers.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

// Transformer Engine's ring with packed sequences (qkv_format thd) cuts each document, padded, into 2 x context chunks
// (transformer_engine/pytorch/attention, get_cu_seqlens_on_cp_rank), and Megatron-Bridge packs a micro-batch into one
// row (docs/training/packed-sequences.md, micro batch size 1). Lengths that are drawn from a distribution divide by
// nothing.
void check_ring(const Sections& sections, const Scenario& s, const Node& documents) {
  const Training& t = s.training;
  const Node plan = sections.plan;
  const Node ring = plan.has("context_kind") ? plan.get("context_kind") : plan.get("context");
  const char* const other =
      "context_kind: all_gather, as Llama 3 has it (arXiv 2407.21783, section 3.3.2), or all_to_all";
  const std::int64_t parts = 2 * s.plan.context;
  if (t.documents != Documents::fixed && t.documents != Documents::table)
    return documents.error(
        fmt::format("context_kind: ring cuts each document into 2 * context = {} equal chunks, which lengths that are "
                    "drawn do not divide into",
                    parts),
        fmt::format("documents: fixed or table with multiples of {}, or {}", parts, other));
  const auto check = [&](const Node& node, std::int64_t length) {
    if (length % parts == 0) return;
    node.error(
        fmt::format("a document of {} tokens does not divide into 2 * context = {} equal chunks; nearest that "
                    "do: {}",
                    length, parts, nearest_multiples(length, parts)));
  };
  if (t.documents == Documents::fixed) check(sections.training.get("document_length"), t.document_length);
  const Node lengths = sections.training.get("document_lengths");
  for (std::size_t i = 0; i < t.document_lengths.size() && t.documents == Documents::table; ++i)
    check(lengths.at(i), t.document_lengths[i]);
  if (s.plan.micro_batch > 1)
    (plan.has("micro_batch") ? plan.get("micro_batch") : ring)
        .error(fmt::format("micro_batch = {}: context_kind: ring cuts the documents of one row", s.plan.micro_batch),
               "micro_batch: 1, with a seq_len as much longer");
}

}  // namespace

void check_documents(const Sections& sections, const Scenario& s) {
  const Node& training = sections.training;
  const Training& t = s.training;
  const bool table = t.documents == Documents::table;
  const auto belongs = [&](const char* key, bool needed, const char* to) {
    if (training.has(key) && !needed) training.get(key).error(fmt::format("belongs to {}", to), "or leave it out");
  };
  belongs("document_length", t.packs() && !table, "documents: fixed, uniform or lognormal");
  belongs("document_sigma", t.documents == Documents::lognormal || t.document_sigma == 1, "documents: lognormal");
  belongs("document_lengths", table, "documents: table");
  if (!t.packs()) return;
  const Node documents = training.get("documents");
  if (!s.model.is_transformer() || s.model.is_encoder() || s.model.has_decoder())
    documents.error("documents are packed into sequences of gpt, llama and moe", "documents: none");
  if (table && t.document_lengths.empty())
    documents.error("table needs document_lengths, a list of tokens", "document_lengths: [128, 512, 4096]");
  if (!table && t.document_length == 0)
    documents.error("needs document_length, the tokens of a document or their mean", "document_length: 1024");
  if (rings_by_document(s.plan, t)) check_ring(sections, s, documents);
}

}  // namespace rehearse::plan::detail
