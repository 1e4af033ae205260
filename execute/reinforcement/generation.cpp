// See generation.h.
#include "execute/reinforcement/generation.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using kernels::In;
using kernels::Out;

namespace {

// Element `element` on of an operand.
In part_of(In x, std::int64_t element) {
  return {static_cast<const std::byte*>(x.data) + element * size_of(x.type), x.type};
}
Out part_of(Out x, std::int64_t element) {
  return {static_cast<std::byte*>(x.data) + element * size_of(x.type), x.type};
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr int kNoLastStep = std::numeric_limits<int>::max();

}  // namespace

KeyValueCache::KeyValueCache(const plan::Scenario& replica, std::int64_t sequences, std::int64_t tokens)
    : sequences_(sequences),
      tokens_(tokens),
      layers_(replica.model.layers),
      heads_(replica.model.heads / replica.plan.tensor),
      kv_heads_(std::max<std::int64_t>(1, replica.model.kv_heads / replica.plan.tensor)),
      head_dim_(replica.model.head_dim),
      value_dim_(replica.model.value_dim()) {
  const auto size = static_cast<std::size_t>(layers_ * sequences * tokens * kv_heads_ * (head_dim_ + value_dim_));
  ranks_.assign(static_cast<std::size_t>(replica.plan.tensor),
                std::vector<float>(size, std::numeric_limits<float>::quiet_NaN()));
}

void KeyValueCache::fill(float value) {
  for (std::vector<float>& rank : ranks_) std::fill(rank.begin(), rank.end(), value);
}

float* KeyValueCache::at(int rank, std::int64_t layer, std::int64_t sequence, std::int64_t token) {
  const std::int64_t row = (layer * sequences_ + sequence) * tokens_ + token;
  return ranks_[static_cast<std::size_t>(rank)].data() + row * kv_heads_ * (head_dim_ + value_dim_);
}

std::int64_t KeyValueCache::bytes_per_token() const {
  return layers_ * kv_heads_ * (head_dim_ + value_dim_) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t KeyValueCache::bytes() const {
  return static_cast<std::int64_t>(ranks_.size()) * sequences_ * tokens_ * bytes_per_token();
}

std::int64_t KeyValueCache::bytes(const plan::Scenario& replica, std::int64_t sequences, std::int64_t tokens) {
  const std::int64_t heads = std::max<std::int64_t>(1, replica.model.kv_heads / replica.plan.tensor);
  return replica.plan.tensor * sequences * tokens * replica.model.layers * heads *
         (replica.model.head_dim + replica.model.value_dim()) * static_cast<std::int64_t>(sizeof(float));
}

void KeyValueCache::put(int rank, std::int64_t layer, std::int64_t sequence, std::int64_t token, In qkv,
                        std::int64_t row) {
  REHEARSE_CHECK(token < tokens_, "token {} of {} that are cached", token, tokens_);
  const std::int64_t group = heads_ / kv_heads_, own = head_dim_ + value_dim_, packed = group * head_dim_ + own;
  float* to = at(rank, layer, sequence, token);
  for (std::int64_t h = 0; h < kv_heads_; ++h, to += own)
    to_float(qkv.type, part_of(qkv, (row * kv_heads_ + h) * packed + group * head_dim_).data, own, to);
}

GenerationSteps::GenerationSteps(const PhasePlan& plan, KeyValueCache& cache, bool decode)
    : scenario_(*plan.scenario), cache_(cache), decode_(decode), tokens_(plan.scenario->training.seq_len) {
  rows.resize(static_cast<std::size_t>(scenario_.plan.micro_batch));
  drawn_.assign(static_cast<std::size_t>(scenario_.plan.tensor), std::vector<Drawn>(rows.size()));
  for (const program::Role& role : plan.program->roles) {
    std::int64_t layers = 0;
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops)
        if (std::holds_alternative<program::Attention>(op.shape)) layer_[&op] = layers++;
    REHEARSE_CHECK(layers == scenario_.model.layers, "{}: attention of {} layers of {}", role.name, layers,
                   scenario_.model.layers);
  }
}

void GenerationSteps::perform(const program::Op& op, std::span<const Out> reads, std::span<const Out> writes,
                              const CallContext& c) {
  if (const auto* attention = std::get_if<program::Attention>(&op.shape)) {
    if (!decode_) call_kernel(op, reads, writes, c);
    return attend(*attention, op, reads[0], writes[0], c);
  }
  if (const auto* e = std::get_if<program::Elementwise>(&op.shape); e != nullptr && decode_) {
    if (e->fn == program::ElementwiseFn::rope) return turn(*e, writes[0], c);
    if (e->fn == program::ElementwiseFn::add_position) return add_positions(*e, reads, writes[0], c);
  }
  if (const auto* e = std::get_if<program::CrossEntropy>(&op.shape);
      e != nullptr &&
      (e->part == program::CrossEntropyPart::fused_forward || e->part == program::CrossEntropyPart::row_max))
    draw(*e, reads[0], c);
  call_kernel(op, reads, writes, c);
}

// Of a prompt, whose tokens attend to one another, only keys and values are kept.
void GenerationSteps::attend(const program::Attention& a, const program::Op& op, In qkv, Out out,
                             const CallContext& c) {
  const std::int64_t layer = layer_.at(&op);
  std::vector<kernels::CachedSequence> sequences(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DecodedRow& row = rows[i];
    if (row.slot < 0) continue;
    for (std::int64_t t = 0; t < tokens_; ++t)
      cache_.put(c.tensor_coordinate, layer, row.slot, row.cached + t, qkv,
                 t * static_cast<std::int64_t>(rows.size()) + static_cast<std::int64_t>(i));
    sequences[i] = {cache_.at(c.tensor_coordinate, layer, row.slot, 0), row.cached + tokens_};
  }
  if (!decode_) return;
  kernels::AttentionShape s{a.micro_batch, a.heads, a.kv_heads, 1, a.head_dim, true, a.value_dim};
  s.window = a.cached + 1;  // as many as there ever are, or as a window has beside the token itself
  s.softcap = a.softcap, s.score_scale = a.score_scale;
  s.alibi_heads = a.alibi_heads, s.first_head = c.tensor_coordinate * a.heads;
  c.device.cached_attention(s, sequences, qkv, out);
}

// Each row by its own position.
void GenerationSteps::turn(const program::Elementwise& e, Out qkv, const CallContext& c) const {
  const model::Model& m = scenario_.model;
  const std::int64_t tensor = scenario_.plan.tensor, heads = m.heads / tensor,
                     kv_heads = std::max<std::int64_t>(1, m.kv_heads / tensor);
  kernels::AttentionShape s{1, heads, kv_heads, 1, m.head_dim, true, 0, m.rotary_dim};
  if (e.scaled_angles) s.rotation = m.rotation();
  if (e.value > 0) s.rotation.base = e.value;
  for (std::size_t i = 0; i < rows.size(); ++i)
    c.device.rope(s, rows[i].cached, false,
                  part_of(qkv, static_cast<std::int64_t>(i) * (heads + 2 * kv_heads) * m.head_dim));
}

void GenerationSteps::add_positions(const program::Elementwise& e, std::span<const Out> reads, Out out,
                                    const CallContext& c) const {
  // With sequence parallelism a rank has some of the rows.
  const std::int64_t held = e.elements / e.cols, before = e.rows_split_over_tensor ? c.tensor_coordinate * held : 0;
  for (std::int64_t i = 0; i < held; ++i) {
    const std::int64_t position = rows[static_cast<std::size_t>(before + i)].cached;
    REHEARSE_CHECK(position < scenario_.model.learned_positions(), "position {} of {} that there are", position,
                   scenario_.model.learned_positions());
    c.device.add_position(1, e.cols, 1, position, part_of(reads[0], i * e.cols), reads[1], part_of(out, i * e.cols));
  }
}

void GenerationSteps::draw(const program::CrossEntropy& e, In logits, const CallContext& c) {
  const std::int64_t first = e.vocab_parallel ? c.tensor_coordinate * e.cols : 0;
  const std::int64_t own = std::clamp<std::int64_t>(e.valid_cols - first, 0, e.cols);
  std::vector<float> values(static_cast<std::size_t>(own));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Drawn& drawn = drawn_[static_cast<std::size_t>(c.tensor_coordinate)][i];
    drawn = {};
    if (rows[i].slot < 0) continue;
    const std::int64_t row = (tokens_ - 1) * static_cast<std::int64_t>(rows.size()) + static_cast<std::int64_t>(i);
    to_float(logits.type, part_of(logits, row * e.cols).data, own, values.data());
    drawn = TokenDraw(scenario_.training.seed, step, rows[i].sequence, rows[i].place).among(values.data(), first, own);
  }
}

