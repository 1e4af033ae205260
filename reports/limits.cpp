// See limits.h. Shares are of the mean over ranks of what the compute stream does (result.json's breakdown_s).
#include "reports/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "reports/answers.h"
#include "reports/reinforcement.h"
#include "reports/text.h"
#include "sim/base/units.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::reports {
namespace {

using result::Result;
using result::Share;

constexpr double kLargeBusy = 0.8;  // a judgement: of a server or a link, from which on workers wait for it

struct ExposedKind {
  Share share;
  std::string_view name;
};
constexpr std::array<ExposedKind, 5> kExposed = {{{Share::exposed_tensor, "tensor-parallel"},
                                                  {Share::exposed_context, "context-parallel"},
                                                  {Share::exposed_expert, "expert-parallel"},
                                                  {Share::exposed_data, "data-parallel"},
                                                  {Share::exposed_pipeline, "pipeline"}}};

ExposedKind largest_exposed(const Result& r) {
  return *std::max_element(kExposed.begin(), kExposed.end(), [&](const ExposedKind& a, const ExposedKind& b) {
    return share_of(r, a.share) < share_of(r, b.share);
  });
}

// A resolved key of the scenario as a positive integer; 0 if it is not one.
std::int64_t scenario_integer(const Result& r, const char* key) {
  const auto found = r.scenario.find(key);
  std::int64_t value = 0;
  if (found != r.scenario.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return std::max<std::int64_t>(value, 0);
}

// Micro-batches whose activations a stage holds at once. 0 if the scenario's keys do not say.
std::int64_t micro_batches_held(const Result& r, int stage) {
  const auto word = r.scenario.find("plan.schedule");
  const plan::PipelineSchedule* schedule = word == r.scenario.end() ? nullptr : plan::find_schedule(word->second);
  const std::int64_t stages = scenario_integer(r, "plan.pipeline");
  if (schedule == nullptr || stages <= stage || scenario_integer(r, "plan.chunks") > 1) return 0;
  const auto all = static_cast<int>(scenario_integer(r, "plan.micro_batches"));
  return schedule->held({stage, static_cast<int>(stages), 1}, all);
}

std::string does_not_fit(const Result& r) {
  const result::StageMemory* worst = largest_stage(r);
  if (worst == nullptr) return "Does not fit in memory.";
  if (!r.host_fits() && Bytes(worst->peak) <= usable_memory(r))
    return fmt::format("Does not fit: the ranks of a node keep {} in the memory of its host, which has {}.",
                       format_bytes(Bytes(r.host_bytes)), format_bytes(Bytes(r.host_capacity)));
  const std::array<std::pair<std::string_view, std::int64_t>, 7> classes = {
      {{"parameters", worst->parameters},
       {"gradients", worst->gradients},
       {"optimizer states", worst->optimizer},
       {"activations", worst->activations},
       {"workspaces", worst->workspace},
       {"communication buffers", worst->communication},
       {"the framework's own", worst->framework}}};
  const auto& [name, bytes] = *std::max_element(classes.begin(), classes.end(),
                                                [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string what(name);
  const std::int64_t held = name == "activations" ? micro_batches_held(r, worst->stage) : 0;
  if (held > 1) what += fmt::format(" of {} micro-batches", held);
  const double share = worst->peak > 0 ? static_cast<double>(bytes) / static_cast<double>(worst->peak) : 0;
  return fmt::format("Does not fit: stage {}{} needs {} of {} a {}{}; {} are {} of it.", worst->stage,
                     worst->device.empty() ? "" : " on " + worst->device, format_bytes(Bytes(worst->peak)),
                     format_bytes(usable_memory(r)), device_noun(r), headroom_words(r), what, percent(share));
}

std::string communication_sentence(const Result& r, double total) {
  const ExposedKind most = largest_exposed(r);
  const double share = share_of(r, most.share);
  if (share >= 0.8 * total)
    return fmt::format("Exposed {} communication: {} of the step waits for it.", most.name, percent(share));
  return fmt::format("Exposed communication: {} of the step waits for it, {} of the step for {} transfers.",
                     percent(total), percent(share), most.name);
}

std::string communication_name(const Result& r, double total) {
  const ExposedKind most = largest_exposed(r);
  const std::string_view mostly = share_of(r, most.share) >= 0.5 * total ? most.name : "";
  return mostly.empty() ? "exposed communication" : fmt::format("exposed communication (mostly {})", mostly);
}

// FLOPs done in kernel time over the peak; 0 if unknown.
double kernel_efficiency(const Result& r) {
  const double compute_s = static_cast<double>(r.breakdown_ps[static_cast<std::size_t>(Share::compute)]) * 1e-12;
  const double capacity = compute_s * r.peak_flops_per_gpu * static_cast<double>(r.ranks);
  return capacity > 0 ? r.hardware_flops / capacity : 0;
}

std::string compute_sentence(const Result& r, std::string_view loss, double loss_share) {
  std::string out = fmt::format("Compute: {} of the step runs kernels", percent(share_of(r, Share::compute)));
  if (const double efficiency = kernel_efficiency(r); efficiency > 0)
    out += fmt::format(" at {} of the peak rate", percent(efficiency));
  // Of backup workers' iterations as many are given up as there are more workers than count.
  const double given_up = r.servers.known && r.servers.workers > 0
                              ? static_cast<double>(r.servers.backup_workers) / static_cast<double>(r.servers.workers)
                              : 0;
  if (given_up > 0 && r.hardware_flops > 0)
    out += fmt::format(", {} of their FLOPs iterations that are given up (backup workers)", percent(given_up));
  const double extra = 1 - given_up - r.model_flops / std::max(r.hardware_flops, 1.0);
  if (r.hardware_flops > 0 && extra >= 0.005)
    out += fmt::format(", {} of their FLOPs recomputation{}", percent(extra),
                       r.scenario.contains("model.experts") ? " or rows of experts without a token" : "");
  if (loss_share >= 0.0005) out += fmt::format("; the largest loss is {}, {}", loss, percent(loss_share));
  return out + ".";
}

// From what-ifs: the lever that helps most, and the next.
std::string gain_sentence(const Result& r) {
  const std::vector<Gain> list = gains(r);
  const auto change = [](const Gain& gain) {
    return fmt::format("{} {}", gain.name, gain.doubled ? "doubled" : "halved");
  };
  const Gain& best = list.front();
  if (best.shorter < kSmallGain)
    return fmt::format("Nothing alone: of all what-ifs {} helps most, and makes the step {} shorter.", change(best),
                       percent(std::max(0.0, best.shorter)));
  std::string name = best.name;
  if (name.front() >= 'a' && name.front() <= 'z') name.front() = static_cast<char>(name.front() - 'a' + 'A');
  std::string out =
      fmt::format("{}: {}, it would make the step {} shorter ({})", name, best.doubled ? "doubled" : "halved",
                  percent(best.shorter), format_time(Time::from_ps(best.step_ps)));
  if (list.size() > 1 && list[1].shorter >= kSmallGain)
    out += fmt::format("; next is {}, {}", change(list[1]), percent(list[1].shorter));
  return out + ".";
}

std::string_view loader_of(const Result& r) {
  if (r.input.bound == "storage") return "the storage that they are read from";
  return r.input.bound == "workers" ? "the workers that load them" : "the process that loads them itself";
}

// Of a pipeline the first stage alone waits for examples, the others for the first: a bubble to them.
bool paced_by_input(const Result& r) {
  constexpr double kNearly = 0.98;
  return r.input.known && r.input.bound != "process" &&
         static_cast<double>(r.input.step_ps) >= kNearly * static_cast<double>(r.step_time_ps);
}

}  // namespace

const result::StageMemory* largest_stage(const Result& r) {
  return result::tightest(r.stages);
}

Bytes usable_memory(const Result& r) {
  return Bytes(r.memory_capacity - r.memory_headroom);
}

std::string headroom_words(const Result& r) {
  if (r.memory_headroom <= 0) return "";
  return fmt::format(" ({} less {} of cluster.headroom)", format_bytes(Bytes(r.memory_capacity)),
                     format_bytes(Bytes(r.memory_headroom)));
}

double share_of(const Result& r, Share share) {
  if (r.step_time_ps <= 0) return 0;
  return static_cast<double>(r.breakdown_ps[static_cast<std::size_t>(share)]) / static_cast<double>(r.step_time_ps);
}

double exposed_communication(const Result& r) {
  double total = 0;
  for (const ExposedKind& kind : kExposed) total += share_of(r, kind.share);
  return total;
}

std::string limited_by(const Result& r) {
  if (const std::string phase = phase_that_does_not_fit(r); !phase.empty()) return "Does not fit: " + phase + ".";
  if (!r.memory_fits) return does_not_fit(r);
  const double input = share_of(r, Share::exposed_input);
  if (input < kLargeLoss && paced_by_input(r))
    return fmt::format("Input: the step is as long as its training examples take to come, by {}.", loader_of(r));
  if (!r.what_if.empty() && input < kLargeLoss) return gain_sentence(r);
  if (r.reinforcement.known) return longest_phase(r);
  if (r.servers.known && r.servers.bound_by != "workers" && r.servers.busy >= kLargeBusy)
    return fmt::format("Parameter servers: {} is busy {} of the time, and workers wait for it.", r.servers.bound_by,
                       percent(r.servers.busy));
  struct Loss {
    std::string name;
    double share;
    std::string sentence;
  };
  const double exposed = exposed_communication(r), bubble = share_of(r, Share::bubble);
  const double straggler = share_of(r, Share::straggler);
  const double optimizer = share_of(r, Share::optimizer), host = share_of(r, Share::host),
               other = share_of(r, Share::other);
  const std::array<Loss, 7> losses = {{
      {communication_name(r, exposed), exposed, communication_sentence(r, exposed)},
      {"the pipeline bubble", bubble,
       fmt::format("Pipeline bubble: {} of the step stages wait for work from other stages.", percent(bubble))},
      {"stragglers", straggler,
       fmt::format("Stragglers: {} of the step ranks wait for slower ones that do the same work.", percent(straggler))},
      {"input", input,
       fmt::format("Input: {} of the step waits for training examples, by {}.", percent(input), loader_of(r))},
      {"the optimizer", optimizer, fmt::format("Optimizer: {} of the step updates parameters.", percent(optimizer))},
      {"the host", host, fmt::format("Host: {} of the step waits for kernel launches and host syncs.", percent(host))},
      {"other waits", other, fmt::format("Other waits: {} of the step is idle for no single cause.", percent(other))},
  }};
  const Loss& largest =
      *std::max_element(losses.begin(), losses.end(), [](const Loss& a, const Loss& b) { return a.share < b.share; });
  if (largest.share >= kLargeLoss) return largest.sentence;
  return compute_sentence(r, largest.name, largest.share);
}

bool on_cpu(const result::Result& r) {
  return r.source == "measured" || r.scenario.contains("cluster.cores");
}

std::string chosen_framework(const Result& r) {
  const auto name = r.scenario.find("framework"), how = r.scenario.find("framework.chosen");
  if (name == r.scenario.end() || how == r.scenario.end()) return "";
  std::string text = fmt::format("Framework: {}, chosen {}.", name->second, how->second);
  if (r.ideal_step_ps > 0 && r.step_time_ps > 0)
    text += fmt::format(" The ideal, framework: rehearse, takes {} a step, {} of this.",
                        format_time(Time::from_ps(r.ideal_step_ps)),
                        percent(static_cast<double>(r.ideal_step_ps) / static_cast<double>(r.step_time_ps)));
  else if (name->second != "rehearse")
    text += " --set framework=rehearse simulates the ideal.";
  return text;
}

std::string device_noun(const result::Result& r) {
  return on_cpu(r) ? "rank" : "GPU";
}

std::string loss_unit(const Result& r) {
  const auto loss = r.scenario.find("model.loss");
  if (loss != r.scenario.end() && loss->second == "mse") return "mean squared error";
  return r.scenario.empty() || r.scenario.contains("training.seq_len") ? "nats a token" : "nats a sample";
}

}  // namespace rehearse::reports
