// See miniature.h. The small numbers come from miniature_sizes.cpp; here they become assignments to the large plan's
// file, are read as any scenario, and are set beside the large plan's.
#include "sim/run/miniature.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/plan/keys.h"
#include "sim/run/miniature_sizes.h"

namespace rehearse::run {
namespace {

// A key that a rule may refuse of the small plan alone, and what is taken instead.
struct Instead {
  const char* path;
  const char* value;
};
constexpr Instead kInstead[] = {{"training.precision", "bf16"},
                                {"training.fp8_params", "false"},
                                {"training.fp8_dispatch", "false"},
                                {"training.fp8_activation_input", "false"},
                                {"training.e5m6_attention_output", "false"},
                                {"plan.expert_dispatch", "all_to_all"},
                                {"plan.expert_tensor", "auto"},
                                {"plan.expert", "1"},
                                {"plan.context", "1"},
                                {"plan.zero_group", "all"},
                                {"plan.local_group", "replica"},
                                {"plan.local_steps", "0"},
                                {"plan.recompute_every", "1"},
                                {"plan.offload_layers", "0"},
                                {"plan.embedding_as_layer", "false"},
                                {"plan.chunks", "1"},
                                {"plan.schedule", "1f1b"},
                                {"plan.sequence_parallel", "false"},
                                {"plan.overlap_expert_exchange", "false"},
                                {"plan.overlap_shared_experts", "false"},
                                {"training.optimizer", "adamw"}};
constexpr int kMostDropped = 8;

bool of_section(const plan::Key& key) {
  return key.section() == "model" || key.section() == "plan" || key.section() == "training";
}

// The keys whose values differ, as --set takes them. What the file may leave to be worked out from what is changed
// (a head's columns from hidden size and heads) is said with it.
std::vector<std::string> assignments_of(const plan::Scenario& large, const plan::Scenario& small) {
  std::vector<std::string> list;
  const std::string family = plan::value_text(*plan::find_key("model.family"), large).value_or("");
  const bool resized = large.model.is_transformer();
  for (const plan::Key& key : plan::keys()) {
    const bool read = key.field.readable() || key.path == "model.layer_list";  // whose text --set takes whole
    if (!of_section(key) || !key.of_family(family) || !read) continue;
    const auto before = plan::value_text(key, large), after = plan::value_text(key, small);
    const bool worked_out = resized && (key.path == "model.ffn_hidden" || key.path == "model.kv_heads" ||
                                        (key.path == "model.head_dim" && !small.model.latent_attention()));
    if (!after || key.path == "plan.layers_per_stage" || key.path == "plan.expert_tensor") continue;
    if (before != after || worked_out) list.push_back(fmt::format("{}={}", key.path, *after));
  }
  if (large.model.routing == model::Routing::table) list.push_back("model.routing_table=[]");
  if (large.model.routing == model::Routing::recorded) list.push_back("model.routing_file=null");
  list.push_back("plan.layers_per_stage=auto");
  if (large.plan.expert_tensor != small.plan.expert_tensor) list.push_back("plan.expert_tensor=auto");
  return list;
}

// The large cluster and what is said of it gone.
std::vector<std::string> elsewhere(const plan::Scenario& large, std::int64_t ranks) {
  std::vector<std::string> list = {fmt::format("cluster={{topology: local, gpus: {}}}", ranks),
                                   "framework=" + large.framework.name};
  std::string name = large.name;
  name.erase(std::remove(name.begin(), name.end(), '\''), name.end());
  list.push_back(fmt::format("name='{}, in miniature'", name));
  const auto given = [&](const std::string& section) {
    return std::any_of(large.places.begin(), large.places.end(), [&](const auto& place) {
      return place.first == section || place.first.starts_with(section + ".");
    });
  };
  for (const char* section : {"data", "costs", "noise", "failures", "checkpoint"})
    if (given(section)) list.push_back(fmt::format("{}={{}}", section));
  if (given("reinforcement")) list.emplace_back("reinforcement=null");  // the training alone
  return list;
}

// One of the scenario's problems that has a way out.
const Instead* way_out(const std::vector<Diagnostic>& problems, const std::vector<std::string>& taken) {
  for (const Diagnostic& d : problems)
    for (const Instead& instead : kInstead) {
      const std::string assignment = fmt::format("{}={}", instead.path, instead.value);
      if (d.path == instead.path && std::find(taken.begin(), taken.end(), assignment) == taken.end()) return &instead;
    }
  return nullptr;
}

std::string text_of_key(const plan::Scenario& s, const std::string& path) {
  return plan::value_text(*plan::find_key(path), s).value_or("-");
}

class Rows {
 public:
  Rows(const plan::Scenario& large, const plan::Scenario& small, std::vector<MiniatureRow>& rows)
      : large_(large), small_(small), rows_(rows) {}

