// See generation_profile.h.
#include "calibrate/generation_profile.h"

namespace rehearse::calibrate {
namespace {

std::int64_t tokens_of(const plan::Scenario& s) {
  return s.plan.cached_tokens + s.training.seq_len;
}

}  // namespace

GenerationProfile::Replica::Replica(const execute::PhasePlan& plan, std::int64_t tokens)
    : cache(*plan.scenario, plan.scenario->plan.micro_batch, tokens),
      steps(plan, cache, plan.scenario->plan.cached_tokens > 0) {
  const plan::Scenario& s = *plan.scenario;
  cache.fill(0.5F);
  for (std::size_t i = 0; i < steps.rows.size(); ++i) {
    execute::DecodedRow& row = steps.rows[i];
    row.slot = row.sequence = static_cast<std::int64_t>(i), row.cached = s.plan.cached_tokens;
    for (std::int64_t t = 0; t < s.training.seq_len; ++t)
      row.read.push_back(static_cast<std::int32_t>((row.sequence + t) % s.model.vocab));
  }
}

GenerationProfile::GenerationProfile(const plan::Scenario& scenario, const program::Program& program,
                                     const plan::RankGrid& grid)
    : grid_(grid) {
  for (std::int64_t k = 0; k < scenario.plan.data; ++k)
    replicas_.push_back(std::make_unique<Replica>(execute::PhasePlan{&scenario, &program}, tokens_of(scenario)));
}

std::int64_t GenerationProfile::cache_bytes(const plan::Scenario& s) {
  return s.plan.data * execute::KeyValueCache::bytes(s, s.plan.micro_batch, tokens_of(s));
}

void GenerationProfile::perform(const program::Op& op, std::span<const kernels::Out> reads,
                                std::span<const kernels::Out> writes, const execute::CallContext& c) {
  replicas_[static_cast<std::size_t>(grid_.coordinate(c.rank, Axis::data))]->steps.perform(op, reads, writes, c);
}

// All replicas' sequences are alike.
void GenerationProfile::load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
                             void* out) {
  replicas_.front()->steps.load(kind, numbers, elements, out);
}

}  // namespace rehearse::calibrate
