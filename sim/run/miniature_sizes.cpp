// See miniature_sizes.h.
#include "sim/run/miniature_sizes.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "sim/plan/documents.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::run {
namespace {

using std::int64_t;

constexpr int64_t kLeastImage = 32, kLeastSequence = 32, kLeastHeadDim = 8, kLeastWidth = 8;
constexpr int64_t kBytes = 256, kEncoderTokens = 2;  // tokens of the text that is trained on (execute/encoder_data.h)
constexpr int64_t kLeastRows = 1024;                 // of a recommender's longest table
constexpr int64_t kFewestExperts = 2;                // of a model that has any
constexpr int64_t kFewestAccumulated = 2;            // micro-batches of one stage: gradients are added up at least once

int64_t least_factor(int64_t n) {
  for (int64_t f = 2; f * f <= n; ++f)
    if (n % f == 0) return f;
  return n;
}

// The largest that is at most n.
int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
}

// Shards of some ranks, replicated over groups of them.
bool is_hybrid(const plan::Plan& plan) {
  return plan.replicas > 1 && plan.replicas < plan.data * plan.context;
}

// n x small / large, at least one.
int64_t scaled(int64_t n, int64_t small, int64_t large) {
  return std::max<int64_t>(1, n * small / large);
}

// A way of splitting the model: over how many ranks.
struct Split {
  int64_t large = 1, small = 1;
};

class Shrinking {
 public:
  Shrinking(const plan::Scenario& large, const MiniatureLimits& limits) : large_(large), limits_(limits), s_(large) {
    const plan::Plan& p = large.plan;
    pipeline_.large = p.pipeline, data_.large = p.data, tensor_.large = p.tensor, context_.large = p.context;
    share_ranks();
    const int64_t parts = p.pipeline * p.chunks;
    chunks_ = p.chunks;
    layers_ = std::max<int64_t>(least_layers(), (large.model.layers + (p.embedding_as_layer ? 2 : 0)) / parts);
    head_columns_ = 1;
    heads_ = large.model.is_transformer() ? large.model.heads / p.tensor : 1;
    if (large.model.experts > 0) experts_ = large.model.experts / std::max<int64_t>(1, p.expert);
    micro_batch_ = p.micro_batch;
    seq_len_ = large.training.seq_len;
    const int64_t all = large.training.micro_batches(p);
    micro_batches_ =
        whole_rounds(std::max(fewest_micro_batches(), (all * pipeline_.small + p.pipeline - 1) / p.pipeline));
    resize();
  }

  // Until the limits hold, or nothing is left to give up.
  bool shrink() {
    const auto too_large = [&] { return miniature_bytes(s_) > static_cast<double>(limits_.bytes.count()); };
    while (too_large() || miniature_flops(s_) > limits_.flops) {
      const bool less = (too_large() && fewer_rows()) || fewer_layers() || fewer_micro_batches() || fewer_sequences() ||
                        fewer_experts() || fewer_chunks() || shorter_or_narrower() || fewer_pixels();
      if (!less) return false;
      resize();
    }
    return true;
  }

  plan::Scenario take() { return std::move(s_); }

 private:
  void share_ranks() {
    const plan::Plan& p = large_.plan;
    if (large_.cluster.gpus <= limits_.ranks) {
      for (Split* split : {&pipeline_, &data_, &tensor_, &context_}) split->small = split->large;
      return;
    }
    int64_t ranks = 1;
    const auto grow = [&](Split& split) {
      if (2 * split.small > split.large || 2 * ranks > limits_.ranks) return false;
      split.small *= 2;
      ranks *= 2;
      return true;
    };
    for (Split* split : {&pipeline_, &data_, &tensor_, &context_}) grow(*split);
    if (is_hybrid(p)) grow(data_);
    for (bool any = true; any;) {
      any = false;
      for (Split* split : {&pipeline_, &data_, &tensor_, &context_}) any = grow(*split) || any;
    }
  }

