#include "calibrate/switching.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "calibrate/profile_run.h"
#include "calibrate/statistics.h"
#include "sim/base/check.h"

namespace rehearse::calibrate {
namespace {

// Long enough (tens of microseconds) that whoever waits for it has gone to sleep.
constexpr std::int64_t kElements = 1 << 16;
constexpr int kSlots = 64;

// A body of three ops: "ping" on one stream, "pong" after it on the other, "next" after ping on ping's own stream.
program::Program ping_pong() {
  using program::StreamKind;
  program::Role role;
  role.name = "switching";
  role.streams = {{"compute", StreamKind::compute}, {"other", StreamKind::data}};
  role.events = {{"ping"}, {"pong"}};
  program::Body body;
  body.name = "body";
  const auto add = [&](const char* name, program::StreamId stream, std::vector<program::EventId> waits,
                       program::EventId records) {
    program::Buffer buffer;
    buffer.name = name;
    buffer.shape = {kElements};
    buffer.lifetime = program::Lifetime::persistent;
    buffer.init.kind = program::Init::Kind::zeros;
    role.buffers.push_back(buffer);
    program::Op op;
    op.name = name;
    op.shape = program::Elementwise{program::ElementwiseFn::fill, kElements};
    op.stream = stream;
    op.writes = {{static_cast<program::BufferId>(role.buffers.size()) - 1, 0}};
    op.waits = std::move(waits);
    op.records = records;
    body.ops.push_back(std::move(op));
  };
  add("ping", 0, {1}, -1);
  add("next", 0, {}, 0);
  add("pong", 1, {0}, 1);
  role.bodies = {body};
  role.slots.assign(kSlots, program::Slot{0, -1});
  program::Program program;
  program.name = role.name;
  program.roles = {role};
  return program;
}

}  // namespace

Switching measure_switching(double seconds, const Budget& budget) {
  const plan::Scenario scenario;
  const program::Program program = ping_pong();
  const plan::RankGrid grid({1, 1, 1, 1, 1}, scenario.plan.rank_order);
  ProfileRequest request{scenario, program, grid, {0}, 1};
  request.seconds = seconds;
  // A deadline of its own: every calibration needs these two, which take milliseconds, even if nothing is left.
  const ProfileRun done = profile(request, Budget(std::max(5.0, 2 * seconds), [&budget] { budget.poll(); }));
  std::vector<double> wakes, dispatches;
  for (std::size_t i = 1; i < done.records.size(); ++i) {
    const result::OpRecord &before = done.records[i - 1], &r = done.records[i];
    const double gap = static_cast<double>(r.start_ps - before.start_ps - before.duration_ps) * 1e-12;
    if (r.step > 0) (r.op == 1 ? dispatches : wakes).push_back(std::max(0.0, gap));
  }
  REHEARSE_CHECK(!wakes.empty() && !dispatches.empty(), "no time to measure waking");
  const double wake = median(wakes);
  return {wake, std::move(wakes), median(dispatches)};
}

}  // namespace rehearse::calibrate
