#include "sim/lower/parallel/experts.h"

#include <algorithm>

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Permute;
using program::PermutePart;
using program::StreamKind;
using program::StridedCopy;

// Activations where backward reads them, workspace where not.
BufferId ExpertExchange::buffer(const std::string& name, std::int64_t rows, Lifetime lifetime) {
  const std::vector<std::int64_t> shape{rows, context_.model().hidden};
  return lifetime == Lifetime::micro_batch ? builder_.activation(name, context_.compute, shape, lifetime)
                                           : builder_.workspace(builder_.here(name), context_.compute, shape);
}

std::int64_t ExpertExchange::traded() const {
  if (capacity() > 0) return context_.model().experts * capacity();
  if (context_.groups.expert < 0) return choices();
  return std::max<std::int64_t>(1, context_.rows_for_own(layer_) * context_.plan().expert);
}

void ExpertExchange::declare_buffers(Lifetime restored) {
  loads_ = builder_.activation(name_ + ".loads.own", DType::f32, {own_experts()}, restored);
  places_ = builder_.activation(name_ + ".places.own", DType::i32, {arrived()}, restored);
}

// Over the expert group and then over the tensor group, if what each brings is gathered there.
void ExpertExchange::gather_counts(BufferId loads) {
  const auto gather = [&](const std::string& name, program::GroupId group, std::int64_t ranks, StreamKind stream) {
    const std::int64_t n = builder_.buffer(counts_).elements() * ranks;
    const BufferId all = builder_.workspace(builder_.here(name_ + name), DType::f32, {n});
    counted_ = builder_.op(name_ + name + ".all_gather", Collective{CollectiveKind::all_gather, group, n}, DType::f32,
                           {{counts_}}, {{all}}, stream);
    counts_ = all;
  };
  counts_ = loads;
  if (context_.groups.expert >= 0)
    gather(".counts", context_.groups.expert, context_.plan().expert, StreamKind::expert);
  if (gathered() > 1) gather(".counts.gathered", context_.groups.tensor, gathered(), StreamKind::tensor);
}

void ExpertExchange::wait_for_counts() {
  builder_.after(builder_.op(name_ + ".counts.sync", program::HostSync{}, context_.compute, {}, {}, StreamKind::host),
                 counted_);
  program::Router receive{program::RouterPart::receive, arrived(), context_.model().experts, 1};
  receive.sources = sources();
  receive.own = own_experts();
  if (context_.groups.expert >= 0)
    receive.spread = context_.plan().whole_experts() ? AxisSet{Axis::tensor, Axis::context, Axis::expert} : kExpertAxes;
  builder_.op(name_ + ".receive", receive, context_.compute, {{counts_}}, {{places_}, {loads_}});
}

// With a capacity [expert ranks, own experts, capacity, hidden]: what goes to, or has come from, each rank.
BufferId ExpertExchange::trade(const std::string& name, BufferId from, bool back, Lifetime lifetime) {
  if (context_.groups.expert < 0) return from;
  const std::int64_t hidden = context_.model().hidden, others = traded();
  Collective trade{CollectiveKind::all_to_all, context_.groups.expert, builder_.buffer(from).elements()};
  if (!context_.parts.empty()) {
    trade.elements = choices() * hidden;
    trade.parts = context_.parts.at(static_cast<std::size_t>(layer_));
    trade.back = back;
    trade.own = others * hidden;
  }
  const std::int64_t rows = capacity() > 0 ? others : back ? choices() : others;
  const BufferId to = buffer(name + ".traded", rows, lifetime);
  builder_.op(name + ".all_to_all", trade, context_.compute, {{from}}, {{to}}, StreamKind::expert);
  return to;
}

// Between rows [sources, own experts] and [own experts, sources], of which there are `capacity`, or as many as come.
BufferId ExpertExchange::sort(const std::string& name, BufferId from, bool by_expert, Lifetime lifetime) {
  if (!sorts()) return from;
  const std::int64_t experts = own_experts(), hidden = context_.model().hidden;
  const std::int64_t rows = builder_.buffer(from).elements() / hidden;
  const BufferId to = buffer(name + ".sorted", rows, lifetime);
  if (capacity() == 0) {
    const auto part = by_expert ? PermutePart::permute : PermutePart::permute_backward;
    builder_.op(name + ".sort", Permute{part, rows, 1, rows, hidden}, context_.compute, {{from}, {places_}}, {{to}});
    return to;
  }
  const std::int64_t piece = capacity() * hidden;
  const program::Strides sources_first{experts * piece, piece, 0}, experts_first{piece, sources() * piece, 0};
  const StridedCopy copy{sources(), experts, piece, by_expert ? sources_first : experts_first,
                         by_expert ? experts_first : sources_first};
  builder_.op(name + ".sort", copy, context_.compute, {{from}}, {{to}});
  return to;
}

BufferId ExpertExchange::to_experts(const std::string& name, BufferId from, Lifetime lifetime) {
  const bool gathers = gathered() > 1;
  BufferId rows = trade(name, from, false, sorts() || gathers ? Lifetime::slot : lifetime);
  if (gathers) {
    const std::int64_t n = builder_.buffer(rows).elements() * gathered();
    const BufferId all = buffer(name + ".gathered", n / context_.model().hidden, sorts() ? Lifetime::slot : lifetime);
    builder_.op(name + ".all_gather", Collective{CollectiveKind::all_gather, context_.groups.tensor, n},
                context_.compute, {{rows}}, {{all}}, StreamKind::tensor);
    rows = all;
  }
  return sort(name, rows, true, lifetime);
}

BufferId ExpertExchange::to_tokens(const std::string& name, BufferId from, Lifetime lifetime) {
  const bool traded = context_.groups.expert >= 0, scatters = gathered() > 1;
  BufferId rows = sort(name, from, false, traded || scatters ? Lifetime::slot : lifetime);
  if (scatters) {
    const std::int64_t n = builder_.buffer(rows).elements();
    const BufferId own =
        buffer(name + ".scattered", n / gathered() / context_.model().hidden, traded ? Lifetime::slot : lifetime);
    builder_.op(name + ".reduce_scatter", Collective{CollectiveKind::reduce_scatter, context_.groups.tensor, n},
                context_.compute, {{rows}}, {{own}}, StreamKind::tensor);
    rows = own;
  }
  return trade(name, rows, true, lifetime);
}

}  // namespace rehearse::lower