  bool transformer() const { return large_.model.is_transformer(); }
  const plan::PipelineSchedule& schedule() const { return plan::schedule_of(large_.plan.schedule, pipeline_.small); }
  // Of a stage's chunk. Of a pattern all of them together have a layer of each kind.
  int64_t least_layers() const {
    const std::set<char> kinds(large_.model.layer_pattern.begin(), large_.model.layer_pattern.end());
    const int64_t chunks = pipeline_.small == 1 ? 1 : pipeline_.small * chunks_;
    const int64_t ends = large_.plan.embedding_as_layer && pipeline_.small > 1 ? 2 : 0;  // that stand for layers
    const int64_t of_pattern = (static_cast<int64_t>(kinds.size()) + ends + chunks - 1) / chunks;
    return std::max<int64_t>(of_pattern, ends > 0 ? 2 : 1);
  }
  // Two for each stage, so that a pipeline fills, runs and drains; no more than there are.
  int64_t fewest_micro_batches() const {
    const int64_t wanted = pipeline_.small == 1 ? kFewestAccumulated : 2 * pipeline_.small;
    return std::min(wanted, std::max<int64_t>(1, large_.training.micro_batches(large_.plan)));
  }
  // Interleaved schedules take their micro-batches in rounds of as many as there are stages.
  int64_t whole_rounds(int64_t n) const {
    if (pipeline_.small == 1 || chunks_ == 1) return n;
    return (n + pipeline_.small - 1) / pipeline_.small * pipeline_.small;
  }

  bool fewer_layers() {
    if (!transformer() || layers_ <= least_layers()) return false;
    layers_ = std::max(least_layers(), layers_ / 2);
    return true;
  }
  bool fewer_micro_batches() {
    const int64_t least = whole_rounds(fewest_micro_batches());
    if (micro_batches_ <= least) return false;
    micro_batches_ = std::max(least, whole_rounds(micro_batches_ / 2));
    return true;
  }
  bool fewer_sequences() {
    if (micro_batch_ == 1) return false;
    micro_batch_ /= 2;
    return true;
  }
  bool fewer_experts() {
    const int64_t least = std::max(kFewestExperts, large_.model.experts_per_token);
    if (experts_ < 2 || experts_ / 2 * experts_spread() < least) return false;
    experts_ /= 2;
    return true;
  }
  bool fewer_chunks() {
    if (!transformer() || chunks_ <= 2 || !schedule().takes_chunks() || schedule().own_chunks()) return false;
    chunks_ = std::max<int64_t>(2, chunks_ / 2);
    micro_batches_ = whole_rounds(micro_batches_);
    return true;
  }
  bool shorter_or_narrower() {
    if (!transformer()) return false;
    return seq_len_ > s_.model.hidden ? shorter() || narrower() : narrower() || shorter();
  }
  // Of a convolutional network's images; what is computed from their size follows.
  bool fewer_pixels() {
    if (large_.model.family != model::Family::cnn || s_.model.image_size / 2 < kLeastImage) return false;
    s_.model.image_size /= 2;
    return true;
  }
  // Of a recommender's tables, the longest first: what an example looks up stays.
  bool fewer_rows() {
    int64_t most = 0;
    for (const model::Layer& layer : s_.model.layer_list)
      for (const int64_t rows : layer.rows) most = std::max(most, rows);
    if (most / 2 < kLeastRows) return false;
    for (model::Layer& layer : s_.model.layer_list)
      for (int64_t& rows : layer.rows) rows = std::min(rows, most / 2);
    return true;
  }
  bool shorter() {
    const int64_t parts = 2 * context_.small * tensor_.small;
    if (large_.model.is_vision() || seq_len_ / 2 < kLeastSequence || seq_len_ / 2 % parts != 0) return false;
    seq_len_ /= 2;
    return true;
  }
  bool narrower() {
    const model::Model& m = large_.model;
    if (heads_ > 1 && heads_ * tensor_.small > context_heads()) {
      heads_ = heads_ % 2 == 0 ? heads_ / 2 : std::max<int64_t>(1, heads_ / least_factor(heads_));
      return true;
    }
    if (m.head_dim / (head_columns_ * 2) < kLeastHeadDim || s_.model.hidden / 2 < kLeastWidth) return false;
    head_columns_ *= 2;
    return true;
  }
  // Where ranks of a context group trade heads, each has one.
  int64_t context_heads() const {
    return large_.plan.context_kind == plan::ContextKind::all_to_all ? 2 * context_.small * tensor_.small
                                                                     : tensor_.small;
  }

