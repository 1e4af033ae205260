// Whether the sections of a scenario go together, and the values that follow from several of them. Every rule names the
// key, the numbers that break it and the nearest numbers that would not. The divisibility rules are those of
// Megatron-LM (arXiv 1909.08053: heads and feed-forward width over the tensor axis; arXiv 2104.04473: batch over data
// and micro-batch) except that layers need not divide by stages. Whether the plan fits in memory is a result, not a
// rule.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/base/check.h"
#include "sim/plan/layers_by_cost.h"
#include "sim/plan/nearest_numbers.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"
#include "sim/plan/table_shards.h"

namespace rehearse::plan::detail {

namespace {

// Names of the schedules that `test` holds for: "1f1b, interleaved or dualpipe".
template <class Test>
std::string schedules_that(const Test& test) {
  std::vector<std::string_view> names = schedule_names();
  std::erase_if(names, [&](std::string_view name) { return !test(*find_schedule(name)); });
  REHEARSE_CHECK(!names.empty(), "no schedule is of this kind");
  const std::string_view last = names.back();
  names.pop_back();
  return names.empty() ? std::string(last) : fmt::format("{} or {}", fmt::join(names, ", "), last);
}

class Rules {
 public:
  Rules(const Sections& sections, const Diagnostics& reported, Scenario& scenario)
      : sections_(sections), reported_(reported), s_(scenario) {}

  void apply() {
    const bool ranks_known = ranks();
    if (ranks_known) spread_experts();
    if (ranks_known && all_sound("plan.zero_group", "plan.zero", "plan.rank_order"))
      resolve_zero_group(key("zero_group"), sections_.node_devices, s_);
    if (ranks_known && all_sound("plan.local_steps", "plan.local_group", "plan.zero", "plan.rank_order"))
      resolve_local_group(sections_.plan, sections_.node_devices, s_);
    if (ranks_known && all_sound("plan.servers", "plan.backup_workers", "plan.consistency", "plan.zero"))
      resolve_servers(sections_, s_);
    data_parallel_only();
    if (sections_.model_sound) {
      narrow_products();
      tensor();
      stages();
      sequence();
      context();
      latent_attention();
      experts();
      check_encoder(sections_, s_, [this](const char* path) { return sound(path); });
      check_adapters(sections_.training, s_, [this](const char* path) { return sound(path); });
      check_async_tensor(sections_.plan, s_, [this](const char* path) { return sound(path); });
    }
    const bool batch_known = ranks_known && batch();
    const bool counted = batch_known && sections_.model_sound;
    schedule(counted ? std::optional(s_.training.micro_batches(s_.plan)) : std::nullopt);
    if (sections_.model_sound && batch_known && sound("training.seq_len")) size();
    if (!reported_.list().empty()) return;
    read_recorded_routing(sections_.root.get("model"), s_);
    if (!reported_.list().empty()) return;
    check_documents(sections_, s_);
    check_ignored_targets(sections_, s_);
    check_offload(sections_, s_);
    check_gradient_compression(sections_.plan, s_);
    check_local_steps(sections_.plan, s_);
    check_servers(sections_, s_);
    check_graphs(sections_, s_);
    check_vision(sections_, s_);
    check_encoder_decoder(sections_, s_);
    check_copies(sections_, s_);
    check_narrow_and_again(sections_, s_);
    check_predictions(sections_, s_);
    check_llama_like(sections_, s_);
    check_one_branch(sections_, s_);
    check_room_for_experts(sections_.root.get("model"), s_);
    check_varying_loads(sections_.root.get("model"), s_);
    check_performed_precision(sections_.training, s_);
    check_optimizer(sections_.training, s_);
    check_deterministic(sections_, s_);
    check_tables(sections_.plan, sections_.training, s_);
  }

