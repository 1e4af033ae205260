// See server_order.h.
#include "execute/servers/server_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "execute/performer.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {

using account::ServerAct;
using account::ServerEvent;

namespace {

[[noreturn]] void refuse_order(const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{"", 0, 0, kOrderOfServers, message, hint});
}

const char* name_of(ServerAct act) {
  return act == ServerAct::pull ? "pull" : "apply";
}

// Of one server, every pull and every gradient once.
void check_acts(const std::vector<ServerEvent>& acts, int server, std::int64_t workers, std::int64_t first,
                std::int64_t steps) {
  std::set<std::pair<std::pair<std::int64_t, int>, ServerAct>> seen;
  for (const ServerEvent& e : acts)
    if (!seen.insert({{e.iteration, e.worker}, e.act}).second)
      refuse_order(fmt::format("server {} has the {} of worker {}, iteration {}, twice", server, name_of(e.act),
                               e.worker, e.iteration),
                   "");
  for (std::int64_t iteration = first; iteration < steps; ++iteration)
    for (int worker = 0; worker < workers; ++worker)
      for (const ServerAct act : {ServerAct::pull, ServerAct::apply})
        if (!seen.contains({{iteration, worker}, act}))
          refuse_order(fmt::format("server {} has no {} of worker {}, iteration {}, of {} steps", server, name_of(act),
                                   worker, iteration, steps),
                       "the order of a run of as many steps, or fewer --steps");
}

// At a checkpoint all gradients before it are applied, and nothing after it is done.
void check_checkpoints(const std::vector<ServerEvent>& acts, int server, const Options& options, std::int64_t first,
                       std::int64_t workers) {
  if (!options.checkpoint.any()) return;
  std::int64_t due = next_due(options, first), before = 0;
  for (const ServerEvent& e : acts) {
    while (due < options.steps && before == (due - first) * workers) due = next_due(options, due);
    if (e.iteration >= due)
      refuse_order(fmt::format("a checkpoint is due at step {}, and server {} has a {} of iteration {} (worker {}) "
                               "before all gradients until there are applied",
                               due, server, name_of(e.act), e.iteration, e.worker),
                   "the order of a run that wrote checkpoints as often, or no --every");
    if (e.act == ServerAct::apply) ++before;
  }
}

}  // namespace

std::int64_t next_due(const Options& options, std::int64_t step) {
  if (!options.checkpoint.any() || step >= options.steps) return std::numeric_limits<std::int64_t>::max();
  const std::int64_t every = options.checkpoint.every;
  return every > 0 ? std::min<std::int64_t>(options.steps, (step / every + 1) * every) : options.steps;
}

ServerOrder server_order(const plan::Scenario& scenario, const Options& options, std::int64_t first) {
  ServerOrder order;
  if (options.server_order == nullptr) return order;
  order.given = true;
  const plan::Plan& plan = scenario.plan;
  const bool synchronous = plan.consistency == plan::Consistency::synchronous;
  order.acts.resize(static_cast<std::size_t>(plan.servers));
  for (const ServerEvent& e : *options.server_order) {
    if (e.server < 0 || e.server >= plan.servers || e.worker < 0 || e.worker >= plan.data || e.iteration < 0)
      refuse_order(fmt::format("server {}, worker {}, iteration {}: the plan has {} servers and {} workers", e.server,
                               e.worker, e.iteration, plan.servers, plan.data),
                   "the order of a run of this plan");
    if (e.iteration < first || e.iteration >= options.steps) continue;
    if (!synchronous)
      order.acts[static_cast<std::size_t>(e.server)].push_back(e);
    else if (e.act == ServerAct::apply)
      order.members[e.iteration].insert(e.worker);
  }
  if (!synchronous) {
    for (int server = 0; server < plan.servers; ++server) {
      const auto& acts = order.acts[static_cast<std::size_t>(server)];
      check_acts(acts, server, plan.data, first, options.steps);
      check_checkpoints(acts, server, options, first, plan.data);
    }
    return order;
  }
  for (std::int64_t step = first; step < options.steps; ++step)
    if (const auto count = static_cast<std::int64_t>(order.members[step].size()); count != plan.counted())
      refuse_order(fmt::format("step {} has the gradients of {} workers, and {} count", step, count, plan.counted()),
                   "the order of a run of this plan and as many steps");
  return order;
}

}  // namespace rehearse::execute
