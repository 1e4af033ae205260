// The table of keys against the reader: the same keys, values, ranges and defaults, neither with one the other lacks;
// and against docs/scenario.md, whose rows are the table's. The reader itself says which keys it knows, in its hint at
// a key that is like none.
#include "sim/plan/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

const std::vector<std::string> kFamilies = {"gpt", "llama", "moe", "bert", "t5", "cnn", "mlp", "vit", "custom"};
constexpr const char* kNoKey = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq";

using Pairs = std::vector<std::pair<std::string, std::string>>;

// The least mapping that is a model of the family.
Pairs least_model(const std::string& family) {
  if (family == "cnn")
    return {{"family", "cnn"},
            {"image", "{channels: 3, size: 32}"},
            {"convolutions", "[{channels: 64}]"},
            {"widths", "[10]"}};
  if (family == "vit")
    return {
        {"family", "vit"}, {"layers", "12"}, {"hidden", "96"}, {"heads", "12"}, {"image", "{channels: 3, size: 32}"},
        {"patch", "16"},   {"classes", "10"}};
  if (family == "custom")
    return {{"family", "custom"}, {"features", "8"}, {"layer_list", "[{layer: linear, width: 10}]"}};
  if (family == "mlp") return {{"family", "mlp"}, {"widths", "[784, 10]"}};
  if (family == "t5")
    return {{"family", "t5"}, {"encoder_layers", "12"}, {"hidden", "96"},
            {"heads", "12"},  {"vocab", "1000"},        {"max_seq_len", "128"}};
  Pairs model = {{"family", family}, {"layers", "12"},  {"hidden", "96"},
                 {"heads", "12"},    {"vocab", "1000"}, {"max_seq_len", "128"}};
  if (family == "llama") model.emplace_back("ffn_hidden", "256");
  if (family == "moe")
    for (const auto& pair :
         Pairs{{"experts", "12"}, {"experts_per_token", "2"}, {"expert_ffn_hidden", "48"}, {"ffn_hidden", "256"}})
      model.push_back(pair);
  return model;
}

std::string text_of(const Pairs& model, const std::string& framework = "rehearse") {
  std::string text = "rehearse: 1\nname: base\nframework: " + framework + "\nmodel:\n";
  for (const auto& [key, value] : model) text += "  " + key + ": " + value + "\n";
  return text;
}

std::string family_of(const Key& key) {
  return key.families.empty() ? "gpt" : std::string(key.families.substr(0, key.families.find(' ')));
}

// The scenario with one more key given, and what the reader says of that key.
struct Case {
  std::string text;
  std::vector<std::string> assignments;
  std::string path;
};
Case with(const Key& key, const std::string& value, const std::string& framework = "rehearse") {
  Case c;
  c.text = text_of(least_model(family_of(key)), framework);
  c.path = key.path;
  if (key.section() == "reinforcement")
    c.text += "reinforcement: {prompts: 1, prompt_tokens: 10, response_tokens: 10}\n";
  const std::size_t list = c.path.find("[]");
  if (list == std::string::npos) {
    c.assignments = {c.path + "=" + value};
  } else {
    const std::string leaf(key.leaf());
    std::string item = leaf + ": " + value;
    for (const Key& other : keys())  // what each entry of the list must have
      if (other.origin == Default::required && other.path != key.path &&
          other.path.starts_with(c.path.substr(0, list) + "[]."))
        item += fmt::format(", {}: {}", other.leaf(), other.example);
    if (leaf == "kind") item += ", algorithm: ring";
    if (leaf == "factor") item += ", share: 0.5";
    if (leaf == "duty") item += ", period: 1ms";
    c.assignments = {c.path.substr(0, list) + "=[{" + item + "}]"};
    c.path.replace(list, 2, "[0]");
  }
  return c;
}

