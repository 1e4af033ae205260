// Queues against what can be counted by hand.
#include "sim/run/queue.h"

#include <gtest/gtest.h>

#include <numeric>

#include "sim/run/queue_file.h"

namespace rehearse::run {
namespace {

QueueRequest on(std::int64_t hosts, std::int64_t devices, QueuePolicy policy, std::vector<QueuedJob> jobs) {
  QueueRequest request{hosts, devices, policy, 10, 0, 2, std::move(jobs)};
  for (std::size_t j = 0; j < request.jobs.size(); ++j)
    if (request.jobs[j].after < 0) request.jobs[j].group = static_cast<int>(j);
  return request;
}

QueueOutcome checked(const QueueRequest& request) {
  const QueueOutcome outcome = simulate_queue(request);
  const result::QueueShares& s = outcome.gpu_s;
  EXPECT_NEAR(s.busy + s.switching + s.fragmented + s.too_few + s.idle,
              outcome.makespan_s * static_cast<double>(request.hosts * request.devices), 1e-6);
  double work = 0;
  for (std::size_t j = 0; j < request.jobs.size(); ++j) {
    work += request.jobs[j].work_s * static_cast<double>(request.jobs[j].gpus);
    EXPECT_GE(outcome.runs[j].start_s, outcome.runs[j].arrive_s);
    EXPECT_GE(outcome.runs[j].end_s - outcome.runs[j].start_s, request.jobs[j].work_s - 1e-9);
  }
  EXPECT_NEAR(s.busy, work, 1e-6);
  return outcome;
}

// J trials of G GPUs on F: as many rounds as ceil(J / (F / G)).
TEST(Queue, EqualTrialsGoInRounds) {
  for (const auto policy : {QueuePolicy::fifo, QueuePolicy::backfill}) {
    const QueueOutcome outcome = checked(on(4, 8, policy, std::vector<QueuedJob>(19, {4, 100, 0})));
    EXPECT_EQ(outcome.makespan_s, 300);
    EXPECT_EQ(outcome.gpu_s.idle, 5 * 4 * 100) << "3 x 8 places for 19";
  }
}

// Of 4 GPUs: 3 for 10 s, then one that needs all, then one of 1 GPU that fits beside the first.
TEST(Queue, BackfillNeverDelaysTheFirstThatWaits) {
  const auto ends = [](QueuePolicy policy, double small) {
    const QueueOutcome o = checked(on(1, 4, policy, {{3, 10, 0}, {4, 10, 0}, {1, small, 0}}));
    return std::pair(o.runs[1].start_s, o.runs[2].start_s);
  };
  EXPECT_EQ(ends(QueuePolicy::fifo, 10), std::pair(10.0, 20.0));
  EXPECT_EQ(ends(QueuePolicy::backfill, 10), std::pair(10.0, 0.0));
  EXPECT_EQ(ends(QueuePolicy::backfill, 10.5), std::pair(10.0, 20.0)) << "it would delay the second";
  // Of 2 hosts the first that waits needs one; what takes the other is no delay, however long.
  const QueueOutcome o = checked(on(2, 4, QueuePolicy::backfill, {{4, 10, 0}, {3, 20, 0}, {4, 10, 0}, {1, 500, 0}}));
  EXPECT_EQ(o.runs[2].start_s, 10);
  EXPECT_EQ(o.runs[3].start_s, 0);
  // The fullest host is the one that is promised, the other has room too.
  const QueueOutcome other =
      checked(on(2, 8, QueuePolicy::backfill, {{7, 60, 0}, {6, 120, 0}, {8, 10, 0}, {1, 90, 0}}));
  EXPECT_EQ(other.runs[2].start_s, 60);
  EXPECT_EQ(other.runs[3].start_s, 0);
}

// Two GPUs are free on two hosts, one on each, and a job of two waits for one host.
TEST(Queue, FreeGpusOfDifferentHostsAreFragments) {
  const QueueOutcome o = checked(on(2, 4, QueuePolicy::fifo, {{3, 10, 0}, {3, 10, 0}, {2, 10, 0}}));
  EXPECT_EQ(o.runs[2].start_s, 10);
  EXPECT_EQ(o.gpu_s.fragmented, 2 * 10);
  EXPECT_EQ(o.gpu_s.too_few, 0);
  // The fullest host that has room is taken, so that whole ones are left.
  const QueueOutcome packed = checked(on(2, 4, QueuePolicy::fifo, {{2, 10, 0}, {2, 10, 0}, {4, 10, 0}}));
  EXPECT_EQ(packed.runs[2].start_s, 0);
}

// Two jobs of all GPUs by turns end a slice apart; a short one beside a long one does not wait for its end.
TEST(Queue, GangSharesByTurns) {
  const QueueOutcome two = checked(on(2, 4, QueuePolicy::gang, {{8, 100, 0}, {8, 100, 0}}));
  EXPECT_EQ(two.runs[1].start_s, 10) << "when its first turn comes";
  EXPECT_NEAR(two.runs[0].end_s, 190, 1e-6);
  EXPECT_NEAR(two.runs[1].end_s, 200, 1e-6);
  const QueueOutcome brief = checked(on(2, 4, QueuePolicy::gang, {{8, 1000, 0}, {8, 5, 0}}));
  EXPECT_NEAR(brief.runs[1].end_s, 15, 1e-6);
  EXPECT_EQ(checked(on(2, 4, QueuePolicy::fifo, {{8, 1000, 0}, {8, 5, 0}})).runs[1].end_s, 1005);
  QueueRequest costly = on(2, 4, QueuePolicy::gang, {{8, 100, 0}, {8, 100, 0}});
  costly.switch_s = 1;
  const QueueOutcome o = checked(costly);
  EXPECT_NEAR(o.makespan_s, 200 + 19, 1e-6) << "nineteen changes of turn";
  EXPECT_NEAR(o.gpu_s.switching, 19 * 8, 1e-6);
}

QueueFile searching(std::int64_t hosts, QueueEntry entry) {
  QueueFile file;
  file.hosts = hosts;
  file.entries = {std::move(entry)};
  return file;
}

double length_of(const QueueFile& file, std::int64_t devices, double work, double copy = 0) {
  std::vector<std::size_t> entry_of;
  return checked(queue_request(file, devices, {work}, {copy}, entry_of)).makespan_s;
}

// 27, 9, 3 and 1 trials of 1, 3, 9 and 27 units: 40 units where all have a place, 108 one after another.
TEST(Queue, SuccessiveHalving) {
  QueueEntry entry;
  entry.count = 27, entry.keep = 3;
  EXPECT_DOUBLE_EQ(length_of(searching(27, entry), 1, 5), 40 * 5);
  EXPECT_DOUBLE_EQ(length_of(searching(1, entry), 1, 5), 108 * 5);
}

// Ten rounds of 8 trials; after each but the last a quarter copies for half a unit before it goes on.
TEST(Queue, PopulationBasedTraining) {
  QueueEntry entry;
  entry.count = 8, entry.rounds = 10, entry.copies = 0.25;
  EXPECT_DOUBLE_EQ(length_of(searching(1, entry), 8, 4, 2), 10 * 4 + 9 * 2);
  EXPECT_DOUBLE_EQ(length_of(searching(1, entry), 8, 4, 0), 40);
}

}  // namespace
}  // namespace rehearse::run
