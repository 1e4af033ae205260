// See queue_file.h.
#include "sim/run/queue_file.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "sim/base/document.h"

namespace rehearse::run {
namespace {

constexpr std::int64_t kMostHosts = 131'072, kMostJobsOfFile = 100'000, kMostRounds = 10'000;

std::string file_beside(const std::string& file, const std::string& given) {
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / given;
  return given.find(".yaml") != std::string::npos ? beside.string() : given;
}

void read_work(const Node& node, const std::string& file, QueueEntry& entry) {
  const bool by_steps = node.has("scenario");
  if (by_steps && node.has("time"))
    node.get("time").error("is given twice: a scenario's steps take a time of their own");
  if (!by_steps) {
    entry.time = node.time("time");
    if (entry.time <= Time()) node.get("time").error("expected a time above zero");
    return;
  }
  entry.scenario = file_beside(file, node.text("scenario"));
  entry.steps = node.integer("steps", {}, 1, std::int64_t{1} << 40);
  const Node set = node.get("set");
  for (const std::string& key : set.keys()) {
    const auto value = set.get(key).as_text();
    if (!value)
      set.get(key).error("expected one value", fmt::format("'{}: 1'; of nested keys write them dotted", key));
    else
      entry.assignments.push_back(key + "=" + *value);
  }
}

void read_search(const Node& node, QueueEntry& entry) {
  const Node halving = node.get("halving"), population = node.get("population");
  if (halving && population) population.error("is one way to search, halving another", "one of them");
  if (halving) {
    entry.keep = halving.integer("keep", 2, 2, 1000);
    halving.finish();
  }
  if (!population) return;
  entry.rounds = population.integer("rounds", {}, 1, kMostRounds);
  entry.copies = population.number("copies", 0.2, 0, 1);
  entry.copied = population.bytes("bytes", Bytes());
  entry.copy_bandwidth = population.bandwidth("bandwidth");
  if (population.has("bandwidth") && entry.copy_bandwidth == Bandwidth())
    population.get("bandwidth").error("expected a bandwidth above zero");
  if (entry.copied == Bytes() && entry.scenario.empty())
    population.error("needs `bytes`: what is copied of a job without a scenario", "bytes: 20GB");
  population.finish();
}

QueueEntry read_entry(const Node& node, const std::string& file) {
  QueueEntry entry;
  entry.line = node.line(), entry.column = node.column();
  entry.name = node.text("name", std::string());
  entry.count = node.integer("count", 1, 1, kMostJobsOfFile);
  entry.gpus = node.integer("gpus", {}, 1, kMostHosts);
  entry.arrive = node.time("arrive", Time());
  entry.every = node.time("every", Time());
  read_work(node, file, entry);
  read_search(node, entry);
  node.finish();
  if (entry.name.empty())
    entry.name = entry.scenario.empty() ? "job" : std::filesystem::path(entry.scenario).stem().string();
  return entry;
}

void read_policy(const Node& root, QueueFile& queue) {
  queue.policy = static_cast<QueuePolicy>(root.choice("policy", {"fifo", "backfill", "gang"}, 1));
  const Node gang = root.get("gang");
  if (queue.policy == QueuePolicy::gang) {
    queue.slice = gang.time("slice", Time::from_seconds(600));
    if (queue.slice <= Time()) gang.get("slice").error("expected a time above zero");
    queue.switched = gang.time("switch", Time());
    queue.level = gang.integer("level", 2, 1, 1000);
  } else if (gang) {
    gang.error("is of the policy gang", "policy: gang");
  }
  if (gang) gang.finish();
}

std::int64_t jobs_of(const QueueEntry& entry) {
  if (entry.rounds > 0) return entry.count * entry.rounds;
  std::int64_t jobs = entry.count;
  for (std::int64_t left = entry.count; entry.keep > 0 && left > 1;) {
    left = std::max<std::int64_t>(1, left / entry.keep);
    jobs += left;
  }
  return jobs;
}

[[noreturn]] void refuse_entry(const QueueFile& file, const QueueEntry& entry, std::string why, std::string hint) {
  throw InputError(Diagnostic{file.file, entry.line, entry.column, "jobs", std::move(why), std::move(hint)});
}

// Adds an entry's jobs, a group a rung or round.
class Jobs {
 public:
  Jobs(std::vector<QueuedJob>& jobs, std::vector<std::size_t>& entry_of) : jobs_(jobs), entry_of_(entry_of) {}

