// cluster.jobs: other whole jobs on the scenario's cluster, each a scenario file of its own with changes. Of that
// file's cluster section only the GPUs and the placement are its own; the machine, with its faults and background, is
// this scenario's, and so must not be said otherwise there. Where all jobs run is handed to the topology's reader as
// one more override, `jobs`, which is where devices have names.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

constexpr std::size_t kMostJobs = 100;

// What is said of the machine, in one order; where ranks run is no part of it.
Pairs machine_of(const ClusterRequest& cluster) {
  Pairs pairs;
  for (const auto& pair : cluster.overrides)
    if (pair.first != "placement" && pair.first != "jobs") pairs.push_back(pair);
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

class Reader {
 public:
  Reader(const Source& source, Diagnostics& diagnostics, Scenario& scenario)
      : source_(source), diagnostics_(diagnostics), scenario_(scenario) {}

  void add(const Node& node) {
    if (node.kind() != Node::Kind::mapping) {
      node.error("expected a mapping", "e.g. '{scenario: other.yaml}'");
      return;
    }
    const Node set = node.get("set"), file = node.get("scenario"), placement = node.get("placement");
    const std::string path = path_of(file);
    const std::string name = node.text("name", std::string());
    const Time start = node.time("start", Time());
    std::vector<std::string> assignments = assignments_of(set, !file);
    const bool placed = placement.kind() == Node::Kind::sequence || placement.as_text().has_value();
    if (!placed && placement && placement.kind() != Node::Kind::null)
      placement.error("expected a list of nodes or devices, or the path of a file of them");
    node.finish();
    if (path.empty()) return;
    try {
      JobBeside job{name, read_scenario({path, assignments, source_.data_root, source_.purpose, &scenario_.cluster}),
                    start};
      if (job.name.empty()) job.name = job.scenario.name;
      check(node, job.scenario);
      place(placed ? flow_text(placement) : own_placement(job.scenario.cluster), job);
      scenario_.jobs.push_back(std::move(job));
    } catch (const InputError& error) {
      report(error, node, set);
    }
  }

  // "[{name: 'a', gpus: 8, placement: [node1]}, ...]"
  std::string where() const { return "[" + where_ + "]"; }

 private:
  // A path is relative to the file it stands in. "": there is none.
  std::string path_of(const Node& file) const {
    if (!file || file.kind() == Node::Kind::null) return source_.path;
    const std::filesystem::path text = file.as_text().value_or("");
    if (text.empty()) {
      file.error("expected the path of a scenario file");
      return "";
    }
    const bool beside = text.is_relative() && file.file() != "--set";
    const std::string path =
        beside ? (std::filesystem::path(source_.path).parent_path() / text).string() : text.string();
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
    file.error(fmt::format("there is no file {}", path), "a path is relative to the scenario's file");
    return "";
  }

  // A second copy of this very scenario has what --set changed, but neither its jobs nor its place.
  std::vector<std::string> assignments_of(const Node& set, bool copy) const {
    std::vector<std::string> assignments;
    if (copy) {
      assignments = source_.assignments;
      assignments.insert(assignments.end(), {"cluster.jobs=[]", "cluster.placement=[]"});
    }
    if (!set || set.kind() == Node::Kind::null) return assignments;
    if (set.kind() != Node::Kind::mapping) {
      set.error("expected a mapping of scenario keys to values, for example {plan.tensor: 4}");
      return assignments;
    }
    Pairs pairs;
    flatten(set, "", 0, pairs);
    for (const auto& [key, value] : pairs) assignments.push_back(key + "=" + value);
    return assignments;
  }

  void check(const Node& node, const Scenario& other) const {
    const ClusterRequest &own = scenario_.cluster, &its = other.cluster;
    if (other.places.contains("cluster.topology") && its.topology != own.topology)
      node.error(fmt::format("{} is for a cluster '{}', this scenario is for '{}': jobs share one cluster", other.file,
                             its.topology, own.topology),
                 fmt::format("set: {{cluster.topology: {}}}", own.topology));
    if (const Pairs machine = machine_of(its); !machine.empty() && machine != machine_of(own))
      node.error(fmt::format("{} says {} of the cluster, which this scenario does not: jobs share one cluster",
                             other.file, machine[0].first),
                 "overrides, faults and background stand in the scenario that names the jobs");
    if (other.plan.served())
      node.error(fmt::format("{} has parameter servers, which are not simulated beside other jobs yet", other.file),
                 "set: {plan.servers: 0, plan.consistency: synchronous}");
    if (!other.noise.links.empty())
      node.error(fmt::format("{} has noise of links: jobs share one cluster", other.file),
                 "noise.links stands in the scenario that names the jobs");
  }

  static std::string own_placement(const ClusterRequest& cluster) {
    for (const auto& [key, value] : cluster.overrides)
      if (key == "placement") return value;
    return "";
  }

  void place(const std::string& placement, JobBeside& job) {
    const auto taken = [&](const std::string& name) {
      return name == scenario_.name || std::any_of(scenario_.jobs.begin(), scenario_.jobs.end(),
                                                   [&](const JobBeside& other) { return other.name == name; });
    };
    const std::string plain = job.name;
    for (int copy = 2; taken(job.name); ++copy) job.name = fmt::format("{} ({})", plain, copy);
    where_ += fmt::format("{}{{name: {}, gpus: {}", where_.empty() ? "" : ", ", quoted_text(job.name),
                          job.scenario.cluster.gpus);
    where_ += placement.empty() ? "}" : ", placement: " + placement + "}";
  }

  // Problems that `set` has brought about are reported at its own line.
  void report(const InputError& error, const Node& node, const Node& set) {
    const Node& at = set ? set : node;
    for (Diagnostic d : error.diagnostics()) {
      if (d.file == "--set" || d.file.empty()) {
        d.file = at.file(), d.line = at.line(), d.column = at.column();
        d.path = at.path() + (d.path.empty() ? "" : (set ? "." : ": ") + d.path);
      }
      diagnostics_.add(std::move(d));
    }
  }

  const Source& source_;
  Diagnostics& diagnostics_;
  Scenario& scenario_;
  std::string where_;
};

}  // namespace

void read_jobs(const Node& list, const Source& source, Diagnostics& diagnostics, Scenario& scenario) {
  if (!list || list.kind() == Node::Kind::null) return;
  if (list.kind() != Node::Kind::sequence) {
    list.error("expected a list of jobs", "e.g. 'jobs: [{scenario: other.yaml}]'");
    return;
  }
  if (list.size() == 0) return;
  if (source.machine != nullptr) {
    list.error("a job alongside another has no jobs of its own", "set: {cluster.jobs: []}");
    return;
  }
  if (list.size() > kMostJobs) {
    list.error(fmt::format("expected at most {} jobs", kMostJobs));
    return;
  }
  Reader reader(source, diagnostics, scenario);
  for (std::size_t i = 0; i < list.size(); ++i) reader.add(list.at(i));
  scenario.cluster.overrides.emplace_back("jobs", reader.where());
}

}  // namespace rehearse::plan::detail
