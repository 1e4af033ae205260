// Every shipped scenario as each format's file and back: a key of the plan is the same again, or was listed as one that
// the format cannot say.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "launch/launch.h"
#include "launch/megatron.h"
#include "sim/model/model.h"
#include "sim/plan/keys.h"
#include "sim/plan/scenario.h"
#include "tests/unit/launch/written.h"

namespace rehearse::launch {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> shipped_scenarios() {
  std::vector<std::string> files;
  for (const char* folder : {"scenarios", "scenarios/published", "scenarios/gpu", "scenarios/local"})
    for (const auto& entry : fs::directory_iterator(fs::path(REHEARSE_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".yaml" && entry.path().filename() != "plans.yaml")
        files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// Keys that name what a plan is, as far as the format may say them.
bool compared(const plan::Key& key, bool model) {
  if (key.path == "cluster.gpus") return true;
  if (key.section() == "model")
    return model && key.path != "model.name" && key.path != "model.position_rows" && key.path != "model.family";
  return key.section() == "plan" || key.section() == "training";
}

void expect_same(const plan::Scenario& before, const plan::Scenario& after, const Exported& exported, bool model) {
  std::set<std::string> left;
  for (const LeftOut& one : exported.left_out) left.insert(one.key);
  for (const plan::Key& key : plan::keys()) {
    const std::string path(key.path);
    if (!compared(key, model) || left.contains(path)) continue;
    if (path == "plan.bucket" && !before.plan.bucket_given) continue;     // by the framework
    if (path == "plan.reuse_distance" && before.plan.zero < 3) continue;  // nothing is gathered
    if (path == "plan.overlap_param_gather" && (before.plan.zero == 0 || before.plan.zero == 3)) continue;
    if (path == "plan.layers_per_stage" && left.contains("plan.pipeline")) continue;
    if (path == "plan.expert_tensor" && before.plan.expert == 1) continue;  // nothing is split
    if (path == "training.momentum" && before.training.optimizer != plan::OptimizerKind::sgd) continue;
    if (path.starts_with("training.loss_scale") && before.training.precision != plan::Precision::fp16) continue;
    if (path == "plan.zero_group") {
      if (before.plan.zero > 0 && !left.contains("plan.zero")) {
        EXPECT_EQ(after.plan.replicas, before.plan.replicas);
      }
      continue;
    }
    EXPECT_EQ(plan::value_text(key, after), plan::value_text(key, before)) << path;
  }
  if (model) {
    EXPECT_EQ(model::parameter_count(after.model), model::parameter_count(before.model));
    EXPECT_EQ(model::model_flops(after.model, 1, after.training.seq_len),
              model::model_flops(before.model, 1, before.training.seq_len));
  }
}

class RoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, AKeyIsTheSameAgainOrListed) {
  const std::string format = GetParam();
  int done = 0;
  for (const std::string& file : shipped_scenarios()) {
    SCOPED_TRACE(file);
    const plan::Scenario before = plan::read_scenario(file, {}, REHEARSE_SOURCE_DIR);
    Exported exported;
    try {
      exported = export_plan(format, before, 8);
    } catch (const InputError& error) {
      EXPECT_TRUE(before.model.family == model::Family::cnn || before.model.family == model::Family::mlp ||
                  before.model.family == model::Family::bert)
          << error.what();
      continue;
    }
    const Written text("launch-file", exported.text);
    ImportHints hints;
    const bool model = format == "megatron" || format == "sbatch";
    if (!model) hints.model = before.model.name;
    if (!model && !fs::exists(fs::path(REHEARSE_SOURCE_DIR) / "scenarios/models" / (hints.model + ".yaml"))) continue;
    const Imported imported = import_plan(text.path, exported.text, hints);
    EXPECT_EQ(imported.format, format == "sbatch" ? "megatron" : format);
    const Written scenario("scenario.yaml", imported.scenario);
    const plan::Scenario after = plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR);
    expect_same(before, after, exported, model);
    ++done;
  }
  EXPECT_GE(done, 20);
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundTrip,
                         testing::Values("megatron", "deepspeed", "torchtitan-toml", "accelerate", "sbatch"),
                         [](const auto& one) { return one.param.substr(0, one.param.find('-')); });

// What Megatron-LM has a flag for is never among what is left out.
TEST(Megatron, SaysItsOwnPlansInFull) {
  const plan::Scenario s = plan::read_scenario(
      std::string(REHEARSE_SOURCE_DIR) + "/scenarios/gpt3-175b-tp8-pp16.yaml",
      {"framework=megatron-core", "plan.schedule=interleaved", "plan.chunks=2", "plan.sequence_parallel=true",
       "plan.recompute=selective", "plan.context=2", "plan.rank_order=[tensor, context, expert, pipeline, data]",
       "training.precision=fp8", "training.fp8_recipe=mxfp8", "training.moments=bf16", "plan.bucket=100MiB"},
      REHEARSE_SOURCE_DIR);
  const Exported exported = export_plan("megatron", s, 8);
  for (const LeftOut& one : exported.left_out) ADD_FAILURE() << one.key << ": " << one.why;
  for (const char* part : {"--num-virtual-stages-per-pipeline-rank 2", "--sequence-parallel",
                           "--recompute-granularity selective", "--context-parallel-size 2", "--use-tp-pp-dp-mapping",
                           "--fp8-recipe mxfp8", "--fp8-format e4m3", "--exp-avg-sq-dtype bf16",
                           "--ddp-bucket-size 26214400", "--nnodes 128", "export CUDA_DEVICE_MAX_CONNECTIONS=1"})
    EXPECT_NE(exported.text.find(part), std::string::npos) << part << " in\n" << exported.text;
}

// Every format, of every scenario: something is written, nothing of the plan is missing without a word.
TEST(Export, EveryFormatSaysOrListsTheDegrees) {
  for (const std::string& file : shipped_scenarios()) {
    const plan::Scenario s = plan::read_scenario(file, {}, REHEARSE_SOURCE_DIR);
    for (const std::string& format : export_formats()) {
      Exported exported;
      try {
        exported = export_plan(format, s, 8);
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("expected gpt, llama or moe"), std::string::npos) << error.what();
        continue;
      }
      const auto listed = [&](const char* key) {
        return std::any_of(exported.left_out.begin(), exported.left_out.end(),
                           [&](const LeftOut& one) { return one.key == key; });
      };
      for (const auto& [key, degree] : {std::pair{"plan.tensor", s.plan.tensor}, {"plan.pipeline", s.plan.pipeline}}) {
        if (degree == 1 || listed(key)) continue;
        const std::string number = std::to_string(degree);
        EXPECT_TRUE(exported.text.find("size " + number) != std::string::npos ||
                    exported.text.find("size: " + number) != std::string::npos ||
                    exported.text.find("size\": " + number) != std::string::npos ||
                    exported.text.find("size = " + number) != std::string::npos ||
                    exported.text.find("degree = " + number) != std::string::npos ||
                    exported.text.find("- '" + number + "'") != std::string::npos)
            << file << " " << format << " " << key;
      }
      EXPECT_TRUE(exported.text.find("Made by rehearse export") != std::string::npos || !exported.notes.empty());
    }
  }
}

TEST(Layout, IsReadAsItIsWritten) {
  using Layers = std::vector<std::int64_t>;
  for (const Layers& layers : {Layers{3, 4, 4, 3}, Layers{0, 2, 2, 0}, Layers{7}, Layers{1, 1}})
    EXPECT_EQ(layers_of_layout(pipeline_layout(layers)), layers) << pipeline_layout(layers);
  EXPECT_EQ(layers_of_layout("Et*3|tt|,t,tL"), (Layers{3, 2, 2}));
  for (const char* wrong : {"", "t|t", "Et|t", "E(t|)*2L", "Et|mL", "EtL|t", "Et*0|tL", "Et*99999999|L", "EEtL"})
    EXPECT_EQ(layers_of_layout(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace rehearse::launch
