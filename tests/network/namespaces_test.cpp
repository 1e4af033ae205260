// A network that is really there: four hosts (network namespaces) behind links of 100 and 200 Mbit/s, ranks over Gloo
// between them, each run predicted from a topology file that says what the links are. What moves through the links
// takes most of a step, so that the network is what is compared: the bytes that the hosts sent, which no clock is in,
// and measured and simulated step times. Those agree within 10 % where nothing disturbs the buckets that shape the
// links.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../e2e/program.h"
#include "shaped_network.h"

namespace rehearse::network {
namespace {

constexpr double kTolerance = 0.10;
// TCP payload of an Ethernet frame, 1,448 of 1,514 bytes, is the efficiency.
constexpr const char* kLinkFacts = "efficiency: 0.956, latency: 30us";
// Sent beside payload: headers (4.6 %, less of packets that are segmented late), an acknowledgement of 66 bytes for two
// packets, what Gloo says of its messages.
constexpr double kFraming = 0.10;
// A simulation that forgets who shares a link, or takes it for half as fast as it is, is a factor of 2 off: what is
// measured further from the prediction than halfway there disproves it.
const double kDisproof = std::sqrt(2);

class Namespaces : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = ShapedNetwork::problem(); !problem.empty())
      GTEST_SKIP() << "no network namespaces with tbf here: " << problem;
    if (const e2e::Outcome version = e2e::run({"--version"}); version.out.find("gloo") == std::string::npos)
      GTEST_SKIP() << "built without Gloo";
  }

  // A topology file of hosts h0, h1, ... in the order of ranks; `links` are lines "a b rate".
  std::string topology(const std::vector<std::string>& hosts, const std::vector<std::string>& switches,
                       const std::vector<std::array<std::string, 3>>& links) const {
    const auto list = [](const std::vector<std::string>& names) {
      std::string text;
      for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
      return "[" + text + "]";
    };
    std::string text = "topology: 1\nkind: links\nname: namespaces\ndevice: local\nhosts: " + list(hosts) +
                       "\nswitches: " + list(switches) + "\nshared_host: true\nlinks:\n";
    for (const auto& [a, b, rate] : links)
      text += "  - {between: [" + a + ", " + b + "], bandwidth: " + rate + "Mbps, " + kLinkFacts + "}\n";
    return folder_.write("topology.yaml", text);
  }

  struct Run {
    std::vector<std::string> hosts;  // a rank each
    std::string topology, plan;      // the topology's file; lines of the scenario
    int steps;
  };

  // Performs, calibrates and simulates, once more if the two do not agree. What else the machine does lengthens a step
  // and a calibrated kernel, nothing shortens them, so of both rounds the fastest step and the shortest prediction
  // count. A token bucket whose CPU is taken away for longer than it holds loses what it would have let pass, and steps
  // of 10 % more come of that: beyond the tolerance is only beyond doubt where another network would explain it better.
  void expect_agreement(const ShapedNetwork& network, const Run& run) {
    double measured = INFINITY, predicted = INFINITY;
    for (const char* name : {"first", "second"}) {
      const auto [step, simulated] = round(network, run, folder_ / name);
      if (HasFailure()) return;
      std::cout << name << " round: measured " << step << " s a step, simulated " << simulated << " s\n";
      measured = std::min(measured, step);
      predicted = std::min(predicted, simulated);
      if (std::abs(predicted / measured - 1) <= kTolerance) return;
    }
    if (others_.empty()) {
      EXPECT_LT(std::max(predicted / measured, measured / predicted), kDisproof);
    }
    if (!HasFailure())
      GTEST_SKIP() << "bytes agree, times do not: predicted / measured is " << predicted / measured << ", not within "
                   << kTolerance << " of 1; " << (others_.empty() ? "disturbed links, or a wrong prediction" : others_);
  }

  // Performs the scenario, then simulates it: the fastest step, and the predicted one. What the hosts sent is compared,
  // too: no clock is in that.
  std::pair<double, double> round(const ShapedNetwork& network, const Run& run, const std::string& folder) {
    const std::string ranks = std::to_string(run.hosts.size());
    const std::string scenario =
        folder_.write("scenario.yaml", "rehearse: 1\nname: namespaces\ncluster: {topology: " + run.topology +
                                           ", gpus: " + ranks + ", threads_per_rank: 1}\n" + run.plan);
    std::string command;
    for (std::size_t r = 0; r < run.hosts.size(); ++r)
      command += "RANK=" + std::to_string(r) + " WORLD_SIZE=" + ranks + " LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 " +
                 network.on(run.hosts[r]) + "$REHEARSE execute " + scenario + " --ranks gloo --rendezvous " + folder +
                 "/meet --interface eth0 --steps " + std::to_string(run.steps) + " -o " + folder +
                 "/measured >/dev/null & pids+=($!)\n";
    command = "mkdir -p " + folder + "/meet\n" + command +
              "code=0; for p in ${pids[@]}; do wait $p || code=$?; done; exit $code";
    const std::int64_t sent_before = network.sent_by_hosts();
    const e2e::Outcome performed = e2e::shell(command);
    EXPECT_EQ(performed.status, 0) << performed.err;
    const auto sent = static_cast<double>(network.sent_by_hosts() - sent_before) / run.steps;
    note_others(performed.err);
    const std::string calibration = folder + "/calibration.json";
    const e2e::Outcome calibrated = e2e::run({"calibrate", "--for", scenario, "--budget", "5", "-o", calibration});
    EXPECT_EQ(calibrated.status, 0) << calibrated.err;
    note_others(calibrated.err);
    const e2e::Outcome simulated = e2e::run({"simulate", scenario, "--calibration", calibration, "--json"});
    EXPECT_EQ(simulated.status, 0) << simulated.err;
    if (HasFailure()) return {};
    const nlohmann::json prediction = nlohmann::json::parse(simulated.out);
    const double bytes = sent_a_step(prediction);
    EXPECT_GE(sent, bytes);
    EXPECT_LE(sent, (1 + kFraming) * bytes);
    return {nlohmann::json::parse(e2e::read(folder + "/measured/result.json"))["interval_s"][0].get<double>(),
            prediction["step_time_s"].get<double>()};
  }

  // What hosts put on their links in a step: each byte leaves one host and reaches another.
  static double sent_a_step(const nlohmann::json& prediction) {
    double bytes = 0;
    for (const nlohmann::json& link : prediction["links"]["busiest"])
      if (link["name"].get<std::string>().front() == 'h')
        bytes += link["bytes"].get<double>() * link["alike"].get<double>() / 2;
    return bytes;
  }

  void note_others(const std::string& err) {
    const std::size_t at = err.find("other programs used ");
    if (at != std::string::npos) others_ = err.substr(at, err.find('\n', at) - at);
  }

  e2e::Folder folder_;
  std::string others_;  // what the program said of others' load
};