  int64_t experts_spread() const {
    const plan::Plan& p = large_.plan;
    const int64_t spread = p.expert_replicas();
    if (p.expert == 1) return 1;
    const int64_t over_data = data_.small == data_.large ? spread : power_of_two(std::min(spread, data_.small));
    return context_.small * (p.whole_experts() ? tensor_.small : 1) * over_data;
  }

  void resize() {
    resize_plan();
    if (transformer()) resize_model();
    resize_training();
  }

  void resize_plan() {
    plan::Plan& p = s_.plan;
    const plan::Plan& l = large_.plan;
    p.pipeline = pipeline_.small, p.data = data_.small, p.tensor = tensor_.small, p.context = context_.small;
    p.chunks = pipeline_.small == 1 ? 1 : chunks_;
    p.expert = experts_spread();
    s_.cluster.gpus = p.pipeline * p.data * p.tensor * p.context;
    if (p.expert == 1) p.overlap_expert_exchange = p.overlap_shared_experts = false, p.expert_tensor = 0;
    p.zero_group = plan::Plan::kAllShard, p.replicas = 1;
    const int64_t shards = p.data * p.context;
    if (s_.cluster.gpus == large_.cluster.gpus)
      p.zero_group = l.zero_group, p.replicas = l.replicas;
    else if (is_hybrid(l) && p.data > 1 && shards > 2)
      p.replicas = 2, p.zero_group = shards / 2;
    if (l.steps_apart()) {
      const bool same = s_.cluster.gpus == large_.cluster.gpus;
      constexpr std::int64_t kSteps = 4;  // of a round: some are performed whole
      p.zero_group = plan::Plan::kAllShard;
      p.local_steps = std::min(l.local_steps, kSteps);
      p.local_group = same ? l.local_group : plan::Plan::kReplicaGroup, p.replicas = same ? l.replicas : p.data;
    }
    p.micro_batch = micro_batch_;
    if (l.recompute_layers > 0 && transformer()) {
      const int64_t had = std::max<int64_t>(1, large_.model.layers / (l.pipeline * l.chunks));
      p.recompute_layers = scaled(l.recompute_layers, layers_, had);
    }
    if (transformer()) p.recompute_every = std::min(l.recompute_every, layers_);
    p.layers_per_stage.clear();
  }

  void resize_model() {
    model::Model& m = s_.model;
    const model::Model& l = large_.model;
    const int64_t t = tensor_.small, parts = pipeline_.small * s_.plan.chunks;
    m.layers = parts * layers_ - (large_.plan.embedding_as_layer && pipeline_.small > 1 ? 2 : 0);
    if (m.has_decoder()) {
      m.layers = std::max<int64_t>(2, m.layers);
      m.encoder_layers = std::clamp<int64_t>(scaled(l.encoder_layers, m.layers, l.layers), 1, m.layers - 1);
      m.decoder_layers = m.layers - m.encoder_layers;
    }
    if (const int64_t away = large_.plan.offload_layers; away > 0) {
      m.layers = std::max<int64_t>(2, m.layers);
      s_.plan.offload_layers = std::min(scaled(away, m.layers, l.layers), m.layers - 1);
    }
    m.heads = heads_ * t;
    const int64_t group = l.heads / l.kv_heads;
    m.kv_heads = l.kv_heads == l.heads ? m.heads : std::max(t, m.heads / std::gcd(group, m.heads));
    if (m.heads % m.kv_heads != 0 || m.kv_heads % t != 0) m.kv_heads = t;
    // On as many ranks of a tensor group each, or on all of them where these are fewer.
    if (l.kv_heads < l.heads && l.kv_heads < std::max<int64_t>(2, tensor_.large))
      m.kv_heads = t % std::max<int64_t>(1, tensor_.large / l.kv_heads) == 0
                       ? t / std::max<int64_t>(1, tensor_.large / l.kv_heads)
                       : 1;
    const int64_t times = l.heads * head_columns_;  // of what all have, heads_ t parts
    const auto of_all = [&](int64_t width) { return std::max(kLeastWidth, width * m.heads / times / 8 * 8); };
    const auto of_rank = [&](int64_t width) {
      return t * std::max<int64_t>(1, width / l.heads * heads_ / head_columns_);
    };
    m.hidden = of_all(l.hidden);
    const int64_t more = m.is_encoder()    ? kEncoderTokens
                         : m.has_decoder() ? l.decoder_tokens(large_.training.seq_len) / 2 + 2  // spans and an end
                                           : 0;
    if (m.reads_text()) m.vocab = std::max(kBytes + more, l.vocab * m.heads / times);
    if (l.ffn_hidden > 0) m.ffn_hidden = of_rank(l.ffn_hidden);
    resize_heads(of_all);
    if (l.experts > 0) resize_experts(of_rank);
    if (l.one_branch()) resize_pattern(t);
    m.full_attention_every = l.full_attention_every > m.layers ? 0 : l.full_attention_every;
    m.nope_every = l.nope_every > m.layers ? 0 : l.nope_every;
  }

