#include "sim/lower/parallel/experts.h"

#include <algorithm>
#include <cmath>

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Permute;
using program::PermutePart;
using program::StreamKind;
using program::StridedCopy;

BufferId ExpertExchange::rows_in(const std::string& name, std::int64_t rows, std::int64_t room, std::int64_t width,
                                 Lifetime lifetime, DType type) {
  const auto add = [&](const std::string& what, std::int64_t n) {
    return lifetime == Lifetime::micro_batch ? builder_.activation(what, type, {n, width}, lifetime)
                                             : builder_.workspace(builder_.here(what), type, {n, width});
  };
  if (room <= rows && !context_.loads_vary()) return add(name, rows);
  return builder_.view(lifetime == Lifetime::micro_batch ? name : builder_.here(name), add(name + ".room", room), 0,
                       {rows, width});
}

std::int64_t ExpertExchange::traded() const {
  if (capacity() > 0) return context_.model().experts * capacity();
  if (context_.groups.expert < 0) return choices();
  if (performs()) return traded_room();
  return std::max<std::int64_t>(1, context_.rows_for_own(layer_));
}

std::int64_t ExpertExchange::traded_room() const {
  const double factor = context_.model().buffer_factor;
  if (capacity() > 0 || context_.groups.expert < 0) return traded();
  if (factor == 0 && !performs()) return std::max<std::int64_t>(1, context_.most_rows_for_own(layer_));
  return static_cast<std::int64_t>(std::ceil(factor * static_cast<double>(choices())));
}

std::int64_t ExpertExchange::expected() const {
  return performs() ? std::min(choices() * gathered(), arrived()) : arrived();
}

void ExpertExchange::declare_buffers(Lifetime restored, Lifetime kept) {
  loads_ = builder_.activation(name_ + ".loads.own", DType::f32, {own_experts()}, restored);
  if (gathers_all()) {
    places_ = builder_.activation(name_ + ".places.own", DType::i32,
                                  {context_.local_tokens * sources(), context_.model().experts_per_token}, restored);
    return;
  }
  places_ = builder_.activation(name_ + ".places.own", DType::i32, {room()}, restored);
  if (room() > arrived() || context_.loads_vary())
    places_ = builder_.view(name_ + ".places.arrived", places_, 0, {arrived()});
  if (context_.groups.expert >= 0)
    counts_ =
        builder_.activation(name_ + ".counts", DType::f32, {context_.plan().expert, context_.model().experts}, kept);
}

// Over the expert group and then over the tensor group, if what each brings is gathered there.
void ExpertExchange::gather_counts(BufferId loads, bool again) {
  const auto gather = [&](const std::string& name, program::GroupId group, BufferId all, StreamKind stream) {
    counted_ = builder_.op(name_ + name + ".all_gather",
                           Collective{CollectiveKind::all_gather, group, builder_.buffer(all).elements()}, DType::f32,
                           {{all_counts_}}, {{all}}, stream);
    all_counts_ = all;
  };
  all_counts_ = loads;
  if (trades() && again)
    all_counts_ = counts_;
  else if (trades())
    gather(".counts", context_.groups.expert, counts_, StreamKind::expert);
  if (gathered() == 1) return;
  const std::int64_t n = builder_.buffer(all_counts_).elements() * gathered();
  gather(".counts.gathered", context_.groups.tensor,
         builder_.workspace(builder_.here(name_ + ".counts.gathered"), DType::f32, {n}), StreamKind::tensor);
}

void ExpertExchange::wait_for_counts() {
  builder_.after(builder_.op(name_ + ".counts.sync", program::HostSync{}, context_.compute, {}, {}, StreamKind::host),
                 counted_);
  receive();
}

void ExpertExchange::receive() {
  program::Router receive{program::RouterPart::receive, arrived(), context_.model().experts, 1};
  receive.sources = sources();
  receive.slices = gathered();
  receive.own = own_experts();
  if (context_.groups.expert >= 0) receive.spread = spread();
  builder_.op(name_ + ".receive", receive, context_.compute, {{all_counts_}}, {{places_}, {loads_}});
}

