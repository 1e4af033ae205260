// See published_runs.h. Facts fill empty columns; then columns, then the rules in the order of their file; a later one
// overrides an earlier one.
#include "formats/published_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "sim/base/diagnostics.h"
#include "sim/base/document.h"

namespace rehearse::formats {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Keys of the scenario that is being made, dotted, with their values as YAML.
class Keys {
 public:
  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  bool has(const std::string& key) const { return values_.count(key) > 0; }
  const std::string& text(const std::string& key) const {
    static const std::string none;
    const auto found = values_.find(key);
    return found == values_.end() ? none : found->second;
  }
  double number(const std::string& key) const { return column_number(text(key)).value_or(0); }

  // Says half of `whole` as `half` instead: of an encoder's and its decoder's layers together, one side's.
  void halve(const std::string& whole, const std::string& half) {
    if (!has(half)) set(half, fmt::format("{}", static_cast<std::int64_t>(number(whole)) / 2));
    values_.erase(whole);
  }

  // Mappings in block style, two spaces a level: keys of one mapping stand together, as the map sorts them.
  std::string yaml() const {
    std::string out;
    std::vector<std::string> open;
    for (const auto& [key, value] : values_) {
      std::vector<std::string> parts;
      for (std::size_t at = 0; at <= key.size();) {
        const std::size_t dot = std::min(key.find('.', at), key.size());
        parts.push_back(key.substr(at, dot - at));
        at = dot + 1;
      }
      std::size_t common = 0;
      while (common < open.size() && common + 1 < parts.size() && open[common] == parts[common]) ++common;
      open.resize(common);
      for (; open.size() + 1 < parts.size(); open.push_back(parts[open.size()]))
        out += std::string(2 * open.size(), ' ') + parts[open.size()] + ":\n";
      out += fmt::format("{}{}: {}\n", std::string(2 * open.size(), ' '), parts.back(), value);
    }
    return out;
  }

  // The keys that say what is trained on what, not how.
  std::string task() const {
    std::string out;
    for (const auto& [key, value] : values_)
      if (key != "framework" && key.rfind("plan.", 0) != 0) out += fmt::format("{}: {}\n", key, value);
    return out;
  }

 private:
  std::map<std::string, std::string> values_;
};

std::string split_of(const Keys& keys) {
  const auto at_least_1 = [&](const char* key) { return std::max(1.0, keys.number(key)); };
  const double tensor = at_least_1("plan.tensor"), pipeline = at_least_1("plan.pipeline"),
               chunks = at_least_1("plan.chunks");
  const double replicas = keys.number("cluster.gpus") / (tensor * pipeline * at_least_1("plan.context"));
  const double expert = at_least_1("plan.expert");
  return fmt::format("tp{} pp{}{} dp{:g}{} z{} mb{}", tensor, pipeline, chunks > 1 ? fmt::format("x{}", chunks) : "",
                     replicas, expert > 1 ? fmt::format(" ep{:g}", expert) : "",
                     keys.has("plan.zero") ? keys.text("plan.zero") : "0", at_least_1("plan.micro_batch"));
}

double bytes_of(std::string_view unit) {
  if (unit == "GiB") return 1 << 30;
  if (unit == "MiB") return 1 << 20;
  return unit == "GB" ? 1e9 : 0;
}

MemoryKind memory_kind_of(std::string_view text) {
  if (text == "allocated") return MemoryKind::allocated;
  if (text == "reserved") return MemoryKind::reserved;
  return text == "not stated" ? MemoryKind::not_stated : MemoryKind::none;
}

std::string precision_of(std::string_view text) {
  const std::string word = lower(text);
  const auto has = [&](const char* part) { return word.find(part) != std::string::npos; };
  if (has("fp8")) return "fp8";
  if (has("nvfp4")) return "nvfp4";
  if (has("bf16")) return "bf16";
  if (has("fp16")) return "fp16";
  return has("fp32") || has("tf32") ? "fp32" : "";
}

std::string recompute_of(std::string_view text) {
  const std::string word = lower(text);
  for (const char* known : {"none", "selective", "full"})
    if (word.rfind(known, 0) == 0) return known;
  return "";
}

// What the columns say by themselves.
void read_columns(const RunColumns& row, Keys& keys) {
  const auto copy = [&](const char* from, const char* key) {
    if (!column(row, from).empty()) keys.set(key, column(row, from));
  };
  copy("layers", "model.layers");
  copy("hidden", "model.hidden");
  copy("heads", "model.heads");
  copy("kv_heads", "model.kv_heads");
  copy("ffn_hidden", "model.ffn_hidden");
  copy("vocab", "model.vocab");
  copy("seq_len", "model.max_seq_len");
  copy("seq_len", "training.seq_len");
  copy("gpus", "cluster.gpus");
  copy("tp", "plan.tensor");
  copy("pp", "plan.pipeline");
  copy("micro_batch", "plan.micro_batch");
  copy("global_batch", "training.global_batch");
  for (const auto& [from, key] : {std::pair{"cp", "plan.context"}, std::pair{"ep", "plan.expert"}})
    if (const std::string& value = column(row, from); !value.empty() && value != "1") keys.set(key, value);
  if (const double vpp = column_number(column(row, "vpp")).value_or(1); vpp > 1) {
    keys.set("plan.schedule", "interleaved");
    keys.set("plan.chunks", column(row, "vpp"));
  }
  if (const std::string& zero = column(row, "zero_stage"); !zero.empty()) keys.set("plan.zero", zero.substr(0, 1));
  if (column(row, "zero_stage").find("hybrid") != std::string::npos) keys.set("plan.zero_group", "node");
  if (const std::string value = precision_of(column(row, "precision")); !value.empty())
    keys.set("training.precision", value);
  if (const std::string value = recompute_of(column(row, "recompute")); !value.empty())
    keys.set("plan.recompute", value);
  if (lower(column(row, "seq_parallel")) == "yes" && column_number(column(row, "tp")).value_or(1) > 1)
    keys.set("plan.sequence_parallel", "true");
}

// FLOPs of a step by the formula a source names (docs/validation.md): B sequences of s tokens, L layers, width h,
// vocabulary V, k and n key-value and all heads, f the feed-forward width.
double flops_of(const std::string& formula, const Keys& keys) {
  const double batch = keys.number("training.global_batch"), s = keys.number("training.seq_len"),
               layers = keys.number("model.layers"), h = keys.number("model.hidden"),
               vocab = keys.number("model.vocab"), heads = keys.number("model.heads");
  const bool llama = keys.text("model.family") == "llama";
  const double kv = keys.has("model.kv_heads") ? keys.number("model.kv_heads") : heads;
  const double ffn = keys.has("model.ffn_hidden") ? keys.number("model.ffn_hidden") : 4 * h;
  const double tokens = batch * s;
  if (formula == "hw96") return 96 * tokens * layers * h * h * (1 + s / (6 * h) + vocab / (16 * layers * h));
  if (formula == "model72") return 72 * tokens * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h));
  const double width = keys.has("model.head_dim") ? keys.number("model.head_dim") * heads : h;
  const double weights = layers * (h * width * (2 + 2 * kv / heads) + (llama ? 3 : 2) * h * ffn) + h * vocab;
  if (formula == "terms") return tokens * (6 * weights + 12 * layers * width * s);
  // 6N + 12 L h s: N counts embeddings; tied ones once.
  if (formula == "6n") return tokens * (6 * (weights + (llama ? h * vocab : 0)) + 12 * layers * h * s);
  return 0;
}

