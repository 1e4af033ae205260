// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

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
  // Transformer Engine's ring with packed sequences (qkv_format thd) cuts each document, padded, into 2 x context
  // chunks (transformer_engine/pytorch/attention, get_cu_seqlens_on_cp_rank); ours cuts the sequence.
  if (s.plan.context > 1 && s.plan.context_kind == ContextKind::ring) {
    const Node plan = sections.plan;
    (plan.has("context_kind") ? plan.get("context_kind") : plan.get("context"))
        .error("context_kind: ring passes keys on in steps of equal work, which documents make unequal",
               "context_kind: all_gather, as Llama 3 has it (arXiv 2407.21783, section 3.3.2), or all_to_all");
  }
}

}  // namespace rehearse::plan::detail