 private:
  // No problem was reported for the key (section.key); nor, if it is absent, for a misspelt key that looks like it.
  bool sound(const std::string& path) const {
    const std::size_t dot = path.find('.');
    const std::string section = path.substr(0, dot), key = path.substr(dot + 1);
    const bool absent = !sections_.root.get(section).get(key);
    const std::string quoted = fmt::format("'{}'", key);
    return std::none_of(reported_.list().begin(), reported_.list().end(), [&](const Diagnostic& d) {
      const bool misspelt = absent && d.path.starts_with(section + ".") && d.hint.find(quoted) != std::string::npos;
      return misspelt || d.path == path || d.path == section || d.path.starts_with(path + "[");
    });
  }
  template <typename... Paths>
  bool all_sound(const Paths&... paths) const {
    return (sound(paths) && ...);
  }

  Node key(const char* name) const { return sections_.plan.get(name); }

  void data_parallel_only() {
    if (!s_.framework.data_parallel_only) return;
    const std::pair<const char*, bool> kept[] = {{"tensor", s_.plan.tensor == 1},
                                                 {"pipeline", s_.plan.pipeline == 1},
                                                 {"context", s_.plan.context == 1},
                                                 {"zero", s_.plan.zero == 0}};
    for (const auto& [name, holds] : kept)
      if (!holds && sound(fmt::format("plan.{}", name)))
        key(name).error(fmt::format("framework {} holds replicas of a whole model", s_.framework.name),
                        fmt::format("leave plan.{} out, or choose another framework", name));
  }

  void narrow_products() {
    if (!sound("training.precision")) return;
    if (!s_.training.eight_bits()) {
      if (s_.training.fp8_params && sound("training.fp8_params"))
        sections_.training.get("fp8_params").error("is of 8-bit products", "precision: fp8, or leave fp8_params out");
      if (!s_.training.four_bits()) return;
    }
    const Node precision = sections_.training.get("precision");
    const auto [word, bits] = s_.training.eight_bits() ? std::pair{"fp8", "8"} : std::pair{"nvfp4", "4"};
    if (!s_.model.is_transformer()) {
      precision.error(fmt::format("{} is of linear layers in transformer blocks, which this model has none of", word),
                      "precision: bf16");
      return;
    }
    if (s_.training.fp8_params && all_sound("training.fp8_params", "training.fp8_recipe", "plan.zero") &&
        s_.plan.zero >= 2 &&
        (s_.training.fp8_recipe == Fp8Recipe::blockwise || s_.training.fp8_recipe == Fp8Recipe::mxfp8))
      sections_.training.get("fp8_params")
          .error(fmt::format("with scales of blocks 16 bits are gathered into the place of whole gradients, which "
                             "plan.zero = {} does not keep",
                             s_.plan.zero),
                 "plan.zero: 1, or fp8_recipe: tensorwise");
    if (s_.training.eight_bits() && s_.training.fp8_rows()) check_row_scales(sections_.training, s_);
    if (!sound("training.fp8_bf16_layers") || 2 * s_.training.fp8_bf16_layers < s_.model.layers) return;
    sections_.training.get("fp8_bf16_layers")
        .error(fmt::format("{} blocks at either end of {} leave none in {} bits", s_.training.fp8_bf16_layers,
                           s_.model.layers, bits));
  }

  bool ranks() {
    if (!all_sound("cluster.gpus", "plan.tensor", "plan.pipeline", "plan.context")) return false;
    Plan& plan = s_.plan;
    const std::int64_t gpus = s_.cluster.gpus, parts = plan.tensor * plan.pipeline * plan.context;
    if (gpus % parts == 0) {
      plan.data = gpus / parts;
      return true;
    }
    const Node given = sections_.cluster.get("gpus");
    const Node& place = given ? given : (key("tensor") ? key("tensor") : key("pipeline"));
    const bool context = plan.context > 1;
    place.error(
        fmt::format("gpus = {} is not divisible by tensor * pipeline{} = {} * {}{} = {}; nearest gpus that are: {}",
                    gpus, context ? " * context" : "", plan.tensor, plan.pipeline,
                    context ? fmt::format(" * {}", plan.context) : "", parts, nearest_multiples(gpus, parts)));
    return false;
  }

