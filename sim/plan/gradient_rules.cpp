// See sections.h.
#include <fmt/format.h>

#include <cmath>

#include "sim/plan/sections.h"

namespace rehearse::plan {

// Lin et al. 2017 (arXiv 1712.01887), section 3.3: sparsity of 75%, 93.75%, 98.4375%, 99.6%, then 99.9%.
std::vector<double> Plan::warmup_shares() const {
  std::vector<double> shares;
  if (gradient_warmup_steps == 0) return shares;
  for (double share = 0.25; share > gradient_share; share /= 4) shares.push_back(share);
  return shares;
}

// A matrix whose factors are not smaller by more than gradient_min_rate is sent as it is (pytorch
// torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py, _should_compress).
std::int64_t Plan::rank_of_matrix(std::int64_t rows, std::int64_t cols) const {
  const std::int64_t rank = std::min({gradient_rank, rows, cols});
  const double factors = static_cast<double>(rows + cols) * static_cast<double>(rank);
  return factors * gradient_min_rate < static_cast<double>(rows) * static_cast<double>(cols) ? rank : 0;
}

GradientCode Plan::gradient_code(std::int64_t elements, double share) const {
  GradientCode code;
  code.elements = code.kept = elements;
  if (compresses_by("top_k")) code.sent = GradientCode::Sent::largest;
  if (compresses_by("random_k")) code.sent = GradientCode::Sent::random;
  if (code.sent != GradientCode::Sent::all)
    code.kept = std::clamp<std::int64_t>(std::llround(share * static_cast<double>(elements)), 1, elements);
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
  if (plan.compresses_by("power_sgd")) {
    if (choices + numbers > 0 || plan.compresses_by("stochastic") || plan.corrects_momentum())
      key.error("power_sgd sends factors of matrices, in fp32", "[power_sgd], or [power_sgd, error_feedback]");
    return;
  }
  if (plan.corrects_momentum() && (!plan.compresses_by("top_k") || plan.compresses_by("error_feedback")))
    key.error("momentum_correction is how what top_k does not send is kept, in the place of error_feedback",
              "[top_k, momentum_correction]");
  if (choices > 1) key.error("top_k and random_k both say which gradients are sent", "one of them");
  if (numbers > 1) key.error("int8, int4, int2 and sign all say as which numbers gradients are sent", "one of them");
  if (choices + numbers == 0)
    key.error("nothing makes the gradients smaller", "top_k, random_k, int8, int4, int2, sign or power_sgd too");
  if (plan.compresses_by("stochastic") && count({"int8", "int4", "int2"}) == 0)
    key.error("stochastic is how codes of int8, int4 and int2 are rounded", "one of these too, or leave it out");
}

// Deep Gradient Compression: ranks add up SGD's momentum each for itself, and clip before they do.
void check_momentum_correction(const Node& key, const Scenario& s) {
  if (!s.plan.corrects_momentum()) return;
  if (s.training.optimizer != OptimizerKind::sgd || s.training.momentum == 0)
    key.error("momentum_correction is of SGD's momentum", "training.optimizer: sgd and training.momentum: 0.9");
  if (s.training.moments != MomentsKind::fp32)
    key.error("momentum that ranks add up for themselves is kept in fp32", "training.moments: fp32");
  if (s.training.clip > 0 && s.plan.overlap_grad_reduce)
    key.error("ranks clip by the norm of all their gradients before any of them is sent",
              "plan.overlap_grad_reduce: false, or training.clip: 0");
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
  check_momentum_correction(key, s);
  if (plan.compresses_by("power_sgd") && s.training.reduce_dtype != Precision::fp32)
    key.error("power_sgd sends factors in fp32", "training.reduce_dtype: fp32");
  if (plan.gradient_start_step > 0 && !plan.compresses_by("power_sgd"))
    section.get("gradient_start_step").error("is when power_sgd begins", "leave it out");
  if (plan.gradient_warmup_steps > 0 && !plan.compresses_by("top_k") && !plan.compresses_by("random_k"))
    section.get("gradient_warmup_steps").error("is of the share of gradients that is sent", "top_k, or leave it out");
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
