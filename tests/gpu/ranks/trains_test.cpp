// Ranks on GPUs train as ranks on the CPU do, though the GPU here does everything as late as it may and in an order
// that only events bind: what the rank forgets to wait for is a wrong number or not a number at all.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "execute/rank/gpu/state_log.h"
#include "sim/result/read_directory.h"
#include "tests/gpu/ranks/gpu_run.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using Assignments = std::vector<std::string>;

const std::string kGpt =
    "rehearse: 1\n"
    "model: {family: gpt, layers: 2, hidden: 16, heads: 4, vocab: 256, max_seq_len: 8, dropout: 0.1}\n"
    "training: {global_batch: 8, precision: fp32, lr: 1e-3, warmup_steps: 2, lr_schedule: cosine, seed: 3}\n";
const std::string kTrainedModel =
    "rehearse: 1\n"
    "model: {family: llama, layers: 4, hidden: 16, heads: 4, kv_heads: 2, ffn_hidden: 32, vocab: 256, max_seq_len: 8}\n"
    "training: {global_batch: 8, precision: fp32, lr: 1e-3, seed: 3}\n";
const std::string kMlp =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [20, 32, 24, 16, 7]}\n"
    "training: {global_batch: 12, precision: fp32, lr: 3e-3}\n";

struct Case {
  std::string name, text;
  Assignments plan;
  execute::Graphs graphs = execute::Graphs::automatic;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

class GpuRanks : public testing::TestWithParam<Case> {};

// One rank adds what the CPU adds in the CPU's order: every bit is the same. Sums over ranks have NCCL's order.
TEST_P(GpuRanks, TrainAsCpuRanksDo) {
  const Case& c = GetParam();
  Assignments plan = c.plan;
  plan.push_back("plan.bucket=2KiB");
  const plan::Scenario scenario = scenario_from(c.text, plan);
  execute::Options options;
  options.steps = 7;
  options.keep_parameters = true;
  const execute::Outcome cpu = execute::perform(scenario, lower::lower(scenario), options);
  for (const unsigned seed : {1U, 2U, 3U}) {
    GpuRun run;
    run.late.seed = seed;
    run.rank.graphs = c.graphs;
    const execute::Outcome gpu = run.perform(scenario, options);
    ASSERT_EQ(gpu.result.loss.size(), cpu.result.loss.size());
    for (std::size_t step = 0; step < cpu.result.loss.size(); ++step)
      ASSERT_NEAR(gpu.result.loss[step] / cpu.result.loss[step], 1, scenario.cluster.gpus == 1 ? 0 : 1e-5)
          << "step " << step << ", seed " << seed;
    ASSERT_EQ(gpu.result.loss_parts.size(), cpu.result.loss_parts.size());
    for (std::size_t part = 0; part < cpu.result.loss_parts.size(); ++part)
      for (std::size_t step = 0; step < cpu.result.loss.size(); ++step)
        ASSERT_NEAR(gpu.result.loss_parts[part].of_steps.at(step), cpu.result.loss_parts[part].of_steps[step],
                    scenario.cluster.gpus == 1 ? 0 : 1e-4)
            << cpu.result.loss_parts[part].name << ", step " << step << ", seed " << seed;
    for (const auto& [name, values] : cpu.parameters)
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(gpu.parameters.at(name)[i], values[i], 1e-4) << name << ", seed " << seed;
    EXPECT_EQ(fake_nccl_alive(), 0);
  }
}

std::vector<Case> cases() {
  using execute::Graphs;
  return {
      {"mlp", kMlp, {"cluster.gpus=1", "plan.micro_batch=4"}, Graphs::off},
      {"mlp_graphs", kMlp, {"cluster.gpus=1", "plan.micro_batch=4"}},
      {"gpt_clip", kGpt, {"cluster.gpus=1", "plan.micro_batch=2", "training.clip=0.5"}, Graphs::off},
      {"gpt_graphs", kGpt, {"cluster.gpus=1", "plan.micro_batch=2", "training.clip=0.5"}},
      {"mlp_ddp", kMlp, {"cluster.gpus=2", "plan.micro_batch=3"}},
      {"gpt_ddp", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "training.clip=0.5"}},
      {"gpt_ddp_graphs", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "training.clip=0.5"}, Graphs::on},
      {"gpt_bf16_zero1", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "plan.zero=1", "training.precision=bf16"}},
      {"gpt_fp16_graphs", kGpt, {"cluster.gpus=1", "plan.micro_batch=2", "training.precision=fp16"}},
      {"gpt_zero1", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "plan.zero=1"}},
      {"gpt_zero2", kGpt, {"cluster.gpus=4", "plan.micro_batch=1", "plan.zero=2"}},
      {"gpt_zero3", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "plan.zero=3"}},
      {"gpt_zero3_graphs", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "plan.zero=3"}, Graphs::on},
      {"gpt_epilogues_graphs", kGpt, {"cluster.gpus=1", "plan.micro_batch=2", "plan.fused_epilogues=all"}},
      {"gpt_epilogues_zero3_bf16",
       kGpt,
       {"cluster.gpus=2", "plan.micro_batch=2", "plan.zero=3", "plan.fused_epilogues=all", "training.precision=bf16"}},
      {"gpt_tensor", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "plan.tensor=2"}},
      {"llama_sequence_parallel",
       kTrainedModel,
       {"cluster.gpus=2", "plan.micro_batch=2", "plan.tensor=2", "plan.sequence_parallel=true"}},
      {"gpt_pipeline", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "plan.pipeline=2"}},
      {"gpt_pipeline_graphs", kGpt, {"cluster.gpus=2", "plan.micro_batch=2", "plan.pipeline=2"}, Graphs::on},
      {"llama_angles",
       kTrainedModel,
       {"cluster.gpus=1", "plan.micro_batch=2", "model.rope_base=500", "model.rope_scaling=yarn", "model.rope_factor=3",
        "model.rope_trained_len=60"}},
      {"llama_mtp_graphs", kTrainedModel, {"cluster.gpus=1", "plan.micro_batch=2", "model.mtp_depth=2"}},
      {"llama_mtp_pipeline", kTrainedModel, {"cluster.gpus=4", "plan.pipeline=2", "model.mtp_depth=1"}},
      {"llama_pipeline4", kTrainedModel, {"cluster.gpus=4", "plan.micro_batch=1", "plan.pipeline=4"}},
      {"llama_interleaved",
       kTrainedModel,
       {"cluster.gpus=2", "plan.micro_batch=1", "plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2"}},
      {"llama_host_syncs",
       kTrainedModel,
       {"cluster.gpus=2", "plan.micro_batch=1", "plan.pipeline=2", "framework=megatron-2021"}},
      {"llama_ring", kTrainedModel, {"cluster.gpus=2", "plan.micro_batch=1", "plan.context=2", "model.dropout=0.1"}},
      {"llama_ring_tensor_pipeline",
       kTrainedModel,
       {"cluster.gpus=8", "plan.micro_batch=1", "plan.context=2", "plan.tensor=2", "plan.pipeline=2"}},
      {"llama_gathered_keys",
       kTrainedModel,
       {"cluster.gpus=4", "plan.micro_batch=1", "plan.context=2", "plan.context_kind=all_gather", "plan.zero=3"}},
      {"llama_all",
       kTrainedModel,
       {"cluster.gpus=8", "plan.micro_batch=1", "plan.pipeline=2", "plan.tensor=2", "plan.zero=1"}},
  };
}
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(All, GpuRanks, testing::ValuesIn(cases()), name_of_case);

