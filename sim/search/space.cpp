// See space.h.
#include "sim/search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::search {
namespace {

constexpr std::int64_t kMostTensor = 64, kMostChunks = 16, kMostMicroBatch = 64, kLeastTokens = 1024;

// Where the values of a key are these, some plans say the same.
constexpr std::array<const char*, 2> kRankOrders = {"[tensor, context, expert, data, pipeline]",
                                                    "[tensor, context, expert, pipeline, data]"};
constexpr std::array<const char*, 2> kLayersPerStage = {"auto", "by_time"};

std::vector<std::string> texts(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> list;
  for (const std::int64_t n : numbers) list.push_back(std::to_string(n));
  return list;
}

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) list.push_back(d);
  return list;
}

std::vector<std::int64_t> powers(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> list;
  for (std::int64_t p = 1; p <= most && n % p == 0; p *= 2) list.push_back(p);
  return list;
}

// The schedules that the framework has: Megatron-LM (arguments.py: 1F1B, interleaved with
// --num-layers-per-virtual-pipeline-stage), and what is built on it; DeepSpeed's PipelineEngine and nanotron (1F1B);
// torchtitan (pipeline_parallel.schedule: the schedules of torch.distributed.pipelining). FSDP, DDP and Accelerate have
// no stages of their own. `rehearse` stands for no framework and takes all.
std::vector<std::string> schedules_of(const plan::FrameworkProfile& framework) {
  const std::string& name = framework.name;
  if (name == "rehearse") {
    std::vector<std::string> all;
    for (const std::string_view schedule : plan::schedule_names())
      if (schedule != "sequential") all.emplace_back(schedule);
    return all;
  }
  if (name.starts_with("torch-fsdp2"))
    return {"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v", "dualpipe_v"};
  if (name.starts_with("megatron") || name.starts_with("nemo")) return {"1f1b", "interleaved"};
  return {"1f1b"};
}

// The numbers that the rules of this file are about, of one choice; keys that are not in the space are the scenario's.
class Numbers {
 public:
  Numbers(const Space& space, const plan::Scenario& scenario) : scenario_(scenario) {
    const plan::Plan& p = scenario.plan;
    const auto bind = [&](std::string_view key, std::int64_t own) {
      Bound bound{nullptr, 0, own};
      for (std::size_t k = 0; k < space.keys.size(); ++k)
        if (space.keys[k].key == key) bound = {&space.keys[k], k, own};
      return bound;
    };
    gpus_ = bind("cluster.gpus", scenario.cluster.gpus);
    tensor_ = bind("plan.tensor", p.tensor);
    pipeline_ = bind("plan.pipeline", p.pipeline);
    context_ = bind("plan.context", p.context);
    expert_ = bind("plan.expert", p.expert);
    expert_tensor_ = bind("plan.expert_tensor", p.expert_tensor);
    chunks_ = bind("plan.chunks", p.chunks);
    schedule_ = bind("plan.schedule", 0);
    micro_batch_ = bind("plan.micro_batch", p.micro_batch);
    batch_ = bind("training.global_batch", scenario.training.global_batch);
    zero_ = bind("plan.zero", p.zero);
    zero_group_ = bind("plan.zero_group", 0);
    async_ = bind("plan.async_tensor_parallel", 0);
    sequence_ = bind("plan.sequence_parallel", p.sequence_parallel ? 1 : 0);
    order_ = bind("plan.rank_order", 0);
    layers_ = bind("plan.layers_per_stage", 0);
  }

  // Whether the first `known` keys of a choice can be part of one that is to be looked at.
  bool may_be(const Choice& c, std::size_t known) const {
    const auto has = [known](const Bound& b) { return b.key == nullptr || b.index < known; };
    const auto number = [&c](const Bound& b) { return b.of(c); };
    const auto first = [&](const Bound& b) { return b.key == nullptr || c[b.index] == 0; };
    if (!has(gpus_) || !has(tensor_)) return true;
    const std::int64_t gpus = number(gpus_), t = number(tensor_);
    if (gpus % t != 0) return false;
    for (const Bound* of_groups : {&sequence_, &async_})
      if (has(*of_groups) && t == 1 && of_groups->key != nullptr && !first(*of_groups)) return false;
    if (!has(context_)) return true;
    const std::int64_t cp = number(context_);
    if (gpus % (t * cp) != 0) return false;
    if (has(expert_)) {
      const std::int64_t e = number(expert_);
      if (e > gpus) return false;
      if (has(expert_tensor_) && expert_tensor_.key != nullptr && (e == 1 || t == 1) && !first(expert_tensor_))
        return false;
    }
    if (!has(pipeline_)) return true;
    const std::int64_t p = number(pipeline_);
    if (gpus % (t * cp * p) != 0 || p > layers()) return false;
    const std::int64_t data = gpus / (t * cp * p);
    if (has(order_) && is_of(order_, kRankOrders) && (p == 1 || data == 1) && !first(order_)) return false;
    if (has(layers_) && is_of(layers_, kLayersPerStage) && p == 1 && !first(layers_)) return false;
    if (has(schedule_) && has(chunks_) && !schedule_fits(c, p, number(chunks_))) return false;
    if (has(micro_batch_) && has(batch_)) {
      const std::int64_t batch = number(batch_), at_once = data * number(micro_batch_);
      if (batch % at_once != 0) return false;
      if (has(schedule_) && has(zero_) && !schedule_allows(c, p, number(chunks_), number(zero_), data, batch / at_once))
        return false;
    }
    if (has(zero_) && zero_.key != nullptr && data * cp == 1 && !first(zero_)) return false;
    if (has(zero_) && has(zero_group_) && zero_group_.key != nullptr && number(zero_) == 0 && !first(zero_group_))
      return false;
    return true;
  }

