// Reads `placement`, `jobs`, `faults` and `background` (faults.h). A job's ranks run on the devices of its placement,
// or on the first that no job is placed on.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "sim/base/document.h"
#include "sim/cluster/faults.h"
#include "sim/cluster/read_port.h"

namespace rehearse::cluster {
namespace {

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

// "3" or "3-7": first and last.
std::optional<std::pair<int, int>> range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *last < *first) return {};
  return std::pair(*first, *last);
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// Devices by their names in a placement.
class Places {
 public:
  explicit Places(const std::vector<int>& first_device) : first_(first_device) {}

  // Appends the devices of an entry: a number, a range, nodeN, node[A-B,C], nodeN/gpuK. What is wrong, or "".
  std::string add(const std::string& entry, std::vector<int>& out) const {
    std::string_view text = entry;
    if (text.substr(0, 4) != "node") {
      const auto devices = range(text);
      if (!devices) return kForms;
      if (devices->second >= first_.back())
        return fmt::format("there are {} devices, 0 to {}", first_.back(), first_.back() - 1);
      for (int d = devices->first; d <= devices->second; ++d) out.push_back(d);
      return "";
    }
    text.remove_prefix(4);
    std::optional<int> gpu;
    if (const std::size_t slash = text.find("/gpu"); slash != std::string_view::npos) {
      gpu = number(text.substr(slash + 4));
      if (!gpu) return kForms;
      text = text.substr(0, slash);
    }
    const bool list = text.size() > 2 && text.front() == '[' && text.back() == ']';
    if (list) text = text.substr(1, text.size() - 2);
    for (const std::string_view part : split(text, ',')) {
      const auto nodes = range(part);
      if (!nodes || (!list && nodes->first != nodes->second)) return kForms;
      for (int n = nodes->first; n <= nodes->second; ++n) {
        const std::string problem = add_node(n, gpu, out);
        if (!problem.empty()) return problem;
      }
    }
    return "";
  }

 private:
  static constexpr const char* kForms = "expected a device's number, a range as 0-7, nodeN, node[A-B,C], or nodeN/gpuK";

  std::string add_node(int node, std::optional<int> gpu, std::vector<int>& out) const {
    const auto n = static_cast<std::size_t>(node);
    if (n + 1 >= first_.size())
      return fmt::format("there are {} nodes, node0 to node{}", first_.size() - 1, first_.size() - 2);
    const int count = first_[n + 1] - first_[n];
    if (gpu && *gpu >= count) return fmt::format("node{} has {} devices, gpu0 to gpu{}", node, count, count - 1);
    for (int d = 0; d < count; ++d)
      if (!gpu || *gpu == d) out.push_back(first_[n] + d);
    return "";
  }

  const std::vector<int>& first_;
};

// Entries separated by white space, # to the end of a line is a comment.
std::vector<std::string> entries_of_file(const std::string& path) {
  std::vector<std::string> entries;
  std::istringstream lines(read_text_file(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) entries.push_back(word);
  }
  return entries;
}

std::vector<int> read_placement(const Node& node, int ranks, const Places& places) {
  std::vector<int> placement;
  const auto add = [&](const std::string& entry, const Node& at) {
    const std::string problem = places.add(entry, placement);
    if (!problem.empty()) at.error(fmt::format("'{}': {}", entry, problem));
    return problem.empty();
  };
  bool good = true;
  if (node.kind() == Node::Kind::sequence) {
    for (std::size_t i = 0; i < node.size(); ++i) good = add(node.at(i).as_text().value_or("?"), node.at(i)) && good;
  } else if (const auto text = node.as_text()) {
    const bool file = text->find('/') != std::string::npos && text->substr(0, 4) != "node";
    for (const std::string& entry : file || text->ends_with(".txt") ? entries_of_file(*text) : std::vector{*text})
      good = add(entry, node) && good;
  } else {
    node.error("expected a list of nodes or devices, or the path of a file of them");
    good = false;
  }
  if (!good) return placement;
  if (static_cast<int>(placement.size()) < ranks)
    node.error(fmt::format("places {} devices, {} ranks need one each", placement.size(), ranks));
  placement.resize(std::min(placement.size(), static_cast<std::size_t>(ranks)));
  std::vector<int> sorted = placement;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) node.error(fmt::format("device {} is there twice", *twice));
  return placement;
}

// The devices of all jobs, each device one job's. The scenario's own is the first of them; the list `jobs` has the
// others, each {name, gpus} and perhaps a placement.
class Jobs {
 public:
  Jobs(const Node& root, int ranks, const std::vector<int>& first_device)
      : first_(first_device), owner_(static_cast<std::size_t>(first_device.back()), kFree) {
    add("this scenario's own job", root, ranks);
    if (jobs_[0].devices.empty())  // rank r on device r; that there are so many is checked elsewhere
      for (int r = 0; r < std::min(ranks, first_.back()); ++r) jobs_[0].devices.push_back(r);
    claim(0);
    const Node list = root.get("jobs");
    for (std::size_t i = 0; list.kind() == Node::Kind::sequence && i < list.size(); ++i) {
      const Node job = list.at(i);
      add(fmt::format("job '{}'", job.text("name")), job, static_cast<int>(job.integer("gpus")));
      job.finish();
      claim(i + 1);
    }
    for (std::size_t j = 1; j < jobs_.size(); ++j)
      if (!jobs_[j].placed) place(j);
  }