// The test above would notice: with waits forgotten, some seed trains to something else.
TEST(LateGpus, AWaitThatIsForgottenShows) {
  const plan::Scenario scenario =
      scenario_from(kGpt, {"cluster.gpus=1", "plan.micro_batch=2", "training.clip=0.5", "plan.bucket=2KiB"});
  execute::Options options;
  options.steps = 4;
  const std::vector<double> right = execute::perform(scenario, lower::lower(scenario), options).result.loss;
  int wrong = 0;
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    GpuRun run;
    run.late.seed = seed;
    run.late.lose_waits = true;
    run.rank.graphs = execute::Graphs::off;
    try {
      wrong += run.perform(scenario, options).result.loss != right ? 1 : 0;
    } catch (const execute::RankFailure&) {  // targets that are no classes
      ++wrong;
    }
  }
  EXPECT_GT(wrong, 0);
}

// What a rank's first product and first kernel load is there before others wait for it.
TEST(LateGpus, AProductAndAKernelRunBeforeOthersAreMet) {
  const plan::Scenario scenario = scenario_from(kMlp, {"cluster.gpus=2", "plan.micro_batch=3"});
  const auto connector = execute::make_nccl_connector(fake_nccl());
  std::array<LateGpu*, 2> gpus{};
  std::array<int, 2> before{};
  execute::GpuMaker::Parts parts;
  parts.gpu = [&](int rank) {
    auto gpu = std::make_unique<LateGpu>(LateOptions{});
    gpus.at(static_cast<std::size_t>(rank)) = gpu.get();
    return gpu;
  };
  parts.connect = [&, connect = execute::connect_over(*connector)](execute::Run& run, int rank) {
    before.at(static_cast<std::size_t>(rank)) = gpus.at(static_cast<std::size_t>(rank))->kernels();
    return connect(run, rank);
  };
  execute::GpuMaker maker(std::move(parts));
  execute::Options options;
  options.steps = 2;
  options.maker = &maker;
  const auto world = execute::make_local_world(2, options.timeout);
  execute::perform(scenario, lower::lower(scenario), options, *world);
  EXPECT_EQ(before, (std::array<int, 2>{2, 2}));
}