// With a capacity [expert ranks, own experts, capacity, hidden]: what goes to, or has come from, each rank.
BufferId ExpertExchange::trade(const std::string& name, BufferId from, bool back, Lifetime lifetime, Along* along) {
  if (along != nullptr) along->to = along->from;
  if (context_.groups.expert < 0) return from;
  const model::Model& m = context_.model();
  const std::int64_t width = builder_.buffer(from).shape.back();
  const DType type = builder_.buffer(from).dtype;
  const bool home = back && counts();  // of this rank's tokens, as many as they chose
  const std::int64_t rows = home ? choices() : traded(), room = home ? choices() : traded_room();
  const BufferId to = rows_in(name + ".traded", rows, room, width, lifetime, type);
  Collective trade{CollectiveKind::all_to_all, context_.groups.expert, builder_.buffer(from).elements()};
  std::vector<Operand> reads{{from}}, writes{{to}};
  if (forwards()) trade.to = {m.experts, m.experts_per_token, m.expert_groups, m.groups_per_token};
  if (counts()) {
    trade.elements = choices() * width;
    if (!context_.parts.empty()) trade.parts = context_.parts.at(width).at(static_cast<std::size_t>(layer_));
    trade.back = back;
    trade.counted = true;
    trade.own = traded() * width;
    trade.row = width;
    trade.experts = m.experts;
    reads.push_back({counts_});
  }
  if (along != nullptr && forwards()) {
    const program::Buffer more = builder_.buffer(along->from);
    along->to = rows_in(name + ".along.traded", rows, room, more.shape.back(), along->lives, more.dtype);
    reads.push_back({along->from}), writes.push_back({along->to});
  }
  builder_.op(name + ".all_to_all", trade, type, reads, writes, StreamKind::expert);
  if (along != nullptr && !forwards())
    along->to = this->trade(name + ".along", along->from, back, along->lives, nullptr);
  return to;
}

// Between rows [sources, own experts] and [own experts, sources], of which there are `capacity`, or as many as come.
BufferId ExpertExchange::sort(const std::string& name, BufferId from, bool by_expert, Lifetime lifetime) {
  if (!sorts()) return from;
  const std::int64_t experts = own_experts(), width = builder_.buffer(from).shape.back();
  const std::int64_t rows = builder_.buffer(from).elements() / width;
  const DType type = builder_.buffer(from).dtype;
  const BufferId to = rows_in(name + ".sorted", rows, room(), width, lifetime, type);
  if (capacity() == 0) {
    const auto part = by_expert ? PermutePart::permute : PermutePart::permute_backward;
    builder_.op(name + ".sort", Permute{part, rows, 1, rows, width}, type, {{from}, {places_}}, {{to}});
    ordered_before();
    return to;
  }
  const std::int64_t piece = capacity() * width;
  const program::Strides sources_first{experts * piece, piece, 0}, experts_first{piece, sources() * piece, 0};
  const StridedCopy copy{sources(), experts, piece, by_expert ? sources_first : experts_first,
                         by_expert ? experts_first : sources_first};
  builder_.op(name + ".sort", copy, type, {{from}}, {{to}});
  ordered_before();
  return to;
}

// What the one kernel does that a framework has for both orders.
void ExpertExchange::ordered_before() {
  if (context_.plan().expert_dispatch == plan::ExpertDispatch::forwarding && context_.profile().orders_forwarded_once)
    builder_.takes_no_kernel({});
}

BufferId ExpertExchange::gather_all(const std::string& name, BufferId own, std::int64_t width, Lifetime lifetime) {
  const DType type = builder_.buffer(own).dtype;
  const auto gather = [&](const std::string& what, int ranks, program::GroupId group, StreamKind stream, bool last) {
    const std::int64_t rows = builder_.buffer(own).elements() / width * ranks;
    const BufferId all = last && lifetime == Lifetime::micro_batch
                             ? builder_.activation(what, type, {rows, width}, lifetime)
                             : builder_.workspace(builder_.here(what), type, {rows, width});
    builder_.op(what + ".all_gather", Collective{CollectiveKind::all_gather, group, rows * width}, type, {{own}},
                {{all}}, stream);
    own = all;
  };
  gather(name + ".of_all", static_cast<int>(context_.plan().expert), context_.groups.expert, StreamKind::expert,
         gathered() == 1);
  if (gathered() > 1)
    gather(name + ".gathered", static_cast<int>(gathered()), context_.groups.tensor, StreamKind::tensor, true);
  return own;
}

BufferId ExpertExchange::scatter_sums(const std::string& name, BufferId all, std::int64_t width, Lifetime lifetime) {
  const DType type = builder_.buffer(all).dtype;
  const auto scatter = [&](const std::string& what, std::int64_t ranks, program::GroupId group, StreamKind stream) {
    const std::int64_t n = builder_.buffer(all).elements();
    const BufferId own = stream == StreamKind::expert && lifetime == Lifetime::micro_batch
                             ? builder_.activation(what, type, {n / ranks / width, width}, lifetime)
                             : builder_.workspace(builder_.here(what), type, {n / ranks / width, width});
    builder_.op(what + ".reduce_scatter", Collective{CollectiveKind::reduce_scatter, group, n}, type, {{all}}, {{own}},
                stream);
    all = own;
  };
  if (gathered() > 1) scatter(name + ".scattered", gathered(), context_.groups.tensor, StreamKind::tensor);
  scatter(name + ".of_own", context_.plan().expert, context_.groups.expert, StreamKind::expert);
  return all;
}