  void tensor() {
    const std::int64_t t = s_.plan.tensor;
    const model::Model& m = s_.model;
    if (t == 1 || !sound("plan.tensor")) return;
    if (!m.is_transformer()) {
      key("tensor").error(
          fmt::format("tensor = {}: only transformers are split over the tensor axis; this "
                      "model needs tensor: 1",
                      t));
      return;
    }
    const bool moe = m.family == model::Family::moe;
    const std::int64_t dense = m.has_dense_ffn() ? m.ffn_hidden : 0;
    const std::int64_t split = s_.plan.whole_experts() ? 0 : m.expert_ffn_hidden;
    const std::int64_t ffn = std::gcd(std::gcd(dense, split), m.shared_experts * m.shared_ffn_hidden);
    // Of fewer key-value heads than ranks each is on as many ranks as another.
    const bool fewer = m.kv_heads < t && m.kv_heads != m.heads;
    const std::int64_t common = std::gcd(std::gcd(m.heads, m.kv_heads), ffn);
    const auto rule = [&](const char* what, std::int64_t number) {
      if (number % t == 0) return;
      key("tensor").error(fmt::format(
          "{} = {} is not divisible by tensor = {}; nearest tensor sizes that divide heads = {}, kv_heads = {} and "
          "ffn_hidden = {}: {}",
          what, number, t, m.heads, m.kv_heads, ffn, nearest_divisors(common, t, kMaxRanks)));
    };
    if (!m.has_attention()) return rule(moe ? "common width of experts and dense layers" : "ffn_hidden", ffn);
    rule("heads", m.heads);
    if (fewer && t % m.kv_heads == 0) {
      check_shared_key_head(sections_, s_);
    } else if (fewer) {
      key("tensor").error(fmt::format(
          "kv_heads = {} is smaller than tensor = {} and does not divide it: each key-value head is on as many ranks "
          "as another; nearest tensor sizes that work: {}",
          m.kv_heads, t, nearest_divisors(common, t, kMaxRanks)));
    } else if (m.kv_heads != m.heads) {
      rule("kv_heads", m.kv_heads);
    }
    rule(moe ? "common width of experts and dense layers" : "ffn_hidden", ffn);
  }

  void stages() {
    if (!sound("plan.pipeline")) return;
    Plan& plan = s_.plan;
    const std::int64_t units = unit_count(s_.model);
    const char* what = s_.model.is_transformer() ? "layers"
                       : s_.model.is_list()      ? "layers (convolutions, residual blocks and linear layers)"
                                                 : "layers (convolutions and linear layers)";
    const Recompute recompute = s_.plan.recompute;
    if ((recompute == Recompute::selective || recompute == Recompute::ops) && !s_.model.is_transformer()) {
      key("recompute")
          .error(fmt::format(
              "{} recomputation is of attention and what is around it, which this model has none of; none or full",
              recompute == Recompute::ops ? "ops" : "selective"));
    }
    if (!chunks()) return;
    const std::int64_t parts = plan.pipeline * plan.chunks;
    if (plan.embedding_as_layer && sound("plan.embedding_as_layer") && plan.pipeline > 1)
      return embedding_as_layer(units, parts);
    const bool ends = s_.model.mtp_depth > 0 && parts > 1;  // listed_layers()
    const std::int64_t empty = ends ? std::clamp<std::int64_t>(parts - units, 0, 2) : 0;
    if (units < parts - empty) {
      key("pipeline")
          .error(fmt::format("pipeline = {} stages{} need at least one layer each, but the model has {} {}; "
                             "nearest pipeline that works: {}",
                             plan.pipeline, plan.chunks > 1 ? fmt::format(" of {} chunks", plan.chunks) : "", units,
                             what, units / plan.chunks));
      return;
    }
    if (plan.layers_per_stage.empty()) {
      if (!sound("plan.layers_per_stage")) return;
      if (plan.layers_by_time && !s_.model.is_transformer())
        key("layers_per_stage")
            .error(fmt::format("by_time is for the layers of transformers; this model has {} {}", units, what),
                   "auto, or a list");
      if (plan.layers_by_time && empty > 0)
        key("layers_per_stage")
            .error(fmt::format("by_time gives every stage a layer, but the model has {} for {}", units, parts),
                   "auto, or a list");
      plan.layers_by_time = plan.layers_by_time && parts > 1;
      if (empty > 0) {  // the last one has the modules, the first the embedding
        plan.layers_per_stage = auto_layers(units, parts - empty);
        plan.layers_per_stage.push_back(0);
        if (empty > 1) plan.layers_per_stage.insert(plan.layers_per_stage.begin(), 0);
        return;
      }
      if (s_.framework.layers_by_cost && s_.model.is_transformer() && plan.chunks == 1)
        plan.layers_per_stage = layers_by_cost(s_.model, plan.pipeline);
      if (plan.layers_per_stage.empty()) plan.layers_per_stage = auto_layers(units, parts);
      return;
    }
    if (!sound("plan.layers_per_stage") || !listed_layers()) return;
    const auto listed = static_cast<std::int64_t>(plan.layers_per_stage.size());
    const auto sum = std::accumulate(plan.layers_per_stage.begin(), plan.layers_per_stage.end(), std::int64_t{0});
    if (listed != parts) {
      key("layers_per_stage")
          .error(plan.chunks == 1
                     ? fmt::format("{} stages are listed, but pipeline = {}", listed, plan.pipeline)
                     : fmt::format("{} numbers are listed, but pipeline * chunks = {} * {} = {}, in the model's order",
                                   listed, plan.pipeline, plan.chunks, parts));
    }
    if (sum != units) {
      key("layers_per_stage").error(fmt::format("the stages add up to {}, but the model has {} {}", sum, units, what));
    }
  }

