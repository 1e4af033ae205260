// Uneven loads of experts against closed forms: what all-to-alls of unequal parts take, and what the slowest rank costs
// the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/account/stage_memory.h"
#include "sim/program/work.h"
#include "sim/run/run.h"
#include "tests/support/simulated.h"

namespace rehearse {
namespace {

constexpr std::int64_t kTokens = 64, kHidden = 32, kRanks = 4;
// One layer, 64 tokens of a rank, each of which goes to one of four experts, of which every rank has one.
const std::string kOneChoice =
    "rehearse: 1\nmodel: {family: moe, layers: 1, hidden: 32, heads: 4, vocab: 250, max_seq_len: 64, experts: 4, "
    "experts_per_token: 1, expert_ffn_hidden: 24}\ncluster: {topology: dgx-a100, gpus: 4}\nplan: {expert: 4}\n"
    "training: {precision: fp32, clip: 0}\n";

std::vector<std::string> table(const std::string& shares) {
  return {"model.routing=table", "model.routing_table=" + shares};
}

double nvlink() {
  const auto cluster = cluster::build_cluster("dgx-a100", kRanks, {}, 0, REHEARSE_SOURCE_DIR);
  for (const auto& r : cluster->resources())
    if (r.kind == cluster::ResourceKind::nvlink) return static_cast<double>(r.capacity.per_s());
  return 0;
}

// What the step's all-to-alls take, each alone; there are as many as in forward and backward, 4.
std::map<double, std::int64_t> exchanges(const engine::Outcome& outcome) {
  std::map<double, std::int64_t> found;
  for (const result::CollectiveUse& use : outcome.collectives)
    if (use.kind == "all_to_all") found[static_cast<double>(use.alone_ps) * 1e-12] += use.count;
  return found;
}

// The rank whose expert has most gets its part from each of the three others, and sends it back to each.
TEST(ExpertLoads, AllToAllsTakeWhatTheLargestPartTakes) {
  const GivenCosts nothing([](const program::Op&) { return Time(); });
  const std::pair<const char*, double> cases[] = {
      {"[1, 1, 1, 1]", 0.25}, {"[4, 2, 1, 1]", 0.5}, {"[1, 1, 5, 1]", 0.625}, {"[0, 0, 0, 1]", 1}};
  for (const auto& [shares, largest] : cases) {
    const auto outcome = simulated(scenario_from(kOneChoice, table(shares)), nothing, Communication::plain);
    const auto found = exchanges(outcome);
    const double expected = 3 * largest * kTokens * kHidden * 4 / nvlink();
    ASSERT_FALSE(found.empty());
    EXPECT_NEAR(found.begin()->first, expected, 2e-12) << shares;
    EXPECT_NEAR(found.rbegin()->first, expected, 2e-12) << shares;
    std::int64_t count = 0;
    for (const auto& [seconds, calls] : found) count += calls;
    EXPECT_EQ(count, 4) << shares;
  }
}

// Gathered instead, every rank gets the rows, the choice and its weight of the three others' tokens, and sends as much
// back as its sums, whatever the loads are; there are the gradients of rows in backward, and of weights on the way
// back.
TEST(ExpertLoads, GatheredRowsDoNotDependOnThem) {
  const GivenCosts nothing([](const program::Op&) { return Time(); });
  for (const char* shares : {"[1, 1, 1, 1]", "[4, 2, 1, 1]"}) {
    auto set = table(shares);
    set.emplace_back("plan.expert_dispatch=all_gather");
    const auto outcome = simulated(scenario_from(kOneChoice, set), nothing, Communication::plain);
    std::map<std::pair<std::string, int>, std::int64_t> found;  // kind; bytes of a token
    for (const result::CollectiveUse& use : outcome.collectives)
      if (use.kind == "all_gather" || use.kind == "reduce_scatter")
        found[{use.kind,
               static_cast<int>(std::lround(static_cast<double>(use.alone_ps) * 1e-12 * nvlink() / (3 * kTokens)))}] +=
            use.count;
    EXPECT_EQ(found, (std::map<std::pair<std::string, int>, std::int64_t>{{{"all_gather", 4}, 2},
                                                                          {{"all_gather", 4 * kHidden}, 2},
                                                                          {{"reduce_scatter", 4}, 1},
                                                                          {{"reduce_scatter", 4 * kHidden}, 2}}))
        << shares;
  }
}

// Bytes that cross the ports: what three ranks send the fourth, on the way there into it, on the way back out of it.
TEST(ExpertLoads, PartsCrossThePortsOfSenderAndReceiver) {
  const auto cluster = cluster::build_cluster("dgx-a100", 4, {}, 0, REHEARSE_SOURCE_DIR);
  const auto model = collective::make_plain_model(*cluster, Time());
  const std::vector<Bytes> parts{Bytes(40), Bytes(20), Bytes(10), Bytes(0)};
  for (const bool back : {false, true}) {
    const collective::TransferPlan plan = model->exchange({0, 1, 2, 3}, {parts, back});
    std::map<std::string, std::int64_t> bytes;
    ASSERT_EQ(plan.activities.size(), 1U);
    for (const collective::Use& use : plan.activities[0].uses)
      bytes[cluster->resources()[static_cast<std::size_t>(use.resource)].name] += use.bytes;
    for (int i = 0; i < 4; ++i) {
      const std::int64_t own = parts[static_cast<std::size_t>(i)].count(), of_others = 70 - own;
      const std::string gpu = "node0/gpu" + std::to_string(i) + "/nvlink";
      EXPECT_EQ(bytes[gpu + (back ? "-out" : "-in")], 3 * own) << i << back;
      EXPECT_EQ(bytes[gpu + (back ? "-in" : "-out")], of_others) << i << back;
    }
  }
}

// Bytes by resource of an exchange of four GPUs that each send others than the rest.
std::map<std::string, std::int64_t> exchanged_bytes(const cluster::Cluster& cluster, const std::vector<int>& members,
                                                    const collective::Exchange& what) {
  const auto model = collective::make_plain_model(cluster, Time());
  std::map<std::string, std::int64_t> bytes;
  for (const collective::Activity& activity : model->exchange(members, what).activities)
    for (const collective::Use& use : activity.uses)
      bytes[cluster.resources()[static_cast<std::size_t>(use.resource)].name] += use.bytes;
  return bytes;
}

TEST(ExpertLoads, PartsOfEachSenderCrossItsPortAndTheReceivers) {
  const auto cluster = cluster::build_cluster("dgx-a100", 4, {}, 0, REHEARSE_SOURCE_DIR);
  const std::int64_t sent[4][4] = {{9, 40, 0, 1}, {10, 20, 20, 0}, {0, 50, 0, 0}, {25, 0, 25, 0}};
  std::vector<Bytes> parts;
  for (const auto& row : sent)
    for (const std::int64_t part : row) parts.emplace_back(part);
  for (const bool back : {false, true}) {
    auto bytes = exchanged_bytes(*cluster, {0, 1, 2, 3}, {parts, back});
    for (int i = 0; i < 4; ++i) {
      std::int64_t out = 0, in = 0;
      for (int j = 0; j < 4; ++j)
        if (i != j) out += sent[i][j], in += sent[j][i];
      const std::string gpu = "node0/gpu" + std::to_string(i) + "/nvlink";
      EXPECT_EQ(bytes[gpu + (back ? "-in" : "-out")], out) << i << back;
      EXPECT_EQ(bytes[gpu + (back ? "-out" : "-in")], in) << i << back;
    }
  }
  // Alone it takes what an all-to-all takes in which all get as much as member 1, which gets most.
  const auto calibrated =
      collective::make_model(*cluster, std::string(REHEARSE_SOURCE_DIR) + "/calibrate/devices/a100-sxm-80g.yaml");
  EXPECT_EQ(calibrated->exchange({0, 1, 2, 3}, {parts, false}).alone().ps(),
            calibrated->collective(program::CollectiveKind::all_to_all, {0, 1, 2, 3}, Bytes(110)).alone().ps());
}

// Where every member sends the same, a row for each says what one row for all says: over rails and nodes too.
TEST(ExpertLoads, LikePartsOfAllSendersAreThoseOfOne) {
  const auto cluster = cluster::build_cluster("dgx-a100", 16, {}, 0, REHEARSE_SOURCE_DIR);
  for (const std::vector<int>& members :
       {std::vector<int>{0, 1, 8, 9}, std::vector<int>{0, 1, 2, 8}, std::vector<int>{1, 0, 9, 10}}) {
    const std::vector<Bytes> one{Bytes(40), Bytes(20), Bytes(10), Bytes(0)};
    std::vector<Bytes> each;
    for (int i = 0; i < 4; ++i) each.insert(each.end(), one.begin(), one.end());
    for (const bool back : {false, true})
      EXPECT_EQ(exchanged_bytes(*cluster, members, {each, back}), exchanged_bytes(*cluster, members, {one, back}));
  }
}

// Between nodes on rails: what is for member i of the other node goes over NIC i, from all eight of the node together.
TEST(ExpertLoads, PartsCrossTheNicsOfTheReceiversRail) {
  const auto cluster = cluster::build_cluster("dgx-a100", 16, {}, 0, REHEARSE_SOURCE_DIR);
  const auto model = collective::make_plain_model(*cluster, Time());
  std::vector<int> members;
  std::vector<Bytes> parts;
  std::int64_t of_first_node = 0;
  for (int i = 0; i < 16; ++i) {
    members.push_back(i);
    parts.emplace_back(10 * (i + 1));
    if (i < 8) of_first_node += parts.back().count();
  }
  for (const bool back : {false, true}) {
    std::map<std::string, std::int64_t> bytes;
    const collective::TransferPlan plan = model->exchange(members, {parts, back});
    for (const collective::Use& use : plan.activities.at(0).uses)
      bytes[cluster->resources()[static_cast<std::size_t>(use.resource)].name] += use.bytes;
    for (int i = 0; i < 8; ++i) {
      const std::int64_t sent = back ? of_first_node : 8 * parts[static_cast<std::size_t>(8 + i)].count();
      EXPECT_EQ(bytes["node0/nic" + std::to_string(i) + "-out"], sent) << i << back;
      EXPECT_EQ(bytes["node1/nic" + std::to_string(i) + "-in"], sent) << i << back;
    }
    // Into member 0: what seven others of its node send it, and what of theirs for the other node's rail 0 it forwards.
    const std::int64_t own = parts[0].count(), rail = parts[8].count();
    EXPECT_EQ(bytes["node0/gpu0/nvlink-in"], back ? 2 * (of_first_node - own) : 7 * (own + rail)) << back;
  }
}

// Products take a nanosecond a row, all else nothing: 2 forward, 4 backward. The others wait for the rank with most.
TEST(ExpertLoads, TheOthersWaitForTheRankWithMostRows) {
  const GivenCosts rows([](const program::Op& op) {
    const auto* g = std::get_if<program::GroupedGemm>(&op.shape);
    return g != nullptr ? Time::from_ps(1000 * g->rows) : Time();
  });
  const auto step = [&](const std::string& shares) {
    return simulated(scenario_from(kOneChoice, table(shares)), rows, Communication::free);
  };
  EXPECT_EQ(step("[1, 1, 1, 1]").step_time, Time::from_ps(6 * kTokens * 1000));
  const engine::Outcome uneven = step("[4, 2, 1, 1]");
  EXPECT_EQ(uneven.step_time, Time::from_ps(2 * 6 * kTokens * 1000));
  EXPECT_DOUBLE_EQ(share(uneven, result::Share::compute), 0.5);
  EXPECT_DOUBLE_EQ(share(uneven, result::Share::straggler), 0.5) << "a rank of the same stage came late";
}

run::Options options() {
  run::Options o;
  o.data_root = REHEARSE_SOURCE_DIR;
  return o;
}

// Each micro-batch's slowest rank is waited for, its all-to-all as long as its own largest part.
TEST(ExpertLoads, EachMicroBatchHasItsOwn) {
  const GivenCosts rows([](const program::Op& op) {
    const auto* g = std::get_if<program::GroupedGemm>(&op.shape);
    return g != nullptr ? Time::from_ps(1000 * g->rows) : Time();
  });
  auto loads = table("[[[4, 2, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]]]");
  loads.emplace_back("training.global_batch=20");  // five micro-batches: three loads in turn
  const plan::Scenario scenario = scenario_from(kOneChoice, loads);
  EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "");
  const auto largest = {0.5, 0.25, 1.0, 0.5, 0.25};
  double expected = 0, exchanged = 0;
  for (const double part : largest) {
    expected += 6 * 4 * part * kTokens * 1000;
    exchanged += 4 * 3 * part * kTokens * kHidden * 4 / nvlink();
  }
  EXPECT_EQ(simulated(scenario, rows, Communication::free).step_time, Time::from_ps(std::llround(expected)));
  double found = 0;
  const GivenCosts nothing([](const program::Op&) { return Time(); });
  for (const auto& [seconds, calls] : exchanges(simulated(scenario, nothing, Communication::plain)))
    found += seconds * static_cast<double>(calls);
  EXPECT_NEAR(found, exchanged, 20 * 2e-12);
}

// Schedules, dispatches and recomputation have programs without a violation, and folded they are what every rank
// simulated is. FLOPs do not depend on which micro-batch has which load.
TEST(ExpertLoads, OfMicroBatchesGoWithEverySchedule) {
  const std::string text =
      "rehearse: 1\nmodel: {family: moe, layers: 4, hidden: 32, heads: 4, vocab: 250, max_seq_len: 64, experts: 4, "
      "experts_per_token: 2, expert_ffn_hidden: 24, shared_experts: 1, routing: zipf, routing_per: micro_batch}\n"
      "cluster: {topology: dgx-a100, gpus: 8}\nplan: {expert: 2, pipeline: 2}\ntraining: {global_batch: 16}\n";
  for (const std::vector<std::string>& set : std::vector<std::vector<std::string>>{
           {},
           {"plan.schedule=interleaved", "plan.chunks=2", "plan.recompute=full"},
           {"plan.schedule=zero_bubble", "plan.zero=1"},
           {"plan.schedule=dualpipe_v", "framework=rehearse"},
           {"plan.zero=3", "plan.pipeline=1", "framework=rehearse"},
           {"plan.tensor=2", "plan.sequence_parallel=true", "model.buffer_factor=2"},
           {"plan.tensor=2", "plan.sequence_parallel=true", "plan.expert=4", "plan.expert_tensor=1"},
           {"plan.expert_dispatch=all_gather", "plan.schedule=gpipe"}}) {
    const plan::Scenario scenario = scenario_from(text, set);
    EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "");
    run::Options every = options();
    every.fold = false;
    const result::Result a = run::simulate_scenario(scenario, options()), b = run::simulate_scenario(scenario, every);
    EXPECT_EQ(a.step_time_ps, b.step_time_ps);
    EXPECT_EQ(a.breakdown_ps, b.breakdown_ps);
    if (!set.empty()) continue;
    const plan::Scenario same = scenario_from(text, {"model.routing_per=layer"});
    EXPECT_EQ(a.hardware_flops, run::simulate_scenario(same, options()).hardware_flops);
  }
}