// Seconds of a step; 0 with a reason where the metric cannot say.
double step_of(PublishedRun& run, const Keys& keys, const std::string& formula, double peak_tflops) {
  const double gpus = keys.number("cluster.gpus"), batch = keys.number("training.global_batch"),
               tokens = batch * keys.number("training.seq_len");
  const auto no = [&](std::string why) {
    run.reason = std::move(why);
    return 0.0;
  };
  if (!(run.value > 0)) return no("the measured value is not positive");
  if (run.metric == "iter_time_s" || run.metric == "step_time_s")
    return run.unit == "ms" ? run.value * 1e-3 : run.value;
  if (batch <= 0) return no("the global batch is not given");
  if (run.metric == "tokens_per_s_per_gpu") return tokens / (run.value * gpus);
  if (run.metric == "tokens_per_s") return tokens / run.value;
  if (run.metric == "sequences_per_s" || run.metric == "images_per_s") return batch / run.value;
  if (run.metric != "tflops_per_gpu" && run.metric != "mfu")
    return no(fmt::format("no step has the metric {}", run.metric));
  const double flops = flops_of(formula, keys);
  if (flops <= 0) return no(fmt::format("the source does not say how it counts FLOPs for {}", run.metric));
  if (run.metric == "tflops_per_gpu") return flops / (run.value * 1e12 * gpus);
  if (peak_tflops <= 0) return no("the source does not say which peak its MFU is a share of");
  return flops / (run.value * (run.unit == "%" ? 0.01 : 1) * peak_tflops * 1e12 * gpus);
}

// The first thing without which no scenario can be made.
std::string missing_of(const RunColumns& row, const Keys& keys) {
  static constexpr std::pair<const char*, const char*> kNeeded[] = {
      {"model.layers", "number of layers"},    {"model.hidden", "width"},
      {"model.heads", "number of heads"},      {"model.vocab", "vocabulary"},
      {"training.seq_len", "sequence length"}, {"cluster.gpus", "number of GPUs"},
      {"plan.tensor", "tensor size"},          {"plan.pipeline", "number of stages"},
      {"plan.micro_batch", "micro-batch"},     {"training.global_batch", "global batch"},
      {"training.precision", "precision"},     {"plan.recompute", "recomputation"}};
  // A model that reads images has its shape from a preset, no sequences, and is whole on every GPU.
  static constexpr std::string_view kOfImages[] = {"cluster.gpus", "plan.micro_batch", "training.global_batch",
                                                   "training.precision"};
  const bool images = keys.text("model.family") == "cnn", preset = keys.has("model.preset");
  const auto needs = [&](std::string_view key) {
    if (preset && key.starts_with("model.")) return false;  // its shape
    return !images || std::find(std::begin(kOfImages), std::end(kOfImages), key) != std::end(kOfImages);
  };
  for (const auto& [key, words] : kNeeded)
    if (needs(key) && !keys.has(key)) return fmt::format("the {} is not given", words);
  if (!keys.has("cluster.topology")) return fmt::format("no rule names a machine for GPU '{}'", column(row, "gpu"));
  return "";
}

}  // namespace