  void ranks() {
    count("ranks", large_.cluster.gpus, small_.cluster.gpus);
    const plan::Plan &l = large_.plan, &s = small_.plan;
    split("pipeline stages", l.pipeline, s.pipeline);
    split("data-parallel replicas", l.data, s.data);
    split("tensor", l.tensor, s.tensor);
    split("context", l.context, s.context);
    split("expert", l.expert, s.expert);
    if (l.steps_apart()) {
      count("workers of local steps", l.replicas, s.replicas);
      count("local steps of a round", l.local_steps, s.local_steps);
    } else if (l.replicas > 1) {
      split("replicas of shards", l.replicas, s.replicas);
    }
  }
  void strategies() {
    const plan::Plan& l = large_.plan;
    word("framework", large_.framework.name, small_.framework.name);
    if (l.pipeline > 1) key("plan.schedule");
    if (l.chunks > 1) key("plan.chunks");
    for (const char* path :
         {"plan.zero", "plan.recompute", "plan.sequence_parallel", "training.precision", "training.optimizer"})
      key(path);
    if (l.recompute_layers > 0) key("plan.recompute_layers");
    if (l.offload_layers > 0) key("plan.offload_layers");
    if (l.context > 1) key("plan.context_kind");
    if (l.expert > 1) key("plan.expert_dispatch");
    if (l.embedding_as_layer) key("plan.embedding_as_layer");
  }
  void shapes() {
    const model::Model &l = large_.model, &s = small_.model;
    const plan::Plan &lp = large_.plan, &sp = small_.plan;
    if (l.is_transformer()) {
      count("layers", l.layers, s.layers);
      const std::string before = per(l.layers, lp.pipeline * lp.chunks), after = per(s.layers, sp.pipeline * sp.chunks);
      rows_.push_back({"layers of a stage's chunk", before, after, before == after ? Fate::kept : Fate::reduced});
      count("hidden", l.hidden, s.hidden);
      count("heads of a rank", l.heads / lp.tensor, s.heads / sp.tensor);
      count("columns of a head", l.head_dim, s.head_dim);
      if (l.experts > 0) {
        count("experts of a rank", l.experts / lp.expert, s.experts / sp.expert);
        count("experts a token", l.experts_per_token, s.experts_per_token);
      }
      if (l.ffn_hidden > 0) count("feed-forward columns of a rank", l.ffn_hidden / lp.tensor, s.ffn_hidden / sp.tensor);
      if (l.reads_text()) count("vocabulary", l.vocab, s.vocab);
      count("tokens of a sequence", large_.training.seq_len, small_.training.seq_len);
    }
    if (l.image_size > 0) count("image.size", l.image_size, s.image_size);
    if (model::tables_of(l.layer_list) != nullptr)
      count("rows of the longest table", longest_table(l), longest_table(s));
    count(l.reads_text() ? "sequences of a micro-batch" : "samples of a micro-batch", lp.micro_batch, sp.micro_batch);
    count("micro-batches of a replica", large_.training.micro_batches(lp), small_.training.micro_batches(sp));
    count("parameters", model::parameter_count(l), model::parameter_count(s));
  }