  // Each stage has a layer; but with modules of multi-token prediction the last one may have these alone, and the first
  // the embedding.
  bool listed_layers() {
    const std::vector<std::int64_t>& layers = s_.plan.layers_per_stage;
    bool sound = true;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool at_an_end = s_.model.mtp_depth > 0 && layers.size() > 1 && (i == 0 || i + 1 == layers.size());
      if (layers[i] > 0 || at_an_end) continue;
      key("layers_per_stage")
          .at(i)
          .error("a stage without layers: only the first and the last may have none, with model.mtp_depth");
      sound = false;
    }
    return sound;
  }

  void embedding_as_layer(std::int64_t units, std::int64_t parts) {
    Plan& plan = s_.plan;
    const auto refuse = [&](const std::string& message, const std::string& instead) {
      key("embedding_as_layer").error(message, instead);
    };
    if (!s_.model.is_transformer()) return refuse("this model has no embedding", "leave it out");
    if (!plan.layers_per_stage.empty() || plan.layers_by_time || !sound("plan.layers_per_stage"))
      return refuse("layers_per_stage says how many layers each stage has", "only one of the two");
    if ((units + 2) % parts != 0)
      return refuse(fmt::format("{} layers, embedding and head do not divide by {} stages{}; nearest layers: {}", units,
                                plan.pipeline, plan.chunks > 1 ? fmt::format(" of {} chunks", plan.chunks) : "",
                                (units + 2 + parts - 1) / parts * parts - 2),
                    "layers_per_stage as a list");
    plan.layers_per_stage = auto_layers_with_embedding(units, parts);
  }

  // Only some schedules cut a stage in chunks, which are about pipelines.
  bool chunks() {
    Plan& plan = s_.plan;
    if (!all_sound("plan.chunks", "plan.schedule")) return false;
    if (plan.chunks > 1 && !schedule_of(plan.schedule).takes_chunks() && !schedule_of(plan.schedule).own_chunks()) {
      key("chunks").error(fmt::format("chunks = {}: several model chunks a stage need schedule: {}", plan.chunks,
                                      schedules_that([](const PipelineSchedule& s) { return s.takes_chunks(); })));
      return false;
    }
    if (const auto own = schedule_of(plan.schedule).own_chunks(); own && plan.pipeline > 1) {
      if (plan.chunks != *own && sections_.at("plan.chunks")) {
        key("chunks").error(fmt::format("chunks = {}: schedule {} has {} a stage", plan.chunks,
                                        schedule_of(plan.schedule).name(), *own),
                            fmt::format("chunks: {}, or leave it out", *own));
        return false;
      }
      plan.chunks = *own;
    }
    if (plan.pipeline == 1) plan.chunks = 1;
    if (plan.chunks == 1) plan.schedule = schedule_of(plan.schedule).with_one_chunk(plan.schedule);
    return true;
  }