  void add(std::size_t number, const QueueEntry& entry, double work_s, double copy_s) {
    number_ = number;
    int group = ++group_;
    for (std::int64_t k = 0; k < entry.count; ++k)
      add({entry.gpus, work_s, entry.arrive.seconds() + entry.every.seconds() * static_cast<double>(k), group, -1});
    std::int64_t left = entry.count;
    for (double longer = work_s; entry.keep > 0 && left > 1; group = group_) {
      left = std::max<std::int64_t>(1, left / entry.keep);
      longer *= static_cast<double>(entry.keep);
      next(left, {entry.gpus, longer, 0, 0, group}, 0, 0);
    }
    const std::int64_t copies = std::llround(entry.copies * static_cast<double>(entry.count));
    for (std::int64_t round = 1; round < entry.rounds; ++round, group = group_)
      next(entry.count, {entry.gpus, work_s, 0, 0, group}, copies, copy_s);
  }

 private:
  void next(std::int64_t count, QueuedJob job, std::int64_t copies, double copy_s) {
    job.group = ++group_;
    for (std::int64_t k = 0; k < count; ++k) {
      QueuedJob one = job;
      if (k < copies) one.work_s += copy_s;
      add(one);
    }
  }
  void add(const QueuedJob& job) {
    jobs_.push_back(job);
    entry_of_.push_back(number_);
  }

  std::vector<QueuedJob>& jobs_;
  std::vector<std::size_t>& entry_of_;
  std::size_t number_ = 0;
  int group_ = -1;
};

}  // namespace

QueueFile read_queue_file(const std::string& file) {
  Diagnostics diagnostics;
  const Document document = Document::from_file(file, diagnostics);
  const Node root = document.root();
  QueueFile queue;
  queue.file = file;
  root.integer("rehearse_queue", {}, 1, 1);
  queue.name = root.text("name", std::filesystem::path(file).stem().string());
  const Node cluster = root.get("cluster");
  if (cluster.kind() != Node::Kind::mapping)
    cluster.error("expected a mapping", "cluster: {topology: dgx-a100, hosts: 8}");
  queue.topology = file_beside(file, cluster.text("topology"));
  queue.topology_line = cluster.get("topology").line(), queue.topology_column = cluster.get("topology").column();
  queue.hosts = cluster.integer("hosts", {}, 1, kMostHosts);
  cluster.finish();
  read_policy(root, queue);
  const Node jobs = root.get("jobs");
  if (jobs.kind() != Node::Kind::sequence || jobs.size() == 0)
    jobs.error("expected a list of jobs", "jobs: [{gpus: 8, time: 3h, count: 10}]");
  std::int64_t all = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    queue.entries.push_back(read_entry(jobs.at(j), file));
    all += jobs_of(queue.entries.back());
  }
  if (all > kMostJobsOfFile)
    jobs.error(
        fmt::format("come to {} jobs with their rungs and rounds; at most {} are simulated", all, kMostJobsOfFile));
  root.finish();
  diagnostics.throw_if_any();
  return queue;
}

QueueRequest queue_request(const QueueFile& file, std::int64_t devices, const std::vector<double>& work_s,
                           const std::vector<double>& copy_s, std::vector<std::size_t>& entry_of) {
  QueueRequest request{file.hosts, devices, file.policy, file.slice.seconds(), file.switched.seconds(), file.level, {}};
  entry_of.clear();
  Jobs jobs(request.jobs, entry_of);
  for (std::size_t e = 0; e < file.entries.size(); ++e) {
    const QueueEntry& entry = file.entries[e];
    if (entry.gpus > file.hosts * devices)
      refuse_entry(file, entry,
                   fmt::format("{} needs {} GPUs; the cluster has {}", entry.name, entry.gpus, file.hosts * devices),
                   "fewer GPUs, or more hosts");
    if (entry.gpus > devices && entry.gpus % devices != 0)
      refuse_entry(file, entry,
                   fmt::format("{} needs {} GPUs; jobs of more than a host take whole hosts of {}", entry.name,
                               entry.gpus, devices),
                   fmt::format("{} or {}", entry.gpus / devices * devices, (entry.gpus / devices + 1) * devices));
    jobs.add(e, entry, work_s[e], copy_s[e]);
  }
  return request;
}

}  // namespace rehearse::run
