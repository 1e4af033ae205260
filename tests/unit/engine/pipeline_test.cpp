// Stages that send to one another: bubbles, exposed messages, message matching and deadlocks; times in picoseconds.
#include <gtest/gtest.h>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

using result::Share;
using testing::EventId;
using testing::RoleBuilder;
using testing::StreamKind;

std::int64_t stage_share(const Outcome& outcome, Share which) {
  return outcome.breakdown_ps[static_cast<std::size_t>(which)];
}

// GPipe by hand: all forwards, then all backwards; activations up on channel 0, gradients down on channel 1.
program::Role gpipe_stage(int stage, int stages, int micro_batches) {
  RoleBuilder role(stage);
  const auto compute = role.stream("compute", StreamKind::compute);
  const auto receive = role.stream("receive", StreamKind::pipeline), send = role.stream("send", StreamKind::pipeline);
  std::vector<program::BodyId> bodies;
  for (const bool forward : {true, false}) {
    const auto body = role.body(forward ? "forward" : "backward");
    bodies.push_back(body);
    const int up = forward ? 1 : -1, channel = forward ? 0 : 1;
    const bool receives = forward ? stage > 0 : stage < stages - 1, sends = forward ? stage < stages - 1 : stage > 0;
    std::vector<EventId> waits;
    if (receives) {
      waits.push_back(role.event(fmt::format("in{}", channel)));
      role.message(body, "receive", receive, false, -up, channel, 10, {}, waits[0]);
    }
    const EventId out = sends ? role.event(fmt::format("out{}", channel)) : -1;
    role.kernel(body, forward ? "f" : "b", compute, waits, out);
    if (sends) role.message(body, "send", send, true, up, channel, 10, {out});
  }
  for (const auto body : bodies)
    for (int i = 0; i < micro_batches; ++i) role.slot(body, i);
  return role.build();
}

TEST(Pipeline, GpipeWithFreeMessagesIdlesExactlyItsBubble) {
  program::Program program;
  for (int stage = 0; stage < 3; ++stage) program.roles.push_back(gpipe_stage(stage, 3, 4));
  testing::TestCosts costs;
  costs.ps = {{"f", 1000}, {"b", 2000}};
  const testing::TestModel free;
  const testing::TestCluster cluster(3);
  for (const int steps : {1, 2, 3}) {
    Options options;
    options.steps = steps;
    const Outcome outcome = simulate(program, testing::grid_of(1, 1, 3), cluster, free, costs, options);
    EXPECT_EQ(outcome.step_time.ps(), (4 + 3 - 1) * 3000);
    EXPECT_EQ(stage_share(outcome, Share::bubble) * 3, outcome.step_time.ps()) << "(p - 1) / (m + p - 1) = 2 / 6";
    EXPECT_EQ(stage_share(outcome, Share::compute), 4 * 3000);
  }
}

// Stage 0 computes 1000 and sends 500; stage 1 receives and computes 200.
program::Program one_way(int messages = 1) {
  program::Program program;
  RoleBuilder first(0), second(1);
  const auto c0 = first.stream("compute", StreamKind::compute), p0 = first.stream("pipeline", StreamKind::pipeline);
  const auto c1 = second.stream("compute", StreamKind::compute), p1 = second.stream("pipeline", StreamKind::pipeline);
  const EventId out = first.event("out"), in = second.event("in");
  const auto b0 = first.body("forward"), b1 = second.body("forward");
  first.kernel(b0, "f", c0, {}, out);
  first.message(b0, "send", p0, true, 1, 0, 10, {out});
  second.message(b1, "receive", p1, false, -1, 0, 10, {}, in);
  second.kernel(b1, "g", c1, {in});
  for (int i = 0; i < messages; ++i) {
    first.slot(b0, i);
    second.slot(b1, i);
  }
  program.roles.push_back(first.build());
  program.roles.push_back(second.build());
  return program;
}

struct Stages {
  testing::TestCluster cluster{8};
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;
  Stages() {
    costs.ps = {{"f", 1000}, {"g", 200}};
    options.steps = 1;
    model.messages = [](int, int, std::int64_t) { return testing::plan_of(500); };
  }
  Outcome operator()(const program::Program& program, int stages = 2) const {
    return simulate(program, testing::grid_of(1, 1, stages), cluster, model, costs, options);
  }
};