  // What the schedule itself asks of the plan.
  void schedule(std::optional<std::int64_t> micro_batches) {
    const Plan& plan = s_.plan;
    for (const ScheduleProblem& problem : schedule_of(plan.schedule, plan.pipeline).problems(plan, micro_batches)) {
      const auto given = std::find_if(problem.keys.begin(), problem.keys.end(),
                                      [&](const std::string& path) { return static_cast<bool>(sections_.at(path)); });
      const std::string& path = given == problem.keys.end() ? problem.keys.back() : *given;
      if (sound(path)) sections_.at(path).error(problem.message);
    }
  }

  void sequence() {
    Training& training = s_.training;
    const model::Model& m = s_.model;
    const Node place = sections_.training.get("seq_len");
    if (!sound("training.seq_len")) return;
    if (!m.is_transformer()) {
      if (training.seq_len > 1) {
        place.error(fmt::format("seq_len = {}: this model reads no sequences; leave the key out", training.seq_len));
      }
      training.seq_len = 1;
      s_.plan.sequence_parallel = false;
      return;
    }
    if (training.seq_len == 0) training.seq_len = m.usual_seq_len();
    if (m.is_vision() && training.seq_len != m.max_seq_len)
      return place.error(
          fmt::format("seq_len = {}, but an image is {} patches and the class token", training.seq_len, m.patches()),
          fmt::format("leave it out, or seq_len: {}", m.max_seq_len));
    if (m.position == model::Position::learned && training.seq_len > m.max_seq_len) {
      place.error(fmt::format("seq_len = {} is above max_seq_len = {} of the model's learned positions; at most {}",
                              training.seq_len, m.max_seq_len, m.max_seq_len));
    }
    if (!all_sound("plan.tensor", "plan.sequence_parallel")) return;
    const std::int64_t t = s_.plan.tensor;
    if (t == 1) s_.plan.sequence_parallel = s_.plan.async_tensor_parallel = false;
    if (s_.plan.sequence_parallel && training.seq_len % t != 0) {
      key("sequence_parallel")
          .error(fmt::format("sequence_parallel needs seq_len = {} divisible by tensor = {}; nearest seq_len: {}",
                             training.seq_len, t, nearest_multiples(training.seq_len, t)));
    }
  }

  // What the grid of ranks needs; where it does not hold, the other rules see experts that are not spread.
  void spread_experts() {
    Plan& plan = s_.plan;
    const std::int64_t e = plan.expert;
    if (e == 1 || !sound("plan.expert")) return;
    const auto refuse = [&](const std::string& message, const std::string& hint = "") {
      key("expert").error(message, hint);
      plan.expert = 1;
    };
    if (!s_.framework.expert_parallel)
      return refuse(fmt::format("framework {} does not spread experts over ranks", s_.framework.name),
                    "leave plan.expert out, or choose another framework");
    const std::int64_t tensor = plan.whole_experts() ? plan.tensor : 1, first = plan.context * tensor;
    if (e % first != 0)
      return refuse(fmt::format("expert = {} is not a multiple of {}{}: the ranks of a {} come first", e,
                                tensor > 1 ? fmt::format("tensor = {}", tensor) : fmt::format("context = {}", first),
                                tensor > 1 && plan.context > 1 ? fmt::format(" * context = {}", first) : "",
                                tensor > 1 ? "tensor group" : "sequence"));
    if (const std::int64_t all = plan.data * first; all % e != 0)
      return refuse(fmt::format(
          "expert = {} does not divide the {} ranks that experts may be spread over (data{}{} = {}{}{}); nearest that "
          "do: {}",
          e, all, plan.context > 1 ? " * context" : "", tensor > 1 ? " * tensor" : "", plan.data,
          plan.context > 1 ? fmt::format(" * {}", plan.context) : "", tensor > 1 ? fmt::format(" * {}", tensor) : "",
          nearest_divisors(s_.model.experts > 0 ? std::gcd(all, s_.model.experts) : all, e, all)));
  }

