// See small_plans.h.
#include "tests/fuzz/small_plans.h"

#include <fmt/format.h>

#include "reports/limits.h"
#include "reports/tables.h"
#include "sim/run/run.h"
#include "tests/fuzz/readers.h"

namespace rehearse::fuzz {
namespace {

result::Result simulate(const plan::Scenario& scenario, const std::vector<std::string>& calibrations) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.calibrations = calibrations;
  try {
    result::Result r = run::simulate_scenario(scenario, options);
    r.limited_by = reports::limited_by(r);
    return r;
  } catch (const InputError& error) {
    throw plan::located(error, scenario);
  }
}

}  // namespace

std::string small_scenario(const std::string& topology, int gpus, const std::string& cluster_keys) {
  return fmt::format(
      "rehearse: 1\n"
      "framework: rehearse\n"
      "model: {{family: gpt, layers: 2, hidden: 64, heads: 4, vocab: 512, max_seq_len: 64}}\n"
      "cluster: {{topology: '{}', gpus: {}{}{}}}\n"
      "plan: {{tensor: {}, micro_batch: 1}}\n"
      "training: {{global_batch: {}, seq_len: 64, precision: bf16}}\n",
      topology, gpus, cluster_keys.empty() ? "" : ", ", cluster_keys, gpus % 2 == 0 ? 2 : 1, gpus);
}

result::Result simulate_text(const std::string& text, const std::vector<std::string>& calibrations) {
  const std::string path = put_file("scenario.yaml", text);
  return simulate(plan::read_scenario(path, {}, REHEARSE_SOURCE_DIR), calibrations);
}

double work_of(const plan::Scenario& scenario) {
  double work = 0;
  const auto add = [&work](const plan::Scenario& s) {
    const auto& m = s.model;
    const double layers = m.is_transformer() ? static_cast<double>(m.layers)
                                             : static_cast<double>(m.convolutions.size() + m.widths.size());
    const double replicas = static_cast<double>(s.plan.data) * static_cast<double>(s.plan.micro_batch);
    const double micro_batches = static_cast<double>(s.training.global_batch) / replicas;
    const double ranks = static_cast<double>(s.cluster.gpus);
    work += ranks * micro_batches * (layers / static_cast<double>(s.plan.pipeline) + 2) * 20;
  };
  add(scenario);
  for (const plan::JobBeside& job : scenario.jobs) {
    add(job.scenario);
    if (job.start > Time::from_us(1000)) work += 2 * kSmallWork;  // steps without end until then
  }
  return work;
}

void simulate_if_small(const plan::Scenario& scenario) {
  if (work_of(scenario) <= kSmallWork) print_all(simulate(scenario, {}));
}

void print_all(const result::Result& r) {
  (void)result::to_json(r);
  (void)reports::summary(r);
  (void)reports::comparison({r, r});
}

}  // namespace rehearse::fuzz
