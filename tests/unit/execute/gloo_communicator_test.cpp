// Ranks over Gloo: what each collective leaves in every rank's buffers, by rings and directly, and how waits end. The
// ranks are threads here, each with a wire and a board of its own, connected over the loopback.
#include "execute/transport/gloo/gloo_communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>

#include "execute/processes/process_world.h"
#include "execute/processes/status_board.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "tests/support/temporary.h"
#include "tests/unit/execute/half_collectives.h"

namespace rehearse::execute {
namespace {

using program::ReduceOp;
using std::chrono::milliseconds;

// Runs `work(rank, communicator)` on a thread each; the connections stay until all are done.
void on_every_rank(int ranks, milliseconds timeout, const std::function<void(int, Communicator&, Stop&)>& work) {
  const std::string folder = test::temporary_path("gloo");
  std::filesystem::create_directories(folder);
  std::atomic<int> busy = ranks;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Stop stop;
      StatusBoard board(folder + "/" + kBoardFile, ranks, rank);
      WireOptions options;
      options.rank = rank;
      options.ranks = ranks;
      options.lanes = 3;
      options.folder = folder;
      options.loopback = true;
      options.timeout = timeout;
      {
        const auto connected = make_gloo_wire(options, stop, [&](int) { stop.request(); });
        const auto communicator = make_gloo_communicator(*connected, board);
        work(rank, *communicator, stop);
        for (--busy; busy > 0;) std::this_thread::sleep_for(milliseconds(1));
      }
    });
  for (auto& thread : threads) thread.join();
  std::filesystem::remove_all(folder);
}

class GlooCommunicator : public testing::TestWithParam<int> {  // elements a rank
 protected:
  void SetUp() override {
    if (!gloo_available()) GTEST_SKIP() << "built without Gloo";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "Gloo is not built for the thread sanitizer, which cannot see how its threads agree";
#endif
  }
};
// By a ring, of which the longest chunk goes in three segments, and directly.
INSTANTIATE_TEST_SUITE_P(Sizes, GlooCommunicator, testing::Values(1, 700, 5'000, 150'000));

constexpr milliseconds kLong{60'000};

std::vector<int> group_of(int ranks) {
  std::vector<int> group(static_cast<std::size_t>(ranks));
  std::iota(group.begin(), group.end(), 0);
  return group;
}
// Small whole numbers, so that sums are exact in any order.
float value(int rank, std::int64_t i) {
  return static_cast<float>((i * 7 + 3 * rank) % 101);
}
std::vector<float> values(int rank, std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = value(rank, i);
  return x;
}
float sum(int ranks, std::int64_t i) {
  float total = 0;
  for (int r = 0; r < ranks; ++r) total += value(r, i);
  return total;
}

TEST_P(GlooCommunicator, AllReduceSumsInPlaceAndNot) {
  for (const int ranks : {2, 3, 4}) {
    const std::int64_t n = GetParam() * ranks + 1;  // chunks of unequal size
    on_every_rank(ranks, kLong, [&](int rank, Communicator& c, Stop&) {
      const std::vector<int> group = group_of(ranks);
      std::vector<float> x = values(rank, n), y(x.size()), z(x.size());
      c.all_reduce({0, group, 0}, ReduceOp::sum, x.data(), y.data(), n);
      c.all_reduce({0, group, 1}, ReduceOp::max, x.data(), z.data(), n);
      EXPECT_EQ(x, values(rank, n)) << "what is sent stays";
      c.all_reduce({1, group, 0}, ReduceOp::sum, x.data(), x.data(), n);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        ASSERT_EQ(x[at], sum(ranks, i)) << i << " of " << n << " on rank " << rank << " of " << ranks;
        ASSERT_EQ(y[at], sum(ranks, i));
        float largest = 0;
        for (int r = 0; r < ranks; ++r) largest = std::max(largest, value(r, i));
        ASSERT_EQ(z[at], largest);
      }
    });
  }
}

TEST_P(GlooCommunicator, ReduceScatterAndAllGatherInPlaceAndNot) {
  const std::int64_t each = GetParam();
  for (const int ranks : {2, 3, 4})
    on_every_rank(ranks, kLong, [&](int rank, Communicator& c, Stop&) {
      const std::vector<int> group = group_of(ranks);
      const std::int64_t n = each * ranks;
      std::vector<float> x = values(rank, n), part(static_cast<std::size_t>(each)), whole(x.size());
      c.reduce_scatter({0, group, 0}, x.data(), part.data(), n);
      c.reduce_scatter({0, group, 1}, x.data(), x.data() + rank * each, n);
      c.all_gather({0, group, 2}, part.data(), whole.data(), n);
      c.all_gather({0, group, 3}, x.data() + rank * each, x.data(), n);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(whole[static_cast<std::size_t>(i)], sum(ranks, i)) << i;
      EXPECT_EQ(x, whole);
    });
}