  void experts() {
    const Plan& plan = s_.plan;
    const model::Model& m = s_.model;
    const bool in_mxfp8 = s_.training.eight_bits() && s_.training.fp8_recipe == Fp8Recipe::mxfp8;
    if (plan.fused_experts && all_sound("plan.fused_experts", "training.precision", "training.fp8_recipe") &&
        (m.family != model::Family::moe || !in_mxfp8 || !s_.framework.extension_products))
      key("fused_experts")
          .error("the kernel is Transformer Engine's, of routed experts in mxfp8",
                 "leave it out, or framework: megatron-core or nemo, family: moe, training.precision: fp8 and "
                 "fp8_recipe: mxfp8");
    if (!sound("plan.expert")) return;
    if (m.family != model::Family::moe) {
      if (plan.expert > 1)
        key("expert").error(fmt::format("expert = {}: this model has no experts", plan.expert), "family: moe");
      return;
    }
    if (m.experts % plan.expert != 0)
      key("expert").error(fmt::format("{} experts do not divide by expert = {}; nearest that do: {}", m.experts,
                                      plan.expert, nearest_divisors(m.experts, plan.expert, m.experts)));
    if (plan.expert_tensor > 1 && plan.expert_tensor != plan.tensor)
      key("expert_tensor")
          .error(fmt::format("expert_tensor = {}: experts are split over the tensor group, of {}, or not at all",
                             plan.expert_tensor, plan.tensor));
    if (plan.expert_tensor == 1 && plan.tensor > 1 && !(plan.whole_experts() && plan.sequence_parallel))
      key("expert_tensor")
          .error("expert_tensor = 1 gives each rank of a tensor group experts and tokens of its own",
                 "expert above 1 and sequence_parallel: true");
    // A simulation takes the loads to be what the scenario says.
    if (sound("plan.expert_dispatch")) check_expert_dispatch(key("expert_dispatch"), s_);
    if (plan.overlap_expert_exchange) overlapped_exchange();
    check_overlapped_shared_experts(key("overlap_shared_experts"), s_);
    const bool dropless = m.capacity_factor == 0 && s_.purpose == Purpose::perform;
    if (dropless && plan.expert > 1 && m.buffer_factor == 0)
      key("expert").error(
          fmt::format("expert = {}: without a capacity how many rows each rank gets is for the router to say; what is "
                      "performed needs room for them before",
                      plan.expert),
          "model.buffer_factor, as 2 for twice the even rows, or model.capacity_factor");
  }

  // As Megatron-Core has it (core/transformer/transformer_config.py): recomputed layers would trade their rows again.
  void overlapped_exchange() {
    const Plan& plan = s_.plan;
    const auto problem = [&](const std::string& message, const std::string& expected) {
      key("overlap_expert_exchange").error(message, expected);
    };
    if (plan.expert == 1) return problem("experts are not spread over ranks", "plan.expert above 1");
    if (plan.recompute == Recompute::full)
      problem("full recomputation would trade the rows of experts once more", "recompute: selective or none");
    // torchtitan's (distributed/dual_pipe_v.py, get_dual_pipe_v_flag).
    if (plan.recompute == Recompute::ops)
      problem("op by op recomputation is torchtitan's, which refuses it where another micro-batch fills the exchanges",
              "recompute: selective or none");
    if (plan.zero == 3) problem("ZeRO-3 gathers the layers of one micro-batch at a time", "zero: 0, 1 or 2");
    const auto alternates = [&](const PipelineSchedule& s) { return s.alternates(plan.pipeline); };
    if (const PipelineSchedule& own = schedule_of(plan.schedule, plan.pipeline);
        sound("plan.schedule") && !alternates(own))
      problem(fmt::format("schedule {} does not alternate forward and backward", own.name()),
              "schedule: " + schedules_that(alternates));
  }

