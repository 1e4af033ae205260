// Checkpoints that are one file for any ranks (`full`), and those that have what changed since the one before
// (`incremental`): a run that goes on from either is the uninterrupted one, in every bit under the plan that wrote it,
// to 1e-4 under another. Frozen weights and rows that no example names are not written again; what others are based on
// is kept, and a base that is missing, torn or another file is refused by its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>

#include "execute/checkpoint/folder.h"
#include "sim/base/diagnostics.h"
#include "tests/numerics/plan_runs.h"
#include "tests/numerics/served_runs.h"
#include "tests/support/temporary.h"

namespace rehearse::checkpoint_kinds {
namespace {

namespace fs = std::filesystem;
using execute::CheckpointKind;
using Steps = std::vector<std::int64_t>;

struct Folder {
  ~Folder() { fs::remove_all(path); }
  const std::string path = test::temporary_path("checkpoint-kinds");
  std::string of_step(std::int64_t step) const { return execute::checkpoint_path(path, step); }
  execute::Manifest manifest(std::int64_t step) const { return execute::read_manifest(of_step(step)); }
  execute::StateHeader header(std::int64_t step, const std::string& name = "rank-0000.state") const {
    return execute::StateFile::header_of(of_step(step), name);
  }
  std::int64_t stored(std::int64_t step) const {
    std::int64_t sum = 0;
    for (const auto& file : manifest(step).files) sum += header(step, file.name).stored_bytes();
    return sum;
  }
};

struct Wish {
  CheckpointKind kind = CheckpointKind::full;
  int every = 3, keep = 0, base_every = 10;
  bool background = false;
};

plan::Scenario scenario_of(const std::string& text, const Assignments& assignments) {
  plan::Scenario scenario = scenario_from(text, assignments);
  scenario.purpose = plan::Purpose::perform;
  return scenario;
}

execute::Options options_of(int steps, const Folder* folder = nullptr, const Wish& wish = {}, bool resume = false) {
  execute::Options options;
  options.steps = steps;
  options.keep_parameters = true;
  if (folder == nullptr) return options;
  options.checkpoint.folder = folder->path;
  options.checkpoint.kind = wish.kind;
  options.checkpoint.every = wish.every, options.checkpoint.keep = wish.keep;
  options.checkpoint.base_every = wish.base_every;
  options.checkpoint.background = wish.background;
  options.checkpoint.resume = resume;
  return options;
}

execute::Outcome perform_with(const plan::Scenario& scenario, const execute::Options& options) {
  return execute::perform(scenario, lower::lower(scenario), options);
}

// Fails in step `step`, once the checkpoint before it is there.
void perform_until_failure(const plan::Scenario& scenario, execute::Options options, int step) {
  const std::string manifest =
      execute::checkpoint_path(options.checkpoint.folder, step / options.checkpoint.every * options.checkpoint.every) +
      "/manifest.json";
  options.before_op = [=](int rank, std::int64_t now, const program::Op&) {
    if (rank != 0 || now != step) return;
    for (int look = 0; look < 1000 && !fs::exists(manifest); ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    throw std::runtime_error("as asked");
  };
  EXPECT_THROW(perform_with(scenario, options), execute::RankFailure);
}

void expect_same_bits(const execute::Outcome& expected, const execute::Outcome& actual) {
  EXPECT_EQ(actual.result.loss, expected.result.loss);
  EXPECT_EQ(actual.parameters, expected.parameters);
  EXPECT_EQ(actual.loss_scales, expected.loss_scales);
}

const Assignments kLora = {"training.lora_rank=4", "training.lora_alpha=8"};

Assignments with(Assignments plan, const Assignments& more) {
  plan.insert(plan.end(), more.begin(), more.end());
  return plan;
}

const std::string kMoe =
    "rehearse: 1\n"
    "model: {family: moe, layers: 2, hidden: 32, heads: 4, expert_ffn_hidden: 48, vocab: 250, max_seq_len: 16, "
    "experts: 4, capacity_factor: 1.5, "
    "experts_per_token: 2}\n" +
    kTraining;
// A DLRM, of whose tables few rows are looked up in a step.
const std::string kTables =
    "rehearse: 1\n"
    "model: {family: custom, features: 5, loss: binary_cross_entropy, layer_list: [{layer: linear, width: 16}, {layer: "
    "relu}, {layer: tables, width: 16, rows: [20000, 20000]}, {layer: pairs}, {layer: linear, width: 1}]}\n"
    "training: {global_batch: 12, precision: fp32, optimizer: sgd, momentum: 0, lr: 0.05, clip: 0, weight_decay: 0}\n";
const Assignments kSharded = {"plan.embedding_tables=sharded", "training.sparse_optimizer=sgd", "plan.micro_batch=6"};

// From one checkpoint of a kind, and from what is written after it: each of incremental ones has a base.
class ResumedByKind : public testing::TestWithParam<Case> {};

TEST_P(ResumedByKind, IsTheUninterruptedRunInEveryBit) {
  const plan::Scenario scenario = scenario_of(GetParam().text, GetParam().plan);
  const execute::Outcome whole = perform_with(scenario, options_of(8));
  for (const CheckpointKind kind : {CheckpointKind::full, CheckpointKind::incremental})
    for (const bool background : {false, true}) {
      SCOPED_TRACE(std::string(name_of(kind)) + (background ? ", in the background" : ""));
      const Folder folder;
      const Wish wish{.kind = kind, .every = 2, .background = background};
      perform_until_failure(scenario, options_of(8, &folder, wish), 5);
      EXPECT_EQ(execute::checkpoints_in(folder.path), (Steps{2, 4}));
      const execute::Outcome rest = perform_with(scenario, options_of(8, &folder, wish, true));
      EXPECT_EQ(rest.first_step, 4);
      expect_same_bits(whole, rest);
      EXPECT_EQ(execute::checkpoints_in(folder.path), (Steps{2, 4, 6, 8}));
      EXPECT_EQ(folder.manifest(8).kind, kind);
    }
}

INSTANTIATE_TEST_SUITE_P(Plans, ResumedByKind,
                         testing::Values(Case{"data", kGpt, grid(2, 1, 1, 0)},
                                         Case{"zero3_bf16", kGpt, grid(4, 1, 1, 3, {"training.precision=bf16"})},
                                         Case{"tensor_pipeline_zero1", kLlama,
                                              grid(8, 2, 2, 1, {"plan.sequence_parallel=true", "plan.micro_batch=1"})},
                                         Case{"fp16", kGpt, grid(2, 1, 1, 2, {"training.precision=fp16"})},
                                         Case{"optimizer_on_host", kGpt,
                                              grid(2, 1, 1, 2, {"plan.offload_optimizer=true"})},
                                         Case{"experts", kMoe, grid(4, 1, 1, 1, {"plan.expert=2"})},
                                         Case{"adapters_zero1", kLlama, with(grid(2, 1, 1, 1), kLora)},
                                         Case{"adapters_tensor", kLlama, with(grid(2, 2, 1, 0), kLora)},
                                         Case{"adafactor", kGpt, grid(2, 1, 1, 0, {"training.optimizer=adafactor"})},
                                         Case{"tables", kTables, grid(2, 1, 1, 0)},
                                         Case{"tables_sharded", kTables, with(grid(2, 1, 1, 0), kSharded)}),
                         name_of_case);

// From one grid to another, and from there to a third, and so on.
class ReshardedByKind : public testing::TestWithParam<CheckpointKind> {};

TEST_P(ReshardedByKind, LossesAreThoseOfTheUninterruptedRun) {
  const std::vector<Assignments> plans = {grid(4, 2, 1, 1, {"plan.micro_batch=2"}),
                                          grid(4, 1, 2, 0, {"plan.micro_batch=3"}), grid(3, 1, 1, 3),
                                          grid(2, 2, 1, 0, {"plan.sequence_parallel=true"}), grid(1, 1, 1, 0)};
  const Wish wish{.kind = GetParam()};
  for (const Assignments& adapters : {Assignments{}, kLora}) {
    const Folder folder;
    const execute::Outcome whole = perform_with(scenario_of(kLlama, with(plans.back(), adapters)), options_of(17));
    execute::Outcome last;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const plan::Scenario scenario = scenario_of(kLlama, with(plans[i], adapters));
      const execute::Options options = options_of(17, &folder, wish, i > 0);
      if (i + 1 < plans.size())
        perform_until_failure(scenario, options, 3 * (static_cast<int>(i) + 1) + 1);
      else
        last = perform_with(scenario, options);
    }
    EXPECT_EQ(last.first_step, 12);
    ASSERT_EQ(last.result.loss.size(), whole.result.loss.size());
    for (std::size_t step = 0; step < 17; ++step)
      EXPECT_NEAR(last.result.loss[step] / whole.result.loss[step], 1, 1e-4) << "step " << step;
    EXPECT_LT(distance(whole.parameters, last.parameters), kParameterTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReshardedByKind, testing::Values(CheckpointKind::full, CheckpointKind::incremental),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

TEST(FullCheckpoints, HaveEachTensorOnceInTheSamePlaceWhateverTheGrid) {
  const std::vector<Assignments> plans = {
      grid(1, 1, 1, 0), grid(2, 1, 1, 0), grid(4, 1, 1, 3), grid(4, 2, 2, 0, {"plan.micro_batch=2"}),
      grid(8, 2, 2, 1, {"plan.sequence_parallel=true", "plan.micro_batch=1", "model.kv_heads=1"})};
  const std::string same = "model.kv_heads=1", vocabulary = "model.vocab=256";
  std::optional<execute::StateHeader> first;
  for (const Assignments& plan : plans) {
    const Folder folder;
    perform_with(scenario_of(kLlama, with(plan, {same, vocabulary})), options_of(2, &folder));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.of_step(2)), {}), 2) << "manifest and one file";
    const execute::StateHeader header = folder.header(2, execute::kWholeFile);
    std::int64_t place = 0;
    for (const execute::StateTensor& t : header.tensors) {
      ASSERT_EQ(t.runs.size(), 1U);
      EXPECT_EQ(t.runs[0].count, t.elements);
      EXPECT_EQ(t.runs[0].offset, place);
      place += t.elements * size_of(t.type);
    }
    if (!first) first = header;
    EXPECT_EQ(header.payload_bytes, first->payload_bytes);
    ASSERT_EQ(header.tensors.size(), first->tensors.size());
    for (std::size_t i = 0; i < header.tensors.size(); ++i) {
      EXPECT_EQ(header.tensors[i].name, first->tensors[i].name);
      EXPECT_EQ(header.tensors[i].kind, first->tensors[i].kind);
      EXPECT_EQ(header.tensors[i].elements, first->tensors[i].elements);
    }
  }
}

// Parameters, fp32 copies and two moments, of the model and nothing else: what `rehearse goodput` counts too.
TEST(FullCheckpoints, TakeEachParametersBytesOnce) {
  for (const bool half : {false, true}) {
    const Folder folder;
    const plan::Scenario scenario = scenario_of(
        kLlama, grid(4, 1, 1, 0, {"model.vocab=256", half ? "training.precision=bf16" : "training.precision=fp32"}));
    perform_with(scenario, options_of(1, &folder));
    std::int64_t bytes = 0;
    const execute::StateHeader header = folder.header(1, execute::kWholeFile);
    for (const execute::StateTensor& t : header.tensors) bytes += t.elements * size_of(t.type);
    EXPECT_EQ(bytes, model::parameter_count(scenario.model) * (half ? 2 + 4 + 8 : 4 + 8));
  }
}

std::string refusal(const std::string& text, const Assignments& plan) {
  const Folder folder;
  try {
    perform_with(scenario_of(text, plan), options_of(1, &folder));
  } catch (const InputError& error) {
    return error.what();
  }
  return "went on";
}

TEST(FullCheckpoints, WhatHasNoWholeIsRefusedByName) {
  const std::string moments = refusal(kGpt, grid(2, 1, 1, 2, {"training.moments=int8"}));
  EXPECT_NE(moments.find("8-bit moments cannot be cut anew: there is no whole of them"), std::string::npos) << moments;
  const std::string steps = refusal(kGpt, grid(4, 1, 1, 0, {"plan.local_steps=4", "plan.micro_batch=3"}));
  EXPECT_NE(steps.find("each rank has parameters of its own: there is no whole of them"), std::string::npos) << steps;
  const std::string left = refusal(
      kGpt, grid(2, 1, 1, 0,
                 {"plan.gradient_compression=[top_k, error_feedback]", "plan.gradient_share=0.1", "training.clip=0"}));
  EXPECT_NE(left.find("what compressed gradients leave behind is each rank's own: there is no whole of it"),
            std::string::npos)
      << left;
}

TEST(FullCheckpoints, OfServersToo) {
  const std::string linear =
      "rehearse: 1\nmodel: {family: mlp, widths: [10, 24, 2], loss: mse}\n"
      "training: {global_batch: 12, precision: fp32, lr: 0.02, clip: 0}\n";
  for (const CheckpointKind kind : {CheckpointKind::full, CheckpointKind::incremental}) {
    const Folder folder;
    const Wish wish{.kind = kind};
    const plan::Scenario scenario = scenario_of(linear, grid(3, 1, 1, 0, {"plan.servers=2"}));
    const execute::Outcome whole = perform_with(scenario, options_of(8));
    perform_until_failure(scenario, options_of(8, &folder, wish), 7);
    const execute::Outcome rest = perform_with(scenario, options_of(8, &folder, wish, true));
    EXPECT_GE(rest.first_step, 3);
    EXPECT_EQ(rest.result.loss, whole.result.loss);
    EXPECT_EQ(rest.parameters, whole.parameters);
  }
}

// Frozen weights are 4 bytes of each of their elements, trained ones 12, and adapters are few.
TEST(IncrementalCheckpoints, FrozenWeightsAreWrittenOnce) {
  const Folder folder;
  const plan::Scenario scenario = scenario_of(kLlama, with(grid(2, 1, 1, 0), kLora));
  perform_with(scenario, options_of(4, &folder, {.kind = CheckpointKind::incremental, .every = 1}));
  std::int64_t trained = 0, all = 0;
  for (const execute::StateTensor& t : folder.header(1).tensors)
    for (const execute::StateRun& run : t.runs) {
      all += run.count * size_of(t.type);
      if (t.kind != "param" || t.name.find(".lora_") != std::string::npos) trained += run.count * size_of(t.type);
    }
  EXPECT_EQ(folder.stored(1), 2 * all);
  for (const std::int64_t step : {2, 3, 4}) {
    EXPECT_GE(folder.stored(step), 2 * trained * 9 / 10) << "what is trained";
    EXPECT_LE(folder.stored(step), 2 * trained + 20 * 1024) << "and at the edges of blocks a little more";
  }
  EXPECT_LT(2 * trained, all) << "of a model of which most is frozen";
}

// 12 examples look up 24 rows of 40,000 at most, of 64 bytes, in blocks of 1 KiB.
TEST(IncrementalCheckpoints, RowsThatNoExampleNamesAreWrittenOnce) {
  for (const Assignments& tables : {Assignments{}, kSharded}) {
    const Folder folder;
    perform_with(scenario_of(kTables, with(grid(2, 1, 1, 0), tables)),
                 options_of(4, &folder, {.kind = CheckpointKind::incremental, .every = 1}));
    const std::int64_t rank_holds = folder.header(1).payload_bytes;
    EXPECT_GT(folder.stored(1), 40'000 * 64);
    for (const std::int64_t step : {2, 3, 4}) {
      EXPECT_GT(folder.stored(step), 0);
      EXPECT_LT(folder.stored(step), 2 * (24 + 4) * 1024) << rank_holds;
    }
  }
}

const Assignments kTwoWithAdapters = with(grid(2, 1, 1, 0), kLora);

TEST(IncrementalCheckpoints, SomeAreWholeAndWhatOthersAreBasedOnIsKept) {
  const plan::Scenario scenario = scenario_of(kLlama, kTwoWithAdapters);
  const Wish wish{.kind = CheckpointKind::incremental, .every = 1, .keep = 1, .base_every = 3};
  const Folder folder;
  perform_with(scenario, options_of(5, &folder, wish));  // 1 2 3, 4 5
  EXPECT_EQ(execute::checkpoints_in(folder.path), (Steps{4, 5}));
  EXPECT_EQ(folder.manifest(5).bases, (std::set<std::int64_t>{4}));
  EXPECT_TRUE(folder.manifest(4).bases.empty());
  // What is gone on from is a base too, and how many there were since the whole one is not forgotten.
  const execute::Outcome whole = perform_with(scenario, options_of(8)),
                         rest = perform_with(scenario, options_of(8, &folder, wish, true));
  EXPECT_EQ(rest.first_step, 5);
  EXPECT_EQ(execute::checkpoints_in(folder.path), (Steps{7, 8}));  // 4 5 6, 7 8
  EXPECT_EQ(folder.manifest(8).bases, (std::set<std::int64_t>{7}));
}

TEST(IncrementalCheckpoints, OfAnotherPlanTheFirstIsWhole) {
  const Folder folder;
  const Wish wish{.kind = CheckpointKind::incremental, .every = 1};
  perform_with(scenario_of(kLlama, kTwoWithAdapters), options_of(3, &folder, wish));
  perform_with(scenario_of(kLlama, with(grid(4, 1, 1, 1), kLora)), options_of(5, &folder, wish, true));
  EXPECT_EQ(folder.manifest(3).bases, (std::set<std::int64_t>{1, 2}));
  EXPECT_TRUE(folder.manifest(4).bases.empty());
  EXPECT_EQ(folder.manifest(5).bases, (std::set<std::int64_t>{4}));
}

// What is said when the run goes on after `change` of the base of the last checkpoint's.
std::string refusal_of_base(const std::function<void(const Folder&, const std::string& base)>& change) {
  const plan::Scenario scenario = scenario_of(kLlama, kTwoWithAdapters);
  const Folder folder;
  const Wish wish{.kind = CheckpointKind::incremental, .every = 1};
  perform_with(scenario, options_of(3, &folder, wish));
  change(folder, folder.of_step(1) + "/rank-0001.state");
  try {
    perform_with(scenario, options_of(4, &folder, wish, true));
  } catch (const InputError& error) {
    return error.what();
  }
  return "went on";
}

TEST(IncrementalCheckpoints, ABaseThatIsNotWholeIsRefusedByItsName) {
  const auto refused = [](const char* why, const std::function<void(const Folder&, const std::string&)>& change) {
    const std::string text = refusal_of_base(change);
    EXPECT_NE(text.find("step-0000000001/rank-0001.state"), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
  };
  EXPECT_EQ(refusal_of_base([](const Folder&, const std::string&) {}), "went on");
  refused("is cut: ", [](const Folder&, const std::string& base) { fs::resize_file(base, fs::file_size(base) - 1); });
  refused("is damaged: its checksum", [](const Folder&, const std::string& base) {
    std::fstream file(base, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-2000, std::ios::end);
    file.put('\x55');
  });
  refused("step-0000000002/rank-0001.state names", [](const Folder&, const std::string& base) { fs::remove(base); });
  // Of another training of the same model, whole as it is.
  refused("is of another checkpoint: not the file that ", [](const Folder&, const std::string& base) {
    const Folder other;
    perform_with(scenario_of(kLlama, with(kTwoWithAdapters, {"training.seed=4"})),
                 options_of(1, &other, {.kind = CheckpointKind::incremental, .every = 1}));
    ASSERT_EQ(fs::file_size(other.of_step(1) + "/rank-0001.state"), fs::file_size(base));
    fs::copy_file(other.of_step(1) + "/rank-0001.state", base, fs::copy_options::overwrite_existing);
  });
}

// By a file, while the run goes on; none is due but at the end.
TEST(Checkpoints, AreWrittenWhenAskedFor) {
  for (const CheckpointKind kind : {CheckpointKind::sharded, CheckpointKind::full, CheckpointKind::incremental}) {
    const plan::Scenario scenario = scenario_of(kGpt, grid(4, 1, 2, 0, {"plan.micro_batch=3"}));
    const Folder folder;
    execute::Options options = options_of(9, &folder, {.kind = kind, .every = 0});
    options.before_op = [&](int rank, std::int64_t step, const program::Op&) {
      if (rank == 0 && step == 3 && !fs::exists(folder.path + "/asked")) {
        std::ofstream(folder.path + "/asked");
        std::ofstream(folder.path + "/" + execute::kNowFile);
      }
    };
    perform_with(scenario, options);
    // Seen at the end of the fourth step, for the end of the fifth, or by a stream that had ended its part of it
    // before.
    const Steps written = execute::checkpoints_in(folder.path);
    ASSERT_EQ(written.size(), 2U);
    EXPECT_TRUE(written[0] == 5 || written[0] == 6) << written[0];
    EXPECT_EQ(written[1], 9);
    EXPECT_FALSE(fs::exists(folder.path + "/" + execute::kNowFile));
    EXPECT_EQ(std::ssize(folder.manifest(written[0]).losses.of_steps), written[0]);
  }
}

}  // namespace
}  // namespace rehearse::checkpoint_kinds