std::vector<Diagnostic> diagnostics(const std::string& text, const std::vector<std::string>& assignments = {}) {
  try {
    read(text, assignments);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

// Why the reader refuses this value of this key as such, whatever the other keys are; "" if it takes it.
std::string refusal(const Case& c) {
  for (const Diagnostic& d : diagnostics(c.text, c.assignments)) {
    const bool here = d.path == c.path || d.path.starts_with(c.path + "[");
    const bool as_such =
        d.message.starts_with("expected") || d.message.find("out of range") != std::string::npos ||
        d.message.find("not available yet") != std::string::npos || d.message.find("unknown") != std::string::npos ||
        d.message.find("no model preset") != std::string::npos || d.message.find("is not known") != std::string::npos ||
        d.message.starts_with("a bucket") || d.message.find("needs its unit") != std::string::npos;
    if (here && as_such) return d.message;
  }
  return "";
}
std::string refusal(const Key& key, const std::string& value) {
  return refusal(with(key, value));
}

// Everything a scenario was resolved to.
std::string dump(const Scenario& s) {
  const model::Model& m = s.model;
  std::string out =
      fmt::format("{} | {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} | {} {} {}", s.name, m.name,
                  static_cast<int>(m.family), m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn_hidden,
                  m.vocab, m.max_seq_len, static_cast<int>(m.activation), static_cast<int>(m.norm),
                  static_cast<int>(m.position), m.tied_embeddings, m.bias, static_cast<int>(m.attention), m.dropout,
                  fmt::join(m.widths, ","), m.image_channels, m.image_size, m.convolutions.size());
  for (const auto& c : m.convolutions) out += fmt::format(" ({} {} {})", c.channels, c.kernel, c.pool);
  out += fmt::format(" | {} {} [{}] {} {} {}", static_cast<int>(m.loss), static_cast<int>(m.residual_block),
                     fmt::join(m.residual_layers, ","), m.sync_batch_norm, m.patch, m.classes);
  out += fmt::format(" {} {}", static_cast<int>(m.map_layout), m.features);
  out += fmt::format(" {} {} {} {}", m.residual_groups, m.residual_group_width, m.squeeze_ratio, m.squeeze_width);
  for (const model::Layer& l : m.layer_list)
    out += fmt::format(" ({} {} {} {} {} {} {} {} {} {})", static_cast<int>(l.kind), l.width, l.kernel, l.stride, l.pad,
                       l.bias, l.rate, l.body.size(), l.shortcut.size(), l.groups);
  out += fmt::format(" | {} {} {} {} {} {} {} {} {} {}", m.expert_latent, m.experts, m.experts_per_token,
                     m.expert_ffn_hidden, m.shared_experts, m.shared_ffn_hidden, m.dense_layers,
                     static_cast<int>(m.router), m.aux_loss, m.capacity_factor);
  out += fmt::format(" | {} {} {} {} {}", m.kv_lora_rank, m.q_lora_rank, m.qk_nope_head_dim, m.qk_rope_head_dim,
                     m.v_head_dim);
  out += fmt::format(" | {} {} {}", m.mlp_bias, m.head_bias, m.embedding_norm);
  out += fmt::format(" | {} {} {} {} {}", m.qkv_bias, m.norm_bias, static_cast<int>(m.parallel_block), m.position_rows,
                     m.sliding_window);
  out += fmt::format(" {} {} {} {} {}", m.attention_sinks, m.attention_chunk, m.nope_every, m.experts_every,
                     m.weigh_expert_inputs);
  out += fmt::format(" {} {} {} {} {} {} {}", m.layer_pattern, m.mamba_heads, m.mamba_head_dim, m.mamba_groups,
                     m.mamba_state, m.mamba_conv, m.mamba_chunk);
  out += fmt::format(" {} {} {} {}", m.rotary_dim, m.segment_kinds, m.max_predictions, m.full_attention_every);
  out += fmt::format(" {} {} {} {} {}", m.encoder_layers, m.decoder_layers, m.decoder_seq_len, m.relative_buckets,
                     m.relative_distance);
  out += fmt::format(" {} {} {} {} {} {} {} {} {}", m.scaled_embeddings, m.zero_centered_norms, m.post_norms, m.qk_norm,
                     m.attention_softcap, m.logit_softcap, m.query_scale, m.rope_base, m.rope_base_local);
  out += fmt::format(" {} {} {} {} {}", static_cast<int>(m.rope_scaling), m.rope_factor, m.rope_low_freq_factor,
                     m.rope_high_freq_factor, m.rope_trained_len);
  out += fmt::format(" {} {} {} {} {}", static_cast<int>(m.routing), m.routing_exponent,
                     static_cast<int>(m.routing_per), m.buffer_factor,
                     fmt::join(m.routing_table.empty() ? std::vector<double>{} : m.routing_table.front(), ","));
  out += fmt::format(" {} {} {}", m.mtp_depth, m.mtp_loss_weight, m.mtp_pattern);
  out += fmt::format(" | {} {} {} {}", s.cluster.topology, s.cluster.gpus, s.cluster.threads_per_rank,
                     rehearse::text_of(s.cluster.headroom));
  for (const auto& [key, value] : s.cluster.overrides) out += " " + key + "=" + value;
  for (const PinnedCollective& c : s.cluster.collectives)
    out += fmt::format(" ({} {} {})", c.kind, c.algorithm, c.protocol);
  const Plan& p = s.plan;
  out += fmt::format(" | {} | {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", s.framework.name, p.tensor,
                     p.pipeline, p.context, p.expert, p.data, static_cast<int>(p.schedule), p.chunks,
                     fmt::join(p.layers_per_stage, ","), p.micro_batch, p.zero, p.bucket.count(), p.overlap_grad_reduce,
                     p.overlap_param_gather, p.overlap_tensor_backward, p.reuse_distance, p.sequence_parallel,
                     static_cast<int>(p.recompute));
  out += fmt::format(" {} {} {} {}", p.recompute_layers, p.recompute_every, static_cast<int>(p.fused_epilogues),
                     p.recompute_latent);
  out += fmt::format(" {} {} {}", p.recompute_norms, p.recompute_expert_activation, p.weigh_in_experts);
  out += fmt::format(" {}", p.async_tensor_parallel);
  for (const Axis axis : p.rank_order) out += fmt::format(" {}", static_cast<int>(axis));
  out += fmt::format(" {} {} {} {} {} {} {} {} {}", static_cast<int>(p.context_kind), p.zero_group, p.replicas,
                     p.expert_tensor, static_cast<int>(p.expert_dispatch), p.overlap_expert_exchange,
                     p.offload_optimizer, p.offload_activations, p.offload_parameters);
  out += fmt::format(" {}", p.offload_layers);
  out += fmt::format(" {} {} {}", p.overlap_shared_experts, static_cast<int>(p.cuda_graphs), p.fused_weight_gradient);
  out += fmt::format(" {} {}", p.fused_latent_rope, p.fused_experts);
  out += fmt::format(" {} {} {}", fmt::join(p.gradient_compression, ","), p.gradient_share, p.gradient_chunk);
  out += fmt::format(" {} {} {} {} {}", p.gradient_warmup_steps, p.gradient_rank, p.gradient_start_step,
                     p.gradient_min_rate, p.gradient_epsilon);
  out += fmt::format(" {} {} {} {} {}", p.local_steps, p.local_group, static_cast<int>(p.outer_optimizer), p.outer_lr,
                     p.outer_momentum);
  out += fmt::format(" {} {} {} {} {}", p.servers, static_cast<int>(p.server_devices), static_cast<int>(p.consistency),
                     p.staleness, p.backup_workers);
  out += fmt::format(" {}", p.mode_overhead);
  out += fmt::format(" {} {}", s.cluster.gpudirect, static_cast<int>(s.training.first_weights));
  const Training& t = s.training;
  out += fmt::format(" | {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", t.global_batch, t.seq_len,
                     static_cast<int>(t.precision), static_cast<int>(t.grad_dtype), static_cast<int>(t.reduce_dtype),
                     static_cast<int>(t.optimizer), t.lr, t.beta1, t.beta2, t.eps, t.weight_decay, t.momentum,
                     t.lr_schedule, t.warmup_steps, t.clip, t.loss_scale, t.loss_scale_interval, t.seed);
  out += fmt::format(" {} {} {} {} {}", static_cast<int>(t.fp8_recipe), t.fp8_bf16_layers, t.fp8_transposes,
                     t.fp8_params, static_cast<int>(t.moments));
  out += fmt::format(" {} {} {}", t.fp8_dispatch, t.fp8_activation_input, t.e5m6_attention_output);
  out += fmt::format(" {} {} {} {}", t.lora_rank, t.lora_alpha, t.lora_qkv && t.lora_proj, t.lora_fc1 && t.lora_fc2);
  out += fmt::format(" {}", t.ignored_token);
  out += fmt::format(" {} {} {} {}", t.base_batch, t.base_lr, t.deterministic, t.fill_uninitialized);
  out += fmt::format(" {} {} {} {}", static_cast<int>(t.documents), t.document_length, t.document_sigma,
                     fmt::join(t.document_lengths, ","));
  const Data& d = s.data;
  out += fmt::format(" | {} {} {} {} {} {} {} {} {} {}", d.samples, d.drop_last, d.epochs, d.workers, d.prefetch,
                     d.sample_time.ps(), d.sample_bytes.count(), d.storage_bandwidth.per_s(),
                     static_cast<int>(d.storage_of), d.to_device.count());
  const Noise& n = s.noise;
  out += fmt::format(" | {} {} {} {} {} {} {} {}", n.seed, n.machine, static_cast<int>(n.distribution),
                     static_cast<int>(n.granularity), n.kernels, n.transfers, n.rank_step.low, n.rank_step.high);
  for (const SlowRanks& slow : n.slow_ranks)
    out += fmt::format(" ({} {} {})", fmt::join(slow.ranks, ","), slow.share, slow.factor);
  for (const LinkFault& l : n.links)
    out += fmt::format(" ({} {} {} {} {})", l.resources, l.share, l.capacity, l.period.ps(), l.duty);
  const Failures& f = s.failures;
  out += fmt::format(" | {} {} {} {} {} {} {} {} {} {} {}", f.gpu_mtbf_hours, f.nic_mtbf_hours, f.host_mtbf_hours,
                     f.switch_mtbf_hours, f.job_mtbf_hours, f.gpus_per_switch, f.detection.ps(), f.restart.ps(),
                     f.spare_hosts, f.repair_hours, static_cast<int>(f.without_spares));
  const CheckpointRequest& c = s.checkpoint;
  out += fmt::format(" | {} {} {} {} {} {} {} {}", c.interval.ps(), static_cast<int>(c.mode), c.bytes.count(),
                     c.storage_bandwidth.per_s(), c.rank_bandwidth.per_s(), c.copy_bandwidth.per_s(), c.changed_share,
                     c.base_every);
  const Reinforcement& r = s.reinforcement;
  out += fmt::format(" | {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", r.given,
                     static_cast<int>(r.algorithm), r.prompts, r.samples, r.prompt_tokens, r.response_tokens,
                     r.response_sigma, r.max_response_tokens, r.epochs, r.packing, r.reference, r.reward, r.critic,
                     r.scoring_micro_batch, r.offload, r.asynchronous, r.clip, r.kl, r.rule_modulus);
  out += fmt::format(" {} {} {}", r.gamma, r.gae_lambda, r.value_clip);
  out += fmt::format(" {} {} {} {} {}", r.generation.gpus, r.generation.tensor, rehearse::text_of(r.generation.memory),
                     r.generation.sequences, r.generation.step_overhead.ps());
  return out + fmt::format(" | {}", fmt::join(s.calibrations, " "));
}

// The keys the reader asks a mapping for; `at` is the mapping's path in a --set, `path` in its messages.
std::set<std::string> reader_keys(const std::string& text, const std::string& assignment, const std::string& path) {
  const std::string start = "known keys: ";
  for (const Diagnostic& d : diagnostics(text, {assignment})) {
    if (d.path != path + kNoKey || !d.hint.starts_with(start)) continue;
    std::set<std::string> known;
    std::istringstream words(d.hint.substr(start.size()));
    for (std::string word; std::getline(words >> std::ws, word, ',');) known.insert(word);
    return known;
  }
  ADD_FAILURE() << "the reader did not list its keys at " << path;
  return {};
}

std::set<std::string> table_keys(const std::string& prefix, const std::string& family) {
  std::set<std::string> names;
  for (const Key& key : keys()) {
    const bool below = key.path.starts_with(prefix);
    const std::string_view rest = below ? key.path.substr(prefix.size()) : "";
    if (below && rest.find('.') == std::string_view::npos && key.of_family(family)) names.emplace(rest);
  }
  return names;
}

TEST(Keys, TheReaderAndTheTableKnowTheSameOnes) {
  for (const std::string& family : kFamilies) {
    const std::string text = text_of(least_model(family));
    for (const std::string section : {"", "model.", "cluster.", "plan.", "training.", "data.", "costs.", "noise.",
                                      "failures.", "checkpoint.", "reinforcement."})
      EXPECT_EQ(reader_keys(text, section + kNoKey + "=1", section), table_keys(section, family)) << family << section;
  }
  const std::string cnn = text_of(least_model("cnn"));
  EXPECT_EQ(reader_keys(cnn, std::string("model.image.") + kNoKey + "=1", "model.image."),
            table_keys("model.image.", "cnn"));
  EXPECT_EQ(
      reader_keys(cnn, std::string("model.convolutions=[{channels: 8, ") + kNoKey + ": 1}]", "model.convolutions[0]."),
      table_keys("model.convolutions[].", "cnn"));
  const std::string gpt = text_of(least_model("gpt"));
  EXPECT_EQ(reader_keys(gpt, std::string("noise.rank_step={") + kNoKey + ": 1}", "noise.rank_step."),
            table_keys("noise.rank_step.", "gpt"));
  EXPECT_EQ(
      reader_keys(gpt, std::string("reinforcement={generation: {") + kNoKey + ": 1}}", "reinforcement.generation."),
      table_keys("reinforcement.generation.", "gpt"));
  for (const std::string list : {"cluster.jobs", "cluster.collectives", "noise.slow_ranks", "noise.links"})
    EXPECT_EQ(reader_keys(gpt, list + "=[{" + kNoKey + ": 1}]", list + "[0]."), table_keys(list + "[].", "gpt"));
}

TEST(Keys, EachStandsOnceAndPointsToKeysThatAre) {
  std::set<std::string_view> seen;
  for (const Key& key : keys()) {
    EXPECT_TRUE(seen.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.meaning.empty()) << key.path;
    EXPECT_FALSE(key.example.empty()) << key.path;
    std::istringstream related{std::string(key.related)};
    for (std::string path; related >> path;) EXPECT_NE(find_key(path), nullptr) << key.path << " names " << path;
    if (!key.section().empty()) {
      EXPECT_NE(find_key(key.section()), nullptr) << key.path;
    }
  }
}

TEST(Keys, TheReaderTakesEveryExample) {
  for (const Key& key : keys()) {
    if (key.path == "model" || !key.available()) continue;
    EXPECT_EQ(refusal(key, std::string(key.example)), "") << key.path << ": " << key.example;
  }
  for (const Key& key : keys())
    if (!key.available()) {
      EXPECT_NE(refusal(key, std::string(key.example)), "") << key.path << " is available";
    }
}

std::string number(double value) {
  return fmt::format("{:.15g}", value);
}

TEST(Keys, RangesAreTheReaders) {
  for (const Key& key : keys()) {
    const bool whole = key.type == KeyType::integer || key.type == KeyType::integers;
    if (!whole && key.type != KeyType::number && key.type != KeyType::numbers) continue;
    const double step = whole || (key.max && *key.max > 1e6) ? 1 : 1e-3;
    const auto value = [&](double x) {
      const std::string one = whole ? fmt::format("{}", static_cast<std::int64_t>(x)) : number(x);
      if (key.type == KeyType::integers) return "[" + one + ", " + one + "]";
      return key.type == KeyType::numbers ? "[" + one + ", 0.5]" : one;
    };
    ASSERT_TRUE(key.min) << key.path;
    EXPECT_EQ(refusal(key, value(*key.min)), "") << key.path;
    EXPECT_NE(refusal(key, value(*key.min - step)), "") << key.path << " takes less than " << *key.min;
    if (!key.max) continue;
    EXPECT_EQ(refusal(key, value(key.below_max ? *key.max - step : *key.max)), "") << key.path;
    EXPECT_NE(refusal(key, value(key.below_max ? *key.max : *key.max + step)), "")
        << key.path << " takes more than " << *key.max;
    EXPECT_NE(refusal(key, "many"), "") << key.path;
  }
}

TEST(Keys, ChoicesAreTheReaders) {
  for (const Key& key : keys()) {
    if (key.type != KeyType::choice) continue;
    // Of another family the model would lack required keys; that is no matter of this key.
    for (const std::string_view value : key.values) EXPECT_EQ(refusal(key, std::string(value)), "") << key.path;
    for (const std::string_view value : key.later)
      EXPECT_NE(refusal(key, std::string(value)).find("not available yet"), std::string::npos) << key.path << value;
    const std::string message = refusal(key, "zzzzzzzz");
    ASSERT_NE(message, "") << key.path;
    std::string list = message.substr(0, message.find(", found"));
    list =
        list.substr(list.find(list.starts_with("expected one of ") ? "of " : ": ") + (list.starts_with("e") ? 3 : 2));
    std::istringstream words(list);
    for (std::string word; std::getline(words >> std::ws, word, ',');) {
      const bool known = std::count(key.values.begin(), key.values.end(), word) +
                             std::count(key.later.begin(), key.later.end(), word) >
                         0;
      EXPECT_TRUE(known) << key.path << ": the reader offers " << word << " in: " << message;
    }
  }
}

TEST(Keys, BooleansSizesAndMappingsAreOfTheirType) {
  for (const Key& key : keys()) {
    if (key.type == KeyType::boolean) {
      EXPECT_EQ(refusal(key, "false"), "") << key.path;
      EXPECT_EQ(refusal(key, "true").empty(), key.later.empty()) << key.path;
      EXPECT_NE(refusal(key, "maybe"), "") << key.path;
    }
    if (key.type == KeyType::bytes || key.type == KeyType::bandwidth || key.type == KeyType::time) {
      EXPECT_NE(refusal(key, "25"), "") << key.path;
    }
    if (key.type == KeyType::permutation || key.type == KeyType::choices) {
      EXPECT_NE(refusal(key, "[tensor, up]"), "") << key.path;
    }
    if (key.or_auto) {
      EXPECT_EQ(refusal(key, "auto"), "") << key.path;
    }
  }
}

TEST(Keys, AKeyAtItsDefaultChangesNothing) {
  for (const Key& key : keys()) {
    if (key.origin != Default::value) continue;
    const Case c = with(key, std::string(key.fallback));
    EXPECT_EQ(dump(read(c.text, c.assignments)), dump(read(c.text))) << key.path << ": " << key.fallback;
  }
}

TEST(Keys, AKeyAtTheFrameworksDefaultChangesNothing) {
  for (const std::string& name : framework_names()) {
    const FrameworkProfile& profile = *find_framework(name);
    for (const Key& key : keys()) {
      if (key.origin != Default::framework) continue;
      std::string value = default_of(key, profile);
      if (value == "the precision") value = "bf16";
      Case c = with(key, value, name);
      std::vector<std::string> plan;
      if (!profile.replicas_as.empty()) plan.emplace_back("plan.zero=3");  // whole replicas have another's policies
      c.assignments.insert(c.assignments.end(), plan.begin(), plan.end());
      EXPECT_EQ(dump(read(c.text, c.assignments)), dump(read(c.text, plan)))
          << name << " " << key.path << ": " << value;
    }
  }
}

// The two tests above see something: each key away from its default changes what is read, or is refused.
TEST(Keys, AKeyAwayFromItsDefaultChangesSomething) {
  for (const Key& key : keys()) {
    const std::string value(key.example);
    const bool of_a_profile = key.origin == Default::framework;
    if (!key.available() || key.path == "model" || key.path == "rehearse" || value == key.fallback ||
        key.type == KeyType::mapping || (of_a_profile && value == default_of(key, *find_framework("rehearse"))))
      continue;
    const Case c = with(key, value);
    if (!diagnostics(c.text, c.assignments).empty()) continue;  // it cannot be with the other keys
    const std::string given = dump(read(c.text, c.assignments));
    if (key.origin == Default::required && given == dump(read(c.text))) continue;  // the example is the base's value
    // Off without tensor, pipeline.
    if (key.path == "plan.sequence_parallel" || key.path == "plan.async_tensor_parallel" || key.path == "plan.chunks" ||
        key.path == "plan.embedding_as_layer")
      continue;
    EXPECT_NE(given, dump(read(c.text))) << key.path << ": " << value;
  }
}

TEST(Keys, RequiredOnesAreMissed) {
  for (const Key& key : keys()) {
    if (key.origin != Default::required || key.section() != "model" || key.leaf() != key.path.substr(6)) continue;
    Pairs model = least_model(family_of(key));
    std::erase_if(model, [&](const auto& pair) { return pair.first == key.leaf(); });
    const auto found = diagnostics(text_of(model));
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const Diagnostic& d) { return d.path == key.path; }))
        << key.path;
  }
  for (const auto* path : {"model.image.channels", "model.image.size", "model.convolutions[].channels"})
    EXPECT_EQ(find_key(path)->origin, Default::required);
  EXPECT_EQ(diagnostics("rehearse: 1\n").size(), 1u) << "model";
  EXPECT_EQ(diagnostics(text_of(least_model("gpt")).substr(12)).size(), 1u) << "rehearse";
}

