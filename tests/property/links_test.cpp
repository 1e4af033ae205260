// Bytes on links are conserved: what a result says of its links is what the step's transfers put there, whatever the
// plan, the number of steps, and noise; and its times lie in the step.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "sim/program/work.h"
#include "tests/unit/engine/stand_in.h"

namespace rehearse::engine {
namespace {

struct Expected {
  std::vector<std::int64_t> bytes;              // by resource
  std::map<std::string, std::int64_t> of_user;  // over all resources
};

// What one step of all ranks puts on the links, by walking slots and ops: a collective once for each of its instances,
// at its first member; a message at its sender.
Expected one_step(const program::Program& program, const plan::RankGrid& grid, const testing::TestModel& model,
                  std::size_t resources) {
  Expected expected;
  expected.bytes.assign(resources, 0);
  const auto add = [&](const collective::TransferPlan& plan, const std::string& user) {
    for (const collective::Activity& activity : plan.activities)
      for (const collective::Use& use : activity.uses) {
        expected.bytes[static_cast<std::size_t>(use.resource)] += use.bytes;
        expected.of_user[user] += use.bytes;
      }
  };
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const program::Role& role = program.roles[static_cast<std::size_t>(grid.coordinate(rank, Axis::pipeline))];
    for (const program::Slot& slot : role.slots)
      for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) {
        if (const auto* collective = std::get_if<program::Collective>(&op.shape)) {
          const program::Group& group = program.groups[static_cast<std::size_t>(collective->group)];
          const std::vector<int> members = grid.members(rank, group.axes, group.pipeline_only, group.tensor_block);
          if (members.size() > 1 && members.front() == rank)
            add(model.groups(members, program::collective_bytes(op)), group.name + " all_reduce");
        } else if (const auto* legs = std::get_if<program::PointToPoint>(&op.shape)) {
          for (const program::Leg& leg : legs->legs)
            if (leg.send)
              add(model.messages(rank, grid.peer(rank, leg.axis, leg.offset), program::leg_bytes(op, leg)),
                  "pipeline send");
        }
      }
  }
  return expected;
}

struct Size {
  int tensor, data, stages, steps;
};

class LinkBytes : public ::testing::TestWithParam<Size> {
 protected:
  Outcome run(const plan::Noise& noise = {}) {
    const auto [tensor, data, stages, steps] = GetParam();
    size_ = {.tensor = tensor, .data = data, .stages = stages, .layers = 2, .micro_batches = 4, .kernels_per_block = 2};
    program_ = size_.program();
    model_ = size_.model();
    const auto costs = size_.costs();
    const auto cluster = size_.cluster();
    Options options;
    options.steps = steps;
    options.noise = noise;
    resources_ = cluster.resources().size();
    return simulate(program_, size_.grid(), cluster, model_, costs, options);
  }
  Expected expected() const { return one_step(program_, size_.grid(), model_, resources_); }

  testing::StandIn size_;
  program::Program program_;
  testing::TestModel model_;
  std::size_t resources_ = 0;
};

plan::Noise some_noise() {
  plan::Noise noise;
  noise.kernels = noise.transfers = 0.2;
  noise.slow_ranks = {{{0}, 0, 1.5}};
  noise.links = {{"r1*", 1, 0.3, Time::from_us(2000), 0.5}};
  return noise;
}

TEST_P(LinkBytes, AreThoseOfTheStepsTransfers) {
  for (const plan::Noise& noise : {plan::Noise(), some_noise()}) {
    const Outcome outcome = run(noise);
    const Expected should = expected();
    EXPECT_EQ(outcome.link_bytes, should.bytes);
    EXPECT_EQ(outcome.links.bytes, std::accumulate(should.bytes.begin(), should.bytes.end(), std::int64_t{0}));
    EXPECT_GT(outcome.links.bytes, 0);
  }
}

