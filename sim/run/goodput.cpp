// See goodput.h.
#include "sim/run/goodput.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/diagnostics.h"
#include "sim/base/in_parallel.h"
#include "sim/base/moment_codes.h"
#include "sim/model/model.h"
#include "sim/plan/sections.h"

namespace rehearse::run {
namespace {

constexpr double kSecondsOfHour = 3600, kSecondsOfDay = 86400;

[[noreturn]] void refuse_goodput(const std::string& key, const std::string& why, const std::string& hint) {
  throw InputError(Diagnostic{"", 0, 0, key, why, hint});
}

double rate_of(double units, double mtbf_hours) {
  return mtbf_hours > 0 ? units / (mtbf_hours * kSecondsOfHour) : 0;
}

// The devices of the run: parameter servers may have some of their own, which fail and are paid for like the others.
std::int64_t devices_of(const plan::Scenario& s) {
  return s.cluster.gpus + s.plan.own_servers();
}

// Who writes a checkpoint: all ranks, or the parameter servers, which have all there is to keep.
std::int64_t writers_of(const plan::Scenario& s) {
  return s.plan.served() ? s.plan.servers : s.cluster.gpus;
}

// How fast all ranks together move a checkpoint: each its share, none faster than it can.
double writing_rate(const plan::Scenario& s) {
  const auto storage = static_cast<double>(s.checkpoint.storage_bandwidth.per_s());
  const double rank = static_cast<double>(s.checkpoint.rank_bandwidth.per_s()) * static_cast<double>(writers_of(s));
  return rank > 0 ? std::min(storage, rank) : storage;
}

// Bytes of a trained parameter in a checkpoint, its values and its moments.
struct ParameterBytes {
  double values = 0, moment = 0;
  double moments = 0;  // how many