 private:
  static std::int64_t longest_table(const model::Model& m) {
    const std::vector<std::int64_t>& rows = model::tables_of(m.layer_list)->rows;
    return *std::max_element(rows.begin(), rows.end());
  }
  static std::string per(std::int64_t n, std::int64_t parts) {
    return n % parts == 0 ? fmt::to_string(n / parts) : fmt::format("{} or {}", n / parts, n / parts + 1);
  }
  void count(const std::string& what, std::int64_t large, std::int64_t small) {
    const Fate fate = large == small ? Fate::kept : (small < large ? Fate::reduced : Fate::raised);
    rows_.push_back({what, fmt::to_string(large), fmt::to_string(small), fate});
  }
  void split(const std::string& what, std::int64_t large, std::int64_t small) {
    if (large == 1) return;
    rows_.push_back({what, fmt::to_string(large), fmt::to_string(small),
                     large == small ? Fate::kept : (small == 1 ? Fate::dropped : Fate::reduced)});
  }
  void word(const std::string& what, const std::string& large, const std::string& small) {
    rows_.push_back({what, large, small, large == small ? Fate::kept : Fate::dropped});
  }
  void key(const std::string& path) {
    const std::string large = text_of_key(large_, path), small = text_of_key(small_, path);
    const bool number = large != small && large.find_first_not_of("0123456789") == std::string::npos;
    rows_.push_back({path, large, small, large == small ? Fate::kept : (number ? Fate::reduced : Fate::dropped)});
  }

  const plan::Scenario &large_, &small_;
  std::vector<MiniatureRow>& rows_;
};

// Sections that say nothing of what is performed.
void left_out(const plan::Scenario& large, std::vector<MiniatureRow>& rows) {
  rows.push_back({"cluster.topology", large.cluster.topology, "local", Fate::dropped});
  const auto gone = [&](const char* what, bool there) {
    if (there) rows.push_back({what, "given", "-", Fate::dropped});
  };
  gone("cluster.overrides, placement, faults, background", !large.cluster.overrides.empty());
  gone("cluster.collectives", !large.cluster.collectives.empty());
  gone("cluster.jobs", !large.jobs.empty());
  gone("noise", large.noise.any());
  gone("data", large.data.takes_time());
}

}  // namespace

Miniature miniature_of(const plan::Scenario& large, const std::vector<std::string>& assignments,
                       const std::string& data_root, const MiniatureLimits& limits) {
  Miniature m;
  const plan::Scenario sizes = miniature_sizes(large, limits, m.within);
  m.assignments = elsewhere(large, sizes.cluster.gpus);
  for (std::string& assignment : assignments_of(large, sizes)) m.assignments.push_back(std::move(assignment));
  std::vector<std::pair<std::string, std::string>> why;
  for (int dropped = 0;; ++dropped) {
    std::vector<std::string> all = assignments;
    all.insert(all.end(), m.assignments.begin(), m.assignments.end());
    try {
      m.scenario = plan::read_scenario(large.file, all, data_root, plan::Purpose::perform);
      break;
    } catch (const InputError& error) {
      const Instead* instead = way_out(error.diagnostics(), m.assignments);
      if (instead == nullptr || dropped == kMostDropped) throw;
      for (const Diagnostic& d : error.diagnostics())
        if (d.path == instead->path) why.emplace_back(instead->path, d.message);
      m.assignments.push_back(fmt::format("{}={}", instead->path, instead->value));
    }
  }
  Rows rows(large, m.scenario, m.rows);
  rows.ranks();
  rows.strategies();
  rows.shapes();
  left_out(large, m.rows);
  for (const auto& [path, reason] : why) {
    const auto found =
        std::find_if(m.rows.begin(), m.rows.end(), [&, &path = path](const auto& row) { return row.what == path; });
    if (found == m.rows.end())
      m.rows.push_back({path, text_of_key(large, path), text_of_key(m.scenario, path), Fate::dropped, reason});
    else
      found->why = reason;
  }
  m.flops = miniature_flops(m.scenario);
  return m;
}

}  // namespace rehearse::run
