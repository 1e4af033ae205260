// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

void check_ignored_targets(const Sections& sections, const Scenario& s) {
  const Training& t = s.training;
  if (t.ignored_token < 0) return;
  const Node key = sections.training.get("ignored_token");
  const model::Model& m = s.model;
  const char* const none = "ignored_token: -1";
  if (!m.is_transformer() || !m.reads_text() || m.is_encoder() || m.has_decoder())
    return key.error("every token of a sequence has a target in gpt, llama and moe alone", none);
  if (t.ignored_token >= m.vocab)
    key.error(fmt::format("{} is no token of the vocabulary, which has {}", t.ignored_token, m.vocab),
              fmt::format("a number below {}", m.vocab));
  if (t.precision == Precision::fp16)
    key.error("with fp16 gradients are divided by the loss scale, and not by a count too", "training.precision: bf16");
  if (m.aux_loss > 0)
    key.error("the auxiliary loss of routers counts every token, and gradients are divided by the count of some",
              "model.aux_loss: 0");
  if (m.mtp_depth > 0)
    key.error("modules of multi-token prediction have other targets, which are not counted apart",
              "model.mtp_depth: 0");
  if (s.plan.served() || s.plan.local_steps > 0)
    key.error("the count is of all ranks together, which make no step together here",
              s.plan.served() ? "plan.servers: 0" : "plan.local_steps: 0");
  if (s.plan.compresses_gradients())
    key.error("what compression leaves for later steps was divided by another count",
              "plan.gradient_compression: [none]");
  if (s.reinforcement.given) key.error("what counts of a response is the rollout's to say", "or leave it out");
}

}  // namespace rehearse::plan::detail