  const std::vector<int>& devices(int job) const { return jobs_.at(static_cast<std::size_t>(job)).devices; }
  int last() const {
    int last = 0;
    for (const Job& job : jobs_)
      for (const int device : job.devices) last = std::max(last, device);
    return last;
  }

 private:
  static constexpr int kFree = -1;
  struct Job {
    std::string name;
    Node node;
    int ranks = 0;
    bool placed = false;
    std::vector<int> devices;
  };

  void add(std::string name, const Node& node, int ranks) {
    const Node placement = node.get("placement");
    const bool placed = placement && placement.kind() != Node::Kind::null;
    jobs_.push_back({std::move(name), node, ranks, placed, {}});
    if (placed) jobs_.back().devices = read_placement(placement, ranks, Places(first_));
  }

  // Its devices are its own, or the first that is not is reported.
  void claim(std::size_t j) {
    const auto owner = [this](int device) -> int& { return owner_[static_cast<std::size_t>(device)]; };
    std::vector<int> taken;
    for (const int device : jobs_[j].devices) {
      if (owner(device) == kFree)
        owner(device) = static_cast<int>(j);
      else if (owner(device) != static_cast<int>(j))
        taken.push_back(device);
    }
    if (taken.empty()) return;
    const std::string more = taken.size() > 1 ? fmt::format(" and {} more", taken.size() - 1) : "";
    jobs_[j]
        .node.get("placement")
        .error(fmt::format("{} and {} are both placed on device {} ({}){}", jobs_[j].name,
                           jobs_[static_cast<std::size_t>(owner(taken[0]))].name, taken[0], name_of(taken[0]), more),
               "without a placement a job is put on the first devices that are free");
  }

  // On the first devices that are free.
  void place(std::size_t j) {
    Job& job = jobs_[j];
    const auto free = std::count(owner_.begin(), owner_.end(), kFree);
    if (free < job.ranks) {
      job.node.error(fmt::format("{} needs {} devices; {} of {} are free of other jobs", job.name, job.ranks, free,
                                 owner_.size()));
      return;
    }
    for (int device = 0; static_cast<int>(job.devices.size()) < job.ranks; ++device) {
      if (owner_[static_cast<std::size_t>(device)] != kFree) continue;
      owner_[static_cast<std::size_t>(device)] = static_cast<int>(j);
      job.devices.push_back(device);
    }
  }

  std::string name_of(int device) const {
    const auto after = std::upper_bound(first_.begin(), first_.end(), device);
    return fmt::format("node{}/gpu{}", after - first_.begin() - 1, device - *std::prev(after));
  }

  const std::vector<int>& first_;
  std::vector<int> owner_;  // job of each device
  std::vector<Job> jobs_;
};

Fault read_fault(const Node& node) {
  Fault fault;
  fault.pattern = node.text("link");
  fault.file = node.file(), fault.line = node.line(), fault.column = node.column(), fault.path = node.path();
  fault.missing = node.boolean("missing", false);
  fault.share = node.number("share", 1.0, 0.0001, 1.0);
  if (node.has("bandwidth")) {
    fault.bandwidth = node.bandwidth("bandwidth");
    node.check_lowest("bandwidth", *fault.bandwidth, "missing: true, of a link that is down");
  }
  fault.latency = read_latency(node, "latency", Time());
  node.finish();
  if (!fault.missing && fault.share == 1 && !fault.bandwidth && fault.latency == Time())
    node.error("expected what is wrong with it: missing, share, bandwidth or latency");
  return fault;
}

int read_device(const Node& node, const char* key, const Places& places) {
  std::vector<int> found;
  const std::string text = node.text(key);
  if (text.empty()) return 0;
  const std::string problem = places.add(text, found);
  if (problem.empty() && found.size() == 1) return found.front();
  node.get(key).error(fmt::format("'{}': {}", text, problem.empty() ? "expected one device" : problem));
  return 0;
}

// Whether a list; an empty one counts.
bool is_list(const Node& node) {
  if (node && node.kind() != Node::Kind::sequence && node.kind() != Node::Kind::null) node.error("expected a list");
  return node.kind() == Node::Kind::sequence;
}

}  // namespace

Conditions read_conditions(const Node& root, int ranks, const std::vector<int>& first_device, int job) {
  Conditions found;
  const Places places(first_device);
  const Node placement = root.get("placement"), faults = root.get("faults"), background = root.get("background");
  if (is_list(root.get("jobs"))) {
    const Jobs jobs(root, ranks, first_device);
    found.placement = jobs.devices(job);
    found.other_jobs = jobs.last();
  } else if (placement && placement.kind() != Node::Kind::null) {
    found.placement = read_placement(placement, ranks, places);
  }
  for (std::size_t i = 0; is_list(faults) && i < faults.size(); ++i) found.faults.push_back(read_fault(faults.at(i)));
  for (std::size_t i = 0; is_list(background) && i < background.size(); ++i) {
    const Node flow = background.at(i);
    const BackgroundFlow read{read_device(flow, "from", places), read_device(flow, "to", places),
                              flow.bandwidth("rate")};
    flow.finish();
    if (read.from != read.to)
      found.background.push_back(read);
    else
      flow.error("expected two different devices");
  }
  return found;
}

}  // namespace rehearse::cluster