std::int32_t GenerationSteps::drawn(std::int64_t row) const {
  Drawn best;
  for (const std::vector<Drawn>& rank : drawn_)
    if (best.beaten_by(rank[static_cast<std::size_t>(row)])) best = rank[static_cast<std::size_t>(row)];
  REHEARSE_CHECK(best.token >= 0, "no token was drawn");
  return best.token;
}

void GenerationSteps::load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
                           void* out) {
  REHEARSE_CHECK(numbers.size() == rows.size() && elements == static_cast<std::int64_t>(rows.size()) * tokens_,
                 "{} numbers of {} sequences", elements, numbers.size());
  auto* const ids = static_cast<std::int32_t*>(out);
  if (kind == program::InputKind::targets) {
    std::fill_n(ids, elements, program::CrossEntropy::kNoTarget);
    return;
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens_); ++t)
      ids[t * rows.size() + i] = rows[i].slot >= 0 ? rows[i].read[t] : 0;
}

Replica::Replica(const PhasePlan& prefill, const PhasePlan& decode, int threads_per_rank, const Options& options,
                 std::int64_t longest)
    : cache_(*decode.scenario, decode.scenario->plan.micro_batch, longest),
      prefill_(prefill, cache_, false),
      decode_(decode, cache_, true),
      prefill_run_("", prefill, prefill_, prefill_, threads_per_rank, kNoLastStep, false, options),
      decode_run_("", decode, decode_, decode_, threads_per_rank, kNoLastStep, false, options) {}

