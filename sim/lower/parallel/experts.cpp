#include "sim/lower/parallel/experts.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::StreamKind;
using program::StridedCopy;

// Activations where backward reads them, workspace where not.
BufferId ExpertExchange::buffer(const std::string& name, std::int64_t rows, Lifetime lifetime) {
  const std::vector<std::int64_t> shape{rows, context_.model().hidden};
  return lifetime == Lifetime::micro_batch ? builder_.activation(name, context_.compute, shape, lifetime)
                                           : builder_.workspace(builder_.here(name), context_.compute, shape);
}

// [expert ranks, own experts, capacity, hidden]: what goes to, or has come from, each rank.
BufferId ExpertExchange::trade(const std::string& name, BufferId from, Lifetime lifetime) {
  if (context_.groups.expert < 0) return from;
  const std::int64_t n = builder_.buffer(from).elements();
  const BufferId to = buffer(name + ".traded", n / context_.model().hidden, lifetime);
  builder_.op(name + ".all_to_all", Collective{CollectiveKind::all_to_all, context_.groups.expert, n}, context_.compute,
              {{from}}, {{to}}, StreamKind::expert);
  return to;
}

// Between [sources, own experts, capacity, hidden] and [own experts, sources, capacity, hidden].
BufferId ExpertExchange::sort(const std::string& name, BufferId from, std::int64_t capacity, bool by_expert,
                              Lifetime lifetime) {
  const std::int64_t experts = own_experts();
  if (experts == 1 || sources() == 1) return from;
  const std::int64_t piece = capacity * context_.model().hidden;
  const program::Strides sources_first{experts * piece, piece, 0}, experts_first{piece, sources() * piece, 0};
  const BufferId to = buffer(name + ".sorted", sources() * experts * capacity, lifetime);
  const StridedCopy copy{sources(), experts, piece, by_expert ? sources_first : experts_first,
                         by_expert ? experts_first : sources_first};
  builder_.op(name + ".sort", copy, context_.compute, {{from}}, {{to}});
  return to;
}

BufferId ExpertExchange::to_experts(const std::string& name, BufferId from, std::int64_t capacity, Lifetime lifetime) {
  const bool sorts = own_experts() > 1, gathers = gathered() > 1;
  BufferId rows = trade(name, from, sorts || gathers ? Lifetime::slot : lifetime);
  if (gathers) {
    const std::int64_t n = builder_.buffer(rows).elements() * gathered();
    const BufferId all = buffer(name + ".gathered", n / context_.model().hidden, sorts ? Lifetime::slot : lifetime);
    builder_.op(name + ".all_gather", Collective{CollectiveKind::all_gather, context_.groups.tensor, n},
                context_.compute, {{rows}}, {{all}}, StreamKind::tensor);
    rows = all;
  }
  return sort(name, rows, capacity, true, lifetime);
}

BufferId ExpertExchange::to_tokens(const std::string& name, BufferId from, std::int64_t capacity, Lifetime lifetime) {
  const bool traded = context_.groups.expert >= 0, scatters = gathered() > 1;
  BufferId rows = sort(name, from, capacity, false, traded || scatters ? Lifetime::slot : lifetime);
  if (scatters) {
    const std::int64_t n = builder_.buffer(rows).elements();
    const BufferId own =
        buffer(name + ".scattered", n / gathered() / context_.model().hidden, traded ? Lifetime::slot : lifetime);
    builder_.op(name + ".reduce_scatter", Collective{CollectiveKind::reduce_scatter, context_.groups.tensor, n},
                context_.compute, {{rows}}, {{own}}, StreamKind::tensor);
    rows = own;
  }
  return trade(name, rows, lifetime);
}

}  // namespace rehearse::lower