TEST_P(GlooCommunicator, SixteenBitElementsAreAddedInFp32AndRoundedOnce) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const int ranks : {2, 3})
      on_every_rank(ranks, kLong, [&](int rank, Communicator& c, Stop&) {
        const std::vector<int> group = group_of(ranks);
        std::int64_t calls = 0;
        expect_half_collectives(c, type, rank, ranks, GetParam(), [&] { return CollectiveCall{0, group, calls++}; });
      });
}

TEST_P(GlooCommunicator, BroadcastAndAllToAll) {
  const std::int64_t each = GetParam();
  on_every_rank(3, kLong, [&](int rank, Communicator& c, Stop&) {
    const std::vector<int> group = group_of(3), pair = {1, 2};
    const std::int64_t n = each * 3;
    std::vector<float> x = values(rank, n);
    c.all_to_all({0, group, 0}, x.data(), x.data(), n);
    for (int from = 0; from < 3; ++from)
      for (std::int64_t i = 0; i < each; ++i)
        ASSERT_EQ(x[static_cast<std::size_t>(from * each + i)], value(from, rank * each + i));
    // Member m gets m + 1 elements of each.
    const std::int64_t own = rank + 1;
    std::vector<float> z(static_cast<std::size_t>(3 * own));
    const std::vector<float> sent = values(rank, 6);
    c.all_to_all_parts({0, group, 1}, sent.data(), z.data(), {{1, 2, 3}, {own, own, own}, {}});
    for (int from = 0; from < 3; ++from)
      for (std::int64_t i = 0; i < own; ++i)
        ASSERT_EQ(z[static_cast<std::size_t>(from * own + i)], value(from, own * (own - 1) / 2 + i));
    if (rank == 0) return;
    std::vector<float> y = values(rank, each);
    c.broadcast({1, pair, 0}, y.data(), y.data(), each);
    EXPECT_EQ(y, values(1, each));
    std::vector<float> sum(static_cast<std::size_t>(each), -1);
    c.reduce({1, pair, 1}, program::ReduceOp::sum, y.data(), sum.data(), each);
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], rank == 1 ? 2 * y[i] : -1);
  });
}

TEST_P(GlooCommunicator, MessagesGoByNumberAndSendsDoNotWait) {
  const std::int64_t n = GetParam();
  on_every_rank(2, kLong, [&](int rank, Communicator& c, Stop&) {
    std::vector<float> a = values(2, n), b = values(5, n), x(a.size()), y(a.size());
    const int other = 1 - rank;
    // Both send before either receives.
    c.exchange(std::vector{Message{true, other, 0, 1, b.data(), n}});
    c.exchange(std::vector{Message{true, other, 0, 0, a.data(), n}});
    std::fill(a.begin(), a.end(), 0.0F);  // it was copied
    c.exchange(std::vector{Message{false, other, 0, 0, x.data(), n}, Message{false, other, 0, 1, y.data(), n}});
    EXPECT_EQ(x, values(2, n));
    EXPECT_EQ(y, b);
  });
}

class GlooWaits : public testing::Test {
 protected:
  void SetUp() override {
    if (!gloo_available()) GTEST_SKIP() << "built without Gloo";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "Gloo is not built for the thread sanitizer, which cannot see how its threads agree";
#endif
  }
};

TEST_F(GlooWaits, EndAtTheDeadlineAndNameWhoDidNotCome) {
  on_every_rank(3, milliseconds(300), [&](int rank, Communicator& c, Stop&) {
    if (rank == 2) return;
    const std::vector<int> group = group_of(3);
    float x = 0;
    try {
      c.all_reduce({0, group, 0}, ReduceOp::sum, &x, &x, 1);
      ADD_FAILURE() << "came back without rank 2";
    } catch (const DeadlineError& error) {
      EXPECT_EQ(error.missing(), std::vector<int>{2});
    }
    EXPECT_THROW(c.exchange(std::vector{Message{false, 2, 0, 0, &x, 1}}), DeadlineError);
  });
}

TEST_F(GlooWaits, EndWhenTheRunIsStopped) {
  on_every_rank(2, kLong, [&](int rank, Communicator& c, Stop& stop) {
    if (rank == 1) return;
    std::thread later([&] {
      std::this_thread::sleep_for(milliseconds(20));
      stop.request();
    });
    float x = 0;
    EXPECT_THROW(c.exchange(std::vector{Message{false, 1, 0, 0, &x, 1}}), Stopped);
    later.join();
  });
}

TEST_F(GlooWaits, TheLastToComeGivesTheTime) {
  Clock::time_point late;
  on_every_rank(2, kLong, [&](int rank, Communicator& c, Stop&) {
    const std::vector<int> group = group_of(2);
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(100));
      late = Clock::now();
    }
    float x = 0;
    const Arrival met = c.all_reduce({0, group, 0}, ReduceOp::sum, &x, &x, 1);
    EXPECT_GE(met.when, late);  // rank 1 wrote it before it came
    EXPECT_LE(met.when, Clock::now());
    EXPECT_EQ(met.last, 1);
  });
}

}  // namespace
}  // namespace rehearse::execute
