// A scenario file, read top to bottom: framework (its profile sets defaults), model, cluster, plan, training, data,
// costs, noise; then resolve() in feasibility.cpp checks the combination. Every problem goes to one Diagnostics and is
// thrown at the end. What keys there are, with types, ranges and defaults: key_table*.cpp.
#include "sim/plan/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/collective_words.h"
#include "sim/base/text_check.h"
#include "sim/plan/auto_framework.h"
#include "sim/plan/read_keys.h"
#include "sim/plan/read_model.h"
#include "sim/plan/sections.h"

namespace rehearse::plan {

namespace detail {

void not_available(const Node& node, const std::string& what, const std::string& available) {
  node.error(fmt::format("{} is not available yet; available: {}", what, available));
}

constexpr int kMaxOverrideDepth = 8;

// A value as one line of YAML. Text that is no plain word is quoted.
std::string flow_text(const Node& node) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
  std::string text;
  if (node.kind() == Node::Kind::sequence) {
    for (std::size_t i = 0; i < node.size(); ++i) text += (i > 0 ? ", " : "") + flow_text(node.at(i));
    return "[" + text + "]";
  }
  if (node.kind() == Node::Kind::mapping) {
    for (const std::string& key : node.keys())
      text += (text.empty() ? "" : ", ") + key + ": " + flow_text(node.get(key));
    return "{" + text + "}";
  }
  if (node.kind() == Node::Kind::null) return "null";
  const std::string scalar = node.as_text().value_or("");
  if (!scalar.empty() && scalar.find_first_not_of(kPlain) == std::string::npos) return scalar;
  return quoted_text(scalar);
}

std::string beside(const Node& said, const std::string& text) {
  const std::filesystem::path path = text;
  const bool named = text.find('/') == std::string::npos && !path.has_extension();
  if (named || path.is_absolute() || said.file() == "--set") return text;
  const std::filesystem::path next = std::filesystem::path(said.file()).parent_path() / path;
  std::error_code error;
  return std::filesystem::exists(next, error) ? next.string() : text;
}

std::string quoted_text(const std::string& text) {
  std::string inside;
  for (const char c : text) inside += c == '\'' ? std::string("''") : std::string(1, c);
  return "'" + inside + "'";
}

void flatten(const Node& node, const std::string& prefix, int depth, Pairs& out) {
  if (node.kind() == Node::Kind::mapping && depth < kMaxOverrideDepth) {
    for (const std::string& key : node.keys()) {
      flatten(node.get(key), prefix.empty() ? key : prefix + "." + key, depth + 1, out);
    }
    return;
  }
  if (node.kind() == Node::Kind::sequence) {
    out.emplace_back(prefix, flow_text(node));
    return;
  }
  const auto text = node.as_text();
  if (!text) {
    node.error("expected a value, or a mapping of topology keys to values");
    return;
  }
  out.emplace_back(prefix, *text);
}

}  // namespace detail