BufferId ExpertExchange::place_own(BufferId chosen) {
  const model::Model& m = context_.model();
  program::Router place{program::RouterPart::place, context_.local_tokens * sources(), m.experts, m.experts_per_token};
  place.own = own_experts();
  place.room = arrived();
  place.spread = spread();
  const OpRef placed = builder_.op(name_ + ".place_own", place, context_.compute, {{chosen}}, {{places_}, {loads_}});
  builder_.after(builder_.op(name_ + ".counts.sync", program::HostSync{}, context_.compute, {}, {}, StreamKind::host),
                 placed);
  return places_;
}

BufferId ExpertExchange::gather(const std::string& name, BufferId rows, Lifetime lifetime) {
  const program::Buffer part = builder_.buffer(rows);
  const std::int64_t n = part.elements() * gathered(), width = part.shape.back();
  const BufferId all = rows_in(name + ".gathered", n / width, room(), width, lifetime, part.dtype);
  builder_.op(name + ".all_gather", Collective{CollectiveKind::all_gather, context_.groups.tensor, n}, part.dtype,
              {{rows}}, {{all}}, StreamKind::tensor);
  return all;
}

BufferId ExpertExchange::scatter(const std::string& name, BufferId rows, Lifetime lifetime) {
  const program::Buffer terms = builder_.buffer(rows);
  const std::int64_t n = terms.elements(), width = terms.shape.back();
  const BufferId own =
      rows_in(name + ".scattered", n / gathered() / width, traded_room(), width, lifetime, terms.dtype);
  builder_.op(name + ".reduce_scatter", Collective{CollectiveKind::reduce_scatter, context_.groups.tensor, n},
              terms.dtype, {{rows}}, {{own}}, StreamKind::tensor);
  return own;
}

BufferId ExpertExchange::to_experts(const std::string& name, BufferId from, Lifetime lifetime,
                                    const std::function<void()>& beside, Along* along) {
  const bool arranges = sorts() || gathered() > 1;
  Along sent;
  if (along != nullptr) sent = {along->from, -1, arranges ? Lifetime::slot : along->lives};
  const BufferId rows =
      trade(name, from, false, arranges ? Lifetime::slot : lifetime, along != nullptr ? &sent : nullptr);
  if (along != nullptr) along->from = sent.to;
  if (beside) beside();
  return arrange(name, rows, lifetime, along);
}

BufferId ExpertExchange::to_tokens(const std::string& name, BufferId from, Lifetime lifetime, Along* along) {
  Along own;
  if (along != nullptr) own = {along->from, -1, trades() ? Lifetime::slot : along->lives};
  const BufferId rows = disarrange(name, from, trades() ? Lifetime::slot : lifetime, along != nullptr ? &own : nullptr);
  if (along != nullptr) along->from = own.to;
  return trade(name, rows, true, lifetime, along);
}

BufferId ExpertExchange::arrange(const std::string& name, BufferId traded, Lifetime lifetime, Along* along) {
  BufferId rows = traded;
  if (along != nullptr) along->to = along->from;
  if (gathered() > 1) {
    rows = gather(name, rows, sorts() ? Lifetime::slot : lifetime);
    if (along != nullptr) along->to = gather(name + ".along", along->to, sorts() ? Lifetime::slot : along->lives);
  }
  if (along != nullptr) along->to = sort(name + ".along", along->to, true, along->lives);
  return sort(name, rows, true, lifetime);
}

BufferId ExpertExchange::disarrange(const std::string& name, BufferId from, Lifetime lifetime, Along* along) {
  const bool scatters = gathered() > 1;
  BufferId rows = sort(name, from, false, scatters ? Lifetime::slot : lifetime);
  if (along != nullptr) along->to = sort(name + ".along", along->from, false, scatters ? Lifetime::slot : along->lives);
  if (!scatters) return rows;
  rows = scatter(name, rows, lifetime);
  if (along != nullptr) along->to = scatter(name + ".along", along->to, along->lives);
  return rows;
}

void ExpertExchange::disarrange_again(const std::string& name, BufferId from) {
  sort(name, from, false, Lifetime::slot);
}

}  // namespace rehearse::lower
