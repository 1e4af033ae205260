// See server_times.h.
#include "calibrate/server_times.h"

#include <algorithm>
#include <deque>
#include <set>

#include "calibrate/lone_kernel.h"
#include "sim/account/server_kernels.h"
#include "sim/account/server_shards.h"
#include "sim/cost/calibration_file.h"
#include "sim/cost/kernel_shape.h"
#include "sim/lower/stage.h"
#include "sim/program/work.h"

namespace rehearse::calibrate {

namespace {

struct ServerKernel {
  const Target* target;
  const account::ServerKernels* kernels;
  const program::Op* op;
};

}  // namespace

void measure_servers(const std::vector<Target>& targets, double seconds, const Budget& budget, KernelTimes& times) {
  std::deque<account::ServerKernels> made;
  std::vector<ServerKernel> list;
  for (const Target& target : targets) {
    const plan::Scenario& s = target.scenario;
    if (!s.plan.served()) continue;
    const auto servers = static_cast<int>(s.plan.servers);
    const auto elements =
        account::server_elements(account::server_parameters(target.program.roles.front(), servers), servers);
    const auto calls = account::server_calls(s.plan);
    for (const std::int64_t n : std::set<std::int64_t>(elements.begin(), elements.end())) {
      if (n == 0) continue;
      made.push_back(account::server_kernels(s, n, lower::dtype_of(s.training.precision),
                                             lower::dtype_of(s.training.reduce_dtype)));
      list.push_back({&target, &made.back(), &made.back().update});
      if (calls[1] > 0) list.push_back({&target, &made.back(), &made.back().sum});
    }
  }
  const Budget own = budget.part(seconds);
  std::size_t left = list.size();
  for (const ServerKernel& k : list) {
    budget.poll();
    if (own.spent() && k.op != list.front().op) return;
    const KernelKey key = key_of(k.kernels->role, *k.op, k.target->threads, k.target->threads);
    const double share = std::clamp(own.left() / static_cast<double>(left--), 1e-3, 0.5);
    if (times.contains(key)) continue;  // of another target
    const program::Work work = program::work_of(k.kernels->role, *k.op);
    times.add(key, cost::comparable_flops(*k.op, work.flops), static_cast<double>(work.bytes_read + work.bytes_written),
              measure({k.target->scenario, k.kernels->role, *k.op}, k.target->threads, share));
  }
}

}  // namespace rehearse::calibrate