// Stage 1 waits 1000 for its sender and 500 for the bytes; stage 0 idles 700 at the end: with both stages, half of it.
TEST(Pipeline, AReceiveIsBubbleUntilTheSenderPostsAndExposedAfter) {
  const Outcome outcome = Stages()(one_way());
  EXPECT_EQ(outcome.step_time.ps(), 1700);
  EXPECT_EQ(stage_share(outcome, Share::compute), (1000 + 200) / 2);
  // At the end stage 0 has its own message in flight for 500, then waits 200 for stage 1.
  EXPECT_EQ(stage_share(outcome, Share::exposed_pipeline), (500 + 500) / 2);
  EXPECT_EQ(stage_share(outcome, Share::bubble), (1000 + 200) / 2);
}

TEST(Pipeline, MessagesOfAChannelMatchInOrder) {
  Stages run;
  run.options.recorded_ranks = {1};
  const Outcome outcome = run(one_way(3));
  // The sends are at 1000, 2000, 3000; each arrives 500 later and is computed on for 200.
  std::vector<std::int64_t> starts;
  for (const auto& record : outcome.records)
    if (record.duration_ps == 200) starts.push_back(record.start_ps);
  EXPECT_EQ(starts, (std::vector<std::int64_t>{1500, 2500, 3500}));
}

// Both stages send and receive in one op, 20 elements up and 10 down: neither blocks the other, and the op is done when
// the longer leg is. Messages take a picosecond a byte, elements are 4 bytes.
TEST(Pipeline, AnExchangeAsOneOpGoesBothWays) {
  program::Program program;
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto pipeline = role.stream("pipeline", StreamKind::pipeline);
    const auto body = role.body("exchange");
    const std::int64_t sent = stage == 0 ? 20 : 10, received = stage == 0 ? 10 : 20;
    role.op(body, "exchange", pipeline,
            program::PointToPoint{{{true, Axis::pipeline, 1, 0, sent}, {false, Axis::pipeline, 1, 0, received}}});
    role.slot(body);
    program.roles.push_back(role.build());
  }
  Stages run;
  run.model.messages = [](int, int, std::int64_t bytes) { return testing::plan_of(bytes); };
  EXPECT_EQ(run(program).step_time.ps(), 80);
}

TEST(Pipeline, TwoReceivesThatWaitForEachOtherAreADeadlockThatNamesThem) {
  program::Program program;
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto pipeline = role.stream("pipeline", StreamKind::pipeline);
    const auto body = role.body("exchange");
    role.message(body, "receive.first", pipeline, false, 1, 0, 10);
    role.message(body, "send.second", pipeline, true, 1, 0, 10);
    role.slot(body, 7);
    program.roles.push_back(role.build());
  }
  try {
    Stages()(program);
    FAIL() << "it went through";
  } catch (const Deadlock& deadlock) {
    const std::string text = deadlock.what();
    EXPECT_NE(text.find("rank 0 (stage0), stream pipeline, op receive.first of exchange "
                        "(step 0, slot 0, micro-batch 7) waits for rank 1 to send"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("rank 1 (stage1), stream pipeline, op receive.first of exchange "
                        "(step 0, slot 0, micro-batch 7) waits for rank 0 to send"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("a circle"), std::string::npos) << text;
  }
}

// Stage 1's kernel waits for its receive, its reduction for the kernel; stage 0 reduces first and would send after.
TEST(Pipeline, TheChainOfADeadlockGoesThroughEventsAndGroups) {
  program::Program program;
  program.groups = {testing::group_of("world", program::GroupKind::world, Axis::pipeline)};
  RoleBuilder first(0), second(1);
  const auto p0 = first.stream("comm", StreamKind::pipeline);
  const auto b0 = first.body("body");
  first.all_reduce(b0, "reduce", p0, 0, 10);
  first.message(b0, "send", p0, true, 1, 0, 10);
  first.slot(b0);
  const auto c1 = second.stream("compute", StreamKind::compute), p1 = second.stream("receive", StreamKind::pipeline),
             d1 = second.stream("data", StreamKind::data);
  const auto b1 = second.body("body");
  const EventId in = second.event("in"), done = second.event("done");
  second.message(b1, "receive", p1, false, -1, 0, 10, {}, in);
  second.kernel(b1, "kernel", c1, {in}, done);
  second.all_reduce(b1, "reduce", d1, 0, 10, {done});
  second.slot(b1);
  program.roles.push_back(first.build());
  program.roles.push_back(second.build());
  try {
    Stages()(program);
    FAIL() << "it went through";
  } catch (const Deadlock& deadlock) {
    const std::string text = deadlock.what();
    EXPECT_NE(text.find("waits for rank 1 to post call 0 of group world"), std::string::npos) << text;
    EXPECT_NE(text.find("waits for event done, recorded by kernel of body on stream compute"), std::string::npos)
        << text;
    EXPECT_NE(text.find("waits for event in, recorded by receive of body on stream receive"), std::string::npos)
        << text;
    EXPECT_NE(text.find("a circle"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace rehearse::engine