// Rows of the ranks' experts: those of all ranks' tokens, whatever the loads.
TEST(ExpertLoads, EveryRankComputesTheRowsOfItsExperts) {
  const auto scenario = scenario_from(kOneChoice, table("[5, 1, 1, 1]"));
  const program::Program program = lower::lower(scenario);
  ASSERT_EQ(program.roles.size(), 4U);
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_TRUE(program.roles[r].ranks.contains(scenario.grid().coordinates(static_cast<int>(r))));
    const auto& bodies = program.roles[r].bodies;
    const auto forward = std::find_if(bodies.begin(), bodies.end(), [](const auto& b) { return b.name == "forward"; });
    ASSERT_NE(forward, bodies.end());
    for (const program::Op& op : forward->ops)
      if (const auto* g = std::get_if<program::GroupedGemm>(&op.shape); g != nullptr && g->n == kHidden) {
        EXPECT_EQ(g->rows, r == 0 ? 4 * 40 : 4 * 8);
        sum += g->rows;
      }
  }
  EXPECT_EQ(sum, kRanks * kTokens);
  EXPECT_EQ(violations(program, scenario.grid()), "");
}

TEST(ExpertLoads, ResultsSayHowUnevenTheyAreAndWhatTheRankWithMostHolds) {
  const auto result = [](std::vector<std::string> assignments) {
    return run::simulate_scenario(scenario_from(kOneChoice, std::move(assignments)), options());
  };
  const result::Result even = result({}), uneven = result(table("[4, 2, 1, 1]"));
  EXPECT_FALSE(even.experts.known);
  EXPECT_TRUE(uneven.experts.known);
  EXPECT_EQ(uneven.experts.imbalance, 2);
  EXPECT_EQ(uneven.experts.mean_imbalance, 2);
  ASSERT_EQ(uneven.notes.size(), 1U);
  EXPECT_EQ(uneven.notes[0].what, "uneven_experts");
  EXPECT_GT(uneven.step_time_ps, even.step_time_ps);
  ASSERT_EQ(uneven.stages.size(), 1U);
  EXPECT_GT(uneven.stages[0].activations, even.stages[0].activations);
  EXPECT_EQ(uneven.hardware_flops, even.hardware_flops);
  const result::Result dropped = [&] {
    auto all = table("[4, 2, 1, 1]");
    all.emplace_back("model.capacity_factor=1");
    return result(all);
  }();
  EXPECT_EQ(dropped.experts.imbalance, 1);
  EXPECT_EQ(dropped.experts.dropped, 0.25);
  EXPECT_EQ(dropped.step_time_ps, result({"model.capacity_factor=1"}).step_time_ps) << "padded to the capacity";
}

