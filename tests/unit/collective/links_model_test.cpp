// Collectives and messages over explicit links, against what a ring takes by hand.
#include <gtest/gtest.h>

#include "sim/cluster/links.h"
#include "sim/collective/collective.h"
#include "tests/support/calibration.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

// Hosts on one switch: 1 MB/s each way but 0.5 MB/s for the last, 10 us a link.
cluster::Links star(int hosts) {
  cluster::LinksNumbers n;
  n.name = "star", n.device = "local", n.cores = 1, n.switches = {"s"};
  for (int h = 0; h < hosts; ++h) {
    n.hosts.push_back(fmt::format("h{}", h));
    n.links.push_back({h, hosts, Bandwidth(h + 1 == hosts ? 500'000 : 1'000'000), Time::from_us(10)});
  }
  return {std::move(n), hosts};
}
const std::vector<int> kFour = {0, 1, 2, 3};

TEST(LinksModel, AnAllReduceIsARing) {
  const auto hosts = star(4);
  const TransferPlan plan = make_model(hosts, "")->collective(CollectiveKind::all_reduce, kFour, Bytes(4000));
  EXPECT_EQ(plan.startup, Time::from_us(6 * 20));  // 2 (n - 1) steps of two links
  ASSERT_EQ(plan.activities.size(), 1u);
  EXPECT_EQ(plan.activities[0].min_duration, Time::from_us(12'000));  // 2 * 3/4 * 4000 bytes at 0.5 MB/s
  ASSERT_EQ(plan.activities[0].uses.size(), 8u);
  for (const Use& use : plan.activities[0].uses) EXPECT_EQ(use.bytes, 6000);
  EXPECT_EQ(plan.algorithm, "ring");
}

TEST(LinksModel, GathersAndScattersAreHalfOfIt) {
  const auto hosts = star(4);
  const auto model = make_model(hosts, "");
  for (const auto kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    const TransferPlan plan = model->collective(kind, kFour, Bytes(4000));
    EXPECT_EQ(plan.startup, Time::from_us(60));
    EXPECT_EQ(plan.activities[0].min_duration, Time::from_us(6000));
  }
}

// 0 to 1, then 0 to 2 and 1 to 3 at once: 4 ms and, with the slow link, 8 ms.
TEST(LinksModel, ABroadcastIsATree) {
  const auto hosts = star(4);
  const TransferPlan plan = make_model(hosts, "")->collective(CollectiveKind::broadcast, kFour, Bytes(4000));
  EXPECT_EQ(plan.startup, Time::from_us(40));
  EXPECT_EQ(plan.activities[0].min_duration, Time::from_us(12'000));
}

// Three times 4 kB come over the root's link, at once.
TEST(LinksModel, AReduceGoesStraightToTheRoot) {
  const auto hosts = star(4);
  const TransferPlan broadcast = make_model(hosts, "")->collective(CollectiveKind::broadcast, {0, 1}, Bytes(4000));
  const TransferPlan plan = make_model(hosts, "")->collective(CollectiveKind::reduce, {0, 1, 2}, Bytes(4000));
  EXPECT_EQ(plan.startup, Time::from_us(20));
  EXPECT_EQ(plan.activities[0].min_duration, broadcast.activities[0].min_duration * 2);
}

TEST(LinksModel, AMessageGoesStraightAndIsBuffered) {
  const auto hosts = star(3);
  const auto model = make_model(hosts, "");
  const TransferPlan plan = model->send(2, 0, Bytes(1000));
  EXPECT_TRUE(model->buffered_messages());
  EXPECT_EQ(plan.startup, Time::from_us(20));
  EXPECT_EQ(plan.activities[0].min_duration, Time::from_us(2000));
  EXPECT_EQ(plan.activities[0].uses.size(), 2u);
  EXPECT_EQ(model->send(1, 1, Bytes(1000)).alone(), Time());
}

// The library's own 30 us come on top; its 50 us of moving are hidden by the links, its 1 s is not.
TEST(LinksModel, TakesWhatTheLibraryItselfTakes) {
  rehearse::test::CalibrationText c;
  c.kernels = {{"gemm", "m=1 n=1 k=1"}};
  c.transfers = {{"all_reduce", 2, 4, 30e-6, "gloo"},
                 {"all_reduce", 2, 4000, 80e-6, "gloo"},
                 {"all_reduce", 2, 8000, 1.0, "gloo"}};
  const rehearse::test::TemporaryFile file("links.json", c.text());
  const auto hosts = star(2);
  const auto model = make_model(hosts, file.path());
  const TransferPlan hidden = model->collective(CollectiveKind::all_reduce, {0, 1}, Bytes(4000));
  EXPECT_EQ(hidden.startup, Time::from_us(2 * 20 + 30));
  EXPECT_EQ(hidden.activities[0].min_duration, Time::from_us(8000));
  EXPECT_EQ(hidden.coverage, Coverage::interpolated);
  const TransferPlan slow = model->collective(CollectiveKind::all_reduce, {0, 1}, Bytes(8000));
  EXPECT_NEAR(slow.activities[0].min_duration.seconds(), 1.0 - 30e-6, 1e-9);
}

}  // namespace
}  // namespace rehearse::collective