const std::vector<std::string> kHosts = {"h0", "h1", "h2", "h3"};

// 43 MB of gradients, each link carrying 3/2 of them in each direction.
TEST_F(Namespaces, GradientsOfFourReplicas) {
  ShapedNetwork network;
  network.add_switch("s0");
  std::vector<std::array<std::string, 3>> links;
  for (const std::string& host : kHosts) {
    network.add_host(host, "s0", "200mbit");
    links.push_back({host, "s0", "200"});
  }
  expect_agreement(
      network,
      {kHosts, topology(kHosts, {"s0"}, links),
       "model: gpt-mini\nplan: {micro_batch: 1}\ntraining: {global_batch: 4, seq_len: 32, precision: fp32}\n", 5});
}

// Three stages of one layer: 2 MB of activations a micro-batch forward and as much back, over links of 100 Mbit/s. A
// bucket lets 128 KiB of a message pass at once if the link was idle before, 6 % of it.
TEST_F(Namespaces, PipelineOverSlowLinks) {
  ShapedNetwork network;
  network.add_switch("s0");
  const std::vector<std::string> hosts = {"h0", "h1", "h2"};
  std::vector<std::array<std::string, 3>> links;
  for (const std::string& host : hosts) {
    network.add_host(host, "s0", "100mbit");
    links.push_back({host, "s0", "100"});
  }
  expect_agreement(network, {hosts, topology(hosts, {"s0"}, links),
                             "model: {family: gpt, layers: 3, hidden: 128, heads: 4, vocab: 256, max_seq_len: 512}\n"
                             "plan: {pipeline: 3, schedule: gpipe, micro_batch: 8}\n"
                             "training: {global_batch: 32, seq_len: 512, precision: fp32}\n",
                             6});
}

// Two data-parallel rings, h0-h1 and h2-h3, each with an end on either side of one trunk of half its links' rate.
TEST_F(Namespaces, TwoRingsShareATrunk) {
  ShapedNetwork network;
  network.add_switch("s0");
  network.add_switch("s1");
  std::vector<std::array<std::string, 3>> links = {{"s0", "s1", "100"}};
  for (std::size_t i = 0; i < kHosts.size(); ++i) {
    const std::string side = i % 2 == 0 ? "s0" : "s1";
    network.add_host(kHosts[i], side, "200mbit");
    links.push_back({kHosts[i], side, "200"});
  }
  network.join("s0", "s1", 100);
  expect_agreement(network, {kHosts, topology(kHosts, {"s0", "s1"}, links),
                             "model: gpt-mini\nplan: {pipeline: 2, micro_batch: 1, overlap_grad_reduce: false}\n"
                             "training: {global_batch: 4, seq_len: 32, precision: fp32}\n",
                             5});
}

}  // namespace
}  // namespace rehearse::network