// Whatever the loads, and where it is performed too; times are those of the rows that come.
TEST(ExpertLoads, WithAFactorMemoryIsThatOfTheBuffers) {
  const auto memory = [](std::vector<std::string> assignments, plan::Purpose purpose, const char* factor) {
    assignments.push_back(std::string("model.buffer_factor=") + factor);
    plan::Scenario scenario = scenario_from(kOneChoice, assignments);
    scenario.purpose = purpose;
    const plan::RankGrid grid = scenario.grid();
    return account::stage_memory(lower::lower(scenario), grid, scenario.framework, true).front();
  };
  const auto even = memory({}, plan::Purpose::simulate, "2");
  const auto uneven = memory(table("[4, 2, 1, 1]"), plan::Purpose::simulate, "2");
  const auto performed = memory({}, plan::Purpose::perform, "2");
  EXPECT_EQ(uneven.activations, even.activations);
  EXPECT_EQ(uneven.peak, even.peak);
  EXPECT_GT(even.peak, memory({}, plan::Purpose::simulate, "1").peak);
  EXPECT_EQ(performed.activations, even.activations);
  EXPECT_EQ(performed.peak, even.peak);
  const GivenCosts rows([](const program::Op& op) {
    const auto* g = std::get_if<program::GroupedGemm>(&op.shape);
    return g != nullptr ? Time::from_ps(1000 * g->rows) : Time();
  });
  auto roomy = table("[4, 2, 1, 1]");
  const Time without = simulated(scenario_from(kOneChoice, roomy), rows, Communication::plain).step_time;
  roomy.emplace_back("model.buffer_factor=3");
  EXPECT_EQ(simulated(scenario_from(kOneChoice, roomy), rows, Communication::plain).step_time, without);
}

TEST(ExpertLoads, OfExponentZeroAreUniform) {
  for (const std::string model : {"", "model.capacity_factor=1.5"}) {
    std::vector<std::string> zipf{"model.routing=zipf", "model.routing_exponent=0"}, uniform;
    if (!model.empty()) zipf.push_back(model), uniform.push_back(model);
    const GivenCosts rows([](const program::Op& op) {
      const auto* g = std::get_if<program::GroupedGemm>(&op.shape);
      return g != nullptr ? Time::from_ps(1000 * g->rows) : Time();
    });
    const auto a = simulated(scenario_from(kOneChoice, zipf), rows, Communication::plain);
    const auto b = simulated(scenario_from(kOneChoice, uniform), rows, Communication::plain);
    EXPECT_EQ(a.step_time, b.step_time);
    EXPECT_EQ(a.breakdown_ps, b.breakdown_ps);
  }
}

}  // namespace
}  // namespace rehearse