  // Tokens divide into a run, or two chunks, for each rank; heads too where the ranks trade them.
  void context() {
    const Plan& plan = s_.plan;
    const model::Model& m = s_.model;
    const std::int64_t c = plan.context;
    if (c == 1 || !all_sound("plan.context", "plan.context_kind", "plan.tensor", "training.seq_len")) return;
    if (!m.is_transformer())
      return key("context").error(
          fmt::format("context = {}: only sequences are split over the context axis; this model needs context: 1", c));
    if (!s_.framework.context_parallel)
      return key("context").error(fmt::format("framework {} has no context parallelism", s_.framework.name),
                                  "leave plan.context out, or choose another framework");
    const bool by_heads = plan.context_kind == ContextKind::all_to_all;
    const std::int64_t parts = (by_heads ? c : 2 * c) * (plan.sequence_parallel ? plan.tensor : 1);
    if (s_.training.seq_len % parts != 0)
      key("context").error(
          fmt::format("seq_len = {} does not divide into {} equal parts ({}context = {}{}); nearest seq_len: {}",
                      s_.training.seq_len, parts, by_heads ? "" : "2 * ", c,
                      plan.sequence_parallel ? fmt::format(", and over tensor = {}", plan.tensor) : "",
                      nearest_multiples(s_.training.seq_len, parts)));
    if (by_heads) {
      const std::int64_t heads = m.heads / plan.tensor;
      const std::int64_t kv_heads = std::max<std::int64_t>(1, m.kv_heads / plan.tensor);
      if (heads % c != 0 || kv_heads % c != 0)
        key("context").error(
            fmt::format(
                "context_kind: all_to_all gives each rank whole heads: {} heads and {} key-value heads a tensor "
                "rank do not divide by context = {}",
                heads, kv_heads, c),
            "context_kind: ring or all_gather takes any");
      return;
    }
    // What each step of the ring sees of the window differs from rank to rank. So has Transformer Engine windows with
    // all_gather and a2a, and not with p2p (transformer_engine/pytorch/attention/dot_product_attention/
    // context_parallel.py, attn_forward_func_with_cp).
    if (m.windowed(s_.training.seq_len) && plan.context_kind == ContextKind::ring)
      (key("context_kind") ? key("context_kind") : key("context"))
          .error(fmt::format("context_kind: ring gives each rank as much of a causal mask, not of sliding_window = {} "
                             "below seq_len = {}",
                             m.sliding_window, s_.training.seq_len),
                 fmt::format("context_kind: all_gather or all_to_all, or model.sliding_window: 0"));
    if (m.attention == model::AttentionKind::unfused) {
      key("context").error("attention: unfused keeps the scores of whole sequences",
                           "a fused kernel (model.attention), or context_kind: all_to_all");
    }
  }

  void latent_attention() {
    const bool again = s_.plan.recompute_latent && sound("plan.recompute_latent");
    if (again && !s_.model.latent_attention())
      key("recompute_latent").error("this model has no latents", "leave it out, or model.kv_lora_rank above 0");
    else if (again && s_.plan.context > 1 && s_.plan.context_kind == ContextKind::all_to_all)
      key("recompute_latent")
          .error("what ranks have traded is kept for backward and not made again",
                 "context_kind: ring or all_gather, or leave it out");
    const bool as_framework = s_.plan.fused_latent_rope == s_.framework.fused_latent_rope;
    if (!as_framework && sound("plan.fused_latent_rope") && !s_.model.latent_attention())
      key("fused_latent_rope")
          .error("this model has no latent attention", "leave it out, or model.kv_lora_rank above 0");
  }

