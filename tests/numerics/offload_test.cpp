// Plans with states on the host train as the same plans without, and as one rank: gradients are copied as they are, the
// host's step is the same arithmetic in the same order, so losses and parameters are the same to the last bit; where
// sums of squares are made of two parts, or gradients are added up in another order, to 1e-6.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

struct OffloadCase {
  Case c;
  Assignments offload;
  bool exact = true;
  bool against_one = true;  // false: in 16 bits no split comes within the tolerance of another
};

std::ostream& operator<<(std::ostream& out, const OffloadCase& c) {
  return out << c.c.name;
}

class Offload : public testing::TestWithParam<OffloadCase> {
 protected:
  static Case with_offload() {
    Case c = GetParam().c;
    c.plan.insert(c.plan.end(), GetParam().offload.begin(), GetParam().offload.end());
    return c;
  }
};

TEST_P(Offload, TrainsAsOneRank) {
  if (!GetParam().against_one) return;
  expect_trains_as_one_rank(with_offload());
}

TEST_P(Offload, TrainsAsWithout) {
  Assignments without = GetParam().c.model;
  without.insert(without.end(), GetParam().c.plan.begin(), GetParam().c.plan.end());
  Assignments with = without;
  with.insert(with.end(), GetParam().offload.begin(), GetParam().offload.end());
  const execute::Outcome& expected = performed_once(GetParam().c.text, without);
  const execute::Outcome& actual = performed_once(GetParam().c.text, with);
  if (GetParam().exact) {
    EXPECT_EQ(actual.result.loss, expected.result.loss);
    EXPECT_EQ(distance(expected.parameters, actual.parameters), 0);
    return;
  }
  ASSERT_EQ(actual.result.loss.size(), expected.result.loss.size());
  for (std::size_t step = 0; step < expected.result.loss.size(); ++step)
    ASSERT_NEAR(actual.result.loss[step] / expected.result.loss[step], 1, 1e-6) << "step " << step;
}

std::vector<OffloadCase> optimizer_cases() {
  std::vector<OffloadCase> cases;
  const Assignments offload = {"plan.offload_optimizer=true"};
  const auto add = [&](const std::string& name, const std::string& text, const Assignments& plan,
                       const Assignments& model = {}, bool exact = true) {
    cases.push_back({{name, text, plan, model}, offload, exact});
  };
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    for (const int zero : {0, 1, 2, 3}) {
      const std::string suffix = name + "_zero" + std::to_string(zero);
      add(suffix + "_one_rank", text, grid(1, 1, 1, zero, {"plan.micro_batch=12"}));
      // With ZeRO 2 and 3 the host adds micro-batches' gradients, where else the products accumulate them.
      add(suffix + "_one_rank_accumulates", text, grid(1, 1, 1, zero, {"plan.micro_batch=3"}), {}, zero < 2);
      add(suffix + "_data4", text, grid(4, 1, 1, zero));
      add(suffix + "_data3_one_micro_batch", text, grid(3, 1, 1, zero, {"plan.micro_batch=4"}));
      add(suffix + "_bf16", text, grid(2, 1, 1, zero), {"training.precision=bf16", "training.lr=1e-4"});
      cases.back().against_one = false;
      add(suffix + "_no_clip", text, grid(2, 1, 1, zero), {"training.clip=0"});
      add(suffix + "_tensor2", text, grid(4, 2, 1, zero, {"plan.sequence_parallel=true"}));
      // With a tied table on two stages its gradients are summed on the devices, and their squares there.
      add(suffix + "_pipeline2", text, grid(4, 1, 2, zero), {}, zero < 2 || name == "llama");
    }
    add(name + "_hybrid", text, grid(4, 1, 1, 3, {"plan.zero_group=2"}), {}, false);
    add(name + "_no_overlap", text, grid(2, 1, 1, 1, {"plan.overlap_grad_reduce=false"}));
    add(name + "_sgd", text, grid(2, 1, 1, 2), {"training.optimizer=sgd", "training.lr=0.05"});
    add(name + "_bf16_moments", text, grid(2, 1, 1, 1), {"training.moments=bf16"});
    cases.back().against_one = false;
    add(name + "_lora", text, grid(2, 1, 1, 2), {"training.lora_rank=4", "training.lr=1e-2"});
    for (const std::string framework : {"deepspeed", "torch-fsdp2", "megatron-core"})
      add(name + "_" + framework.substr(framework.find_last_of('-') + 1), text,
          grid(2, 1, 1, framework == "megatron-core" ? 1 : 3, {"framework=" + framework}), {"model.dropout=0.1"});
    add(name + "_deepspeed_zero2", text, grid(2, 1, 1, 2, {"framework=deepspeed"}), {"model.dropout=0.1"});
    add(name + "_zero_bubble", text, grid(2, 1, 2, 1, {"plan.schedule=zero_bubble"}));
    add(name + "_zero_bubble_v", text, grid(2, 1, 2, 0, {"plan.schedule=zero_bubble_v"}));
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Optimizer, Offload, testing::ValuesIn(optimizer_cases()),
                         [](const auto& test) { return test.param.c.name; });

