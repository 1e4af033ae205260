#include "sim/run/describe_scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/lower/stage.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::run {
namespace {

const char* name_of(plan::Recompute r) {
  constexpr const char* names[] = {"none", "selective", "full"};
  return names[static_cast<int>(r)];
}
const char* name_of(plan::Precision p) {
  constexpr const char* names[] = {"fp32", "bf16", "fp16"};
  return names[static_cast<int>(p)];
}
const char* yes(bool b) {
  return b ? "true" : "false";
}

}  // namespace

void describe_scenario(const plan::Scenario& scenario, const cluster::Cluster& cluster, const cost::Device& device,
                       result::Result& out) {
  const plan::Plan& p = scenario.plan;
  const plan::Training& t = scenario.training;
  out.scenario_name = scenario.name;
  out.scenario_file = scenario.file;
  out.peak_flops_per_gpu = device.peak(lower::dtype_of(t.precision)).per_s();
  auto& s = out.scenario;
  s["model"] = scenario.model.name;
  s["model.parameters"] = fmt::to_string(model::parameter_count(scenario.model));
  s["cluster.topology"] = cluster.name();
  s["cluster.gpus"] = fmt::to_string(scenario.cluster.gpus);
  s["cluster.device"] = device.name;
  if (const cluster::HostSharing host = cluster.host_sharing(); host.cores > 0) {
    s["cluster.cores"] = fmt::to_string(host.cores);
    s["cluster.threads_per_rank"] = fmt::to_string(host.threads_per_rank);
  }
  if (!scenario.jobs.empty()) {
    std::string& others = s["cluster.jobs"];
    for (const plan::JobBeside& job : scenario.jobs) others += (others.empty() ? "" : ", ") + job.name;
  }
  s["framework"] = scenario.framework.name;
  if (scenario.model.is_transformer()) {
    s["model.attention"] = model::kAttentionNames[static_cast<std::size_t>(scenario.model.attention)];
    s["training.seq_len"] = fmt::to_string(t.seq_len);
  } else {
    s["model.loss"] = scenario.model.loss == model::LossKind::mse ? "mse" : "cross_entropy";
  }
  s["model.dropout"] = fmt::to_string(scenario.model.dropout);
  s["plan.tensor"] = fmt::to_string(p.tensor);
  s["plan.pipeline"] = fmt::to_string(p.pipeline);
  s["plan.data"] = fmt::to_string(p.data);
  s["plan.schedule"] = plan::schedule_of(p.schedule).name();
  s["plan.chunks"] = fmt::to_string(p.chunks);
  s["plan.layers_per_stage"] = fmt::format("{}", fmt::join(p.layers_per_stage, " "));
  s["plan.micro_batch"] = fmt::to_string(p.micro_batch);
  s["plan.micro_batches"] = fmt::to_string(t.micro_batches(p));
  s["plan.zero"] = fmt::to_string(p.zero);
  std::string& order = s["plan.rank_order"];
  for (const Axis axis : p.rank_order) order += (order.empty() ? "" : " ") + std::string(name_of(axis));
  s["plan.bucket_bytes"] = fmt::to_string(p.bucket.count());
  s["plan.overlap_grad_reduce"] = yes(p.overlap_grad_reduce);
  s["plan.overlap_param_gather"] = yes(p.overlap_param_gather);
  s["plan.sequence_parallel"] = yes(p.sequence_parallel);
  s["plan.recompute"] = name_of(p.recompute);
  s["training.global_batch"] = fmt::to_string(t.global_batch);
  s["training.precision"] = name_of(t.precision);
  s["training.grad_dtype"] = name_of(t.grad_dtype);
  s["training.reduce_dtype"] = name_of(t.reduce_dtype);
  s["training.optimizer"] = t.optimizer == plan::OptimizerKind::adamw ? "adamw" : "sgd";
}

}  // namespace rehearse::run