 private:
  struct Bound {
    const SpaceKey* key = nullptr;  // nullptr: not in the space
    std::size_t index = 0;
    std::int64_t own = 0;

    std::int64_t of(const Choice& c) const {
      if (key == nullptr) return own;
      const std::string& text = key->values[c[index]];
      if (text == "true") return 1;
      std::int64_t value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      return value;
    }
  };

  static bool is_of(const Bound& bound, const std::array<const char*, 2>& values) {
    return bound.key != nullptr &&
           std::equal(bound.key->values.begin(), bound.key->values.end(), values.begin(), values.end());
  }
  std::int64_t layers() const { return plan::unit_count(scenario_.model); }

  // One of the plans that are the same: with one stage the first schedule without chunks; several chunks where the
  // schedule takes them and they divide the layers, one where it has its own number or none.
  bool schedule_fits(const Choice& c, std::int64_t stages, std::int64_t chunks) const {
    const bool free = schedule_.key != nullptr;
    if (stages == 1) return chunks_.key == nullptr || (chunks == 1 && (!free || c[schedule_.index] == 0));
    if (!free && chunks_.key == nullptr) return true;
    const plan::PipelineSchedule* schedule = free ? plan::find_schedule(schedule_.key->values[c[schedule_.index]])
                                                  : &plan::schedule_of(scenario_.plan.schedule);
    if (schedule == nullptr) return true;  // which the reader refuses with its reason
    if (schedule->name() == "sequential") return false;
    if (chunks_.key == nullptr) return true;
    if (const auto own = schedule->own_chunks()) return chunks == *own;
    if (!schedule->takes_chunks()) return chunks == 1;
    return chunks > 1 ? layers() % (stages * chunks) == 0 : schedule->name() != "interleaved";
  }

  // Its own rules, before a plan is read for them.
  bool schedule_allows(const Choice& c, std::int64_t stages, std::int64_t chunks, std::int64_t zero, std::int64_t data,
                       std::int64_t micro_batches) const {
    if (schedule_.key == nullptr || stages == 1) return true;
    const plan::PipelineSchedule* schedule = plan::find_schedule(schedule_.key->values[c[schedule_.index]]);
    if (schedule == nullptr) return true;
    plan::Plan plan = scenario_.plan;
    plan.pipeline = stages, plan.chunks = chunks, plan.zero = static_cast<int>(zero), plan.data = data;
    return schedule->problems(plan, micro_batches).empty();
  }

  const plan::Scenario& scenario_;
  Bound gpus_, tensor_, pipeline_, context_, expert_, expert_tensor_, chunks_, schedule_, micro_batch_, batch_, zero_,
      zero_group_, sequence_, async_, order_, layers_;
};

}  // namespace

std::vector<std::string> Space::assignments(const Choice& choice) const {
  std::vector<std::string> list;
  for (std::size_t k = 0; k < keys.size(); ++k) list.push_back(keys[k].key + "=" + keys[k].values[choice[k]]);
  return list;
}

const SpaceKey* Space::find(const std::string& key) const {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const SpaceKey& k) { return k.key == key; });
  return found == keys.end() ? nullptr : &*found;
}

