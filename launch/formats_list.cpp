// The formats by name, and how a file's is told; see launch.h.
#include <fmt/format.h>

#include "launch/launch.h"
#include "launch/megatron.h"
#include "sim/base/check.h"

namespace rehearse::launch {
namespace {

struct LaunchFormat {
  const char* name;
  Exported (*write)(const plan::Scenario&, std::int64_t);
};

constexpr LaunchFormat kLaunchFormats[] = {
    {"megatron", export_megatron},
};

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
  const formats::ShellScript script = formats::read_shell_script(file, text);
  if (is_megatron(script)) return import_megatron(file, script, hints);
  throw InputError(
      Diagnostic{file, 0, 0, "", "no launch file that is known", "expected a script with Megatron-LM's arguments"});
}

}  // namespace rehearse::launch