TEST(LateGpus, StepsAreReplayedAsGraphsButTheFirstTwoAndTheLast) {
  const plan::Scenario scenario = scenario_from(kMlp, {"cluster.gpus=1", "plan.micro_batch=4"});
  execute::Options options;
  options.steps = 9;
  EXPECT_EQ(GpuRun().perform(scenario, options).device.graph_steps, 6);
  options.steps = 3;
  EXPECT_EQ(GpuRun().perform(scenario, options).device.graph_steps, 0);
}

// Algorithms are found out while steps are issued op by op, before the first graph holds one.
TEST(LateGpus, AlgorithmsAreFoundOutInTheFirstTwoSteps) {
  const plan::Scenario scenario = scenario_from(kMlp, {"cluster.gpus=1", "plan.micro_batch=4"});
  std::vector<std::string> log;
  execute::Options options;
  options.steps = 4;
  options.before_op = [&](int, std::int64_t step, const program::Op&) {
    const std::string text = "step " + std::to_string(step);
    if (log.empty() || log.back() != text) log.push_back(text);
  };
  GpuRun run;
  run.late.on_products = [&](const std::string& what) { log.push_back(what); };
  EXPECT_EQ(run.perform(scenario, options).device.products, 0);
  EXPECT_EQ(log, (std::vector<std::string>{"step 0", "step 1", "step 2", "step 3"})) << "not asked for";
  log.clear();
  run.rank.measure_products = true;
  const execute::DeviceUse use = run.perform(scenario, options).device;
  EXPECT_EQ(log, (std::vector<std::string>{"measure", "step 0", "step 1", "settle", "step 2", "step 3"}));
  EXPECT_EQ(use.products, 5);
  EXPECT_EQ(use.other_products, 2);
}

// What several ranks compute alike must be alike.
TEST(LateGpus, RanksThatMeetOthersTakeTheLibrarysFirstChoice) {
  const plan::Scenario scenario =
      scenario_from(kMlp, {"cluster.gpus=2", "plan.micro_batch=2", "training.global_batch=8"});
  execute::Options options;
  options.steps = 3;
  GpuRun run;
  run.rank.measure_products = true;
  run.late.on_products = [](const std::string& what) { ADD_FAILURE() << what; };
  try {
    run.perform(scenario, options);
    ADD_FAILURE() << "taken";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("is for a rank that meets no others"), std::string::npos) << error.what();
  }
}