void Replica::start() {
  for (PhaseRun* run : runs()) run->start();
}

void Replica::take(Slot& slot, Response& response, std::int32_t token) {
  response.tokens.push_back(token);
  if (static_cast<std::int64_t>(response.tokens.size()) == prefill_run_.scenario().training.seq_len + response.length)
    slot.sequence = -1;
}

// Waiting sequences begin where there is room, as many at once as prefill has rows.
void Replica::fill(std::vector<Slot>& slots, std::size_t& next, Rollout& rollout,
                   const std::vector<std::int64_t>& sequences) {
  const auto free = [&slots] {
    return std::find_if(slots.begin(), slots.end(), [](const Slot& s) { return s.sequence < 0; });
  };
  while (next < sequences.size() && free() != slots.end()) {
    std::fill(prefill_.rows.begin(), prefill_.rows.end(), DecodedRow());
    std::vector<std::size_t> joined;
    for (DecodedRow& row : prefill_.rows) {
      const auto slot = free();
      if (slot == slots.end() || next == sequences.size()) break;
      slot->sequence = sequences[next++];
      joined.push_back(static_cast<std::size_t>(slot - slots.begin()));
      row = {slot - slots.begin(), slot->sequence, 0, 0,
             rollout.sequences[static_cast<std::size_t>(slot->sequence)].tokens};
    }
    const Clock::time_point began = Clock::now();
    prefill_run_.step();
    prefill_s += seconds_since(began);
    for (std::size_t row = 0; row < joined.size(); ++row) {
      Slot& slot = slots[joined[row]];
      take(slot, rollout.sequences[static_cast<std::size_t>(slot.sequence)],
           prefill_.drawn(static_cast<std::int64_t>(row)));
    }
  }
}

void Replica::generate(Rollout& rollout, const std::vector<std::int64_t>& sequences, std::int64_t step) {
  prefill_s = decode_s = 0, decode_steps = sequences_at_once = most_cached = 0;
  prefill_.step = decode_.step = step;
  std::vector<Slot> slots(decode_.rows.size());
  for (std::size_t next = 0;;) {
    fill(slots, next, rollout, sequences);
    std::int64_t busy = 0, cached = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      DecodedRow& row = decode_.rows[i];
      row = {};
      if (slots[i].sequence < 0) continue;
      const Response& response = rollout.sequences[static_cast<std::size_t>(slots[i].sequence)];
      const auto tokens = static_cast<std::int64_t>(response.tokens.size());
      row = {static_cast<std::int64_t>(i),
             slots[i].sequence,
             tokens - 1,
             tokens - rollout.prompt_tokens,
             {response.tokens.back()}};
      ++busy, cached += tokens;
    }
    if (busy == 0) return;
    sequences_at_once = std::max(sequences_at_once, busy), most_cached = std::max(most_cached, cached);
    const Clock::time_point began = Clock::now();
    decode_run_.step();
    decode_s += seconds_since(began), ++decode_steps;
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (slots[i].sequence >= 0)
        take(slots[i], rollout.sequences[static_cast<std::size_t>(slots[i].sequence)],
             decode_.drawn(static_cast<std::int64_t>(i)));
  }
}

}  // namespace rehearse::execute
