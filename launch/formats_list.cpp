// The formats by name, and how a file's is told; see launch.h.
#include <fmt/format.h>

#include <algorithm>

#include "launch/accelerate.h"
#include "launch/deepspeed.h"
#include "launch/document_settings.h"
#include "launch/launch.h"
#include "launch/megatron.h"
#include "launch/nemo.h"
#include "launch/torchrun.h"
#include "launch/torchtitan.h"
#include "sim/base/check.h"

namespace rehearse::launch {
namespace {

struct LaunchFormat {
  const char* name;
  Exported (*write)(const plan::Scenario&, std::int64_t);
};

constexpr LaunchFormat kLaunchFormats[] = {
    {"megatron", export_megatron},
    {"megatron-bridge", export_megatron_bridge},
    {"sbatch", export_sbatch},
    {"pytorchjob", export_pytorchjob},
    {"torchrun", export_torchrun},
    {"deepspeed", export_deepspeed},
    {"accelerate", export_accelerate},
    {"torchtitan", export_torchtitan},
    {"torchtitan-toml", export_torchtitan_toml},
};

// Of a program of one's own: how many ranks there are, and what of NCCL is pinned.
bool says_ranks_or_nccl(const formats::ShellScript& script) {
  const std::vector<Setting> settings = settings_of(script);
  return std::any_of(settings.begin(), settings.end(), [](const Setting& s) {
    return s.key == "NCCL_ALGO" || s.key == "NCCL_PROTO" || s.key == "NCCL_NET_GDR_LEVEL" ||
           s.key == "nproc-per-node" || s.key == "num-gpus";
  });
}

Imported import_environment(const std::string& file, const formats::ShellScript& script, const ImportHints& hints) {
  Taken taken(file, settings_of(script), "--");
  take_ranks(taken, hints, starts_deepspeed(script));
  pinned_collectives(taken);
  for (const std::string& line : script.passed_over) taken.ignore(one_line(line));
  taken.assume(taken.all_used()
                   ? "a plan of whole replicas: nothing that is read here says how the model is split"
                   : "a plan of whole replicas: the options listed as ignored are those of a program that is "
                     "not known here, and are not read, whatever they say of the split");
  return taken.finish("environment", hints, "auto");
}

bool has_line(const std::string& text, const std::string& start) {
  return text.starts_with(start) || text.find("\n" + start) != std::string::npos;
}

bool begins_with_section(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t first = text.find_first_not_of(" \t\r", at);
    if (first < end && text[first] != '#')
      return text[first] == '[' && first + 1 < end && text[first + 1] != ' ' && text.find(']', first) < end;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<std::string> export_formats() {
  std::vector<std::string> names;
  for (const LaunchFormat& format : kLaunchFormats) names.emplace_back(format.name);
  return names;
}

Exported export_plan(std::string_view format, const plan::Scenario& scenario, std::int64_t gpus_a_node) {
  for (const LaunchFormat& one : kLaunchFormats)
    if (one.name == format) return one.write(scenario, gpus_a_node);
  REHEARSE_CHECK(false, "no format {}", format);
  return {};
}

Imported import_plan(const std::string& file, const std::string& text, const ImportHints& hints) {
  const std::size_t first = launch::without_json_comments(text).find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return import_deepspeed(file, text, hints);
  // A TOML file begins with a section, but for comments; in a script that is a test, which no launch begins with.
  if (begins_with_section(text)) return import_torchtitan(file, text, hints);
  if (has_line(text, "distributed_type:")) return import_accelerate(file, text, hints);
  const formats::ShellScript script = formats::read_shell_script(file, text);
  if (is_nemo(script)) return import_nemo(file, script, hints);
  if (is_megatron(script)) return import_megatron(file, script, hints);
  if (says_ranks_or_nccl(script)) return import_environment(file, script, hints);
  throw InputError(Diagnostic{
      file, 0, 0, "", "no launch file that is known",
      "expected a script with Megatron-LM's arguments or a command of NeMo, a ds_config.json, a torchtitan TOML, or an "
      "Accelerate YAML with distributed_type"});
}

}  // namespace rehearse::launch
