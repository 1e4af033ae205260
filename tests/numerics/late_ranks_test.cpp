// What performed runs call their waits: a rank that is made late costs the others straggler if they share its role,
// bubble if not, however many streams lie between; bytes that move are no part of it. Times are real, so what is asked
// of them is coarse: most of the delay is where it belongs.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "execute/performer.h"
#include "sim/result/read_directory.h"
#include "tests/support/lowered.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

using result::Share;

const std::string kTiny =
    "rehearse: 1\n"
    "model: {family: gpt, layers: 4, hidden: 32, heads: 4, vocab: 256, max_seq_len: 16}\n"
    "training: {global_batch: 4, precision: fp32}\n";
constexpr auto kDelay = std::chrono::milliseconds(200);

// `rank` sleeps before its first op of each step whose name ends so.
execute::Outcome delayed(const std::vector<std::string>& plan, int rank, const std::string& op) {
  const plan::Scenario scenario = scenario_from(kTiny, plan);
  execute::Options options;
  options.steps = 5;
  options.record = true;
  std::int64_t last = -1;  // of that rank's thread alone
  options.before_op = [&, rank](int r, std::int64_t step, const program::Op& o) {
    if (r != rank || !o.name.ends_with(op) || step == last) return;
    last = step;
    std::this_thread::sleep_for(kDelay);
  };
  return execute::perform(scenario, lower::lower(scenario), options);
}

double delays(const result::Result& r, Share share) {
  return static_cast<double>(r.breakdown_ps[static_cast<std::size_t>(share)]) * 1e-12 * static_cast<double>(r.ranks) /
         std::chrono::duration<double>(kDelay).count();
}

TEST(LateRanks, ASlowReplicaIsAStraggler) {
  for (const char* zero : {"plan.zero=0", "plan.zero=3"}) {
    const result::Result r = delayed({"cluster.gpus=2", zero}, 1, "mlp.up.forward").result;
    EXPECT_GT(delays(r, Share::straggler), 0.7) << zero << ": rank 0 waits the whole delay";
    EXPECT_LT(delays(r, Share::exposed_data), 0.3) << zero;
  }
}

// Stage 1's compute waits for a gather over its tensor group, which waits for the message.
TEST(LateRanks, ABubbleBehindAGatherIsABubble) {
  const result::Result r =
      delayed({"cluster.gpus=4", "plan.tensor=2", "plan.pipeline=2", "framework=rehearse"}, 0, "mlp.up.forward").result;
  // Rank 1 meets rank 0 in the next all-reduce; ranks 2 and 3 wait for the message.
  EXPECT_GT(delays(r, Share::straggler), 0.7);
  EXPECT_GT(delays(r, Share::bubble), 1.4);
  EXPECT_LT(delays(r, Share::exposed_tensor), 0.5);
}

TEST(LateRanks, AreInTheFilesAndInTheirAccount) {
  const result::Result r = delayed({"cluster.gpus=2"}, 1, "mlp.up.forward").result;
  const std::string dir = test::temporary_path("late");
  result::write_directory(r, dir);
  const result::StoredResult stored = result::read_directory(dir);
  std::filesystem::remove_all(dir);
  EXPECT_EQ(stored.result.breakdown_ps, r.breakdown_ps);
  std::int64_t waited = 0;
  for (const result::OpRow& row : stored.ops)
    if (row.rank == 0 && row.waited_for == Share::straggler) waited = std::max(waited, row.waited_ps);
  EXPECT_GT(static_cast<double>(waited) * 1e-12, 0.7 * std::chrono::duration<double>(kDelay).count());
}

}  // namespace
}  // namespace rehearse
