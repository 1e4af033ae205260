// A program that is linked and compiled once for all its simulations, and one that each of them lays out: the same.
#include <gtest/gtest.h>

#include <string>

#include "sim/run/prepared.h"
#include "tests/support/lowered.h"

namespace rehearse::layout_test {
namespace {

struct Case {
  const char *name, *scenario;
};

class Layouts : public testing::TestWithParam<Case> {};

void expect_same(const engine::Outcome& one, const engine::Outcome& other) {
  EXPECT_EQ(one.step_ends, other.step_ends);
  EXPECT_EQ(one.breakdown_ps, other.breakdown_ps);
  EXPECT_EQ(one.link_bytes, other.link_bytes);
  EXPECT_EQ(one.ops, other.ops);
  EXPECT_EQ(one.events, other.events);
  EXPECT_EQ(one.busy_s, other.busy_s);
  EXPECT_EQ(one.job_step_ends, other.job_step_ends);
}

TEST_P(Layouts, OneServesAllSimulations) {
  const plan::Scenario scenario = scenario_from(GetParam().scenario);
  run::Options run_options;
  run_options.data_root = REHEARSE_SOURCE_DIR;
  const run::Prepared prepared(scenario, run_options);
  for (const bool fold : {true, false}) {
    engine::Options options = prepared.engine_options();
    options.fold = fold;
    const engine::Outcome first = prepared.simulate(options);
    expect_same(prepared.simulate(options), first);
    options.layout = nullptr;
    expect_same(prepared.simulate(options), first);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Layouts,
    testing::Values(
        Case{"arenas",
             "rehearse: 1\nmodel: llama2-7b\nframework: rehearse\ncluster: {topology: dgx-a100, gpus: 16}\n"
             "plan: {tensor: 2, pipeline: 4, micro_batch: 1, zero: 1}\ntraining: {global_batch: 16, seq_len: 2048}\n"},
        Case{"allocator",
             "rehearse: 1\nmodel: llama2-7b\nframework: megatron-core\ncluster: {topology: dgx-a100, gpus: 16}\n"
             "plan: {tensor: 4, pipeline: 2, chunks: 2, schedule: interleaved, micro_batch: 1}\n"
             "training: {global_batch: 32, seq_len: 2048}\n"},
        Case{"kinds",
             "rehearse: 1\nmodel: llama2-7b\nframework: rehearse\n"
             "cluster: {nodes: [{topology: dgx-a100, count: 1}, {topology: dgx-h100, count: 1}]}\n"
             "plan: {tensor: 4, pipeline: 2, micro_batch: 1}\ntraining: {global_batch: 32, seq_len: 2048}\n"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace rehearse::layout_test