// What a GPU was like and which products its library did come with the result, and back from its file.
TEST(LateGpus, TheResultSaysWhatTheGpuWasLikeAndWhatItsLibraryDid) {
  const plan::Scenario scenario =
      scenario_from(kMlp, {"cluster.gpus=2", "plan.micro_batch=2", "training.global_batch=8"});
  execute::Options options;
  options.steps = 3;
  GpuRun run;
  run.late_of = [](int rank, LateOptions late) {
    late.state.known = late.state.throttle_known = true;
    late.state.sm_mhz = rank == 0 ? 1755 : 1500, late.state.max_sm_mhz = 1980, late.state.memory_mhz = 2619;
    late.state.power_w = 650.5, late.state.power_limit_w = 700, late.state.temperature_c = 61;
    late.state.throttle = 0x5;  // idle, which does not count, and the power cap
    late.products = {{"nt bf16>bf16", 128, 64, 32, "id 66 tile 128x256 stages 37 split-k 1 cluster 3"}};
    if (rank == 1) late.products.push_back({"tn bf16>f32", 64, 32, 128, "id 6"});
    return late;
  };
  const result::Result measured = run.perform(scenario, options).result;
  const result::Result stored = result::parse_result_json("result.json", result::to_json(measured));
  for (const result::GpuRun& gpu : {measured.gpu, stored.gpu}) {
    EXPECT_GE(gpu.samples, 1);
    EXPECT_EQ(gpu.sm_mhz, 1500) << "the slowest stands for all";
    EXPECT_EQ(gpu.least_sm_mhz, 1500);
    EXPECT_EQ(gpu.max_sm_mhz, 1980);
    EXPECT_EQ(gpu.power_w, 650.5);
    EXPECT_EQ(gpu.temperature_c, 61);
    EXPECT_EQ(gpu.throttle, "sw_power_cap");
    ASSERT_EQ(gpu.products.size(), 2U);
    EXPECT_EQ(gpu.products[1], (result::ProductUse{"tn bf16>f32", 64, 32, 128, "id 6"}));
  }
  EXPECT_FALSE(GpuRun().perform(scenario, options).result.gpu.known());
}

// Power is a mean of the last second: the later half counts.
TEST(LateGpus, ClocksAndPowerAreThoseOfTheLaterHalf) {
  std::vector<kernels::DeviceState> states(6);
  for (std::size_t i = 0; i < states.size(); ++i) {
    states[i].known = true;
    states[i].sm_mhz = static_cast<int>(1000 + 100 * i);
    states[i].power_w = 100.0 * static_cast<double>(i);
    states[i].temperature_c = i == 1 ? 70 : 60;
    states[i].throttle_known = true;
    states[i].throttle = i == 2 ? 0x40 : 0;
  }
  const execute::DeviceConditions c = execute::conditions_of(states);
  EXPECT_EQ(c.samples, 6);
  EXPECT_EQ(c.sm_mhz, 1400);
  EXPECT_EQ(c.power_w, 400);
  EXPECT_EQ(c.least_sm_mhz, 1000);
  EXPECT_EQ(c.temperature_c, 70);
  EXPECT_EQ(kernels::throttle_text(c.throttle), "hw_thermal");
  EXPECT_EQ(execute::conditions_of({}).samples, 0);
}

// Sent from the first rank through device memory, over groups that the training has anyway.
TEST(GpuRanksBegin, WithRankZerosWeights) {
  for (const Assignments& plan : {Assignments{"cluster.gpus=2"}, Assignments{"cluster.gpus=4", "plan.zero=3"},
                                  Assignments{"cluster.gpus=4", "plan.zero=3", "plan.zero_group=2"}}) {
    execute::Options options;
    options.steps = 2;
    options.keep_parameters = true;
    const plan::Scenario drawn = scenario_from(kTrainedModel, plan);
    Assignments sent = plan;
    sent.emplace_back("training.first_weights=broadcast");
    GpuRun run;
    const execute::Outcome own = run.perform(drawn, options);
    const execute::Outcome broadcast = run.perform(scenario_from(kTrainedModel, sent), options);
    EXPECT_EQ(broadcast.result.loss, own.result.loss);
    EXPECT_EQ(broadcast.parameters, own.parameters);
    EXPECT_TRUE(broadcast.result.first_weights.known);
    EXPECT_GT(broadcast.result.first_weights.time_ps, 0);
  }
}

}  // namespace
}  // namespace rehearse
