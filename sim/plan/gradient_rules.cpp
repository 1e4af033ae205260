// See sections.h.
#include <fmt/format.h>

#include <cmath>

#include "sim/plan/sections.h"

namespace rehearse::plan {

GradientCode Plan::gradient_code(std::int64_t elements) const {
  GradientCode code;
  code.elements = code.kept = elements;
  if (compresses_by("top_k")) code.sent = GradientCode::Sent::largest;
  if (compresses_by("random_k")) code.sent = GradientCode::Sent::random;
  if (code.sent != GradientCode::Sent::all)
    code.kept = std::clamp<std::int64_t>(std::llround(gradient_share * static_cast<double>(elements)), 1, elements);
  code.bits = compresses_by("int8") ? 8 : compresses_by("int4") ? 4 : compresses_by("int2") ? 2 : 32;
  if (compresses_by("sign")) code.bits = 1;
  code.stochastic = compresses_by("stochastic");
  // What is left out comes later, or never.
  code.unbiased = code.sent == GradientCode::Sent::random && !compresses_by("error_feedback");
  code.chunk = gradient_chunk > 0 ? gradient_chunk : (code.kept + 7) / 8 * 8;
  return code;
}

namespace detail {

namespace {

void check_chain(const Node& key, const Plan& plan) {
  const auto count = [&](std::initializer_list<const char*> words) {
    return std::count_if(words.begin(), words.end(), [&](const char* word) { return plan.compresses_by(word); });
  };
  const auto numbers = count({"int8", "int4", "int2", "sign"}), choices = count({"top_k", "random_k"});
  if (choices > 1) key.error("top_k and random_k both say which gradients are sent", "one of them");
  if (numbers > 1) key.error("int8, int4, int2 and sign all say as which numbers gradients are sent", "one of them");
  if (choices + numbers == 0)
    key.error("nothing makes the gradients smaller", "top_k, random_k, int8, int4, int2 or sign too");
  if (plan.compresses_by("stochastic") && count({"int8", "int4", "int2"}) == 0)
    key.error("stochastic is how codes of int8, int4 and int2 are rounded", "one of these too, or leave it out");
}

}  // namespace

void check_gradient_compression(const Node& section, const Scenario& s) {
  const Plan& plan = s.plan;
  const Node key = section.get("gradient_compression");
  if (plan.gradient_chunk % 8 != 0)
    section.get("gradient_chunk")
        .error(fmt::format("{} is no multiple of 8: a chunk's codes begin with a byte", plan.gradient_chunk),
               std::to_string((plan.gradient_chunk + 7) / 8 * 8));
  if (!plan.compresses_gradients()) {
    if (plan.gradient_compression.size() > 1) key.error("none is the whole chain", "[none], or leave none out");
    return;
  }
  check_chain(key, plan);
  if (plan.zero > 0)
    key.error(fmt::format("it is of gradients that every rank gets whole; with plan.zero = {} each gets the sum of its "
                          "shard",
                          plan.zero),
              "plan.zero: 0");
  if (plan.tensor > 1 || plan.expert > 1)
    key.error("ranks of a tensor or expert group hold the same parameters, whose gradients would be rounded apart",
              "plan.tensor: 1 and plan.expert: 1");
  if (plan.pipeline > 1 && s.model.has_decoder())
    key.error("stages of encoder and decoder hold the same tables, whose gradients would be rounded apart",
              "plan.pipeline: 1");
  else if (plan.pipeline > 1 && s.model.is_transformer() && s.model.table_on_two_stages())
    key.error("first and last stage hold the same table, whose gradients would be rounded apart",
              s.model.mtp_depth > 0 ? "plan.pipeline: 1" : "plan.pipeline: 1, or model.tied_embeddings: false");
  if (s.training.precision == Precision::fp16)
    key.error("with fp16 steps whose gradients overflow are skipped, which quantised sums do not show",
              "training.precision: bf16 or fp32");
  if (plan.offload_optimizer)
    key.error("gradients that the host adds up or steps by are not compressed yet", "plan.offload_optimizer: false");
}

}  // namespace detail
}  // namespace rehearse::plan