std::vector<OffloadCase> parameter_cases() {
  std::vector<OffloadCase> cases;
  const auto add = [&](const std::string& name, const std::string& text, const Assignments& plan,
                       const Assignments& model = {}, bool exact = true) {
    cases.push_back(
        {{name, text, plan, model}, {"plan.offload_optimizer=true", "plan.offload_parameters=true"}, exact});
  };
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    add(name + "_data2", text, grid(2, 1, 1, 3));
    add(name + "_data3_one_micro_batch", text, grid(3, 1, 1, 3, {"plan.micro_batch=4"}));
    add(name + "_bf16", text, grid(2, 1, 1, 3), {"training.precision=bf16", "training.lr=1e-4"});
    cases.back().against_one = false;
    add(name + "_recompute", text, grid(2, 1, 1, 3, {"plan.recompute=full"}));
    add(name + "_tensor2", text, grid(4, 2, 1, 3, {"plan.sequence_parallel=true"}));
    add(name + "_pipeline2", text, grid(4, 1, 2, 3), {}, name == "llama");
    add(name + "_hybrid", text, grid(4, 1, 1, 3, {"plan.zero_group=2"}), {}, false);
    add(name + "_lora", text, grid(2, 1, 1, 3), {"training.lora_rank=4", "training.lr=1e-2"});
    for (const std::string framework : {"deepspeed", "torch-fsdp2", "llm-foundry"})
      add(name + "_" + framework.substr(framework.find_last_of('-') + 1), text,
          grid(2, 1, 1, 3, {"framework=" + framework}), {"model.dropout=0.1"});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Parameters, Offload, testing::ValuesIn(parameter_cases()),
                         [](const auto& test) { return test.param.c.name; });

std::vector<OffloadCase> layer_cases() {
  std::vector<OffloadCase> cases;
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    const auto add = [&, &name = name, &text = text](const std::string& what, const Assignments& plan,
                                                     const Assignments& model = {"model.dropout=0.1"}) {
      cases.push_back({{name + "_" + what, text, plan, model}, {"plan.offload_layers=3"}});
    };
    add("one_rank", grid(1, 1, 1, 0));
    cases.back().offload = {"plan.offload_layers=1"};
    add("with_optimizer", grid(2, 1, 1, 2));
    cases.back().offload.emplace_back("plan.offload_optimizer=true");
    add("lora", grid(2, 1, 1, 1), {"training.lora_rank=4", "training.lr=1e-2"});
    add("ddp", grid(2, 1, 1, 0, {"framework=torch-ddp"}));
    add("unfused_attention", grid(1, 1, 1, 0, {"model.attention=unfused"}));
    add("zero3", grid(2, 1, 1, 3));
    add("tensor_sequence", grid(2, 2, 1, 0, {"plan.sequence_parallel=true"}));
    add("context", grid(2, 1, 1, 1, {"plan.context=2"}), {});
    add("fsdp2", grid(2, 1, 1, 3, {"framework=torch-fsdp2"}));
    add("megatron", grid(2, 1, 1, 1, {"framework=megatron-core"}));
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layers, Offload, testing::ValuesIn(layer_cases()),
                         [](const auto& test) { return test.param.c.name; });

std::vector<OffloadCase> activation_cases() {
  std::vector<OffloadCase> cases;
  const Assignments full = {"plan.recompute=full"};
  const auto add = [&](const std::string& name, const std::string& text, const Assignments& plan,
                       const Assignments& offload) {
    cases.push_back({{name, text, plan, {"model.dropout=0.1"}}, offload});
  };
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}})
    for (const bool both : {false, true}) {
      Assignments offload = {"plan.offload_activations=true"};
      if (both) offload.push_back("plan.offload_optimizer=true");
      const std::string prefix = name + (both ? "_both" : "");
      add(prefix + "_one_rank", text, grid(1, 1, 1, 0, full), offload);
      add(prefix + "_zero2", text, grid(2, 1, 1, 2, full), offload);
      add(prefix + "_zero3", text, grid(2, 1, 1, 3, full), offload);
      add(prefix + "_every_second", text, grid(1, 1, 1, 0, {"plan.recompute=full", "plan.recompute_every=2"}), offload);
      add(prefix + "_tensor_sequence", text, grid(2, 2, 1, 0, {"plan.recompute=full", "plan.sequence_parallel=true"}),
          offload);
      add(prefix + "_1f1b", text, grid(2, 1, 2, 0, full), offload);
      add(prefix + "_gpipe", text, grid(2, 1, 2, 1, {"plan.recompute=full", "plan.schedule=gpipe"}), offload);
      add(prefix + "_interleaved", text,
          grid(2, 1, 2, 0, {"plan.recompute=full", "plan.schedule=interleaved", "plan.chunks=2"}), offload);
      add(prefix + "_fsdp2", text, grid(2, 1, 1, 3, {"plan.recompute=full", "framework=torch-fsdp2"}), offload);
      add(prefix + "_deepspeed", text, grid(2, 1, 1, 3, {"plan.recompute=full", "framework=deepspeed"}), offload);
    }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Activations, Offload, testing::ValuesIn(activation_cases()),
                         [](const auto& test) { return test.param.c.name; });

}  // namespace
}  // namespace rehearse