TEST(Keys, NothingElseIsRequired) {
  for (const std::string& family : kFamilies) EXPECT_TRUE(diagnostics(text_of(least_model(family))).empty()) << family;
}

TEST(Keys, DocsHaveTheRowOfEachAndNoOther) {
  std::ifstream file(std::string(REHEARSE_SOURCE_DIR) + "/docs/scenario.md");
  std::multiset<std::string> found, expected;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| `") && std::count(line.begin(), line.end(), '|') == 4) found.insert(line);
  for (const Key& key : keys()) expected.insert(markdown_row(key));
  for (const std::string& row : expected)
    EXPECT_EQ(found.count(row), expected.count(row)) << "docs/scenario.md should have (rehearse explain --markdown):\n"
                                                     << row;
  for (const std::string& row : found)
    EXPECT_TRUE(expected.contains(row)) << "docs/scenario.md has a row that is no key's:\n" << row;
}

TEST(Keys, TypesAreSaidInWords) {
  const auto type = [](const char* path) { return type_text(*find_key(path)); };
  EXPECT_EQ(type("plan.zero"), "integer, 0 to 3");
  EXPECT_EQ(type("cluster.gpus"), "integer, 1 to 1,000,000");
  EXPECT_EQ(type("training.momentum"), "number, 0 to below 1");
  EXPECT_EQ(type("training.seed"), "integer, at least 0");
  EXPECT_EQ(type("plan.zero_group"), "all, node, or an integer, 2 to 1,000,000");
  EXPECT_EQ(type("plan.recompute"), "one of none, selective, full, ops");
  EXPECT_EQ(type("cluster.topology"), "name of a topology, or a path");
  EXPECT_EQ(type("cluster.threads_per_rank"), "auto, or integer, 1 to 4096");
}

}  // namespace
}  // namespace rehearse::plan