  double all() const { return values + moments * moment; }
};

ParameterBytes parameter_bytes(const plan::Scenario& s) {
  const plan::Training& t = s.training;
  ParameterBytes b;
  constexpr double kCode = 1 + 4.0 / kMomentBlock;  // with its part of the block's fp32 scale
  b.moment = t.moments == plan::MomentsKind::fp32 ? 4 : t.moments == plan::MomentsKind::bf16 ? 2 : kCode;
  b.moments = t.optimizer == plan::OptimizerKind::adamw || t.optimizer == plan::OptimizerKind::lamb ? 2
              : t.optimizer == plan::OptimizerKind::sgd && t.momentum > 0                           ? 1
                                                                                                    : 0;
  const bool one_copy = t.precision == plan::Precision::fp32 || (s.shards_in_fp32() && !t.fp8_params);
  b.values = one_copy ? 4 : 4 + 2;
  return b;
}

double bytes_of_adapters(const plan::Scenario& s) {
  return static_cast<double>(model::adapter_parameter_count(s.model, s.training.adapters())) * parameter_bytes(s).all();
}

double changed_share(const plan::Scenario& s) {
  if (s.checkpoint.changed_share >= 0) return s.checkpoint.changed_share;
  return s.training.lora() ? bytes_of_adapters(s) / checkpoint_bytes(s) : 1;
}

// Of a whole checkpoint, over a base and those that are based on it.
double written_share(const plan::Scenario& s) {
  if (s.checkpoint.mode != plan::CheckpointMode::incremental) return 1;
  const auto every = static_cast<double>(s.checkpoint.base_every);
  return (1 + (every - 1) * changed_share(s)) / every;
}

WeeksRequest weeks_of(const plan::Scenario& s, double step_s, std::int64_t hosts, double bytes) {
  const plan::Failures& f = s.failures;
  const auto gpus = static_cast<double>(devices_of(s));
  WeeksRequest r;
  r.step_s = step_s;
  r.rates = {rate_of(gpus, f.gpu_mtbf_hours), rate_of(gpus, f.nic_mtbf_hours),
             rate_of(static_cast<double>(hosts), f.host_mtbf_hours),
             rate_of(std::ceil(gpus / static_cast<double>(f.gpus_per_switch)), f.switch_mtbf_hours),
             rate_of(1, f.job_mtbf_hours)};
  r.detection_s = f.detection.seconds(), r.restart_s = f.restart.seconds();
  r.repair_s = f.repair_hours * kSecondsOfHour;
  r.spare_hosts = f.spare_hosts;
  const double pass =
      bytes / static_cast<double>(writers_of(s)) / static_cast<double>(s.checkpoint.copy_bandwidth.per_s());
  const double written = written_share(s) * bytes / writing_rate(s);
  switch (s.checkpoint.mode) {
    case plan::CheckpointMode::sync:
      r.stall_s = written;
      break;
    case plan::CheckpointMode::async:
      r.stall_s = pass, r.write_s = written;
      break;
    case plan::CheckpointMode::incremental:
      r.stall_s = pass + written;
      break;
  }
  return r;
}

// With no checkpoint begun to be written before the one before is.
std::int64_t least_steps_between(const WeeksRequest& r) {
  return static_cast<std::int64_t>(std::max(1.0, std::ceil((r.write_s - r.stall_s) / r.step_s)));
}

// In whole steps.
std::int64_t steps_between(double interval_s, const WeeksRequest& r) {
  return std::max(least_steps_between(r), static_cast<std::int64_t>(std::round(interval_s / r.step_s)));
}

// What the run can do without: data-parallel replicas, or so many of them as experts are spread over.
std::int64_t replicas_of(const plan::Scenario& s) {
  return std::max<std::int64_t>(1, s.plan.data / s.plan.expert_replicas());
}

// Replicas that may be missing at once: hosts that are being repaired are a Poisson number where repairs take no turns,
// and more than ten standard deviations above its mean are none that a sample meets. At least one replica stays.
std::int64_t most_missing(const WeeksRequest& r) {
  const double out = (r.rates[0] + r.rates[1] + r.rates[2]) * r.repair_s, most = out + 10 * std::sqrt(out) + 10;
  const auto hosts = static_cast<std::int64_t>(std::max(0.0, std::ceil(most) - static_cast<double>(r.spare_hosts)));
  const std::int64_t replicas = (hosts * r.devices + r.devices_of_replica - 1) / r.devices_of_replica;
  return std::min(replicas, r.replicas - 1);
}

}  // namespace

double checkpoint_bytes(const plan::Scenario& s) {
  const plan::Training& t = s.training;
  if (t.lora() && s.checkpoint.mode != plan::CheckpointMode::incremental)
    refuse_goodput("checkpoint.bytes", "with adapters alone trained, it is not known what a checkpoint holds",
                   "checkpoint.bytes: 100MB, as an example");
  const ParameterBytes bytes = parameter_bytes(s);
  const auto parameters = static_cast<double>(model::parameter_count(s.model));
  if (t.lora()) return parameters * (t.precision == plan::Precision::fp32 ? 4 : 2) + bytes_of_adapters(s);
  // Tables keep fp32 moments where all else has 8-bit ones (so do vectors, which are too few to count).
  const auto tables = static_cast<double>(model::table_parameter_count(s.model));
  const double wide = t.moments == plan::MomentsKind::int8 ? tables * (4 - bytes.moment) : 0;
  if (t.optimizer != plan::OptimizerKind::muon) return parameters * bytes.all() + bytes.moments * wide;
  // Muon has a momentum of the matrices of blocks, and AdamW's two moments of tables and of the head.
  const auto head = static_cast<double>(s.model.tied_embeddings ? 0 : s.model.vocab * s.model.hidden);
  return parameters * (bytes.values + bytes.moment) + (tables + head) * bytes.moment;
}

std::vector<std::int64_t> batches_with_missing(const plan::Scenario& s, std::int64_t missing) {
  const std::int64_t replicas = replicas_of(s), all = s.training.micro_batches(s.plan) * replicas;
  std::vector<std::int64_t> batches;
  for (std::int64_t left = replicas - missing; left >= 1; --left)
    if (all % left == 0) batches.push_back(all / left * s.plan.data * s.plan.micro_batch);
  return batches;
}

std::int64_t devices_of_host(const plan::Scenario& scenario, const std::string& data_root) {
  return plan::detail::devices_of_node(scenario.cluster, data_root).value_or(1);
}

result::Goodput goodput_of(const plan::Scenario& s, double step_s, std::int64_t devices,
                           const GoodputOptions& options) {
  if (s.reinforcement.given)
    refuse_goodput("reinforcement", "runs of weeks are of training alone so far",
                   "--set reinforcement=null, or without the section");
  if (!s.failures.any())
    refuse_goodput("failures", "nothing fails: say how often a unit does",
                   "failures: {host_mtbf_hours: 3686}, as an example");
  if (s.checkpoint.storage_bandwidth == Bandwidth())
    refuse_goodput("checkpoint.storage_bandwidth", "is needed: at which all ranks write a checkpoint",
                   "checkpoint: {storage_bandwidth: 100GB/s}, as an example");
  result::Goodput g;
  g.scenario_name = s.name;
  g.gpus = devices_of(s);
  g.hosts = (g.gpus + devices - 1) / devices;
  g.spare_hosts = s.failures.spare_hosts;
  g.step_s = step_s;
  g.tokens = s.model.is_transformer();
  g.tokens_per_step = static_cast<double>(s.training.global_batch * (g.tokens ? s.training.seq_len : 1));
  g.price_per_gpu_hour = options.price_per_gpu_hour;
  g.checkpoint_bytes =
      s.checkpoint.bytes > Bytes() ? static_cast<double>(s.checkpoint.bytes.count()) : checkpoint_bytes(s);

  WeeksRequest r = weeks_of(s, step_s, g.hosts, g.checkpoint_bytes);
  g.first_weights_s = options.first_weights_s;
  r.restart_s += options.first_weights_s;
  r.seconds = options.days * kSecondsOfDay;
  if (options.units > 0) r.steps = static_cast<std::int64_t>(std::ceil(options.units / g.tokens_per_step));
  g.mean_time_to_failure_s = 1 / r.rate();
  g.stall_s = r.stall_s, g.write_s = r.write_s;
  g.written_bytes = written_share(s) * g.checkpoint_bytes;
  g.least_interval_steps = least_steps_between(r);
  g.best_interval_s = best_interval(r.rate(), r.stall_s);
  if (g.least_interval_steps > 1)  // the expected ratio falls from the best on
    g.best_interval_s = std::max(g.best_interval_s, static_cast<double>(g.least_interval_steps) * step_s);
  g.young_s = young_interval(r.rate(), r.stall_s), g.daly_s = daly_interval(r.rate(), r.stall_s);
  r.interval_steps = steps_between(g.best_interval_s, r);
  g.expected_at_best = expected_ratio(r);
  g.asked_interval_s = s.checkpoint.interval.seconds();
  if (g.asked_interval_s > 0) r.interval_steps = steps_between(g.asked_interval_s, r);
  g.interval_steps = r.interval_steps;
  g.expected_ratio = expected_ratio(r);

  if (s.failures.without_spares == plan::WithoutSpares::fewer_replicas && r.spare_hosts >= 0) {
    if (s.plan.served())
      refuse_goodput("failures.without_spares",
                     "is of replicas that reduce their gradients together, not of workers of "
                     "parameter servers",
                     "wait");
    r.hosts = g.hosts, r.devices = devices, r.replicas = replicas_of(s), r.devices_of_replica = g.gpus / r.replicas;
    if (options.samples > 0 && options.step_s_missing)
      for (std::int64_t missing = 1; missing <= most_missing(r); ++missing)
        r.step_s_missing.push_back(options.step_s_missing(missing));
    g.step_s_missing = r.step_s_missing;
  }
  g.samples.resize(static_cast<std::size_t>(options.samples));
  in_parallel(options.threads, g.samples.size(),
              [&](std::size_t i) { g.samples[i] = simulate_weeks(r, s.noise.seed, static_cast<std::int64_t>(i)); });
  return g;
}

}  // namespace rehearse::run