  bool batch() {
    if (!all_sound("plan.micro_batch", "training.global_batch")) return false;
    Training& training = s_.training;
    const Plan& plan = s_.plan;
    const std::int64_t at_once = plan.counted() * plan.micro_batch;
    if (training.global_batch == 0) training.global_batch = at_once;
    const Node given = sections_.training.get("global_batch");
    if (training.global_batch % at_once != 0) {
      given.error(fmt::format(
          "global_batch = {} is not divisible by data * micro_batch = {} * {} = {} (data = gpus / "
          "(tensor * pipeline){}); nearest global_batch that is: {}",
          training.global_batch, plan.counted(), plan.micro_batch, at_once,
          plan.backup_workers > 0 ? " - backup_workers" : "", nearest_multiples(training.global_batch, at_once)));
      return false;
    }
    if (training.micro_batches(plan) > kMaxMicroBatch) {
      given.error(fmt::format("{} micro-batches a step; at most {}", training.micro_batches(plan), kMaxMicroBatch));
      return false;
    }
    return true;
  }

  // Numbers that no machine can hold or finish would overflow counts of bytes and picoseconds further on; a rough count
  // in floating point is enough.
  void size() {
    const model::Model& m = s_.model;
    constexpr double kMostFlops = 1e19;  // a day of the fastest device, 11 days of 10 TFLOP/s
    const double flops = model::model_flops(m, s_.training.global_batch / s_.plan.counted(), s_.training.seq_len) /
                         static_cast<double>(s_.plan.tensor * s_.plan.pipeline);
    if (flops > kMostFlops) {
      const Node batch = sections_.training.get("global_batch");
      (batch ? batch : key("micro_batch"))
          .error(fmt::format(
              "a step takes {:.3g} FLOPs a GPU, expected at most {:.0e}; micro_batch = {}, seq_len = {}, "
              "{} micro-batches",
              flops, kMostFlops, s_.plan.micro_batch, s_.training.seq_len, s_.training.micro_batches(s_.plan)));
      return;
    }
    const double tokens = static_cast<double>(s_.plan.micro_batch) * static_cast<double>(s_.training.seq_len);
    double per_token = 0;
    if (m.is_transformer()) {
      const bool unfused = m.attention == model::AttentionKind::unfused;
      const double scores = unfused ? 8.0 * static_cast<double>(m.heads) * static_cast<double>(s_.training.seq_len) : 0;
      per_token = static_cast<double>(m.layers) * (40.0 * static_cast<double>(m.hidden + m.ffn_hidden) + scores) +
                  8.0 * static_cast<double>(m.vocab);
    } else {
      const auto side = static_cast<double>(m.image_size);
      // A layer's outputs are no more than its products, but for those that follow one.
      if (m.is_list()) per_token += 64 * model::layer_multiply_adds(m.layer_list, m.input());
      for (const model::ConvLayer& c : m.convolutions) {
        per_token += 16 * static_cast<double>(c.channels) * side * side * static_cast<double>(c.kernel * c.kernel);
      }
      for (const std::int64_t width : m.widths) per_token += 16 * static_cast<double>(width);
    }
    constexpr double kExabyte = 1e18;
    const double bytes = tokens * per_token * static_cast<double>(s_.training.micro_batches(s_.plan));
    if (bytes <= kExabyte) return;
    const Node given = sections_.training.get("global_batch");
    (given ? given : sections_.training.get("seq_len"))
        .error(fmt::format("the activations of a step come to {:.3g} bytes a replica, which is beyond any machine; "
                           "micro_batch = {}, seq_len = {}, {} micro-batches",
                           bytes, s_.plan.micro_batch, s_.training.seq_len, s_.training.micro_batches(s_.plan)));
  }

  const Sections& sections_;
  const Diagnostics& reported_;
  Scenario& s_;
};

}  // namespace

void resolve(const Sections& sections, const Diagnostics& reported, Scenario& scenario) {
  Rules(sections, reported, scenario).apply();
}

}  // namespace rehearse::plan::detail
