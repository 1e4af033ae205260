// Steps of reinforcement learning (sim/run/reinforcement/reinforcement.h) against closed forms: what a decode step
// reads, how long replicas take, the bytes of weights that move, the cache's size, and what is idle.
#include "reports/reinforcement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "reports/html/html.h"
#include "reports/sweep_rows.h"
#include "reports/tables.h"
#include "sim/base/diagnostics.h"
#include "sim/cluster/topology.h"
#include "sim/engine/flows.h"
#include "sim/lower/lower.h"
#include "sim/model/model.h"
#include "sim/plan/documents.h"
#include "sim/program/work.h"
#include "sim/result/read_directory.h"
#include "sim/run/reinforcement/forward_pass.h"
#include "sim/run/reinforcement/generation.h"
#include "sim/run/reinforcement/phases.h"
#include "sim/run/reinforcement/reinforcement.h"
#include "sim/run/reinforcement/weight_movement.h"
#include "tests/support/lowered.h"

namespace rehearse::reinforcement_test {
namespace {

using run::DecodeCosts;
using run::ReplicaRun;
using run::ReplicaWork;
using run::StepCost;

const std::string kRoot = REHEARSE_SOURCE_DIR;
const std::string kScenario = kRoot + "/scenarios/llama3-8b-grpo-16xh100.yaml";

using Assignments = std::vector<std::string>;
plan::Scenario read(const Assignments& assignments = {}) {
  return plan::read_scenario(kScenario, assignments, kRoot);
}
run::Options options() {
  run::Options o;
  o.data_root = kRoot;
  o.record = false;
  return o;
}
result::Result simulate(const Assignments& assignments = {}) {
  return run::simulate_reinforcement(read(assignments), assignments, options());
}
double seconds(std::int64_t ps) {
  return static_cast<double>(ps) * 1e-12;
}
const result::ReinforcementPhase& phase(const result::Result& r, const std::string& name) {
  for (const auto& p : r.reinforcement.phases)
    if (p.name == name) return p;
  throw std::runtime_error("no phase " + name);
}

// A decode step of `sequences` behind `cached` tokens each, on one H100.
run::ForwardPass decode(std::int64_t sequences, std::int64_t cached) {
  const Assignments more{"framework=rehearse", "cluster.gpus=1", "training.seq_len=1",
                         "training.global_batch=" + std::to_string(sequences),
                         "plan={cuda_graphs: step, micro_batch: " + std::to_string(sequences) + "}"};
  return run::forward_pass(run::with_assignments(read(), {}, more, options()), cached, 2, options());
}

// Given a step that reads all weights but the embedding's table, and all keys and values, it takes no less than these
// bytes over the device's nominal 3.35 TB/s, and, being nothing else, not much more.
TEST(Decode, TakesWhatReadingWeightsAndCacheTakes) {
  constexpr double kBandwidth = 3.35e12;
  const model::Model m = read().model;
  const double weights = 2.0 * static_cast<double>(model::parameter_count(m) - m.vocab * m.hidden);
  const double token = 2.0 * static_cast<double>(m.layers * m.kv_heads * m.head_dim) * 2;
  for (const std::int64_t sequences : {1, 32, 128})
    for (const std::int64_t cached : {128, 4096}) {
      const double bytes = weights + token * static_cast<double>(sequences * cached);
      const double took = decode(sequences, cached).cost.seconds;
      EXPECT_GE(took, bytes / kBandwidth) << sequences << " behind " << cached;
      EXPECT_LE(took, 1.6 * bytes / kBandwidth) << sequences << " behind " << cached;
    }
}

// What more tokens in the cache cost is their bytes' time: linear, so that two points say all of it.
TEST(Decode, IsLinearInTheTokensCached) {
  const double near = decode(64, 1000).cost.seconds, middle = decode(64, 2000).cost.seconds,
               far = decode(64, 3000).cost.seconds;
  EXPECT_GT(far, near);
  EXPECT_NEAR(middle, (near + far) / 2, 1e-3 * (far - near));
}

// A forward alone keeps no gradients' work: it takes a third of a step without recomputation, about.
TEST(ForwardPass, IsAboutAThirdOfAStep) {
  const Assignments more{"training.global_batch=136", "plan.recompute=none", "plan.micro_batch=1"};
  const plan::Scenario s = run::with_assignments(read(), {}, more, options());
  const double step = seconds(run::simulate_scenario(s, options()).step_time_ps);
  const double forward = run::forward_pass(s, 0, 1, options()).cost.seconds;
  EXPECT_GT(forward, 0.27 * step);
  EXPECT_LT(forward, 0.40 * step);
}

// No backward is left for a forward to run beside, and it takes the same.
TEST(ForwardPass, HasNoSlotsOfAForwardBesideABackward) {
  for (const char* schedule : {"plan.schedule=dualpipe_v", "plan.schedule=interleaved"}) {
    const auto pass = [&](bool overlaps) {
      const Assignments more{"model.mtp_depth=0", "plan.layers_per_stage=[3, 3, 3, 3]", schedule, "plan.chunks=2",
                             std::string("plan.overlap_expert_exchange=") + (overlaps ? "true" : "false")};
      const plan::Scenario s = plan::read_scenario(kRoot + "/scenarios/mtp-small-8xh100.yaml", more, kRoot);
      EXPECT_EQ(s.plan.overlap_expert_exchange, overlaps);
      return run::forward_pass(s, 0, 1, options()).cost.seconds;
    };
    EXPECT_GT(pass(true), 0) << schedule;
    EXPECT_EQ(pass(true), pass(false)) << schedule;
  }
}

// Of Mistral's windows of 4,096 a query sees itself and the 4,095 before it: a step costs no more behind more of them,
// and of Gemma 2's layers every other goes on growing.
TEST(Decode, ReadsNoMoreThanASlidingWindow) {
  const auto took = [](const std::string& model, std::int64_t cached) {
    const Assignments more{"model=" + model,           "framework=rehearse",
                           "cluster.gpus=1",           "training.seq_len=1",
                           "training.global_batch=32", "plan={cuda_graphs: step, micro_batch: 32}"};
    return run::forward_pass(run::with_assignments(read(), {}, more, options()), cached, 2, options()).cost.seconds;
  };
  EXPECT_LT(took("mistral-7b", 2000), took("mistral-7b", 4095));
  EXPECT_EQ(took("mistral-7b", 4095), took("mistral-7b", 4096));
  EXPECT_EQ(took("mistral-7b", 4095), took("mistral-7b", 8000));
  const double before = took("gemma2-2b", 4095) - took("gemma2-2b", 2095),
               after = took("gemma2-2b", 6095) - took("gemma2-2b", 4095);
  EXPECT_NEAR(after, before / 2, 0.05 * before);
}

// Of Mixtral's 8 experts B tokens with two each choose 8 (1 - 0.75^B) in the mean: a layer's grouped products read so
// many experts' weights and no more.
TEST(Decode, ReadsTheExpertsThatAreChosen) {
  for (const std::int64_t sequences : {1, 2, 4, 16, 256}) {
    const Assignments more{"model=mixtral-8x7b",
                           "framework=rehearse",
                           "cluster.gpus=1",
                           "training.seq_len=1",
                           "training.global_batch=" + std::to_string(sequences),
                           "plan={micro_batch: " + std::to_string(sequences) + "}"};
    plan::Scenario s = run::with_assignments(read(), {}, more, options());
    run::make_forward_only(s, 128);
    const program::Program p = lower::lower(s);
    const program::Role& role = p.roles.front();
    const double chosen = 8 * (1 - std::pow(0.75, static_cast<double>(sequences)));
    int products = 0;
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops) {
        const auto* g = std::get_if<program::GroupedGemm>(&op.shape);
        if (g == nullptr) continue;
        ++products;
        const double weights = 2.0 * static_cast<double>(g->n * g->k), rows = static_cast<double>(2 * sequences);
        const double read = chosen * weights + rows * static_cast<double>(g->k) * 2 + 8 * 4;
        EXPECT_NEAR(static_cast<double>(program::work_of(role, op).bytes_read), read, 1) << sequences;
      }
    EXPECT_EQ(products, 2 * s.model.layers);
  }
}

// A step of one sequence reads a quarter of the experts that one of very many reads, and takes as much longer.
TEST(Decode, OfExpertsTakesWhatReadingTheChosenTakes) {
  constexpr double kBandwidth = 3.35e12;
  for (const std::int64_t sequences : {1, 4, 16}) {
    const Assignments more{"model=mixtral-8x7b",
                           "framework=rehearse",
                           "cluster.gpus=1",
                           "training.seq_len=1",
                           "training.global_batch=" + std::to_string(sequences),
                           "plan={micro_batch: " + std::to_string(sequences) + "}"};
    const plan::Scenario s = run::with_assignments(read(), {}, more, options());
    const model::Model& m = s.model;
    const double experts = static_cast<double>(m.layers * 8 * 3 * m.expert_ffn_hidden * m.hidden);
    const double rest = static_cast<double>(model::parameter_count(m) - m.vocab * m.hidden) - experts;
    const double bytes = 2 * (rest + experts * (1 - std::pow(0.75, static_cast<double>(sequences))));
    const double took = run::forward_pass(s, 128, 2, options()).cost.seconds;
    EXPECT_GE(took, bytes / kBandwidth) << sequences;
    EXPECT_LE(took, 1.6 * bytes / kBandwidth) << sequences;
  }
}

// A step takes a + b x sequences + c x tokens cached.
DecodeCosts plain_costs(double a, double b, double c, const std::vector<std::int64_t>& sequences) {
  std::vector<run::DecodePoint> points;
  for (const std::int64_t n : sequences) {
    run::DecodePoint& p = points.emplace_back();
    p.sequences = n, p.context = {0, 10, 30};
    for (const double context : p.context)
      p.cost.push_back({a + b * static_cast<double>(n) + c * static_cast<double>(n) * context, {}});
  }
  return DecodeCosts(std::move(points));
}

TEST(Replica, OneSequenceIsASumOfItsSteps) {
  ReplicaWork work{10, {5}, 1, 15, 0};
  const ReplicaRun run = run_replica(work, plain_costs(1, 0.5, 0.01, {1, 2}), StepCost{2, {}});
  // The first token is the prefill's: four steps behind 10, 11, 12 and 13 tokens.
  EXPECT_DOUBLE_EQ(run.prefill.seconds, 2);
  EXPECT_EQ(run.steps, 4);
  EXPECT_NEAR(run.decode.seconds, 4 * 1.5 + 0.01 * (10 + 11 + 12 + 13), 1e-12);
  EXPECT_EQ(run.most_cached, 14);
}

// Costs that stop growing behind 12 tokens: of eight steps behind 10 to 17 tokens, two are below.
TEST(Replica, ABendInTheCostsIsFollowed) {
  const ReplicaWork work{10, {9}, 1, 19, 0};
  run::DecodePoint point{1, {10, 12, 30}, {{1, {}}, {3, {}}, {3, {}}}};
  const ReplicaRun run = run_replica(work, DecodeCosts({point}), StepCost{});
  EXPECT_EQ(run.steps, 8);
  EXPECT_NEAR(run.decode.seconds, 1 + 2 + 6 * 3, 1e-12);
}

// Three sequences of 3, 5 and 2 decode steps, two at once: the third begins when the first ends.
TEST(Replica, AWaitingSequenceBeginsWhereOneEnds) {
  ReplicaWork work{10, {4, 6, 3}, 2, 1000, 0};
  const ReplicaRun run = run_replica(work, plain_costs(1, 0.5, 0, {1, 2, 4}), StepCost{});
  EXPECT_EQ(run.steps, 5);  // 3 of the first two, 2 of the second and third
  EXPECT_NEAR(run.decode.seconds, 5 * 2.0, 1e-12);
  EXPECT_EQ(run.sequences_at_once, 2);
}

// A host's step is of four sequences whoever has ended: 1 + 0.5 x 4 + 0.01 x what those under way have cached. Three at
// once of six join by two, each time a prefill of 7 and 0.25 around it.
TEST(Replica, AStepOfAHostIsOfAllItsSequencesAtOnce) {
  ReplicaWork work{10, {3, 5}, 4, 1000, 0};
  work.prefill_sequences = 4;
  const StepCost prefill{7, {}};
  const ReplicaRun run = run_replica(work, plain_costs(1, 0.5, 0.01, {4}), prefill);
  EXPECT_EQ(run.steps, 4);  // of two sequences behind 10 and 11, of one behind 12 and 13
  EXPECT_NEAR(run.decode.seconds, 4 * 3 + 0.01 * (2 * 10 + 2 * 11 + 12 + 13), 1e-12);
  EXPECT_DOUBLE_EQ(run.prefill.seconds, 7);

  ReplicaWork more{10, std::vector<std::int64_t>(6, 2), 3, 1000, 0.25};
  more.prefill_sequences = 2;
  const ReplicaRun again = run_replica(more, plain_costs(1, 0, 0, {3}), prefill);
  EXPECT_EQ(again.steps, 2);
  EXPECT_DOUBLE_EQ(again.prefill.seconds, 4 * 7.25);  // 2 and 1, twice
  EXPECT_DOUBLE_EQ(again.decode.seconds, 2 * 1.25);
  EXPECT_DOUBLE_EQ(again.decode.shares[static_cast<std::size_t>(result::Share::host)], 2 * 0.25);
}

// Sequences that have ended are as those behind the first context, whatever errors the others have: two measured behind
// 1000 and 1009 tokens, of which the latter came out slower than it is, say nothing of what is a thousand before.
TEST(Replica, AStepsTimeIsNotContinuedToSequencesThatHaveEnded) {
  ReplicaWork work{1000, {10}, 4, 10'000, 0};
  work.prefill_sequences = 4;
  run::DecodePoint point{4, {1, 1000, 1009}, {{2, {}}, {4, {}}, {5, {}}}};
  const ReplicaRun run = run_replica(work, DecodeCosts({point}), StepCost{});
  EXPECT_EQ(run.steps, 9);
  // Of the one under way, behind 1000 to 1008: 4 to 4 + 8/9. Three quarters have ended.
  EXPECT_NEAR(run.decode.seconds, 9 * ((4 + 4.0 / 9) / 4 + 2 * 0.75), 1e-12);
  point = {4, {1000, 1009}, {{4, {}}, {5, {}}}};
  EXPECT_NEAR(run_replica(work, DecodeCosts({point}), StepCost{}).decode.seconds, 9 * ((4 + 4.0 / 9) / 4 + 4 * 0.75),
              1e-12);
}

// A prompt is begun where there is a place, behind the round that freed it: of a response of one token the next round
// has the place. 5, 5, 5 and 1 token, then 1, then 1.
TEST(Replica, PromptsJoinInRoundsOfThePlacesThereAre) {
  ReplicaWork work{10, {5, 5, 5, 1, 1, 1}, 4, 1000, 0};
  work.prefill_sequences = 4;
  const ReplicaRun run = run_replica(work, plain_costs(1, 0, 0, {4}), StepCost{7, {}});
  EXPECT_DOUBLE_EQ(run.prefill.seconds, 3 * 7);
  EXPECT_EQ(run.steps, 4);
  // Each on its own: six.
  work.prefill_sequences = 0;
  EXPECT_DOUBLE_EQ(run_replica(work, plain_costs(1, 0, 0, {4}), StepCost{7, {}}).prefill.seconds, 6 * 7);
}

// Decode steps read positions that there are, the last of which is the token behind all others; a CPU's begin with next
// to nothing in the cache, below all that is under way.
TEST(Decode, IsSimulatedWithinWhatThereIs) {
  const std::string local = kRoot + "/scenarios/gpt-tiny-grpo-local.yaml";
  const Assignments all{"model.max_seq_len=20", "reinforcement.response_tokens=16"};
  const plan::Scenario s = plan::read_scenario(local, all, kRoot, plan::Purpose::perform);
  ASSERT_EQ(s.model.learned_positions(), 20);
  std::vector<std::int64_t> cached;
  for (const plan::Scenario& each : run::generating_on_cpu(s, all, options())) {
    cached.push_back(each.plan.cached_tokens);
    EXPECT_LE(each.plan.cached_tokens + each.training.seq_len, 20);
  }
  EXPECT_EQ(cached, (std::vector<std::int64_t>{0, 1, 4, 19})) << "of prompts of 4 and responses of 16";
  EXPECT_EQ(run::performed_phases(s, all, options()).decode.scenario.plan.cached_tokens, 19);
  EXPECT_EQ(run::decode_contexts(s, 16, false), (std::vector<std::int64_t>{4, 19}));
  EXPECT_EQ(run::decode_contexts(s, 1, false), std::vector<std::int64_t>{4});
}

// Of 20 tokens a sequence, a cache of 45 has two at once however many may be.
TEST(Replica, TheCacheLimitsHowManyAreAtOnce) {
  ReplicaWork work{10, std::vector<std::int64_t>(6, 10), 6, 45, 0.25};
  const ReplicaRun run = run_replica(work, plain_costs(1, 0, 0, {1, 2, 4, 8}), StepCost{});
  EXPECT_EQ(run.sequences_at_once, 2);
  EXPECT_EQ(run.steps, 3 * 9);
  EXPECT_NEAR(run.decode.seconds, 27 * 1.25, 1e-12);
  EXPECT_LE(run.most_cached, 45);
}

TEST(Lengths, HaveTheirMeanAndTheSameForTheSameSeed) {
  plan::Reinforcement r;
  r.prompts = 100, r.samples = 1000, r.response_tokens = 500, r.response_sigma = 0.5;
  const std::vector<std::int64_t> lengths = run::response_lengths(r, 1'000'000, 7);
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / 1e5;
  // Standard error: 500 sqrt(e^0.25 - 1) / sqrt(1e5) = 0.84.
  EXPECT_NEAR(mean, 500, 4 * 0.84);
  EXPECT_EQ(lengths, run::response_lengths(r, 1'000'000, 7));
  EXPECT_NE(lengths, run::response_lengths(r, 1'000'000, 8));
  r.response_sigma = 0;
  for (const std::int64_t length : run::response_lengths(r, 400, 7)) EXPECT_EQ(length, 400);
}

// 2 x layers x kv_heads x head_dim x bytes a token: 131,072 of Llama 3.1 8B in 16 bits; over 8 ranks an eighth, and
// over more no less than one head's.
TEST(Cache, HasTwoVectorsAHeadAndLayer) {
  const model::Model m = read().model;
  EXPECT_EQ(run::cache_bytes_per_token(m, 1, 2), 2 * 32 * 8 * 128 * 2);
  EXPECT_EQ(run::cache_bytes_per_token(m, 8, 2), 2 * 32 * 128 * 2);
  EXPECT_EQ(run::cache_bytes_per_token(m, 16, 2), 2 * 32 * 128 * 2);
}

std::int64_t moved(const plan::Scenario& s, int first, std::int64_t replicas, std::int64_t tensor, int devices) {
  const auto cluster = cluster::build_cluster("dgx-h100", devices, {}, 0, kRoot);
  std::int64_t bytes = 0;
  for (const run::WeightFlow& flow : run::weight_flows(s, *cluster, first, replicas, tensor, 2)) {
    EXPECT_NE(flow.from, flow.to);
    bytes += flow.bytes;
  }
  return bytes;
}

// Colocated, each device needs 1/tensor of the model and has 1/(tensor x pipeline) of it by training.
TEST(Weights, OfAnotherLayoutAreWhatIsNeededAndNotHeld) {
  const double all = 2.0 * static_cast<double>(model::parameter_count(read().model));
  // Two stages of one tensor rank: half of the model each for all 16, 8 x (first stage + second stage).
  EXPECT_EQ(moved(read(), 0, 16, 1, 16), std::llround(8 * all));
  // Tensor 4 to tensor 1: three quarters for each of 16.
  const Assignments tensor{"plan.tensor=4", "plan.pipeline=1"};
  EXPECT_NEAR(static_cast<double>(moved(read(tensor), 0, 16, 1, 16)), 16 * 0.75 * all, 64);
  // The same split: nothing.
  EXPECT_EQ(moved(read({"plan.tensor=4", "plan.pipeline=1", "reinforcement.generation.tensor=4"}), 0, 4, 4, 16), 0);
  // ZeRO-3 over 16: fifteen sixteenths each.
  const Assignments zero{"plan.zero=3", "plan.pipeline=1"};
  EXPECT_NEAR(static_cast<double>(moved(read(zero), 0, 16, 1, 16)), 15 * all, 512);
}

// Of experts that two replicas have half of each a device of tensor 1 lacks half; of all else nothing.
TEST(Weights, OfSpreadExpertsAreTheOthers) {
  const plan::Scenario s = read({"model=mixtral-8x7b", "plan.expert=2", "plan.tensor=1", "plan.pipeline=1"});
  const double experts = 2.0 * 32 * 8 * 3 * 4096 * 14336;  // layers, experts, matrices, widths
  EXPECT_NEAR(static_cast<double>(moved(s, 0, 16, 1, 16)), 16 * experts / 2, 64);
  // Apart, and over two stages: all of it, whatever is where.
  const plan::Scenario apart = read({"model=mixtral-8x7b", "plan.expert=2", "plan.tensor=1", "plan.pipeline=2"});
  EXPECT_NEAR(static_cast<double>(moved(apart, 16, 4, 1, 32)),
              4 * 2.0 * static_cast<double>(model::parameter_count(s.model)), 64);
}

// Apart, every replica gets all of it, however it is split on either side.
TEST(Weights, ApartEachReplicaGetsAllOfThem) {
  const double all = 2.0 * static_cast<double>(model::parameter_count(read().model));
  for (const std::int64_t tensor : {1, 2, 8})
    EXPECT_NEAR(static_cast<double>(moved(read(), 16, 8 / tensor, tensor, 24)), static_cast<double>(8 / tensor) * all,
                64)
        << tensor;
}

// Two transfers into one device share its NIC: twice the time of one.
TEST(Flows, ShareALink) {
  const auto cluster = cluster::build_cluster("dgx-h100", 24, {}, 0, kRoot);
  const auto model = collective::make_plain_model(*cluster, Time());
  const Bytes gb(1'000'000'000);
  const Time one = engine::run_flows({model->send(8, 0, gb)}, *cluster).end;
  const Time two = engine::run_flows({model->send(8, 0, gb), model->send(16, 0, gb)}, *cluster).end;
  const Time apart = engine::run_flows({model->send(8, 0, gb), model->send(17, 1, gb)}, *cluster).end;
  EXPECT_NEAR(two.seconds(), 2 * one.seconds(), 1e-6 * one.seconds());
  EXPECT_NEAR(apart.seconds(), one.seconds(), 1e-6 * one.seconds());
  // Copies at both ends are before and behind what the link carries.
  collective::TransferPlan copied = model->send(8, 0, gb);
  copied.copy_out += Time::from_ps(3'000'000), copied.copy_in += Time::from_ps(5'000'000);
  EXPECT_EQ(engine::run_flows({copied}, *cluster).end, one + Time::from_ps(8'000'000));
}

// Of a row's last document only what fits is left, which equal documents of the length wanted would not make up for.
TEST(Packing, HasTheMeanThatIsWanted) {
  constexpr std::int64_t kRow = 4096;
  plan::Training t;
  t.documents = plan::Documents::fixed, t.seq_len = kRow, t.global_batch = 8;
  std::int64_t shorter = 0;
  for (std::int64_t wanted = 5; wanted <= kRow; wanted += 7) {
    t.document_length = run::packed_document_length(static_cast<double>(wanted), kRow);
    EXPECT_NEAR(static_cast<double>(plan::equal_document_length(t)), static_cast<double>(wanted), 1);
    t.document_length = wanted;
    shorter += plan::equal_document_length(t) < wanted - 1 ? 1 : 0;
  }
  EXPECT_GT(shorter, 100);
}

// What an update costs by its packed rows is not what the scenario says that it trains on.
TEST(Step, SaysTrainingAsTheScenarioDoes) {
  const result::Result r = simulate({"training.base_batch=128", "data.samples=100000"});
  EXPECT_EQ(r.scenario.at("training.global_batch"), "512");
  EXPECT_EQ(r.scenario.count("training.documents"), 0U);
  EXPECT_EQ(r.learning_rate.global_batch, 512);
  EXPECT_EQ(r.epoch.samples, 0);
}

// Sequences of an update that few rows hold, fewer than the schedule has micro-batches for.
TEST(Step, PacksNoFewerRowsThanTheScheduleNeeds) {
  EXPECT_NO_THROW(simulate({"plan.schedule=dualpipe_v", "training.global_batch=32", "reinforcement.prompts=2"}));
}

// Replicas are alike but for links that the training's devices have: these do not matter where one device generates.
TEST(Step, FaultsAreOfTraining) {
  const result::Result r = simulate(), faulty = simulate({"cluster.faults=[{link: 'node1/*', share: 0.5}]"});
  EXPECT_EQ(phase(faulty, "generation").ps, phase(r, "generation").ps);
  EXPECT_GT(phase(faulty, "actor training").ps, phase(r, "actor training").ps);
}

TEST(Step, ColocatedIsTheSumOfItsPhasesAndItsSharesAddUp) {
  const result::Result r = simulate();
  std::int64_t phases = 0;
  for (const auto& p : r.reinforcement.phases) phases += p.ps;
  EXPECT_NEAR(seconds(r.step_time_ps), seconds(phases), 1e-9);
  EXPECT_EQ(std::accumulate(r.breakdown_ps.begin(), r.breakdown_ps.end(), std::int64_t{0}), r.step_time_ps);
  const auto& generation = phase(r, "generation");
  EXPECT_NEAR(r.reinforcement.idle * seconds(r.step_time_ps), generation.idle * seconds(generation.ps), 1e-9);
  EXPECT_EQ(phase(r, "actor training").ps / r.reinforcement.update_ps, 4);
  EXPECT_EQ(r.ranks, 16);
}

// Devices that have nothing to do: those that train while others generate, and the other way round.
TEST(Step, ApartIdleIsOneLessWhatIsBusy) {
  const Assignments apart{"reinforcement.generation.gpus=16"};
  const result::Result r = simulate(apart);
  const double generation = seconds(phase(r, "generation").ps), step = seconds(r.step_time_ps),
               weights = seconds(phase(r, "weights").ps);
  const double train = seconds(phase(r, "actor scoring").ps + phase(r, "reference scoring").ps + phase(r, "copies").ps +
                               phase(r, "actor training").ps);
  EXPECT_NEAR(step, generation + train + weights, 1e-9);
  const double busy =
      (16 * (generation * (1 - phase(r, "generation").idle) + weights) + 16 * (train + weights)) / (32 * step);
  EXPECT_NEAR(r.reinforcement.idle, 1 - busy, 1e-9);
  EXPECT_EQ(r.ranks, 32);

  Assignments at_once = apart;
  at_once.emplace_back("reinforcement.asynchronous=true");
  const result::Result overlapped = simulate(at_once);
  EXPECT_NEAR(seconds(overlapped.step_time_ps), std::max(generation, train) + weights, 1e-9);
  EXPECT_LT(overlapped.reinforcement.idle, r.reinforcement.idle);
}

TEST(Step, ACriticAndARewardModelAreScoredAndTheFormerTrained) {
  const result::Result r = simulate({"reinforcement.algorithm=ppo", "reinforcement.reward=same"});
  EXPECT_EQ(phase(r, "critic training").ps, phase(r, "actor training").ps);
  EXPECT_EQ(phase(r, "reward scoring").ps, phase(r, "actor scoring").ps);
  const result::Result small =
      simulate({"reinforcement.algorithm=ppo", "reinforcement.reward=llama3.2-1b", "reinforcement.critic=llama3.2-1b"});
  EXPECT_LT(phase(small, "critic training").ps, phase(r, "critic training").ps / 4);
  EXPECT_THROW(simulate({"reinforcement.algorithm=ppo", "reinforcement.critic=llama-no"}), InputError);
}

// Where nothing is copied to the host all of it lies on the devices at once.
TEST(Step, WhatStaysOnDevicesIsCounted) {
  const result::Result away = simulate(), stays = simulate({"reinforcement.offload=false"});
  const double held = static_cast<double>(phase(stays, "generation").peak_bytes - phase(away, "generation").peak_bytes);
  double states = 0;
  for (const auto& s : away.stages)
    states = std::max(states, static_cast<double>(s.parameters + s.gradients + s.optimizer));
  const double frozen = static_cast<double>(model::parameter_count(read().model));  // half of it, in 2 bytes
  EXPECT_NEAR(held, states + frozen, 1e-3 * held);
  EXPECT_THROW(phase(stays, "copies"), std::runtime_error);
  EXPECT_GT(phase(away, "copies").ps, 0);
  EXPECT_EQ(stays.host_bytes, 0);
}

// Generation fills most of a device, more than the update whose stages are listed.
TEST(Result, ItsPeakIsThatOfTheFullestPhase) {
  const result::Result r = simulate({"reinforcement.generation.memory=90%"});
  const std::int64_t generation = phase(r, "generation").peak_bytes;
  ASSERT_GT(generation, r.stages.front().peak);
  EXPECT_EQ(reports::fullest(r).bytes, generation);
  ASSERT_NE(reports::fullest(r).phase, nullptr);
  EXPECT_EQ(reports::fullest(r).phase->name, "generation");
  const std::string needs = format_bytes(Bytes(generation));
  const std::string summary = reports::summary(r);
  EXPECT_NE(summary.find("of all phases generation needs most: " + needs), std::string::npos) << summary;
  EXPECT_NE(summary.find("at its peak in an update alone"), std::string::npos) << summary;
  reports::SweepRow row;
  reports::fill(row, r);
  EXPECT_EQ(row.peak_bytes, generation);
  EXPECT_EQ(row.limit, "generation");
  EXPECT_NE(reports::comparison({r}, 1e9).find(needs), std::string::npos);
  result::StoredResult stored;
  stored.result = r;
  const std::string page = reports::html_page({stored}, {});
  EXPECT_NE(page.find(needs + "</dd>"), std::string::npos) << "the headline";
  EXPECT_NE(page.find("the fullest phase, generation, needs " + needs), std::string::npos);
}

TEST(Result, ItsPeakIsThatOfTheUpdateWhereThatNeedsMost) {
  const result::Result r = simulate({"reinforcement.generation.memory=20GB"});
  EXPECT_EQ(reports::fullest(r).bytes, phase(r, "actor training").peak_bytes);
  EXPECT_EQ(reports::fullest_phase(r), "");
  EXPECT_EQ(reports::summary(r).find("in an update alone"), std::string::npos);
}

TEST(Step, ARoomlessCacheIsRefused) {
  EXPECT_THROW(simulate({"reinforcement.generation.memory=19GB"}), InputError);
  EXPECT_NO_THROW(simulate({"reinforcement.generation.memory=20GB"}));
}

// result.json says all of it, and the terminal and the page show the phases.
TEST(Result, IsReadAsItWasWrittenAndShown) {
  const result::Result r = simulate({"reinforcement.generation.gpus=16", "reinforcement.asynchronous=true"});
  const std::string folder = testing::TempDir() + "reinforcement_result";
  result::write_directory(r, folder);
  const result::StoredResult stored = result::read_directory(folder);
  EXPECT_EQ(result::to_json(stored.result), result::to_json(r));
  EXPECT_EQ(reports::phase_rows(stored.result), reports::phase_rows(r));
  EXPECT_NE(reports::summary(r).find("reference scoring"), std::string::npos);
  EXPECT_NE(reports::html_page({stored}, {}).find("Phases of the step"), std::string::npos);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result::to_json(run::simulate_scenario(run::with_assignments(read(), {}, {}, options()), options()))
                .find("\"reinforcement\""),
            std::string::npos);
}

// The first problem of a scenario; empty: there is none.
Diagnostic problem_of(const Assignments& assignments) {
  try {
    read(assignments);
  } catch (const InputError& error) {
    return error.diagnostics().front();
  }
  return {};
}

TEST(Rules, APromptLeavesRoomForAResponse) {
  const auto message = [](const Assignments& assignments) { return problem_of(assignments).message; };
  for (const char* tokens : {"4096", "5000"})
    EXPECT_EQ(message({std::string("reinforcement.prompt_tokens=") + tokens}),
              std::string("a prompt of ") + tokens + " tokens leaves no room for a response in training.seq_len, 4096");
  EXPECT_EQ(message({"reinforcement.prompt_tokens=96", "reinforcement.max_response_tokens=4001"}),
            "a prompt of 96 tokens and responses of up to 4001 do not fit training.seq_len, 4096");
}

TEST(Rules, SayWhatDoesNotGoTogether) {
  const auto refused = [](const Assignments& assignments) { return problem_of(assignments).path; };
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({"reinforcement.asynchronous=true"}), "reinforcement.asynchronous");
  EXPECT_EQ(refused({"reinforcement.prompts=63"}), "reinforcement.prompts");
  EXPECT_EQ(refused({"reinforcement.prompt_tokens=4096"}), "reinforcement.prompt_tokens");
  EXPECT_EQ(refused({"reinforcement.critic=llama3-8b"}), "reinforcement.critic");
  for (const char* key : {"reinforcement.gamma", "reinforcement.gae_lambda", "reinforcement.value_clip"})
    EXPECT_EQ(refused({std::string(key) + "=0.5"}), key);
  EXPECT_EQ(refused({"reinforcement.generation.tensor=3"}), "reinforcement.generation.tensor");
  EXPECT_EQ(refused({"reinforcement.generation.gpus=4", "reinforcement.generation.tensor=8"}),
            "reinforcement.generation.tensor");
  EXPECT_EQ(refused({"reinforcement.sample=3"}), "reinforcement.sample");
  EXPECT_EQ(refused({"model=mixtral-8x7b", "plan.expert=2"}), "");
  EXPECT_EQ(refused({"model=mixtral-8x7b", "plan.expert=2", "plan.zero=3"}), "reinforcement");
  const std::string apart = "reinforcement.generation.gpus=16";
  EXPECT_EQ(refused({apart}), "");
  EXPECT_EQ(refused({apart, "cluster.placement=[node1, node0]"}), "cluster.placement");
  EXPECT_EQ(refused({apart, "cluster.faults=[{link: 'node0/*', share: 0.5}]"}), "cluster.faults");
  const Assignments ring{"plan.context=2", "plan.context_kind=ring"};
  EXPECT_EQ(refused(ring), "reinforcement.packing");
  EXPECT_EQ(refused({ring[0], ring[1], "reinforcement.packing=false"}), "");
  EXPECT_EQ(refused({ring[0], "plan.context_kind=all_gather"}), "");
  EXPECT_EQ(refused({ring[0], "plan.context_kind=all_gather", "plan.pipeline=1", "plan.zero=3"}), "reinforcement");
}

}  // namespace
}  // namespace rehearse::reinforcement_test
