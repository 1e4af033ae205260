// Networks written out link by link: routes, and what is wrong with a file.
#include "sim/cluster/links.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "sim/cluster/topology.h"
#include "tests/support/temporary.h"

namespace rehearse::cluster {
namespace {

const std::string kCheckout = REHEARSE_SOURCE_DIR;

// Two hosts on each of two switches that are joined by a slower link.
const std::string kDumbbell = R"(topology: 1
kind: links
name: dumbbell
device: local
hosts: [a, b, c, d]
switches: [left, right]
links:
  - {between: [a, left], bandwidth: 200Mbps, efficiency: 0.96, latency: 50us}
  - {between: [left, b], bandwidth: 200Mbps, latency: 50us}
  - {between: [c, right], bandwidth: 200Mbps, latency: 50us}
  - {between: [d, right], bandwidth: 200Mbps, latency: 50us}
  - {between: [right, left], bandwidth: 80Mbps, latency: 1ms}
)";

std::string write(const std::string& text) {
  const std::string path = test::temporary_path("links.yaml");
  std::ofstream(path) << text;
  return path;
}
std::unique_ptr<Cluster> build_links(const std::string& text, int devices = 4, int threads = 0, int open_cores = 6) {
  return build_cluster(write(text), devices, {}, threads, kCheckout, open_cores);
}
std::vector<std::string> way(const Cluster& cluster, int from, int to) {
  std::vector<std::string> names;
  for (const ResourceId id : cluster.route(from, to).resources)
    names.push_back(cluster.resources().at(static_cast<std::size_t>(id)).name);
  return names;
}
std::string link_errors_of(const std::string& text, int devices = 2) {
  try {
    build_links(text, devices);
    return "";
  } catch (const InputError& error) {
    std::string all;
    for (const Diagnostic& d : error.diagnostics()) all += d.text() + "\n";
    return all;
  }
}
std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(Links, RouteOverTheSwitchesBetween) {
  const auto cluster = build_links(kDumbbell);
  EXPECT_EQ(way(*cluster, 0, 1), (std::vector<std::string>{"a->left", "left->b"}));
  EXPECT_EQ(way(*cluster, 0, 3), (std::vector<std::string>{"a->left", "left->right", "right->d"}));
  EXPECT_EQ(way(*cluster, 3, 0), (std::vector<std::string>{"d->right", "right->left", "left->a"}));
  EXPECT_EQ(cluster->route(0, 3).latency, Time::from_us(1100));
}

TEST(Links, EachDirectionHasTheEffectiveBandwidth) {
  const auto cluster = build_links(kDumbbell);
  EXPECT_EQ(cluster->resources().size(), 10u);
  EXPECT_EQ(cluster->resources()[0].capacity, Bandwidth(24'000'000));
  EXPECT_EQ(cluster->resources()[1].capacity, Bandwidth(24'000'000));
  EXPECT_EQ(cluster->resources()[9].capacity, Bandwidth(10'000'000));
}

// Of two ways of two links the one whose links come first in the file; a shorter one beats both.
TEST(Links, FewestLinksThenTheFirstInTheFile) {
  const std::string twice = R"(topology: 1
kind: links
name: twice
device: local
hosts: [a, b]
switches: [s, t]
links:
  - {between: [a, t], bandwidth: 1Gbps, latency: 1us}
  - {between: [a, s], bandwidth: 1Gbps, latency: 1us}
  - {between: [s, b], bandwidth: 1Gbps, latency: 1us}
  - {between: [t, b], bandwidth: 1Gbps, latency: 1us}
)";
  EXPECT_EQ(way(*build_links(twice, 2), 0, 1), (std::vector<std::string>{"a->s", "s->b"}));
  EXPECT_EQ(way(*build_links(twice + "  - {between: [b, a], bandwidth: 8Mbps, latency: 1s}\n", 2), 0, 1),
            (std::vector<std::string>{"a->b"}));
}

TEST(Links, HostsHaveCoresOfTheirOwnOrShareThem) {
  const auto apart = build_links(kDumbbell), together = build_links(kDumbbell + "shared_host: true\n");
  EXPECT_EQ(apart->node_of(3), 3);
  EXPECT_EQ(apart->host_sharing().cores, 6);
  EXPECT_EQ(apart->host_sharing().threads_per_rank, 6);
  EXPECT_EQ(together->node_of(3), 0);
  EXPECT_EQ(together->host_sharing().threads_per_rank, 1);
  EXPECT_EQ(build_links(kDumbbell + "host: {cores: 3}\n")->host_sharing().cores, 3);
  EXPECT_EQ(build_links(kDumbbell, 4, 2)->host_sharing().threads_per_rank, 2);
}

TEST(Links, HoldAsManyRanksAsHosts) {
  EXPECT_EQ(build_links(kDumbbell, 3)->devices(), 3);
  EXPECT_NE(link_errors_of(kDumbbell, 5).find("'dumbbell' has 4 hosts"), std::string::npos)
      << link_errors_of(kDumbbell, 5);
}

TEST(LinksFile, NamesAnUnknownNodeWithTheNearest) {
  const std::string said = link_errors_of(replaced(kDumbbell, "[c, right]", "[c, rigth]"));
  EXPECT_NE(said.find(":10:"), std::string::npos) << said;
  EXPECT_NE(said.find("'rigth' is neither a host nor a switch (did you mean 'right'?)"), std::string::npos) << said;
}

TEST(LinksFile, RefusesTheSameLinkTwice) {
  const std::string said = link_errors_of(kDumbbell + "  - {between: [left, a], bandwidth: 1Gbps, latency: 1us}\n");
  EXPECT_NE(said.find("joined already, at line 8"), std::string::npos) << said;
  EXPECT_NE(link_errors_of(replaced(kDumbbell, "[c, right]", "[c, c]")).find("one twice"), std::string::npos);
  EXPECT_NE(link_errors_of(replaced(kDumbbell, "[c, right]", "[c]")).find("the two nodes"), std::string::npos);
}

TEST(LinksFile, NamesAPairWithNoWay) {
  const std::string said =
      link_errors_of(replaced(kDumbbell, "  - {between: [right, left], bandwidth: 80Mbps, latency: 1ms}\n", ""));
  EXPECT_NE(said.find("no way from host 'a' to 'c'"), std::string::npos) << said;
  // A host in between forwards nothing.
  const std::string chain = R"(topology: 1
kind: links
name: chain
device: local
hosts: [a, b, c]
links:
  - {between: [a, b], bandwidth: 1Gbps, latency: 1us}
  - {between: [a, c], bandwidth: 1Gbps, latency: 1us}
)";
  EXPECT_NE(link_errors_of(chain).find("no way from host 'b' to 'c'"), std::string::npos) << link_errors_of(chain);
}

TEST(LinksFile, ReportsEverythingAtOnce) {
  std::string text = replaced(kDumbbell, "hosts: [a, b, c, d]", "hosts: [a, b, b, d]");
  text = replaced(text, "bandwidth: 200Mbps, latency: 50us", "bandwidth: 200, latency: 50us");
  text = replaced(text, "switches:", "switchs:");
  const std::string said = link_errors_of(text);
  EXPECT_NE(said.find("'b' is there already"), std::string::npos) << said;
  EXPECT_NE(said.find("needs its unit"), std::string::npos) << said;
  EXPECT_NE(said.find("unknown key (did you mean 'switches'?)"), std::string::npos) << said;
}

}  // namespace
}  // namespace rehearse::cluster
