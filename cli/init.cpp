// rehearse init: a commented scenario to start from. Its plan is the first of a few usual splits that can be and that
// fits into the devices' memory (by the memory of the lowered program, nothing is simulated); every other key stands
// beside it as a comment, with its default and meaning. An existing file is kept unless --force is given.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/model_option.h"
#include "cli/paths.h"
#include "cli/shell_word.h"
#include "reports/batch.h"
#include "reports/text.h"
#include "sim/account/stage_memory.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"
#include "sim/base/unfinished.h"
#include "sim/cluster/topology.h"
#include "sim/cost/cost.h"
#include "sim/lower/lower.h"
#include "sim/plan/keys.h"
#include "sim/plan/scenario.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;
using plan::Default;
using plan::Key;

constexpr int kMaxGpus = 1'000'000;

struct InitArguments {
  std::string file = "scenario.yaml", model = "llama2-7b", topology;
  std::int64_t window = 0;  // of all layers, if it is below max_seq_len: as long are sequences unless told otherwise
  int gpus = 0;
  bool force = false;
};

struct Machine {
  std::string topology;
  int gpus = 1, a_node = 1;
  std::int64_t memory = 0;  // bytes a device; 0: this host, whose memory is not asked for
};

[[noreturn]] void fail(const std::string& place, std::string message, std::string hint = "") {
  throw InputError(Diagnostic{place, 0, 0, "", std::move(message), std::move(hint)});
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml");
}

Machine machine_of(const InitArguments& a, const std::string& root) {
  Machine m;
  m.topology = a.topology;
  if (!is_path(m.topology)) check_name("--cluster", "topologies", m.topology, root);
  try {
    const auto probe = cluster::build_cluster(m.topology, 1, {}, 0, root);
    const bool accelerators = probe->host_sharing().cores == 0;
    m.a_node = accelerators ? probe->devices_per_node() : 1;
    m.gpus = a.gpus > 0 ? a.gpus : (accelerators ? m.a_node : 1);
    if (m.gpus > 1) cluster::build_cluster(m.topology, m.gpus, {}, 0, root);  // refuses more than it holds
    if (accelerators) {
      const auto costs = cost::load_costs({cost::find_device_file(probe->device_name(), root)});
      m.memory = costs->device().memory.count();
    }
  } catch (const InputError& error) {
    const Diagnostic& d = error.diagnostics().front();
    if (!d.file.empty()) throw;
    fail(d.path == "cluster.gpus" ? "--gpus" : "--cluster", d.message, d.hint);
  }
  return m;
}

// Assignments beside a scenario that has only model and cluster.
struct Candidate {
  int tensor = 1, pipeline = 1, zero = 0;
  std::string recompute = "none";
  int context = 1;
  bool sequence_parallel = false;  // what tensor groups do not split they split by tokens
  int expert = 1;
  int replicas(int gpus) const { return gpus / (tensor * pipeline * context); }
};

// From what costs least time to what needs least memory, a judgement: replicas, then sharded optimizer state, experts
// spread over a node where the model has any, parameters sharded over a node's worth, tensor parallelism inside a node,
// pipelines over nodes, and each with recomputation; last, for long sequences, those over several nodes.
std::vector<Candidate> candidates(const Machine& m) {
  std::vector<Candidate> list = {{1, 1, 0}};
  if (m.gpus > 1) list.push_back({1, 1, 1});
  const auto spread_experts = [&](const char* recompute) {
    for (int pipeline = 1; m.a_node > 1 && pipeline <= 16; pipeline *= 2)
      for (const int zero : {1, 2})
        if ((zero == 1 || pipeline == 1) && m.gpus % (m.a_node * pipeline) == 0)
          list.push_back({1, pipeline, zero, recompute, 1, false, m.a_node});
  };
  spread_experts("none");
  if (m.gpus > 1) list.push_back({1, 1, 3});
  for (const char* recompute : {"none", "full"}) {
    if (recompute == std::string_view("full")) spread_experts(recompute);
    for (int pipeline = 1; pipeline <= std::min(m.gpus, 64); pipeline *= 2)
      for (int tensor = 1; tensor <= m.a_node && tensor * pipeline <= m.gpus; tensor *= 2)
        list.push_back({tensor, pipeline, m.gpus > tensor * pipeline ? 1 : 0, recompute, 1, tensor > 1});
  }
  if (m.gpus > 1) list.push_back({1, 1, 3, "full"});
  for (int tensor = 2; tensor <= m.a_node && tensor < m.gpus; tensor *= 2)
    list.push_back({tensor, 1, 3, "full", 1, true});
  for (int context = 2; context <= 16; context *= 2)
    for (int pipeline = 1; pipeline <= 64; pipeline *= 2)
      if (const int rest = m.a_node * pipeline * context; m.a_node > 1 && rest <= m.gpus && m.gpus % rest == 0)
        list.push_back({m.a_node, pipeline, 1, "full", context, true});
  return list;
}