TEST_P(LinkBytes, UsersOfALinkSumToItsBytesAndTimesLieInTheStep) {
  for (const plan::Noise& noise : {plan::Noise(), some_noise()}) {
    const Outcome outcome = run(noise);
    const std::int64_t step = outcome.step_time.ps();
    std::int64_t alike = 0;
    for (const result::LinkUse& link : outcome.links.busiest) {
      alike += link.alike;
      std::int64_t sum = 0;
      for (const result::LinkUser& user : link.users) sum += user.bytes;
      EXPECT_EQ(sum, link.bytes) << link.name;
      EXPECT_LE(0, link.first_ps);
      EXPECT_LT(link.first_ps, link.last_ps);
      EXPECT_LE(link.last_ps, step);
      EXPECT_LE(link.busy_ps, link.last_ps - link.first_ps);
      EXPECT_LE(link.window_from_ps + link.window_ps, step);
      EXPECT_LE(link.window_bytes, link.bytes);
      EXPECT_LE(result::utilisation(link, link.window_bytes, link.window_ps), 1.0 + 1e-6)
          << "no more than it can carry";
    }
    EXPECT_LE(alike, outcome.links.used);
    if (outcome.links.busiest.size() < 10) {
      EXPECT_EQ(alike, outcome.links.used) << "all are there";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, LinkBytes,
                         ::testing::Values(Size{2, 2, 2, 1}, Size{2, 2, 2, 3}, Size{4, 1, 1, 2}, Size{1, 4, 3, 2}),
                         [](const auto& size) {
                           return fmt::format("t{}d{}p{}s{}", size.param.tensor, size.param.data, size.param.stages,
                                              size.param.steps);
                         });

// One link of 1 GB/s, 2 us of 2,000 bytes in a step of 10 us: 20 % of it, from 4 to 6 us, all of it in use then.
TEST(LinkUse, SaysWhenALinkIsInUse) {
  program::Program program;
  program.groups = {testing::group_of("data", program::GroupKind::data, Axis::data)};
  testing::RoleBuilder role;
  const auto compute = role.stream("compute", testing::StreamKind::compute);
  const auto body = role.body("step");
  role.kernel(body, "before", compute);
  role.all_reduce(body, "reduce", compute, 0, 10);
  role.kernel(body, "after", compute);
  role.slot(body);
  program.roles.push_back(role.build());
  testing::TestCosts costs;
  costs.otherwise = 4'000'000;
  testing::TestModel model;
  model.groups = [](const std::vector<int>&, std::int64_t) { return testing::plan_of(2'000'000, {{0, 2'000}}); };
  const testing::TestCluster cluster(2, {1'000'000'000, 5});
  Options options;
  options.steps = 3;
  const Outcome outcome = simulate(program, testing::grid_of(1, 2, 1), cluster, model, costs, options);
  ASSERT_EQ(outcome.step_time.ps(), 10'000'000);
  EXPECT_EQ(outcome.link_bytes, (std::vector<std::int64_t>{2'000, 0}));
  EXPECT_EQ(outcome.links.used, 1);
  ASSERT_EQ(outcome.links.busiest.size(), 1u);
  const result::LinkUse& link = outcome.links.busiest[0];
  EXPECT_EQ(link.name, "r0");
  EXPECT_DOUBLE_EQ(result::utilisation(link, link.bytes, outcome.step_time.ps()), 0.2);
  EXPECT_EQ(link.busy_ps, 2'000'000);
  EXPECT_EQ(link.first_ps, 4'000'000);
  EXPECT_EQ(link.last_ps, 6'000'000);
  EXPECT_GE(link.window_from_ps, 4'000'000);
  EXPECT_LE(link.window_from_ps + link.window_ps, 6'000'000);
  EXPECT_EQ(link.window_bytes, 1'000);
  ASSERT_EQ(link.users.size(), 1u);
  EXPECT_EQ(link.users[0].name, "data all_reduce");
}

}  // namespace
}  // namespace rehearse::engine
