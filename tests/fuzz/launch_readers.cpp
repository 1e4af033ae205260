// Files that other programs are started with: whatever import took, what it wrote is a scenario that can be read, or is
// refused for what it says; its report is safe to print.
#include "launch/launch.h"
#include "sim/base/document.h"
#include "sim/plan/scenario.h"
#include "tests/fuzz/readers.h"

namespace rehearse::fuzz {
namespace {

void check_import_report(const formats::Report& report) {
  for (const auto* lines : {&report.used, &report.ignored, &report.assumed})
    for (const std::string& line : *lines) {
      check_printable(line, "a line of import");
      if (line.find('\n') != std::string::npos) fail("a line of import is two");
    }
}

void import_bytes(const std::string& name, const std::string& bytes) {
  const std::string path = put_file(name, bytes);
  const launch::Imported imported = launch::import_plan(path, read_text_file(path), {});
  check_import_report(imported.report);
  check_printable(imported.scenario, "an imported scenario");
  const plan::Scenario s = plan::read_scenario(put_file("imported.yaml", imported.scenario), {}, REHEARSE_SOURCE_DIR);
  for (const std::string& format : launch::export_formats()) {
    const launch::Exported exported = launch::export_plan(format, s, 8);
    check_printable(exported.text, "an exported plan");
    for (const launch::LeftOut& one : exported.left_out) check_printable(one.key + one.why, "what is left out");
  }
}

}  // namespace

void add_launch_readers(std::vector<Reader>& list) {
  list.push_back({.name = "launch-script", .read = [](const std::string& bytes) { import_bytes("launch.sh", bytes); }});
  list.push_back({.name = "deepspeed", .read = [](const std::string& bytes) { import_bytes("ds.json", bytes); }});
  list.push_back({.name = "torchtitan", .read = [](const std::string& bytes) { import_bytes("run.toml", bytes); }});
  list.push_back({.name = "accelerate", .read = [](const std::string& bytes) { import_bytes("run.yaml", bytes); }});
}

}  // namespace rehearse::fuzz
