// rehearse discover: a topology file from what a machine's own tools say of it: NCCL's topology XML, nvidia-smi topo
// -m, ibnetdiscover. Tells which is which by looking.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "cli/refuse.h"
#include "formats/discovered.h"
#include "sim/base/document.h"
#include "sim/base/input_files.h"
#include "sim/base/units.h"
#include "sim/cluster/topology.h"
#include "sim/cost/cost.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

constexpr Bandwidth kMostNicRate{12'500'000'000'000};  // 100 Tb/s

struct DiscoverArguments {
  std::vector<std::string> files;
  std::string out, name, device, nic_rate;
};

namespace fs = std::filesystem;

void print_report(const formats::Report& report) {
  for (const std::string& line : report.used) note("rehearse: read " + line);
  for (const std::string& line : report.ignored) note("rehearse: ignored " + line);
  for (const std::string& line : report.assumed) note("rehearse: assumed " + line);
}

// What is written is read as any topology file is, before it is at its place: nothing is written that simulate refuses.
std::unique_ptr<cluster::Cluster> read_back(const DiscoverArguments& a, result::OutputFile& file,
                                            const std::string& text) {
  file.write(text);
  file.finish();
  const std::string& written = file.temporary();
  const std::string root = data_root();
  try {
    auto cluster =
        cluster::build_cluster(written.find('/') == std::string::npos ? "./" + written : written, 1, {}, 0, root);
    cost::find_device_file(cluster->device_name(), root);
    return cluster;
  } catch (const InputError& error) {
    std::vector<Diagnostic> problems;
    for (const Diagnostic& d : error.diagnostics()) {
      const std::string what = d.path.empty() || d.path == "costs.calibration" ? d.message : d.path + ": " + d.message;
      problems.push_back({a.files.front(), 0, 0, "", "makes no topology that can be simulated: " + what, d.hint});
    }
    throw InputError(std::move(problems));
  }
}

int discover(const DiscoverArguments& a) {
  for (const std::string& file : a.files) note_input(file);
  if (!a.out.empty()) check_output_path(a.out);
  formats::DiscoverHints hints;
  hints.device = a.device;
  if (!a.nic_rate.empty()) {
    const auto rate = parse_bandwidth(a.nic_rate);
    if (!rate || rate->per_s() <= 0 || *rate > kMostNicRate)
      refuse("", fmt::format("--nic-rate: expected a bandwidth up to 100Tbps such as 400Gbps, found '{}'", a.nic_rate));
    hints.nic_gbps = static_cast<double>(rate->per_s()) * 1e-9;
  }
  formats::Report report;
  std::vector<formats::DiscoveredNode> nodes;
  std::unique_ptr<formats::DiscoveredFabric> fabric;
  for (const std::string& file : a.files) {
    const std::string text = read_text_file(file);
    switch (formats::format_of(text)) {
      case formats::NetworkFormat::nccl_xml:
        nodes.push_back(formats::read_nccl_xml(file, text, hints, report));
        break;
      case formats::NetworkFormat::topo_matrix:
        nodes.push_back(formats::read_topo_matrix(file, text, hints, report));
        break;
      case formats::NetworkFormat::ibnetdiscover:
        if (fabric) refuse(file, "a second fabric: one output of ibnetdiscover describes all of it");
        fabric = std::make_unique<formats::DiscoveredFabric>(formats::read_ibnetdiscover(file, text, report));
        break;
      case formats::NetworkFormat::unknown:
        refuse(file, "expected an NCCL topology XML, the output of nvidia-smi topo -m, or that of ibnetdiscover");
    }
  }
  const std::string name = !a.name.empty() ? a.name
                           : a.out.empty() ? std::filesystem::path(a.files.front()).stem().string()
                                           : std::filesystem::path(a.out).stem().string();
  const std::string text = formats::write_topology(name, nodes, fabric.get(), report);
  if (a.out.empty()) {
    const fs::path unseen = fs::temp_directory_path() / fmt::format("rehearse-discover-{}.yaml", ::getpid());
    result::OutputFile draft(unseen.string(), result::OutputFile::Format::plain);
    read_back(a, draft, text);
    print_report(report);
    print(text);
    return kDone;
  }
  result::OutputFile file(a.out, result::OutputFile::Format::plain);
  const auto cluster = read_back(a, file, text);
  print_report(report);
  file.commit();
  note(fmt::format("rehearse: wrote {}: nodes of {} devices ({})", a.out, cluster->devices_per_node(),
                   cluster->device_name()));
  return kDone;
}

}  // namespace

void add_discover(CLI::App& app, Action& action) {
  auto a = std::make_shared<DiscoverArguments>();
  CLI::App* command = app.add_subcommand("discover", "A topology file from what a machine's tools say of it");
  command->add_option("FILES", a->files, "NCCL topology XML, nvidia-smi topo -m, ibnetdiscover")
      ->required()
      ->type_name("");
  command->add_option("-o", a->out, "The topology file; without it, to standard output")->type_name("FILE");
  command->add_option("--name", a->name, "Its name; else that of the file")->type_name("TEXT");
  command->add_option("--device", a->device, "A name of calibrate/devices")->type_name("NAME");
  command->add_option("--nic-rate", a->nic_rate, "Of a NIC, where files do not say it")->type_name("RATE");
  command->footer(
      "Examples:\n  NCCL_TOPO_DUMP_FILE=node.xml all_reduce_perf -g 8; ibnetdiscover > fabric.txt\n  rehearse discover "
      "node.xml fabric.txt -o cluster.yaml\n  nvidia-smi topo -m | tee topo.txt; rehearse discover topo.txt");
  command->callback([a, &action] { action = [a] { return discover(*a); }; });
}

}  // namespace rehearse::cli
