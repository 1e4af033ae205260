// See execute_checks.h.
#include "cli/execute_checks.h"

#include <fmt/format.h>

#include <string>

#include "cli/refuse.h"
#include "execute/placement/placement.h"

namespace rehearse::cli {
namespace {

constexpr double kMostRouted = 1e8;  // numbers of --record-routing, 8 bytes each

}  // namespace

void check_shrunk(const ExecuteArguments& a) {
  execute::refuse_launcher("execute --shrink");
  const bool on_cpu = a.placement.device != "cuda" && (a.placement.ranks.empty() || a.placement.ranks == "local");
  if (!on_cpu || a.baseline || !a.checkpoint.folder.empty() || !a.data.empty() || !a.metrics.empty() || a.epochs > 0)
    refuse("--shrink",
           "performs a miniature on this machine's cores; --ranks, --device cuda, --data, --epochs, --checkpoint, "
           "--metrics "
           "and --baseline are of a plan that is performed as it is",
           "-o DIR, then rehearse execute DIR/miniature.yaml");
  if (!a.not_of_miniature.empty())
    refuse("--shrink", fmt::format("{} is of a plan that is performed as it is", a.not_of_miniature),
           "-o DIR, then rehearse execute DIR/miniature.yaml");
}

void check_learning_options(const ExecuteArguments& a) {
  const auto refuse_if = [](bool given, const char* option, const char* message) {
    if (given)
      refuse(option, std::string(message) + " where reinforcement learning is performed",
             "leave it out, or --set reinforcement=null to train alone");
  };
  execute::refuse_launcher("execute of reinforcement learning");
  refuse_if(!a.placement.ranks.empty() && a.placement.ranks != "local", "--ranks", "ranks are threads");
  refuse_if(a.placement.device == "cuda", "--device", "ranks are on the CPU");
  refuse_if(a.checkpoint.kind != execute::CheckpointKind::sharded, "--checkpoint-kind",
            "checkpoints are of each rank what it keeps");
  refuse_if(a.checkpoint.background, "--async", "checkpoints are written between steps");
  refuse_if(!a.elastic.empty(), "--elastic", "ranks do not come and go");
  refuse_if(a.baseline, "--baseline", "there is no comparison with one rank");
  refuse_if(!a.routing.empty(), "--record-routing", "what tokens choose is not kept");
  refuse_if(a.as_simulated, "--as-simulated", "there are no parameter servers");
  refuse_if(!a.order_file.empty(), "--order", "there are no parameter servers");
  refuse_if(a.until_loss.has_value(), "--until-loss", "its losses say little of what is learnt");
  refuse_if(!a.data.empty(), "--data", "prompts are drawn, and no text is read,");
  refuse_if(a.epochs > 0, "--epochs", "there are steps, and no times through a text,");
  refuse_if(a.tensorboard, "--tensorboard", "no event file is written");
}

void check_recordable(const ExecuteArguments& a, const plan::Scenario& scenario) {
  const model::Model& m = scenario.model;
  if (m.family != model::Family::moe)
    refuse("--record-routing", "the model has no experts for tokens to choose", "a model of family moe");
  if (m.experts_every > 1)
    refuse("--record-routing", "a record has layers with experts one after the other", "model.experts_every 1");
  const double layers = static_cast<double>(a.steps) * static_cast<double>(m.expert_layers());
  const double rows = layers * static_cast<double>(scenario.training.micro_batches(scenario.plan)) *
                      static_cast<double>(scenario.cluster.gpus);
  const double choices = layers * static_cast<double>(scenario.training.global_batch * scenario.training.seq_len) *
                         static_cast<double>(m.experts_per_token);
  const double numbers = rows * static_cast<double>(m.experts) + choices;
  if (numbers > kMostRouted)
    refuse("--record-routing",
           fmt::format("{:.3g} numbers are to be kept until the run ends; at most {:.3g}", numbers, kMostRouted),
           "fewer --steps");
}

void check_served(const ExecuteArguments& a, const plan::Scenario& scenario) {
  if (a.as_simulated && !scenario.plan.served())
    refuse("--as-simulated", "orders what parameter servers do, and plan.servers = 0", "plan.servers 1 or more");
  if (!a.order_file.empty() && !scenario.plan.served())
    refuse("--order", "says what parameter servers do, and plan.servers = 0", "plan.servers 1 or more");
  if (!scenario.plan.served()) return;
  if (a.placement.ranks == "nccl")
    refuse("--ranks", "parameter servers are threads beside the ranks', or processes beside theirs over Gloo or MPI",
           "--ranks local, gloo or mpi");
}

void check_until_loss(const ExecuteArguments& a, const plan::Scenario& scenario) {
  if (!a.until_loss) return;
  const auto refuse_if = [](bool given, const char* message) {
    if (given) refuse("--until-loss", message, "leave it out, and rehearse report DIR --target-loss X afterwards");
  };
  refuse_if(!a.placement.ranks.empty() && a.placement.ranks != "local", "ends ranks that are threads of one process");
  refuse_if(a.placement.device == "cuda", "ends ranks on CPUs");
  refuse_if(a.baseline, "is without --baseline, which does all steps");
  refuse_if(!a.checkpoint.folder.empty(), "is without --checkpoint, whose last one is due after all steps");
  refuse_if(scenario.plan.served(), "is without parameter servers, whose workers do all steps");
}

}  // namespace rehearse::cli
