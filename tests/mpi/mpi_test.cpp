// Ranks that are processes: run under mpirun with 2 or 4 of them, each of which does every test. What each collective
// leaves is compared with the same done plainly, bit by bit.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <cmath>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "execute/processes/mpi/mpi_world.h"
#include "execute/transport/mpi/mpi_communicator.h"
#include "execute/transport/mpi/mpi_wire.h"
#include "tests/unit/execute/half_collectives.h"

namespace rehearse::execute {
namespace {

using program::ReduceOp;
using std::chrono::milliseconds;

constexpr program::GroupId kAll = 0, kRow = 1, kColumn = 2;

struct Job {
  std::unique_ptr<MpiSession> session;
  std::unique_ptr<World> world;
  int rank = 0, ranks = 0;
  std::vector<int> all, row, column;
  std::map<program::GroupId, std::int64_t> calls;

  Communicator& communicator() const { return world->communicator(rank); }
  // A call in turn on a group.
  CollectiveCall on(program::GroupId group) { return {group, members(group), calls[group]++}; }
  std::span<const int> members(program::GroupId g) const { return g == kAll ? all : g == kRow ? row : column; }
};
Job* job = nullptr;

// The values of a rank: of every size and sign, so that the order of a sum shows.
std::vector<float> values_of(int rank, std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    x[static_cast<std::size_t>(i)] =
        std::ldexp(static_cast<float>((i * 7919 + rank * 104729) % 2001 - 1000), static_cast<int>((i + rank) % 40));
  return x;
}

// Sum or maximum over `members`, in their order.
std::vector<float> reduced(std::span<const int> members, ReduceOp op, std::int64_t n) {
  std::vector<float> sum = values_of(members[0], n);
  for (std::size_t m = 1; m < members.size(); ++m) {
    const std::vector<float> x = values_of(members[m], n);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = op == ReduceOp::sum ? sum[i] + x[i] : std::max(sum[i], x[i]);
  }
  return sum;
}

std::vector<float> slice(const std::vector<float>& x, std::int64_t first, std::int64_t n) {
  return {x.begin() + first, x.begin() + first + n};
}

TEST(Mpi, AllReduceAddsInGroupOrder) {
  // In one round and in two; messages that fit in MPI's buffers, and that wait for their receiver.
  for (const std::int64_t n : {1, 3, 5000, 20'001, 400'001}) {
    const std::vector<float> x = values_of(job->rank, n);
    std::vector<float> in_place = x, apart(x.size());
    job->communicator().all_reduce(job->on(kAll), ReduceOp::sum, in_place.data(), in_place.data(), n);
    job->communicator().all_reduce(job->on(kAll), ReduceOp::max, x.data(), apart.data(), n);
    EXPECT_EQ(in_place, reduced(job->all, ReduceOp::sum, n)) << n;
    EXPECT_EQ(apart, reduced(job->all, ReduceOp::max, n)) << n;
  }
}

TEST(Mpi, SixteenBitElementsAreAddedInFp32AndRoundedOnce) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const std::int64_t each : {1, 700, 20'001})
      expect_half_collectives(job->communicator(), type, job->rank, job->ranks, each, [] { return job->on(kAll); });
}

TEST(Mpi, ReduceScatterLeavesOurShardEvenInTheInput) {
  const std::int64_t part = 3001, n = part * job->ranks;
  std::vector<float> x = values_of(job->rank, n), out(static_cast<std::size_t>(part));
  const std::vector<float> expected = slice(reduced(job->all, ReduceOp::sum, n), part * job->rank, part);
  job->communicator().reduce_scatter(job->on(kAll), x.data(), out.data(), n);
  EXPECT_EQ(out, expected);
  job->communicator().reduce_scatter(job->on(kAll), x.data(), x.data() + part * job->rank, n);
  EXPECT_EQ(slice(x, part * job->rank, part), expected);
}

TEST(Mpi, AllGatherPutsEveryShardInItsPlace) {
  const std::int64_t part = 2003, n = part * job->ranks;
  std::vector<float> expected;
  for (const int r : job->all) {
    const std::vector<float> x = values_of(r, part);
    expected.insert(expected.end(), x.begin(), x.end());
  }
  const std::vector<float> own = values_of(job->rank, part);
  std::vector<float> apart(static_cast<std::size_t>(n), -1), whole = apart;
  job->communicator().all_gather(job->on(kAll), own.data(), apart.data(), n);
  EXPECT_EQ(apart, expected);
  float* shard = whole.data() + part * job->rank;
  std::copy(own.begin(), own.end(), shard);
  job->communicator().all_gather(job->on(kAll), shard, whole.data(), n);
  EXPECT_EQ(whole, expected);
}

TEST(Mpi, BroadcastTakesTheFirstMembersValues) {
  const std::vector<float> own = values_of(job->rank, 700);
  std::vector<float> in_place = own, apart(700);
  job->communicator().broadcast(job->on(kAll), in_place.data(), in_place.data(), 700);
  job->communicator().broadcast(job->on(kAll), own.data(), apart.data(), 700);
  EXPECT_EQ(in_place, values_of(0, 700));
  EXPECT_EQ(apart, values_of(0, 700));
}

TEST(Mpi, ReduceLeavesTheSumWithTheFirstMemberAlone) {
  const std::vector<float> own = values_of(job->rank, 700);
  std::vector<float> sum(700, 0), in_place = own, apart(700, -1);
  for (int r = 0; r < job->ranks; ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values_of(r, 700)[i];
  job->communicator().reduce(job->on(kAll), program::ReduceOp::sum, in_place.data(), in_place.data(), 700);
  job->communicator().reduce(job->on(kAll), program::ReduceOp::sum, own.data(), apart.data(), 700);
  EXPECT_EQ(in_place, job->rank == 0 ? sum : own);
  EXPECT_EQ(apart, job->rank == 0 ? sum : std::vector<float>(700, -1));
}

TEST(Mpi, AllToAllTransposesShards) {
  const std::int64_t part = 501, n = part * job->ranks;
  const std::vector<float> own = values_of(job->rank, n);
  std::vector<float> expected, in_place = own, apart(own.size());
  for (const int r : job->all) {
    const std::vector<float> x = slice(values_of(r, n), part * job->rank, part);
    expected.insert(expected.end(), x.begin(), x.end());
  }
  job->communicator().all_to_all(job->on(kAll), own.data(), apart.data(), n);
  job->communicator().all_to_all(job->on(kAll), in_place.data(), in_place.data(), n);
  EXPECT_EQ(apart, expected);
  EXPECT_EQ(in_place, expected);
}

// Streams call at once: two groups that cross, from two threads, in no order between them.
TEST(Mpi, GroupsDoNotDisturbOneAnother) {
  const auto calls = [](program::GroupId group) {
    for (int i = 0; i < 50; ++i) {
      std::vector<float> x = values_of(job->rank, 1000 + i);
      job->communicator().all_reduce({group, job->members(group), i}, ReduceOp::sum, x.data(), x.data(), 1000 + i);
      ASSERT_EQ(x, reduced(job->members(group), ReduceOp::sum, 1000 + i));
    }
  };
  std::thread rows([&] { calls(kRow); });
  calls(kColumn);
  rows.join();
}

TEST(Mpi, CallsOnAGroupMatchByNumberWhoeverComesFirst) {
  const CollectiveCall first = job->on(kAll), second = job->on(kAll);
  const auto call = [](const CollectiveCall& m, float value) {
    float x = value;
    job->communicator().all_reduce(m, ReduceOp::max, &x, &x, 1);
    EXPECT_EQ(x, value) << "as if the other call's values had come in";
  };
  // Odd ranks come to the second call first.
  std::thread other([&] {
    if (job->rank % 2 == 0) std::this_thread::sleep_for(milliseconds(20));
    call(second, 2);
  });
  if (job->rank % 2 == 1) std::this_thread::sleep_for(milliseconds(20));
  call(first, 1);
  other.join();
}

TEST(Mpi, ACollectiveIsCompleteWhenTheLastHasCome) {
  std::int64_t late = 0;
  if (job->rank == 0) {
    std::this_thread::sleep_for(milliseconds(30));
    late = Clock::now().time_since_epoch().count();
  }
  float x = 1;
  const Arrival last = job->communicator().all_reduce(job->on(kAll), ReduceOp::sum, &x, &x, 1);
  const Clock::time_point now = Clock::now();
  MPI_Bcast(&late, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  if (static_cast<int>(job->world->on_this_machine().size()) == job->ranks) {
    EXPECT_GE(last.when.time_since_epoch().count(), late);
  }
  EXPECT_LE(last.when, now);
  EXPECT_EQ(last.last, 0) << "also to itself, if all others had come before it";
}

TEST(Mpi, MessagesGoByNumberNotByArrival) {
  const int next = (job->rank + 1) % job->ranks, previous = (job->rank + job->ranks - 1) % job->ranks;
  const auto who = static_cast<float>(job->rank);
  float a = 10 + who, b = 20 + who, x = 0, y = 0;
  job->communicator().exchange(std::vector{Message{true, next, 3, 1, &b, 1}});
  job->communicator().exchange(std::vector{Message{true, next, 3, 0, &a, 1}});
  job->communicator().exchange(
      std::vector{Message{false, previous, 3, 0, &x, 1}, Message{false, previous, 3, 1, &y, 1}});
  EXPECT_EQ(x, 10 + static_cast<float>(previous));
  EXPECT_EQ(y, 20 + static_cast<float>(previous));
}

// Every rank sends before it receives, more than MPI would buffer; nobody waits for the receiver, and what was sent may
// change afterwards.
TEST(Mpi, SendsDoNotWaitForTheirReceivers) {
  const int next = (job->rank + 1) % job->ranks, previous = (job->rank + job->ranks - 1) % job->ranks;
  constexpr std::int64_t kLarge = 1'000'000;
  std::vector<float> sent = values_of(job->rank, kLarge), received(sent.size());
  job->communicator().exchange(std::vector{Message{true, next, 0, 0, sent.data(), kLarge}});
  std::fill(sent.begin(), sent.end(), 0.0F);
  job->communicator().exchange(std::vector{Message{false, previous, 0, 0, received.data(), kLarge}});
  EXPECT_EQ(received, values_of(previous, kLarge));
}

// Of a communicator of its own, with a short limit: what it has posted stays posted.
TEST(Mpi, AWaitEndsAtTheDeadlineAndNamesWhoDidNotCome) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  Stop stop;
  static SendBuffers send_buffers;
  static std::vector<std::unique_ptr<MpiCommunicator>> kept;
  static std::vector<float> x(1);
  kept.push_back(std::make_unique<MpiCommunicator>(comm, MpiCommunicator::Groups{{kAll, job->all}}, milliseconds(3000),
                                                   stop, send_buffers, [] { return std::vector<int>(); }));
  const auto call = [&](const std::function<void()>& work) {
    if (job->rank == 0) return;
    try {
      work();
      ADD_FAILURE() << "came back without rank 0";
    } catch (const WaitEnded& ended) {
      EXPECT_EQ(ended.missing(), std::vector<int>{0});
      EXPECT_EQ(stop.requested(), dynamic_cast<const Stopped*>(&ended) != nullptr);
    }
  };
  call([&] { kept.back()->all_reduce({kAll, job->all, 0}, ReduceOp::sum, x.data(), x.data(), 1); });
  stop.request();
  call([&] { kept.back()->exchange(std::vector{Message{false, 0, 0, 0, x.data(), 1}}); });
}

TEST(Mpi, TheRootGetsLossesInStepOrder) {
  job->world->report_loss(1, job->rank, 100 + job->rank);
  job->world->report_loss(0, job->rank, job->rank);
  if (!job->world->root()) return;
  for (int step = 0; step < 2; ++step) {
    std::optional<double> loss;
    for (int look = 0; look < 400 && !loss; ++look) loss = job->world->loss(step, job->all);
    EXPECT_EQ(loss, step * 100.0 * job->ranks + job->ranks * (job->ranks - 1) / 2.0);
  }
}

TEST(Mpi, WhereRanksOfOneMachineAreIsSeen) {
  job->world->whereabouts(job->rank).instance[2].store(40 + job->rank);
  float x = 0;
  job->communicator().all_reduce(job->on(kAll), ReduceOp::sum, &x, &x, 1);
  for (const int rank : job->world->on_this_machine())
    EXPECT_EQ(job->world->whereabouts(rank).instance[2].load(), 40 + rank);
}

// Sends of the tests' wires, which someone keeps moving.
class Moved {
 public:
  ~Moved() {
    while (buffers_.progress()) std::this_thread::sleep_for(milliseconds(1));
    ended_ = true;
    thread_.join();
  }
  SendBuffers& buffers() { return buffers_; }

 private:
  SendBuffers buffers_;
  std::atomic<bool> ended_ = false;
  std::thread thread_{[this] {
    while (!ended_) {
      buffers_.progress();
      std::this_thread::sleep_for(milliseconds(1));
    }
  }};
};

std::string text_of(int rank, int message) {
  return std::string(static_cast<std::size_t>(message * 1700), static_cast<char>('a' + rank)) + std::to_string(message);
}

// Every rank posts to all, itself aside, in three pieces and more; whoever receives asks the other way round. Messages
// of one tag come in the order in which they were posted.
TEST(Mpi, AWireBringsWhatIsAskedForInWhateverOrderItCame) {
  Stop stop;
  Moved moved;
  const auto wire = make_mpi_wire(MPI_COMM_WORLD, 2, milliseconds(20'000), stop, moved.buffers(), 1000);
  for (int to = 0; to < job->ranks; ++to)
    for (int message = 0; to != job->rank && message < 6; ++message)
      wire->post(to, message % 2, message < 4 ? 77 : 78, text_of(job->rank, message));
  for (int from = job->ranks - 1; from >= 0; --from) {
    if (from == job->rank) continue;
    for (const int message : {5, 4, 1, 3, 0, 2}) {
      std::string bytes(text_of(from, message).size(), '\0');
      const auto transfer = wire->receive(from, message % 2, message < 4 ? 77 : 78, bytes.data(), bytes.size());
      wire->wait(*transfer);
      EXPECT_EQ(bytes, text_of(from, message)) << message << " from " << from;
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Mpi, AWireSaysWhomItWaitsFor) {
  Stop stop;
  Moved moved;
  const auto wire = make_mpi_wire(MPI_COMM_WORLD, 2, milliseconds(300), stop, moved.buffers());
  const int next = (job->rank + 1) % job->ranks, previous = (job->rank + job->ranks - 1) % job->ranks;
  char a = 0, b = 0;
  {
    const auto given_up = wire->receive(previous, 0, 5, &a, 1);
    try {
      wire->wait(*given_up);
      ADD_FAILURE() << "came back without a message";
    } catch (const DeadlineError& late) {
      EXPECT_EQ(late.missing(), std::vector<int>{previous});
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  wire->post(next, 0, 5, "x");  // for those who ask later
  const auto there = wire->receive(previous, 0, 5, &b, 1);
  wire->wait(*there);
  EXPECT_EQ(a, 0);
  EXPECT_EQ(b, 'x');
  stop.request();
  const auto never = wire->receive(previous, 0, 6, &a, 1);
  EXPECT_THROW(wire->wait(*never), Stopped);
  MPI_Barrier(MPI_COMM_WORLD);
}

// Who asks for a message of another length than has come is not kept: what comes next is not for him.
TEST(Mpi, AWireForgetsWhoAsksForAnotherLength) {
  Stop stop;
  Moved moved;
  const auto wire = make_mpi_wire(MPI_COMM_WORLD, 2, milliseconds(20'000), stop, moved.buffers());
  const int next = (job->rank + 1) % job->ranks, previous = (job->rank + job->ranks - 1) % job->ranks;
  const auto get = [&](std::uint64_t tag, std::size_t bytes) {
    std::string text(bytes, '\0');
    wire->wait(*wire->receive(previous, 0, tag, text.data(), bytes));
    return text;
  };
  wire->post(next, 0, 9, "two");
  wire->post(next, 0, 10, "x");
  EXPECT_EQ(get(10, 1), "x");  // so the one before it is there
  EXPECT_ANY_THROW(get(9, 2));
  EXPECT_EQ(get(9, 3), "two");
  wire->post(next, 0, 9, "three");
  EXPECT_EQ(get(9, 5), "three");
  MPI_Barrier(MPI_COMM_WORLD);
}

// The last: it ends the run.
TEST(Mpi, TheRootGetsEveryAccountAtTheEnd) {
  const std::vector<std::string> accounts = job->world->gather("rank " + std::to_string(job->rank));
  ASSERT_EQ(accounts.size(), static_cast<std::size_t>(job->world->root() ? job->ranks : 0));
  for (std::size_t r = 0; r < accounts.size(); ++r) EXPECT_EQ(accounts[r], "rank " + std::to_string(r));
}

// Ranks in rows of two.
int run_all() {
  Job own;
  own.session = start_mpi(milliseconds(60'000));
  own.rank = own.session->rank();
  own.ranks = own.session->ranks();
  const plan::RankGrid grid({2, 1, 1, own.ranks / 2, 1},
                            {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline});
  program::Program program;
  program.groups = {{"all", program::GroupKind::world, {Axis::tensor, Axis::data}, {}},
                    {"row", program::GroupKind::tensor, {Axis::tensor}, {}},
                    {"column", program::GroupKind::data, {Axis::data}, {}}};
  own.all = grid.members(own.rank, program.groups[0].axes);
  own.row = grid.members(own.rank, program.groups[1].axes);
  own.column = grid.members(own.rank, program.groups[2].axes);
  own.world = own.session->make_world(program, grid, milliseconds(60'000), {});
  own.world->begin();
  job = &own;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace rehearse::execute

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return rehearse::execute::run_all();
}