  // Layers in even steps of the pattern, with one of each of its kinds; and of mixers a group a rank with two heads.
  void resize_pattern(int64_t tensor) {
    model::Model& m = s_.model;
    const model::Model& l = large_.model;
    m.layer_pattern.clear();
    for (int64_t layer = 0; layer < m.layers; ++layer) m.layer_pattern += l.branch(layer * l.layers / m.layers);
    for (const char kind : l.layer_pattern) {
      if (m.layer_pattern.find(kind) != std::string::npos) continue;
      const auto repeated = std::find_if(m.layer_pattern.rbegin(), m.layer_pattern.rend(), [&](char own) {
        return std::count(m.layer_pattern.begin(), m.layer_pattern.end(), own) > 1;
      });
      if (repeated != m.layer_pattern.rend()) *repeated = kind;
    }
    if (!l.has_mixers()) return;
    m.mamba_groups = tensor;
    m.mamba_heads = 2 * tensor;
  }

  template <class OfAll>
  void resize_heads(const OfAll& of_all) {
    model::Model& m = s_.model;
    const model::Model& l = large_.model;
    const auto even = [&](int64_t width) { return std::max<int64_t>(2, width / head_columns_ / 2 * 2); };
    if (l.latent_attention()) {
      m.kv_heads = m.heads;
      m.kv_lora_rank = of_all(l.kv_lora_rank);
      if (l.q_lora_rank > 0) m.q_lora_rank = of_all(l.q_lora_rank);
      m.qk_nope_head_dim = even(l.qk_nope_head_dim);
      m.qk_rope_head_dim = even(l.qk_rope_head_dim);
      m.v_head_dim = even(l.v_head_dim);
      m.head_dim = m.qk_nope_head_dim + m.qk_rope_head_dim;
      return;
    }
    m.head_dim = head_columns_ == 1 ? l.head_dim : even(l.head_dim);
    if (l.rotary_dim > 0) m.rotary_dim = std::min(m.head_dim / 2 * 2, even(l.rotary_dim));
  }

  template <class OfRank>
  void resize_experts(const OfRank& of_rank) {
    model::Model& m = s_.model;
    const model::Model& l = large_.model;
    m.experts = std::max(experts_ * s_.plan.expert, kFewestExperts);
    m.experts_per_token = std::min(l.experts_per_token, m.experts);
    const bool grouped =
        m.experts % l.expert_groups == 0 &&
        m.experts_per_token <= l.groups_per_token * (m.experts / std::max<int64_t>(1, l.expert_groups));
    if (!grouped) m.expert_groups = m.groups_per_token = 1;
    m.expert_ffn_hidden = of_rank(l.expert_ffn_hidden);
    if (l.shared_ffn_hidden > 0) m.shared_ffn_hidden = of_rank(l.shared_ffn_hidden);
    if (l.expert_latent > 0) m.expert_latent = std::max(kLeastWidth, m.hidden * l.expert_latent / l.hidden / 8 * 8);
    m.dense_layers = l.dense_layers == 0 ? 0 : std::min(m.layers - 1, scaled(l.dense_layers, m.layers, l.layers));
    m.experts_every = std::min(l.experts_every, m.layers);
    if (m.expert_layers() == 0) m.dense_layers = 0;
    // Routed for real, all rows of a group may come to one of its ranks.
    if (m.capacity_factor == 0 && s_.plan.expert > 1)
      m.buffer_factor = std::max(m.buffer_factor, static_cast<double>(s_.plan.expert));
    m.routing = model::Routing::uniform;
    m.routing_per = model::RoutingPer::layer;
    m.routing_table.clear();
    m.routing_table_batches = 1;
    m.routing_file.clear();
    m.routing_step = 0;
    m.recorded_routing = nullptr;
  }