constexpr int kMicroBatches = 8;  // a replica and step, times the stages: a bubble of about a ninth

std::string precision_of(const Machine& m) {
  return m.memory == 0 ? "fp32" : "bf16";  // ranks on this host compute in fp32
}

std::string value_of(const std::string& key, const Candidate& c, const Machine& m, const InitArguments& a) {
  const int data = c.replicas(m.gpus);
  if (key == "rehearse") return "1";
  if (key == "model") return model_value(a.model);
  if (key == "framework") return "auto";
  if (key == "cluster.topology") return m.topology;
  if (key == "cluster.gpus") return fmt::to_string(m.gpus);
  if (key == "plan.tensor") return fmt::to_string(c.tensor);
  if (key == "plan.pipeline") return fmt::to_string(c.pipeline);
  if (key == "plan.context" && c.context > 1) return fmt::to_string(c.context);
  if (key == "plan.expert" && c.expert > 1) return fmt::to_string(c.expert);
  if (key == "plan.sequence_parallel" && c.sequence_parallel) return "true";
  if (key == "plan.schedule") return "1f1b";
  if (key == "plan.micro_batch") return "1";
  if (key == "plan.zero") return fmt::to_string(c.zero);
  if (key == "plan.recompute") return c.recompute;
  if (key == "training.global_batch") return fmt::to_string(std::int64_t{data} * kMicroBatches * c.pipeline);
  if (key == "training.seq_len" && a.window > 0) return fmt::to_string(a.window);
  return key == "training.precision" ? precision_of(m) : "";
}

// "  # the meaning, wrapped", beside or above the key.
std::string comment(const std::string& text, std::size_t indent) {
  std::string block = reports::wrap(text, indent + 2), out;
  for (std::size_t at = 0; at < block.size();) {
    block.replace(at + indent, 2, "# ");
    at = block.find('\n', at) + 1;
    if (at == 0) break;
  }
  return block;
}

std::string entry(const Key& key, const std::string& value, std::size_t indent) {
  const std::string pad(indent, ' ');
  if (!value.empty()) {
    const bool mapping = key.path == "model" && value.starts_with('{');
    const bool words = !mapping && value.find_first_of(" #:{}[],'\"") != std::string::npos;
    return comment(plan::meaning_text(key), indent) +
           fmt::format("{}{}: {}\n", pad, key.leaf(), words ? fmt::format("'{}'", value) : value);
  }
  std::string fallback = plan::default_text(key);
  fallback.erase(std::remove(fallback.begin(), fallback.end(), '`'), fallback.end());
  const bool literal = key.origin == Default::value;
  const std::string line = literal ? fmt::format("{}: {}", key.leaf(), fallback)
                                   : fmt::format("{}: {}  # default: {}", key.leaf(), key.example, fallback);
  return fmt::format("{}#{}\n", pad, line);
}

// "256 = micro-batch 1 x 32 micro-batches x data 8: 1,048,576 tokens a step".
std::string batch_comment(const Candidate& c, const Machine& m, std::int64_t seq_len) {
  const int data = c.replicas(m.gpus);
  const reports::Batch batch{1, std::int64_t{kMicroBatches} * c.pipeline, data, seq_len};
  return comment("Now " + reports::batch_text(batch) + ".", 2);
}

// What is known once the candidate was read.
struct Tried {
  std::int64_t peak = 0;       // bytes of a rank
  std::int64_t seq_len = 0;    // 0: the model reads no sequences
  std::string framework = {};  // that auto stands for
};

