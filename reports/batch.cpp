// See batch.h.
#include "reports/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "reports/text.h"

namespace rehearse::reports {
namespace {

// 0 if the key is not there or no positive integer.
std::int64_t integer(const result::Result& r, const char* key) {
  const auto found = r.scenario.find(key);
  if (found == r.scenario.end()) return 0;
  std::int64_t value = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto [stop, error] = std::from_chars(found->second.data(), end, value);
  return error == std::errc() && stop == end && value > 0 ? value : 0;
}

}  // namespace

Batch batch_of(const result::Result& r) {
  if (r.reinforcement.known) return {};  // of several updates
  const Batch batch{integer(r, "plan.micro_batch"), integer(r, "plan.micro_batches"),
                    integer(r, "plan.data") - integer(r, "plan.backup_workers"), integer(r, "training.seq_len")};
  double product = 1;  // a file may say anything
  for (const std::int64_t factor : {batch.micro_batch, batch.micro_batches, batch.data, batch.seq_len})
    product *= static_cast<double>(std::max<std::int64_t>(factor, 1));
  return product < 1e18 ? batch : Batch{};
}

Batch batch_of(const plan::Scenario& scenario) {
  if (scenario.reinforcement.given) return {};
  const auto& t = scenario.training;
  return {scenario.plan.micro_batch, t.micro_batches(scenario.plan), scenario.plan.counted(),
          scenario.model.reads_text() ? t.seq_len : 0};
}

std::string batch_factors(const Batch& batch) {
  const auto n = [](std::int64_t value) { return grouped(static_cast<double>(value)); };
  return fmt::format("micro-batch {} x {} micro-batch{} x data {}", n(batch.micro_batch), n(batch.micro_batches),
                     batch.micro_batches == 1 ? "" : "es", n(batch.data));
}

std::string batch_text(const Batch& batch) {
  if (batch.global() == 0) return "";
  const auto n = [](std::int64_t value) { return grouped(static_cast<double>(value)); };
  const std::string factors = batch_factors(batch), one = batch.global() == 1 ? "" : "s";
  if (batch.seq_len == 0) return fmt::format("{} sample{} a step = {}", n(batch.global()), one, factors);
  return fmt::format("{} sequence{} = {}; {} tokens a step", n(batch.global()), one, factors, n(batch.units()));
}

std::string batch_text(const result::Result& r) {
  const result::Reinforcement& f = r.reinforcement;
  if (!f.known) return batch_text(batch_of(r));
  const auto n = [](std::int64_t value) { return grouped(static_cast<double>(value)); };
  std::string text = fmt::format("{} sequences a step = {} prompts x {} samples", n(f.prompts * f.samples),
                                 n(f.prompts), n(f.samples));
  const std::int64_t batch = integer(r, "training.global_batch");
  if (batch > 0) text += fmt::format(", in {} update{} of {}", n(f.updates), f.updates == 1 ? "" : "s", n(batch));
  return text;
}

}  // namespace rehearse::reports
