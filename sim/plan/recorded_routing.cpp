// model.routing: recorded. Reads the table of a performed step and holds it against the model and the plan; see
// sections.h.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {
namespace {

using model::RecordedRouting;

// Why the tokens of the table are not those of this plan's ranks; empty: they are.
std::string misfit(const RecordedRouting& table, const Scenario& s) {
  const Plan& p = s.plan;
  const model::Model& m = s.model;
  const std::int64_t tensor = p.sequence_parallel && p.tensor > 1 ? p.tensor : 1;
  const struct {
    const char* what;
    std::int64_t there, here;
  } sizes[] = {{"experts", table.experts(), m.experts},
               {"layers with experts", table.layers(), m.blocks() - m.dense_layers},
               {"layers before the first with experts", table.first_layer(), m.dense_layers},
               {"replicas (data)", table.data(), p.data},
               {"context ranks", table.context(), p.context},
               {"tensor ranks with tokens of their own", table.tensor(), tensor},
               {"micro-batches a replica", table.micro_batches(), s.training.micro_batches(p)}};
  for (const auto& size : sizes)
    if (size.there != size.here)
      return fmt::format("step {} has {} {}, the scenario {}", table.step(), size.there, size.what, size.here);
  const std::int64_t tokens = p.micro_batch * s.training.seq_len / p.context / tensor;
  for (std::size_t i = 0; i < table.all().size(); ++i) {
    const std::vector<std::int64_t>& rows = table.all()[i].rows;
    const auto sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const auto most = *std::max_element(rows.begin(), rows.end());
    if (sum != tokens * m.experts_per_token)
      return fmt::format("line {}: {} choices, but a rank's {} tokens choose {} experts each", table.line(i), sum,
                         tokens, m.experts_per_token);
    if (most > tokens)
      return fmt::format("line {}: {} tokens choose one expert, but a rank has {}", table.line(i), most, tokens);
  }
  return "";
}

// Reports what loads of single ranks do not go with; false if there is something.
bool splits_known(const Node& key, const Scenario& s) {
  const Plan& p = s.plan;
  if (p.expert == 1 || s.model.capacity_factor > 0) return true;
  const bool gathered = p.sequence_parallel && p.tensor > 1 && !p.whole_experts();
  const bool forwarded = p.expert_dispatch == ExpertDispatch::forwarding;
  if (gathered)
    key.error("recorded: rows of a tensor group are gathered as equal parts, and those of its ranks are not",
              "plan.expert_tensor: 1, plan.tensor: 1, or another routing");
  if (forwarded)
    key.error("recorded: what ranks send is known, but not which rows of a token go to one node",
              "expert_dispatch: all_to_all, or another routing");
  return !gathered && !forwarded;
}

}  // namespace

void read_recorded_routing(const Node& model, Scenario& s) {
  if (s.model.routing != model::Routing::recorded || s.purpose == Purpose::perform) return;
  if (!splits_known(model.get("routing"), s)) return;
  const Node file = model.get("routing_file");
  try {
    auto table = std::make_shared<const RecordedRouting>(s.model.routing_file, s.model.routing_step);
    const std::string problem = misfit(*table, s);
    if (!problem.empty())
      file.error(fmt::format("{}: {}", s.model.routing_file, problem),
                 "the plan, batch and sequences of the run that was recorded");
    s.model.recorded_routing = std::move(table);
  } catch (const InputError& error) {
    // A file that cannot be opened at all is the scenario's mistake.
    if (error.diagnostics().front().line > 0) throw;
    file.error(fmt::format("{} {}", s.model.routing_file, error.diagnostics().front().message));
  }
}

}  // namespace rehearse::plan::detail