std::string scenario_text(const Candidate& c, const Machine& m, const InitArguments& a, const Tried& tried = {}) {
  std::string out =
      comment(fmt::format("{} on {} x {}. Made by rehearse init: change what you like; commented keys "
                          "show their default, or an example.",
                          a.model, m.gpus, m.topology),
              0) +
      comment("rehearse explain KEY says what a key means and takes, rehearse list what can be named.", 0);
  for (const char* key : {"rehearse", "name", "model", "framework"}) {
    out += '\n';
    if (key == std::string_view("framework")) out += comment(fmt::format("Now {}.", tried.framework), 0);
    out += entry(*plan::find_key(key), value_of(key, c, m, a), 0);
  }
  for (const char* section :
       {"cluster", "plan", "training", "data", "costs", "noise", "failures", "checkpoint", "reinforcement"}) {
    std::string body;
    bool any = false;
    for (const Key& key : plan::keys()) {
      if (key.section() != section || !key.available()) continue;
      if (key.path.find('.') != key.path.rfind('.')) continue;  // its list's or mapping's example shows it
      if (!key.later.empty() && value_of(std::string(key.path), c, m, a).empty()) continue;  // only the default yet
      const std::string value = value_of(std::string(key.path), c, m, a);
      any = any || !value.empty();
      if (key.path == "training.global_batch") body += batch_comment(c, m, tried.seq_len);
      body += entry(key, value, 2);
    }
    out +=
        fmt::format("\n# {}\n{}{}:\n{}", plan::meaning_text(*plan::find_key(section)), any ? "" : "#", section, body);
  }
  return out;
}

