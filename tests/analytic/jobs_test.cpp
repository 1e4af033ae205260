// Two whole jobs of scenario files on one cluster, against closed forms: rings over one trunk, and over links of their
// own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/run/run.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

// Four nodes of one GPU, two on each of two leaves, which one cable of a NIC's rate joins over the spine.
constexpr const char* kTopology = R"(
topology: 1
kind: composed
name: trunk
device: a100-sxm-80g
node: {devices: 1, inside: none}
nic: {count: 1, bandwidth: 10GB/s, efficiency: 1, latency: 1us}
fabric: {kind: fat_tree, levels: 2, rails: false, nodes_per_unit: 2, units: 2, oversubscription: 2, hop_latency: 100ns}
)";

class Folder {
 public:
  Folder() : path_(test::temporary_path("jobs")) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ + "/trunk.yaml") << kTopology;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  // A data-parallel job of two ranks, whose gradients go round at once when backward is over.
  std::string job(const std::string& name, const std::string& placement, const std::string& jobs) const {
    const std::string file = path_ + "/" + name + ".yaml";
    std::ofstream(file) << "rehearse: 1\nname: " << name
                        << "\nmodel: {family: gpt, layers: 4, hidden: 1024, heads: 16, vocab: 4096, max_seq_len: 64}\n"
                        << "cluster: {topology: " << path_ << "/trunk.yaml, gpus: 2, placement: " << placement << jobs
                        << "}\nplan: {bucket: 4GiB, overlap_grad_reduce: false}\n"
                        << "training: {global_batch: 2, clip: 0}\n";
    return file;
  }

 private:
  std::string path_;
};

result::Result simulated(const std::string& file, run::Fidelity fidelity = run::Fidelity::flow, int threads = 1) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.fidelity = fidelity;
  options.threads = threads;
  return run::simulate_scenario(plan::read_scenario(file, {}, REHEARSE_SOURCE_DIR), options);
}

double gradient_bytes(const std::string& file) {
  return 4.0 * static_cast<double>(model::parameter_count(plan::read_scenario(file, {}, REHEARSE_SOURCE_DIR).model));
}

TEST(Jobs, RingsThatShareATrunkEachGetHalfOfIt) {
  const Folder folder;
  folder.job("other", "[node1, node3]", "");
  const std::string file = folder.job("own", "[node0, node2]", ", jobs: [{scenario: other.yaml}]");
  const result::Result r = simulated(file);
  // A ring of two sends 2 (n - 1) / n = 1 times the gradients each way; alone at the NIC's rate, which is the trunk's.
  const double alone = gradient_bytes(file) / 10e9;
  ASSERT_EQ(r.links.busiest[0].name, "leaf0->spine0");
  EXPECT_NEAR(1e-12 * static_cast<double>(r.links.busiest[0].busy_ps), 2 * alone, 1e-6 * alone)
      << "both send over the same time, each at half of the trunk";
  EXPECT_EQ(r.links.busiest[0].users.size(), 2u);
  ASSERT_EQ(r.jobs.size(), 2u);
  for (const result::JobResult& job : r.jobs) {
    EXPECT_EQ(job.step_ps, r.step_time_ps) << "the jobs are alike";
    // Alone a ring of this library reaches 97% of the NIC.
    EXPECT_NEAR(1e-12 * static_cast<double>(job.step_ps - job.alone_ps), 2 * alone - alone / 0.97, 0.01 * alone);
    EXPECT_DOUBLE_EQ(job.slowdown, static_cast<double>(job.step_ps) / static_cast<double>(job.alone_ps));
    EXPECT_EQ(job.gpus, 2);
  }
  EXPECT_EQ(r.jobs[0].name, "own");
  EXPECT_EQ(r.jobs[1].name, "other");
  EXPECT_EQ(result::to_json(r).substr(0, 400), result::to_json(simulated(file, run::Fidelity::flow, 4)).substr(0, 400));
}

TEST(Jobs, WithLinksOfTheirOwnTheyAreAsTheyWouldBeAlone) {
  const Folder folder;
  folder.job("other", "[node2, node3]", "");
  const result::Result alone = simulated(folder.job("alone", "[node0, node1]", ""));
  const result::Result both = simulated(folder.job("own", "[node0, node1]", ", jobs: [{scenario: other.yaml}]"));
  EXPECT_EQ(both.step_time_ps, alone.step_time_ps);
  EXPECT_EQ(both.breakdown_ps, alone.breakdown_ps);
  for (const result::JobResult& job : both.jobs) {
    EXPECT_EQ(job.slowdown, 1.0);
    EXPECT_EQ(job.step_ps, job.alone_ps);
    EXPECT_EQ(job.peak_bytes, alone.stages.at(0).peak) << "the jobs are alike";
    EXPECT_EQ(job.memory_capacity, alone.memory_capacity);
  }
}

TEST(Jobs, MessageByMessageTheyShareAlikeAndAnalyticallyNotAtAll) {
  const Folder folder;
  folder.job("other", "[node1, node3]", "");
  const std::string file = folder.job("own", "[node0, node2]", ", jobs: [{scenario: other.yaml}]");
  const double flow = simulated(file).jobs[0].slowdown;
  EXPECT_GT(flow, 1.3);
  EXPECT_NEAR(simulated(file, run::Fidelity::step).jobs[0].slowdown, flow, 0.02 * flow);
  EXPECT_EQ(simulated(file, run::Fidelity::analytic).jobs[0].slowdown, 1.0);
}

}  // namespace
}  // namespace rehearse
