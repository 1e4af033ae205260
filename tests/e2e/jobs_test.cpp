// Several jobs on one cluster, as a user meets them: what is refused and in which words, and where results say it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

const std::string kModel = "rehearse: 1\nmodel: gpt-tiny\n";
const std::string kOn16 = "cluster: {topology: dgx-a100, gpus: 16, jobs: ";

// What a scenario of 16 GPUs on nodes 0 and 1 with these jobs is refused for.
std::string refusal(const std::string& jobs, const std::string& other = "cluster: {gpus: 8}\n") {
  const Folder folder;
  folder.write("other.yaml", kModel + other);
  const Outcome r = run({"simulate", folder.write("own.yaml", kModel + kOn16 + jobs + "}\n")});
  EXPECT_EQ(r.status, 2) << r.out << r.err;
  return r.err;
}

TEST(Jobs, DevicesOfTwoJobsAreRefusedWithBothNames) {
  const std::string err = refusal("[{scenario: other.yaml, placement: [node1]}]");
  EXPECT_TRUE(has(err, "own.yaml:3:")) << err;
  EXPECT_TRUE(has(err,
                  "cluster.jobs[0].placement: job 'other' and this scenario's own job are both placed on device 8 "
                  "(node1/gpu0) and 7 more"))
      << err;
  const std::string two =
      refusal("[{scenario: other.yaml, placement: [node2]}, {scenario: other.yaml, name: third, placement: [20-27]}]");
  EXPECT_TRUE(has(two, "job 'third' and job 'other' are both placed on device 20 (node2/gpu4) and 3 more")) << two;
}

TEST(Jobs, DevicesThatAreNotThereAreRefused) {
  EXPECT_TRUE(
      has(refusal("[{scenario: other.yaml, placement: [node9999]}]"), "cluster.jobs[0].placement[0]: 'node9999'"));
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml, placement: [node3/gpu0]}]"), "places 1 devices, 8 ranks need"));
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml, set: {cluster.gpus: 8000}}]"), "job 'other' needs 8000 devices"));
}

TEST(Jobs, AnotherClusterIsRefused) {
  const std::string err = refusal("[{scenario: other.yaml}]", "cluster: {topology: dgx-h100, gpus: 8}\n");
  EXPECT_TRUE(has(err, "is for a cluster 'dgx-h100', this scenario is for 'dgx-a100'")) << err;
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml}]", "cluster: {gpus: 8, overrides: {nic: {bandwidth: 1GB/s}}}\n"),
                  "says nic.bandwidth of the cluster"));
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml}]",
                          "cluster: {gpus: 8}\nnoise: {links: [{resources: 'node*', capacity: 0.5}]}\n"),
                  "has noise of links"));
}

TEST(Jobs, JobsOfJobsAreRefused) {
  const std::string err = refusal("[{scenario: other.yaml}]", "cluster: {gpus: 8, jobs: [{scenario: own.yaml}]}\n");
  EXPECT_TRUE(has(err, "other.yaml:3:")) << err;
  EXPECT_TRUE(has(err, "a job alongside another has no jobs of its own")) << err;
}

TEST(Jobs, MistakesAreToldWhereTheyAre) {
  EXPECT_TRUE(has(refusal("[{scenario: nowhere.yaml}]"), "own.yaml:3:")) << "there is no such file";
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml, set: {plan.tensr: 2}}]"), "cluster.jobs[0].set.plan.tensr"));
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml, strt: 1s}]"), "did you mean 'start'?"));
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml, start: 5}]"), "needs its unit"));
  EXPECT_TRUE(has(refusal("[{scenario: other.yaml}]", "plan: {tensor: 3}\n"), "other.yaml:3:"));
  const Outcome local = run({"simulate", "gpt-tiny-ddp", "--set", "cluster.jobs=[{}]"});
  EXPECT_EQ(local.status, 2) << local.out;
  EXPECT_TRUE(has(local.err, "only clusters of accelerators have it")) << local.err;
  const Folder folder;
  folder.write("other.yaml", kModel);
  const std::string own = folder.write("own.yaml", kModel + kOn16 + "[{scenario: other.yaml}]}\n");
  EXPECT_TRUE(has(run({"simulate", own, "--steps", "1"}).err, "at least 2 steps")) << own;
}

TEST(Jobs, ResultsTablesAndThePageHaveThem) {
  const Folder folder;
  const std::string dir = folder / "out";
  const Outcome r = run({"simulate", "two-jobs", "-o", dir});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "Jobs on the cluster")) << r.out;
  EXPECT_TRUE(has(r.out, "neighbour: data reduce_scatter")) << "whose bytes the links carry";
  const Json result = Json::parse(read(dir + "/result.json"));
  ASSERT_EQ(result["jobs"].size(), 2u);
  EXPECT_EQ(result["jobs"][1]["name"], "neighbour");
  for (const Json& job : result["jobs"]) EXPECT_GT(job["slowdown"].get<double>(), 1.5) << job;
  EXPECT_EQ(result["jobs"][0]["step_time_s"], result["step_time_s"]) << "one step of each is counted";
  const std::string page = folder / "page.html";
  ASSERT_EQ(run({"report", dir, "-o", page}).status, 0);
  EXPECT_TRUE(has(read(page), "Jobs on the cluster"));
  const Json again = Json::parse(run({"simulate", "two-jobs", "--json", "--threads", "3"}).out);
  EXPECT_EQ(again["jobs"], result["jobs"]) << "whatever the threads";
}

TEST(Jobs, OnLeavesOfTheirOwnTheSameJobsAreNotSlowed) {
  const Outcome r = run({"simulate", "two-jobs", "--json", "--set", "cluster.placement=['node[0-7]']", "--set",
                         "cluster.jobs=[{name: neighbour, set: {training.global_batch: 768}}]"});
  EXPECT_EQ(r.status, 0) << r.err;
  const Json result = Json::parse(r.out);
  for (const Json& job : result["jobs"]) EXPECT_EQ(job["slowdown"], 1.0) << job;
}

}  // namespace
}  // namespace rehearse::e2e