Space space_of(const plan::Scenario& scenario, const std::vector<std::string>& fixed,
               const std::vector<SpaceKey>& ranges, Bytes memory) {
  const model::Model& model = scenario.model;
  const bool transformer = model.is_transformer();
  std::int64_t most_gpus = scenario.cluster.gpus;
  Space space;
  const auto given = [&](const std::string& key) -> const SpaceKey* {
    const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const SpaceKey& k) { return k.key == key; });
    return found == ranges.end() ? nullptr : &*found;
  };
  const auto is_fixed = [&](const std::string& key) {
    return std::any_of(fixed.begin(), fixed.end(), [&](const std::string& a) { return a.starts_with(key + "="); });
  };
  if (const SpaceKey* range = given("cluster.gpus"))
    for (const std::string& value : range->values) {
      std::int64_t n = 0;
      std::from_chars(value.data(), value.data() + value.size(), n);
      most_gpus = std::max(most_gpus, n);
    }
  // 16 bytes a parameter: Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1.
  const bool short_of_memory = 2 * 16 * static_cast<double>(model::parameter_count(model)) >
                               static_cast<double>(memory.count()) * static_cast<double>(most_gpus);
  // Keys that the rules of choices() need come first.
  const auto add = [&](const std::string& key, const std::vector<std::string>& values) {
    if (const SpaceKey* range = given(key))
      space.keys.push_back(*range);
    else if (!is_fixed(key) && values.size() > 1)
      space.keys.push_back({key, values});
  };
  add("cluster.gpus", {});
  add("training.global_batch", {});
  if (transformer) {
    add("plan.tensor", texts(divisors(model.heads, std::min(kMostTensor, most_gpus))));
    std::vector<std::int64_t> contexts;
    for (const std::int64_t c : powers(scenario.training.seq_len, most_gpus))
      if (c == 1 || scenario.training.seq_len / c >= kLeastTokens) contexts.push_back(c);
    add("plan.context", texts(contexts));
    if (model.experts > 0) {
      add("plan.expert", texts(divisors(model.experts, most_gpus)));
      add("plan.expert_tensor", {"auto", "1"});
    }
  }
  const bool unlike = !scenario.cluster.nodes.empty() || !scenario.noise.slow_ranks.empty();
  add("plan.pipeline", texts(divisors(most_gpus, std::min<std::int64_t>(most_gpus, plan::unit_count(model)))));
  if (transformer) add("plan.chunks", texts(divisors(plan::unit_count(model), kMostChunks)));
  add("plan.schedule", schedules_of(scenario.framework));
  if (unlike) {
    add("plan.rank_order", {kRankOrders.begin(), kRankOrders.end()});
    if (transformer) add("plan.layers_per_stage", {kLayersPerStage.begin(), kLayersPerStage.end()});
  }
  // Examples of models that are no transformers are small: all of a replica's may be one micro-batch.
  const std::int64_t most = transformer ? kMostMicroBatch : scenario.training.global_batch;
  std::vector<std::int64_t> micro_batches;
  for (std::int64_t b = 1; b <= std::min(most, scenario.training.global_batch); b *= 2) micro_batches.push_back(b);
  const auto at = std::lower_bound(micro_batches.begin(), micro_batches.end(), scenario.plan.micro_batch);
  if (at == micro_batches.end() || *at != scenario.plan.micro_batch)
    micro_batches.insert(at, scenario.plan.micro_batch);
  add("plan.micro_batch", texts(micro_batches));
  add("plan.zero", {"0", "1", "2", "3"});
  add("plan.zero_group", {});
  if (transformer) {
    add("plan.recompute", model.attention == model::AttentionKind::unfused
                              ? std::vector<std::string>{"none", "selective", "full"}
                              : std::vector<std::string>{"none", "full"});
    add("plan.sequence_parallel", {"false", "true"});
    if (short_of_memory) add("plan.offload_optimizer", {"false", "true"});
  }
  for (const SpaceKey& range : ranges)
    if (space.find(range.key) == nullptr) space.keys.push_back(range);
  return space;
}

std::vector<Choice> choices(const Space& space, const plan::Scenario& scenario) {
  const Numbers numbers(space, scenario);
  std::vector<Choice> all;
  Choice choice(space.keys.size(), 0);
  const auto choose = [&](const auto& self, std::size_t k) -> void {
    if (k == space.keys.size()) {
      all.push_back(choice);
      return;
    }
    for (std::size_t v = 0; v < space.keys[k].values.size(); ++v) {
      choice[k] = static_cast<std::uint16_t>(v);
      if (numbers.may_be(choice, k + 1)) self(self, k + 1);
    }
  };
  choose(choose, 0);
  return all;
}

bool is_separate_from_layers(const std::string& key) {
  static const std::set<std::string_view> kSeparate{"plan.pipeline",
                                                    "plan.chunks",
                                                    "plan.schedule",
                                                    "plan.layers_per_stage",
                                                    "plan.zero",
                                                    "plan.zero_group",
                                                    "plan.bucket",
                                                    "plan.overlap_grad_reduce",
                                                    "plan.overlap_param_gather",
                                                    "plan.offload_optimizer",
                                                    "cluster.gpus",
                                                    "training.global_batch"};
  return kSeparate.contains(key);
}

bool follows(const std::string& key, const std::string& other) {
  if (other == "plan.sequence_parallel" || other == "plan.async_tensor_parallel") return key == "plan.tensor";
  if (other == "plan.zero") return key == "plan.tensor" || key == "plan.context" || key == "plan.pipeline";
  const auto of_stages = [](const std::string& k) {
    return k == "plan.pipeline" || k == "plan.schedule" || k == "plan.chunks";
  };
  const bool of_unlike = other == "plan.rank_order" || other == "plan.layers_per_stage";
  return of_stages(key) && (of_stages(other) || of_unlike) && other != "plan.pipeline";
}

}  // namespace rehearse::search
