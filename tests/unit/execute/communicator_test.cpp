// Ranks as threads: what each collective leaves in every rank's buffers, in place and not, and how waits end.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "execute/transport/local/local_communicator.h"
#include "tests/unit/execute/half_collectives.h"

namespace rehearse::execute {
namespace {

using program::ReduceOp;
using std::chrono::milliseconds;

// Runs `work(rank, communicator)` on a thread each.
void on_every_rank(int ranks, const std::function<void(int, Communicator&)>& work) {
  Stop stop;
  const auto communicators = make_local_communicators(ranks, milliseconds(20'000), stop);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] { work(r, *communicators[static_cast<std::size_t>(r)]); });
  for (auto& thread : threads) thread.join();
}

const std::vector<int> kGroup = {0, 1, 2};

std::vector<float> counting(std::size_t n, float first) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(LocalCommunicator, AllReduceInPlaceLeavesTheSumEverywhere) {
  on_every_rank(3, [](int rank, Communicator& c) {
    // 5,000 elements: shares of unequal size, several blocks.
    std::vector<float> x = counting(5000, static_cast<float>(1000 * rank));
    c.all_reduce({0, kGroup, 0}, ReduceOp::sum, x.data(), x.data(), 5000);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], 3 * static_cast<float>(i) + 3000);
  });
}

TEST(LocalCommunicator, AllReduceTakesTheMaximumWhenAsked) {
  on_every_rank(3, [](int rank, Communicator& c) {
    const std::vector<float> x = {static_cast<float>(rank), static_cast<float>(-rank)};
    std::vector<float> y(2);
    c.all_reduce({0, kGroup, 0}, ReduceOp::max, x.data(), y.data(), 2);
    EXPECT_EQ(y, (std::vector<float>{2, 0}));
  });
}

// 1e8 + 1 - 1e8 is 0 in floats and -1e8 + 1e8 + 1 is 1: only group order gives the first.
TEST(LocalCommunicator, SumsInGroupOrderWhoeverComesFirst) {
  for (int late = 0; late < 3; ++late)
    on_every_rank(3, [late](int rank, Communicator& c) {
      if (rank == late) std::this_thread::sleep_for(milliseconds(5));
      float x = rank == 0 ? 1e8F : rank == 1 ? 1.0F : -1e8F;
      c.all_reduce({0, kGroup, 0}, ReduceOp::sum, &x, &x, 1);
      EXPECT_EQ(x, 0);
    });
}

TEST(LocalCommunicator, SixteenBitElementsAreAddedInFp32AndRoundedOnce) {
  for (const DType type : {DType::bf16, DType::f16})
    on_every_rank(3, [type](int rank, Communicator& c) {
      std::int64_t calls = 0;
      expect_half_collectives(c, type, rank, 3, 1501, [&] { return CollectiveCall{0, kGroup, calls++}; });
    });
}

TEST(LocalCommunicator, AllGatherPutsEveryShardInItsPlace) {
  on_every_rank(3, [](int rank, Communicator& c) {
    std::vector<float> whole(6, -1), apart(6, -1);
    float* shard = whole.data() + 2 * rank;
    shard[0] = static_cast<float>(2 * rank);
    shard[1] = static_cast<float>(2 * rank + 1);
    const std::vector<float> copy(shard, shard + 2);
    c.all_gather({0, kGroup, 0}, copy.data(), apart.data(), 6);
    c.all_gather({0, kGroup, 1}, shard, whole.data(), 6);
    EXPECT_EQ(whole, counting(6, 0));
    EXPECT_EQ(apart, counting(6, 0));
  });
}

TEST(LocalCommunicator, ReduceScatterIntoOurShardOfTheInput) {
  on_every_rank(3, [](int rank, Communicator& c) {
    std::vector<float> x = counting(6, static_cast<float>(10 * rank));
    c.reduce_scatter({0, kGroup, 0}, x.data(), x.data() + 2 * rank, 6);
    const float first = 30 + 6 * static_cast<float>(rank);
    EXPECT_EQ(x[static_cast<std::size_t>(2 * rank)], first);
    EXPECT_EQ(x[static_cast<std::size_t>(2 * rank) + 1], first + 3);
  });
}

TEST(LocalCommunicator, BroadcastTakesTheFirstMembersValues) {
  const std::vector<int> group = {1, 2};
  on_every_rank(3, [&](int rank, Communicator& c) {
    if (rank == 0) return;
    auto x = static_cast<float>(rank);
    c.broadcast({4, group, 0}, &x, &x, 1);
    EXPECT_EQ(x, 1);
  });
}

TEST(LocalCommunicator, ReduceLeavesTheSumWithTheFirstMemberAlone) {
  const std::vector<int> group = {1, 2, 3};
  on_every_rank(4, [&](int rank, Communicator& c) {
    if (rank == 0) return;
    std::vector<float> x = counting(5000, static_cast<float>(rank)), y(5000, -1), largest(5000, -1);
    c.reduce({4, group, 0}, program::ReduceOp::sum, x.data(), y.data(), 5000);
    c.reduce({4, group, 1}, program::ReduceOp::max, x.data(), largest.data(), 5000);
    c.reduce({4, group, 2}, program::ReduceOp::sum, x.data(), x.data(), 5000);
    for (std::size_t i = 0; i < 5000; i += 499) {
      const auto n = static_cast<float>(i);
      EXPECT_EQ(y[i], rank == 1 ? 3 * n + 6 : -1);
      EXPECT_EQ(largest[i], rank == 1 ? n + 3 : -1);
      EXPECT_EQ(x[i], rank == 1 ? 3 * n + 6 : n + static_cast<float>(rank)) << "in place";
    }
  });
}

TEST(LocalCommunicator, AllToAllInPlaceTransposesShards) {
  on_every_rank(3, [](int rank, Communicator& c) {
    std::vector<float> x = counting(3, static_cast<float>(3 * rank));
    c.all_to_all({0, kGroup, 0}, x.data(), x.data(), 3);
    for (int member = 0; member < 3; ++member)
      EXPECT_EQ(x[static_cast<std::size_t>(member)], static_cast<float>(3 * member + rank));
  });
}

// Rank r sends r + 1 elements to member 0, 2 to member 1 and none to member 2.
TEST(LocalCommunicator, AllToAllTakesUnequalParts) {
  on_every_rank(3, [](int rank, Communicator& c) {
    const auto own = static_cast<std::int64_t>(rank);
    const std::vector<float> x = counting(static_cast<std::size_t>(own + 3), static_cast<float>(10 * rank));
    std::vector<float> y(6, -1);
    Parts parts{{own + 1, 2, 0}, {0, 0, 0}, {0, 0, 0}};
    if (rank == 0) parts.received = {1, 2, 3};
    if (rank == 1) parts.received = {2, 2, 2}, parts.begins = {1, 2, 3};
    if (rank == 2) parts.begins = {3, 4, 5};
    c.all_to_all_parts({0, kGroup, 0}, x.data(), y.data(), parts);
    const std::vector<float> expected[] = {{0, 10, 11, 20, 21, 22}, {1, 2, 12, 13, 23, 24}, {-1, -1, -1, -1, -1, -1}};
    EXPECT_EQ(y, expected[rank]);
  });
}

TEST(LocalCommunicator, MessagesGoByNumberNotByArrival) {
  on_every_rank(2, [](int rank, Communicator& c) {
    float a = 7, b = 8;
    if (rank == 0) {
      const Message second{true, 1, 0, 1, &b, 1}, first{true, 1, 0, 0, &a, 1};
      c.exchange(std::vector{second});
      c.exchange(std::vector{first});
    } else {
      float x = 0, y = 0;
      c.exchange(std::vector{Message{false, 0, 0, 0, &x, 1}, Message{false, 0, 0, 1, &y, 1}});
      EXPECT_EQ(x, 7);
      EXPECT_EQ(y, 8);
    }
  });
}

TEST(LocalCommunicator, TwoRanksExchangeInOneGroup) {
  on_every_rank(2, [](int rank, Communicator& c) {
    float mine = static_cast<float>(rank), other = -1;
    c.exchange(std::vector{Message{false, 1 - rank, 0, 0, &other, 1}, Message{true, 1 - rank, 0, 0, &mine, 1}});
    EXPECT_EQ(other, static_cast<float>(1 - rank));
  });
}

TEST(LocalCommunicator, AWaitEndsAtTheDeadlineAndNamesWhoDidNotCome) {
  Stop stop;
  const auto communicators = make_local_communicators(3, milliseconds(30), stop);
  float x = 0;
  try {
    communicators[1]->all_reduce({0, kGroup, 0}, ReduceOp::sum, &x, &x, 1);
    FAIL() << "came back alone";
  } catch (const DeadlineError& error) {
    EXPECT_EQ(error.missing(), (std::vector<int>{0, 2}));
  }
  EXPECT_THROW(communicators[1]->exchange(std::vector{Message{false, 2, 0, 0, &x, 1}}), DeadlineError);
}

TEST(LocalCommunicator, AWaitEndsWhenTheRunIsStopped) {
  Stop stop;
  const auto communicators = make_local_communicators(2, milliseconds(20'000), stop);
  std::thread waiting([&] {
    float x = 0;
    EXPECT_THROW(communicators[0]->exchange(std::vector{Message{false, 1, 0, 0, &x, 1}}), Stopped);
  });
  stop.request();
  waiting.join();
}

}  // namespace
}  // namespace rehearse::execute