std::string memory_problem(const RunColumns& row) {
  const std::string& amount = column(row, "peak_memory");
  if (amount.empty()) return "";
  if (const auto value = column_number(amount); !value || !(*value > 0))
    return fmt::format("peak_memory '{}' is no positive number", amount);
  if (bytes_of(column(row, "memory_unit")) == 0)
    return fmt::format("memory_unit '{}' is none of GB, GiB, MiB", column(row, "memory_unit"));
  if (memory_kind_of(column(row, "memory_kind")) == MemoryKind::none)
    return fmt::format("memory_kind '{}' is none of allocated, reserved, not stated", column(row, "memory_kind"));
  return "";
}

PublishedRules PublishedRules::read(const std::string& path, const std::string& facts) {
  Diagnostics problems;
  const Document document = Document::from_file(path, problems);
  const Node root = document.root();
  root.integer("throughput_rules", {}, 1, 1);
  PublishedRules out;
  const Node rules = root.get("rules");
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Node node = rules.at(i);
    Rule rule;
    rule.when = RowPattern(node.get("when"));
    const Node set = node.get("set");
    for (const std::string& key : set.keys()) rule.set.emplace_back(key, set.text(key));
    rule.software = node.text("software", "");
    rule.assume = node.text("assume", "");
    rule.skip = node.text("skip", "");
    rule.missing = node.text("missing", "");
    rule.peak_tflops = node.number("peak_tflops", 0.0, 0, 1e6);
    static const std::vector<std::string> kFormulas = {"", "hw96", "model72", "6n", "terms"};
    rule.flops = kFormulas[static_cast<std::size_t>(node.choice("flops", kFormulas, 0))];
    node.finish();
    out.rules_.push_back(std::move(rule));
  }
  root.finish();
  problems.throw_if_any();
  if (!facts.empty()) out.facts_ = RunFacts::read(facts);
  return out;
}

PublishedRun PublishedRules::convert(const RunColumns& published) const {
  PublishedRun run;
  RunColumns row = published;
  run.assumed = facts_.complete(row);
  run.id = column(row, "id");
  run.source = run.software = column(row, "source");
  run.model = column(row, "model");
  run.metric = column(row, "metric");
  run.unit = column(row, "unit");
  run.value = column_number(column(row, "value")).value_or(0);
  Keys keys;
  read_columns(row, keys);
  std::string formula;
  double peak = 0;
  for (const Rule& rule : rules_) {
    if (!rule.when.matches(row)) continue;
    for (const auto& [key, value] : rule.set) keys.set(key, value);
    if (!rule.software.empty()) run.software = rule.software;
    if (!rule.flops.empty()) formula = rule.flops;
    if (rule.peak_tflops > 0) peak = rule.peak_tflops;
    if (!rule.assume.empty()) run.assumed.push_back(rule.assume);
    if (!rule.missing.empty()) run.missing = rule.missing;
    if (!rule.skip.empty() && run.reason.empty()) run.reason = rule.skip;
  }
  if (run.software == run.source && keys.has("framework"))
    run.assumed.push_back(fmt::format("the framework, {}, as the row names its software", keys.text("framework")));
  if (!run.reason.empty()) return run;
  run.reason = missing_of(row, keys);
  if (!run.reason.empty()) return run;
  if (keys.text("model.family") == "t5") keys.halve("model.layers", "model.encoder_layers");
  if (keys.number("plan.pipeline") > 1 && column(row, "vpp").empty() && !keys.has("plan.schedule"))
    run.assumed.push_back("no model chunks (virtual stages not given)");
  run.complete = run.assumed.empty();
  run.step_s = step_of(run, keys, formula, peak);
  if (run.step_s <= 0) return run;
  run.scenario = "rehearse: 1\n" + keys.yaml();
  run.gpus = keys.number("cluster.gpus"), run.seq_len = keys.number("training.seq_len");
  run.global_batch = keys.number("training.global_batch");
  run.task = fmt::format("{}\n{}", run.source, keys.task());
  run.split = split_of(keys);
  if (!column(row, "peak_memory").empty() && memory_problem(row).empty()) {
    run.memory_kind = memory_kind_of(column(row, "memory_kind"));
    run.memory_bytes = column_number(column(row, "peak_memory")).value_or(0) * bytes_of(column(row, "memory_unit"));
  }
  return run;
}

}  // namespace rehearse::formats