  void resize_training() {
    plan::Training& t = s_.training;
    const plan::Training& l = large_.training;
    t.global_batch = data_.small * micro_batch_ * micro_batches_;
    if (!transformer()) return;
    t.seq_len = seq_len_;
    model::Model& m = s_.model;
    const auto shorter = [&](int64_t n) { return n == 0 ? n : scaled(n, seq_len_, l.seq_len); };
    m.sliding_window = shorter(large_.model.sliding_window);
    m.attention_chunk = shorter(large_.model.attention_chunk);
    // A ring cuts each document into equal chunks.
    const int64_t chunk = plan::rings_by_document(s_.plan, t) ? 2 * s_.plan.context : 1;
    const auto document = [&](int64_t n) { return n == 0 ? n : std::max(chunk, shorter(n) / chunk * chunk); };
    t.document_length = document(l.document_length);
    t.document_lengths.clear();
    for (const int64_t length : l.document_lengths) t.document_lengths.push_back(document(length));
    if (m.decoder_seq_len > 0) m.decoder_seq_len = std::max<int64_t>(4, shorter(large_.model.decoder_seq_len));
    // What is performed cuts spans out of a text, which leave the decoder fewer tokens than the encoder.
    const int64_t parts = s_.plan.tensor;
    if (m.decoder_seq_len >= seq_len_) m.decoder_seq_len = std::max(parts, (seq_len_ - 1) / parts * parts);
    if (m.is_encoder())
      m.max_predictions =
          std::max<int64_t>(1, shorter(m.max_predictions > 0 ? large_.model.max_predictions : seq_len_ / 8));
    t.fp8_bf16_layers = std::min(l.fp8_bf16_layers, (m.layers - 1) / 2);
  }

  const plan::Scenario& large_;
  const MiniatureLimits& limits_;
  plan::Scenario s_;
  Split pipeline_, data_, tensor_, context_;
  int64_t chunks_ = 1, layers_ = 1;       // of a stage; of a chunk
  int64_t heads_ = 1, head_columns_ = 1;  // of a rank; the part of a head's columns that is left is 1 / head_columns_
  int64_t experts_ = 0;                   // of a rank
  int64_t micro_batch_ = 1, micro_batches_ = 1, seq_len_ = 1;
};

}  // namespace

double miniature_flops(const plan::Scenario& s) {
  const double needed = model::model_flops(s.model, s.training.global_batch, s.training.seq_len, s.training.adapters());
  const bool again = s.plan.recompute == plan::Recompute::full || s.plan.recompute == plan::Recompute::ops;
  return needed * (again ? 4.0 / 3 : 1);
}

double miniature_bytes(const plan::Scenario& s) {
  constexpr double kOfParameter = 16, kOfActivation = 2 * 34, kOfLogit = 8;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double replicas = number(s.plan.data * s.plan.context);
  const double tokens = number(s.plan.micro_batch * s.training.seq_len);
  double bytes = kOfParameter * number(model::parameter_count(s.model)) * replicas;
  if (!s.model.is_transformer()) return bytes;
  const double in_flight = number(std::min(s.training.micro_batches(s.plan), s.plan.pipeline * s.plan.chunks));
  const double hidden = number(std::max(s.model.hidden, s.model.attention_width()));
  bytes += kOfActivation * tokens * hidden * number(s.model.blocks()) * in_flight * number(s.plan.data);
  return bytes + kOfLogit * tokens * number(s.model.vocab) * number(s.plan.data);
}

std::int64_t ranks_that_keep_splits(const plan::Plan& plan) {
  std::int64_t ranks = is_hybrid(plan) && plan.data > 2 ? 2 : 1, all = 1;
  for (const std::int64_t size : {plan.pipeline, plan.data, plan.tensor, plan.context}) {
    if (size > 1) ranks *= 2;
    all *= size;
  }
  return std::min(ranks, all);
}

plan::Scenario miniature_sizes(const plan::Scenario& large, const MiniatureLimits& limits, bool& within) {
  Shrinking shrinking(large, limits);
  within = shrinking.shrink();
  return shrinking.take();
}

}  // namespace rehearse::run
