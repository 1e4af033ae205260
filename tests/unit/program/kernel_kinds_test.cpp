// What makes kernels alike, and what does not.
#include "sim/program/kernel_kinds.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace rehearse::program {
namespace {

Buffer matrix(const std::string& name, std::int64_t rows) {
  Buffer b;
  b.name = name;
  b.dtype = DType::bf16;
  b.shape = {rows, 16};
  return b;
}

// A product of a and b into c, twice: the second on buffers of its own.
Program twice() {
  Role role;
  role.name = "stage0";
  role.streams = {{"compute", StreamKind::compute}, {"cpu", StreamKind::cpu}};
  role.bodies.push_back({"forward", {}});
  for (const std::string of : {"first", "second"}) {
    const auto a = static_cast<BufferId>(role.buffers.size());
    for (const char* name : {".a", ".b", ".c"}) role.buffers.push_back(matrix(of + name, 8));
    Op op;
    op.name = of;
    op.shape = Gemm{8, 16, 32};
    op.dtype = DType::bf16;
    op.reads = {{a}, {a + 1}};
    op.writes = {{a + 2}};
    role.bodies[0].ops.push_back(op);
  }
  Program program;
  program.roles.push_back(role);
  return program;
}

bool alike_after(const std::function<void(Role&, Op&)>& change) {
  Program program = twice();
  Role& role = program.roles[0];
  change(role, role.bodies[0].ops[1]);
  const KernelKinds kinds(program);
  const bool alike = kinds.of(0, 0, 0) == kinds.of(0, 0, 1);
  EXPECT_EQ(kinds.count(), alike ? 1U : 2U);
  return alike;
}

TEST(KernelKinds, NamesWaitsAndLifetimesMakeNoDifference) {
  EXPECT_TRUE(alike_after([](Role&, Op&) {}));
  EXPECT_TRUE(alike_after([](Role& role, Op& op) {
    op.waits = {0}, op.records = 1, op.releases = op.reads;
    op.micro_batch_delta = 1;
    role.buffers[5].lifetime = Lifetime::persistent;
    role.buffers[5].cls = BufferClass::parameter;
    role.buffers[5].offset = 4;
  }));
}

TEST(KernelKinds, WhatACostMayDependOnMakesAnotherKind) {
  const std::vector<std::pair<const char*, std::function<void(Role&, Op&)>>> changes = {
      {"a size",
       [](Role&, Op& op) {
         op.shape = Gemm{8, 16, 33};
       }},
      {"a flag", [](Role&, Op& op) { std::get<Gemm>(op.shape).accumulate = true; }},
      {"another op", [](Role&, Op& op) { op.shape = Activation{}; }},
      {"type", [](Role&, Op& op) { op.dtype = DType::f32; }},
      {"phase", [](Role&, Op& op) { op.phase = Phase::backward; }},
      {"launches", [](Role&, Op& op) { op.launches = 2; }},
      {"fused", [](Role&, Op& op) { op.fused = true; }},
      {"passes read", [](Role&, Op& op) { op.passes.read = 1; }},
      {"passes written", [](Role&, Op& op) { op.passes.written = 1; }},
      {"stream", [](Role&, Op& op) { op.stream = 1; }},
      {"one operand less", [](Role&, Op& op) { op.reads.pop_back(); }},
      {"read, not written", [](Role&, Op& op) { op.reads.push_back(op.writes[0]), op.writes.clear(); }},
      {"an operand's type", [](Role& role, Op&) { role.buffers[5].dtype = DType::f32; }},
      {"an operand's shape",
       [](Role& role, Op&) {
         role.buffers[3].shape = {16, 8};
       }},
      {"an operand's place", [](Role& role, Op&) { role.buffers[4].on_host = true; }},
  };
  for (const auto& [what, change] : changes) EXPECT_FALSE(alike_after(change)) << what;
}

TEST(KernelKinds, TransfersAndSyncsAreOfNone) {
  Program program = twice();
  program.roles[0].bodies[0].ops[0].shape = Collective{};
  program.roles[0].bodies[0].ops[1].shape = HostSync{};
  const KernelKinds kinds(program);
  EXPECT_EQ(kinds.of(0, 0, 0), KernelKinds::kNone);
  EXPECT_EQ(kinds.of(0, 0, 1), KernelKinds::kNone);
  EXPECT_EQ(kinds.count(), 0U);
}

}  // namespace
}  // namespace rehearse::program
