// kind: links. Hosts and switches are names, each used once; a link joins two of them, once. Everything is checked
// before routes are looked for, and a pair of hosts without one is named.
#include "sim/cluster/read_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/cluster/read_port.h"

namespace rehearse::cluster {
namespace {

constexpr std::size_t kMostNodes = 1024;

using Numbers = std::map<std::string, int>;  // node by name

void read_names(const Node& list, std::vector<std::string>& names, Numbers& numbers) {
  if (list.kind() != Node::Kind::sequence && list) list.error("expected a list of names");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node node = list.at(i);
    const auto name = node.as_text();
    if (!name || name->empty()) {
      node.error("expected a name");
      continue;
    }
    if (!numbers.try_emplace(*name, static_cast<int>(numbers.size())).second) {
      node.error(fmt::format("'{}' is there already", *name));
      continue;
    }
    names.push_back(*name);
  }
  if (numbers.size() > kMostNodes) list.error(fmt::format("more than {} hosts and switches", kMostNodes));
}

// The node of an end of a link; -1, reported, if there is none of that name.
int end_of(const Node& end, const Numbers& numbers) {
  const auto name = end.as_text();
  const auto found = numbers.find(name.value_or(""));
  if (found != numbers.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, number] : numbers) names.push_back(known);
  const std::string near = nearest(name.value_or(""), names);
  end.error(name ? fmt::format("'{}' is neither a host nor a switch", *name) : "expected the name of a host or switch",
            near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  return -1;
}

void read_link(const Node& node, const Numbers& numbers, LinksNumbers& out, std::map<std::pair<int, int>, int>& seen) {
  const Node between = node.get("between");
  const Port port = read_port(node);
  node.finish();
  if (between.size() != 2) {
    (between ? between : node).error("expected 'between', the two nodes that the link joins", "e.g. between: [a, b]");
    return;
  }
  const int a = end_of(between.at(0), numbers), b = end_of(between.at(1), numbers);
  if (a < 0 || b < 0) return;
  if (a == b) {
    between.error("a link joins two nodes, found one twice");
    return;
  }
  const auto [first, fresh] = seen.try_emplace(std::minmax(a, b), node.line());
  if (!fresh)
    between.error(fmt::format("these two are joined already, at line {}", first->second),
                  "a link of more bandwidth stands for several");
  else
    out.links.push_back({a, b, port.effective, port.latency});
}

// Each host to those after it: a way there is a way back. One is named for each host.
void check_ways(const Node& links, const LinksNumbers& out) {
  for (std::size_t from = 0; from < out.hosts.size(); ++from) {
    const std::vector<int> over = reached_over(out, static_cast<int>(from));
    for (std::size_t to = from + 1; to < out.hosts.size(); ++to) {
      if (over[to] >= 0) continue;
      links.error(fmt::format("no way from host '{}' to '{}'", out.hosts[from], out.hosts[to]),
                  "hosts forward nothing: join them by a switch");
      break;
    }
  }
}

}  // namespace

LinksNumbers read_links(const Node& root, int open_cores) {
  LinksNumbers out;
  Numbers numbers;
  const Node hosts = root.get("hosts"), switches = root.get("switches"), links = root.get("links");
  read_names(hosts, out.hosts, numbers);
  // Numbers go by the names kept: hosts first, then switches.
  read_names(switches, out.switches, numbers);
  if (out.hosts.empty()) root.error("expected 'hosts', a list of at least one name");
  if (links.kind() != Node::Kind::sequence && links) links.error("expected a list of links");
  std::map<std::pair<int, int>, int> seen;
  for (std::size_t l = 0; l < links.size(); ++l) read_link(links.at(l), numbers, out, seen);
  const bool all_good = out.links.size() == links.size();
  const Node host = root.get("host");
  const bool open = host.text("cores", "auto") == "auto";
  out.cores = open ? open_cores : static_cast<int>(host.integer("cores", {}, 1, 4096));
  host.finish();
  out.shared_host = root.boolean("shared_host", false);
  if (all_good && out.hosts.size() > 1) check_ways(links ? links : root, out);
  return out;
}

}  // namespace rehearse::cluster
