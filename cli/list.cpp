// rehearse list: the names a scenario file may use, with the facts one chooses by: as a table, as JSON, or alone.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/list_facts.h"
#include "cli/names.h"
#include "cli/paths.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

struct ListArguments {
  std::string what;
  bool json = false, names = false;
};

std::string count(const Json& row, const char* key) {
  return row.contains(key) ? reports::grouped(row[key].get<double>()) : "";
}
std::string bytes(const Json& row, const char* key) {
  return row.contains(key) ? format_bytes(Bytes(row[key].get<std::int64_t>())) : "";
}
std::string bandwidth(const Json& row, const char* key) {
  return row.contains(key) ? format_bandwidth(Bandwidth(row[key].get<std::int64_t>())) : "";
}
std::string tera(const Json& row, const char* key) {
  return row.contains(key) && row[key].get<double>() > 0 ? fmt::format("{:.4g}", row[key].get<double>() / 1e12) : "";
}
std::string text(const Json& row, const char* key) {
  return row.contains(key) ? row[key].get<std::string>() : "";
}

std::string models(const Json& all) {
  Rows rows = {{"model", "params", "layers", "hidden", "heads", "vocab", "sequence", "family"}};
  for (const Json& m : all) {
    std::string size = m.contains("parameters") ? reports::compact(m["parameters"].get<double>()) : "";
    std::replace(size.begin(), size.end(), 'G', 'B');  // the field says billions
    rows.push_back({text(m, "name"), size, count(m, "layers"), count(m, "hidden"), count(m, "heads"), count(m, "vocab"),
                    count(m, "max_seq_len"), text(m, "family")});
  }
  return reports::align(rows);
}

std::string topologies(const Json& all) {
  Rows rows = {{"topology", "device", "a node", "NVLink", "network", "at most"}};
  for (const Json& t : all) {
    const std::string nics = count(t, "nics_per_node");
    rows.push_back({text(t, "name"), text(t, "device"), count(t, "devices_per_node"),
                    bandwidth(t, "nvlink_bytes_per_s"),
                    nics.empty() ? "" : nics + " x " + bandwidth(t, "nic_bytes_per_s"), count(t, "devices_at_most")});
  }
  return reports::align(rows) + "\n" +
         reports::wrap("a node: devices in it; rates are nominal, of one direction; at most: devices of the fabric");
}

std::string devices(const Json& all) {
  Rows rows = {{"device", "memory", "bandwidth", "bf16", "fp32", "gemm", "attention", "collectives"}};
  for (const Json& d : all)
    rows.push_back({text(d, "name"), bytes(d, "memory_bytes"), bandwidth(d, "memory_bytes_per_s"),
                    tera(d, "peak_bf16_flops"), tera(d, "peak_fp32_flops"), count(d, "measured_gemms"),
                    count(d, "measured_attention"), count(d, "measured_collectives")});
  return reports::align(rows) + "\n" +
         reports::wrap("bf16, fp32: dense peak in TFLOP/s; gemm, attention, collectives: measured points");
}

std::string frameworks(const Json& all) {
  std::string out;
  for (const Json& f : all) out += text(f, "name") + '\n' + reports::wrap(text(f, "summary"), 4);
  return out;
}

std::string scenarios(const Json& all) {
  std::string out;
  for (const Json& s : all) {
    if (s.contains("problem")) continue;
    const std::string place = count(s, "gpus") + " x " + text(s, "topology");
    out += reports::clip(fmt::format("{}  {}, {}", text(s, "name"), text(s, "model"), place), reports::kWidth) + '\n';
    out += reports::wrap(text(s, "shows"), 4);
  }
  return out;
}

std::string table(const std::string& what, const Json& all) {
  if (what == "models") return models(all);
  if (what == "topologies") return topologies(all);
  if (what == "devices") return devices(all);
  return what == "frameworks" ? frameworks(all) : scenarios(all);
}

int list(const ListArguments& a) {
  const std::string root = data_root();
  if (a.names) {
    for (const std::string& name : names_of(a.what, root)) print(name + '\n');
    return kDone;
  }
  const Json all = facts_of(a.what, root);
  for (const Json& row : all)
    if (row.contains("problem")) note("rehearse: note: " + text(row, "problem"));
  print(a.json ? all.dump(2) + '\n' : table(a.what, all));
  return kDone;
}

}  // namespace

void add_list(CLI::App& app, Action& action) {
  auto a = std::make_shared<ListArguments>();
  CLI::App* command = app.add_subcommand("list", "What a scenario may use, with the facts to choose by");
  command->add_option("WHAT", a->what, "models, topologies, devices, frameworks, scenarios")
      ->required()
      ->type_name("")
      ->check(one_of({std::begin(kNameKinds), std::end(kNameKinds)}));
  CLI::Option* json = command->add_flag("--json", a->json, "The same for programs, and some more");
  command->add_flag("--names", a->names, "The names alone, one a line")->excludes(json);
  command->footer("Examples:\n  rehearse list models\n  rehearse list devices --json | jq '.[].peak_bf16_flops'");
  command->callback([a, &action] { action = [a] { return list(*a); }; });
}

}  // namespace rehearse::cli