namespace {

using rehearse::detail::shown;

constexpr std::int64_t kSchemaVersion = 1;

void read_version(const Node& root) {
  const Node node = root.get("rehearse");
  if (!node) {
    node.error("required key is missing: the schema version", fmt::format("rehearse: {}", kSchemaVersion));
    return;
  }
  const std::int64_t version = root.integer("rehearse");
  if (node.as_integer() && version != kSchemaVersion) {
    node.error(fmt::format("schema version {} is not known: this program reads version {}", version, kSchemaVersion));
  }
}

detail::ChosenFramework read_framework(const Node& root, const detail::Source& source) {
  const std::string name = root.text("framework", "auto");
  if (name == "auto") return detail::choose_framework(source);
  if (const FrameworkProfile* profile = find_framework(name)) return {detail::framework_of_plan(*profile, source), ""};
  const std::string near = nearest(name, framework_names());
  root.get("framework")
      .error(fmt::format("unknown framework {}; known: auto, {}", shown(name), fmt::join(framework_names(), ", ")),
             near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return {*find_framework("rehearse"), ""};
}

std::vector<std::string> read_calibrations(const Node& costs) {
  std::vector<std::string> names;
  const Node list = costs.get("calibration");
  if (list.kind() == Node::Kind::missing || list.kind() == Node::Kind::null) return names;
  const bool one = list.kind() == Node::Kind::scalar;
  for (std::size_t i = 0; i < (one ? 1 : list.size()); ++i) {
    const Node item = one ? list : list.at(i);
    const auto text = item.as_text();
    if (text && !text->empty()) {
      names.push_back(detail::beside(item, *text));
    } else {
      item.error("expected the name of a calibration or a path");
    }
  }
  if (list.kind() == Node::Kind::mapping) list.error("expected a list of calibrations");
  return names;
}

// Places of `node`, called `key`, and of everything below it. An override may have its path as one dotted key.
void note_places(const Node& node, const std::string& key, std::map<std::string, Place>& places) {
  if (!node) return;
  places[key] = {node.file(), node.line(), node.column()};
  for (const std::string& child : node.keys()) note_places(node.get(child), key + "." + child, places);
  if (node.kind() != Node::Kind::sequence) return;
  for (std::size_t i = 0; i < node.size(); ++i) note_places(node.at(i), fmt::format("{}[{}]", key, i), places);
}

// `--set model.dropout=0` on a scenario that names a preset changes that preset: model: NAME becomes model: {preset:
// NAME}; `--set model.hf=FILE` puts the file in its place.
void open_preset(Document& document, const std::vector<std::string>& assignments) {
  const Node root = document.root();
  if (root.kind() != Node::Kind::mapping) return;
  const Node model = root.get("model");
  if (model.kind() != Node::Kind::scalar || !model.as_text()) return;
  const bool replaced = std::any_of(assignments.begin(), assignments.end(),
                                    [](const std::string& a) { return a.starts_with("model.hf="); });
  document.set(replaced ? "model={}" : "model={preset: '" + *model.as_text() + "'}");
}

PinnedCollective read_pinned(const Node& node) {
  PinnedCollective pinned;
  detail::read_keys(node, "cluster.collectives[].", pinned);
  if (pinned.algorithm == "auto" && pinned.protocol == "auto")
    node.error("pins nothing: needs algorithm, protocol or both", "e.g. '{kind: all_reduce, algorithm: tree}'");
  node.finish();
  return pinned;
}

std::vector<PinnedCollective> read_collectives(const Node& list) {
  std::vector<PinnedCollective> pinned;
  if (!list || list.kind() == Node::Kind::null) return pinned;
  if (list.kind() != Node::Kind::sequence)
    list.error("expected a list of collectives", "e.g. '[{kind: all_reduce, algorithm: tree}]'");
  for (std::size_t i = 0; i < list.size() && list.kind() == Node::Kind::sequence; ++i) {
    if (list.at(i).kind() == Node::Kind::mapping)
      pinned.push_back(read_pinned(list.at(i)));
    else
      list.at(i).error("expected a mapping", "e.g. '{kind: all_reduce, algorithm: tree}'");
  }
  return pinned;
}

}  // namespace

namespace detail {

ClusterRequest read_cluster(const Node& node) {
  ClusterRequest request;
  const Node topology = node.get("topology");
  request.topology = node.text("topology", "local");
  if (request.topology.empty()) topology.error("expected the name of a topology or a path");
  if (topology) request.topology = beside(topology, request.topology);
  read_keys(node, "cluster.", request);
  read_cluster_nodes(node.get("nodes"), request);
  if (!topology && !request.nodes.empty() && !request.nodes.front().topology.empty())
    request.topology = request.nodes.front().topology;
  const Node overrides = node.get("overrides");
  if (overrides.kind() == Node::Kind::mapping) {
    flatten(overrides, "", 0, request.overrides);
  } else if (overrides && overrides.kind() != Node::Kind::null) {
    overrides.error("expected a mapping of topology keys to values, for example {nic: {bandwidth: 100Gbps}}");
  }
  if (const Node direct = node.get("gpudirect"); direct && direct.kind() != Node::Kind::null)
    request.overrides.emplace_back("gpudirect", request.gpudirect ? "true" : "false");
  request.collectives = read_collectives(node.get("collectives"));
  for (const char* key : {"placement", "faults", "background"}) {
    const Node list = node.get(key);
    const bool one = key == std::string_view("placement") && list.as_text();
    if ((list.kind() == Node::Kind::sequence && list.size() > 0) || one)
      request.overrides.emplace_back(key, one ? quoted_text(beside(list, *list.as_text())) : flow_text(list));
    else if (list && list.kind() != Node::Kind::null && list.kind() != Node::Kind::sequence)
      list.error("expected a list");
  }
  return request;
}

}  // namespace detail

RankGrid Scenario::grid() const {
  const auto size = [](std::int64_t n) { return static_cast<int>(n); };
  std::array<int, std::tuple_size_v<AxisOrder>> sizes{};
  sizes[static_cast<std::size_t>(Axis::tensor)] = size(plan.tensor);
  sizes[static_cast<std::size_t>(Axis::context)] = size(plan.context);
  sizes[static_cast<std::size_t>(Axis::expert)] = size(plan.expert_replicas());
  sizes[static_cast<std::size_t>(Axis::data)] = size(plan.data / plan.replicas / plan.expert_replicas());
  sizes[static_cast<std::size_t>(Axis::pipeline)] = size(plan.pipeline);
  return {sizes, plan.rank_order, size(plan.replicas)};
}

InputError located(const InputError& error, const Scenario& scenario) {
  std::vector<Diagnostic> list = error.diagnostics();
  for (Diagnostic& d : list) {
    if (!d.file.empty()) continue;
    if (d.path == "costs.calibration" && scenario.calibrations.empty()) d.path = "cluster.topology";
    for (std::string key = d.path; !key.empty(); key.erase(std::min(key.find_last_of(".["), key.size()))) {
      const auto place = scenario.places.find(key);
      if (place != scenario.places.end()) {
        d.file = place->second.file;
        d.line = place->second.line;
        d.column = place->second.column;
        break;
      }
      if (key.find('.') == std::string::npos) break;
    }
    if (d.file.empty()) d.file = scenario.file;
  }
  return InputError(std::move(list));
}

Document detail::opened(const Source& source, Diagnostics& diagnostics) {
  Document document = Document::from_file(source.path, diagnostics, source.files);
  for (const std::string& assignment : source.assignments) {
    if (assignment.starts_with("model.")) open_preset(document, source.assignments);
    document.set(assignment);
  }
  return document;
}

Scenario detail::read_scenario(const Source& source) {
  const auto& [path, assignments, data_root, purpose, machine, files] = source;
  Diagnostics diagnostics;
  const Document document = opened(source, diagnostics);
  detail::Sections sections;
  const Node root = sections.root = document.root();
  if (root.kind() != Node::Kind::mapping) {
    root.error("expected a scenario: a mapping with at least the keys rehearse and model");
    diagnostics.throw_if_any();
  }

  Scenario scenario;
  scenario.file = path;
  read_version(root);
  scenario.name = root.text("name", std::filesystem::path(path).stem().string());
  scenario.purpose = purpose;
  detail::ChosenFramework framework = read_framework(root, source);
  scenario.framework = std::move(framework.profile);
  scenario.framework_why = std::move(framework.why);

  const std::size_t before_model = diagnostics.list().size();
  if (const Node model = root.get("model")) {
    scenario.model = read_model(model, scenario.framework, data_root, diagnostics, source.files);
  } else {
    model.error("required key is missing: a preset's name, or a mapping that describes the model");
  }
  sections.model_sound = diagnostics.list().size() == before_model;

  sections.cluster = root.get("cluster");
  scenario.cluster = detail::read_cluster(sections.cluster);
  detail::count_devices(sections.cluster, data_root, scenario.cluster);
  const Node jobs = sections.cluster.get("jobs");
  sections.cluster.finish();
  sections.plan = root.get("plan");
  scenario.plan = detail::read_plan(sections.plan, scenario.framework);
  sections.plan.finish();
  sections.training = root.get("training");
  scenario.training = detail::read_training(sections.training, scenario.framework);
  sections.training.finish();
  detail::choose_deterministic(scenario);
  const Node data = root.get("data");
  scenario.data = detail::read_data(data);
  const Node costs = root.get("costs");
  scenario.calibrations = read_calibrations(costs);
  costs.finish();
  const Node noise = root.get("noise");
  scenario.noise = detail::read_noise(noise);
  detail::check_noise(noise, scenario);
  const Node failures = root.get("failures"), checkpoint = root.get("checkpoint");
  scenario.failures = detail::read_failures(failures);
  scenario.checkpoint = detail::read_checkpoint(checkpoint);
  const Node reinforcement = root.get("reinforcement");
  scenario.reinforcement = detail::read_reinforcement(reinforcement);
  detail::read_jobs(jobs, source, diagnostics, scenario);
  root.finish();
  note_places(sections.cluster, "cluster", scenario.places);
  note_places(data, "data", scenario.places);
  note_places(costs, "costs", scenario.places);
  note_places(noise, "noise", scenario.places);
  note_places(failures, "failures", scenario.places);
  note_places(checkpoint, "checkpoint", scenario.places);
  note_places(reinforcement, "reinforcement", scenario.places);

  if (scenario.plan.zero_group == Plan::kNodeShards || scenario.plan.local_group == Plan::kNodeShards)
    sections.node_devices = detail::devices_of_node(scenario.cluster, data_root);
  detail::resolve(sections, diagnostics, scenario);
  detail::check_reinforcement(sections, scenario);
  diagnostics.throw_if_any();
  return scenario;
}

Scenario read_scenario(const std::string& path, const std::vector<std::string>& assignments,
                       const std::string& data_root, Purpose purpose, ParsedFiles* files) {
  return detail::read_scenario({path, assignments, data_root, purpose, nullptr, files});
}

}  // namespace rehearse::plan
