// A network that is really there: four hosts (network namespaces) behind links of 100 and 200 Mbit/s, ranks over Gloo
// between them, each run predicted from a topology file that says what the links are. What moves through the links
// takes most of a step, so that the network is what is compared. Measured and simulated step times agree within 10 %.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../e2e/program.h"
#include "shaped_network.h"

namespace rehearse::network {
namespace {

constexpr double kTolerance = 0.10;
// Of a link's rate: TCP payload of an Ethernet frame, 1,448 of 1,514 bytes.
constexpr const char* kLinkFacts = "efficiency: 0.956, latency: 30us";

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

  // The step time of a result directory.
  static double step_of(const std::string& json) { return nlohmann::json::parse(json)["step_time_s"].get<double>(); }

  // What else the machine runs lengthens what is measured, and more or less of it what is calibrated: if the first
  // round does not agree, the median of three counts. If that does not either and the program says that others used the
  // machine, there was nothing to compare.
  double error_of(const ShapedNetwork& network, const std::vector<std::string>& hosts, const std::string& topology,
                  const std::string& plan, int steps) {
    std::vector<double> errors;
    for (const char* round : {"first", "second", "third"}) {
      errors.push_back(error_of_round(network, hosts, topology, plan, steps, folder_ / round));
      if (HasFailure() || std::abs(errors.front()) <= kTolerance) return errors.front();
    }
    std::sort(errors.begin(), errors.end());
    return errors[1];
  }

  // Performs the scenario, a rank a host, then simulates it; the error of the simulation.
  double error_of_round(const ShapedNetwork& network, const std::vector<std::string>& hosts,
                        const std::string& topology, const std::string& plan, int steps, const std::string& folder) {
    const std::string scenario = folder_.write(
        "scenario.yaml", "rehearse: 1\nname: namespaces\ncluster: {topology: " + topology +
                             ", gpus: " + std::to_string(hosts.size()) + ", threads_per_rank: 1}\n" + plan);
    std::string command;
    const std::string ranks = std::to_string(hosts.size());
    for (std::size_t r = 0; r < hosts.size(); ++r)
      command += "RANK=" + std::to_string(r) + " WORLD_SIZE=" + ranks + " LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 " +
                 network.on(hosts[r]) + "$REHEARSE execute " + scenario + " --ranks gloo --rendezvous " + folder +
                 "/meet --interface eth0 --steps " + std::to_string(steps) + " -o " + folder +
                 "/measured >/dev/null & pids+=($!)\n";
    command = "mkdir -p " + folder + "/meet\n" + command +
              "code=0; for p in ${pids[@]}; do wait $p || code=$?; done; exit $code";
    const e2e::Outcome performed = e2e::shell(command);
    EXPECT_EQ(performed.status, 0) << performed.err;
    note_others(performed.err);
    const std::string calibration = folder + "/calibration.json";
    const e2e::Outcome calibrated = e2e::run({"calibrate", "--for", scenario, "--budget", "10", "-o", calibration});
    EXPECT_EQ(calibrated.status, 0) << calibrated.err;
    note_others(calibrated.err);
    const e2e::Outcome simulated = e2e::run({"simulate", scenario, "--calibration", calibration, "--json"});
    EXPECT_EQ(simulated.status, 0) << simulated.err;
    if (HasFailure()) return 1;
    const double measured = step_of(e2e::read(folder + "/measured/result.json")), predicted = step_of(simulated.out);
    std::cout << "measured " << measured << " s a step, simulated " << predicted
              << " s: " << 100 * (predicted / measured - 1) << " %\n";
    return predicted / measured - 1;
  }

  void note_others(const std::string& err) {
    const std::size_t at = err.find("other programs used ");
    if (at != std::string::npos) others_ = err.substr(at, err.find('\n', at) - at);
  }
  void expect_agreement(double error) const {
    if (std::abs(error) > kTolerance && !HasFailure() && !others_.empty())
      GTEST_SKIP() << "nothing to compare: " << others_;
    EXPECT_LE(std::abs(error), kTolerance);
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
  const double error = error_of(
      network, kHosts, topology(kHosts, {"s0"}, links),
      "model: gpt-mini\nplan: {micro_batch: 1}\ntraining: {global_batch: 4, seq_len: 32, precision: fp32}\n", 5);
  expect_agreement(error);
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
  const double error = error_of(network, hosts, topology(hosts, {"s0"}, links),
                                "model: {family: gpt, layers: 3, hidden: 128, heads: 4, vocab: 256, max_seq_len: 512}\n"
                                "plan: {pipeline: 3, schedule: gpipe, micro_batch: 8}\n"
                                "training: {global_batch: 32, seq_len: 512, precision: fp32}\n",
                                6);
  expect_agreement(error);
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
  const double error = error_of(network, kHosts, topology(kHosts, {"s0", "s1"}, links),
                                "model: gpt-mini\nplan: {pipeline: 2, micro_batch: 1, overlap_grad_reduce: false}\n"
                                "training: {global_batch: 4, seq_len: 32, precision: fp32}\n",
                                5);
  expect_agreement(error);
}

}  // namespace
}  // namespace rehearse::network