// nullopt if the plan cannot be.
std::optional<Tried> try_plan(const std::string& file, const Machine& m, const std::string& root) {
  try {
    const plan::Scenario s = plan::read_scenario(file, {}, root);
    std::int64_t most = 0;
    for (const auto& stage : account::stage_memory(lower::lower(s), s.grid(), s.framework, m.memory == 0))
      most = std::max(most, stage.peak);
    return Tried{most, s.model.reads_text() ? s.training.seq_len : 0, s.framework.name};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// A file of its own beside nothing else, gone with the object: candidates are read as the user's file will be.
class Draft {
 public:
  std::string write(const std::string& text) const {
    const std::string path = folder_.path() + "/scenario.yaml";
    result::write_output(path, text, result::Over::its_own_input);  // one after the other is read
    return path;
  }

 private:
  const TemporaryFolder folder_{"init"};
};

struct Found {
  std::string text;                   // of the first candidate that fits; else of the one that needs least
  std::optional<std::int64_t> least;  // bytes a rank of that one; without: nothing can be a plan
  bool fits = false;
};

Found look_for_plan(const Machine& m, const InitArguments& a, const std::string& root) {
  const Draft draft;
  Found found;
  for (Candidate c : candidates(m)) {
    check_interrupt();
    auto tried = try_plan(draft.write(scenario_text(c, m, a)), m, root);
    if (!tried && c.sequence_parallel) {  // not every framework and length has it
      c.sequence_parallel = false;
      tried = try_plan(draft.write(scenario_text(c, m, a)), m, root);
    }
    if (!tried) continue;
    found.fits = m.memory == 0 || tried->peak <= m.memory;
    if (!found.fits && found.least && tried->peak >= *found.least) continue;
    found.least = tried->peak;
    found.text = scenario_text(c, m, a, *tried);
    if (found.fits) break;
  }
  return found;
}

// Those that need least are tried first, and none that computes nothing again.
bool some_plan_fits(const Machine& m, const InitArguments& a, const std::string& root) {
  const Draft draft;
  std::vector<Candidate> list = candidates(m);
  std::reverse(list.begin(), list.end());
  return std::any_of(list.begin(), list.end(), [&](const Candidate& c) {
    check_interrupt();
    if (c.recompute == "none") return false;
    const auto tried = try_plan(draft.write(scenario_text(c, m, a)), m, root);
    return tried && tried->peak <= m.memory;
  });
}

// Numbers of GPUs that were tried, and whether a candidate fits on the last.
struct MoreGpus {
  int last = 0;                        // 0: none
  bool fits = false, no_more = false;  // no_more: the topology holds none
};

// Doublings of the GPUs, up to the first on which a candidate fits: from half of what would hold `least` bytes a GPU
// were all of it divided, which parts that every replica has make too many.
MoreGpus more_gpus(Machine m, std::int64_t least, const InitArguments& a, const std::string& root) {
  constexpr int kTimes = 5;
  const double divided = static_cast<double>(least) / static_cast<double>(m.memory) * m.gpus;
  MoreGpus tried;
  for (int times = 0; times < kTimes && m.gpus <= kMaxGpus / 2 && !tried.fits;) {
    m.gpus *= 2;
    if (m.gpus < divided / 2) continue;
    ++times;
    try {
      cluster::build_cluster(m.topology, m.gpus, {}, 0, root);
    } catch (const InputError&) {
      tried.no_more = true;
      break;
    }
    tried = {m.gpus, some_plan_fits(m, a, root), false};
  }
  return tried;
}

std::string best_text(const Machine& m, const InitArguments& a, const std::string& root) {
  const Busy line("looking for a plan that fits");
  const Found found = look_for_plan(m, a, root);
  if (!found.least) fail("", fmt::format("found no way to split {} over {} x {}", a.model, m.gpus, m.topology));
  if (found.fits) return found.text;
  const MoreGpus more = more_gpus(m, *found.least, a, root);
  note(fmt::format("rehearse: note: no plan tried fits: this one needs {} of {} a GPU; {}",
                   format_bytes(Bytes(*found.least)), format_bytes(Bytes(m.memory)),
                   more.fits       ? fmt::format("with --gpus {} one fits", more.last)
                   : more.last > 0 ? fmt::format("nor does one on {} GPUs; training.seq_len may be less", more.last)
                   : more.no_more  ? "the topology holds no more GPUs; training.seq_len may be less"
                                   : "no number of GPUs was found that could; training.seq_len may be less"));
  return found.text;
}

void check_target(const InitArguments& a) {
  if (a.file.empty()) fail("", "the file's name is empty");
  std::error_code error;
  if (!a.force && fs::exists(fs::symlink_status(a.file, error))) fail(a.file, "exists already", "--force replaces it");
  check_output_path(a.file);
}

int init(InitArguments a) {
  const std::string root = data_root();
  if (is_path(a.topology)) note_input(a.topology);
  if (a.file != "-") check_target(a);
  const model::Model model = model_option("--model", a.model, root);  // before plans are tried
  if (model.sliding_window < model.max_seq_len && model.full_attention_every == 0) a.window = model.sliding_window;
  // A file in another folder would look for it there.
  if (is_configuration(a.model) && fs::path(a.file).has_parent_path()) a.model = fs::absolute(a.model).string();
  if (a.topology.empty()) a.topology = plan::find_key("cluster.topology")->example;
  const Machine m = machine_of(a, root);
  const std::string text = best_text(m, a, root);
  if (a.file == "-") {
    print(text);
    return kDone;
  }
  result::write_output(a.file, text);
  note(fmt::format("rehearse: wrote {}; now rehearse {} {}", a.file, m.memory == 0 ? "execute" : "simulate",
                   shell_word(a.file)));
  return kDone;
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  auto a = std::make_shared<InitArguments>();
  CLI::App* command = app.add_subcommand("init", "Write a commented scenario to start from");
  command->add_option("FILE", a->file, "Where to (default scenario.yaml; - prints it)")->type_name("");
  command->add_option("--model", a->model, "Of rehearse list models (llama2-7b), or a config.json")->type_name("MODEL");
  command->add_option("--cluster", a->topology, "Of rehearse list topologies, or a path (dgx-a100)")
      ->type_name("TOPOLOGY");
  command->add_option("--gpus", a->gpus, "Devices (default: a node)")->check(between(1, kMaxGpus))->type_name("N");
  command->add_flag("--force", a->force, "Replace FILE if it exists");
  command->footer(
      "The plan is a usual one that fits in memory, not the fastest.\n"
      "Examples:\n"
      "  rehearse init\n"
      "  rehearse init big.yaml --model llama3-70b --cluster dgx-h100 --gpus 256");
  command->callback([a, &action] { action = [a] { return init(*a); }; });
}

}  // namespace rehearse::cli
