// A run whose ranks are on LateGpus, in this process, joined by the fake NCCL.
#pragma once

#include <memory>

#include "execute/performer.h"
#include "execute/processes/local_world.h"
#include "execute/rank/gpu/cuda_ranks.h"
#include "sim/lower/lower.h"
#include "tests/gpu/ranks/fake_nccl.h"
#include "tests/gpu/ranks/late_gpu.h"

namespace rehearse {

struct GpuRun {
  LateOptions late;
  execute::GpuOptions rank;
  std::function<LateOptions(int rank, LateOptions all)> late_of;  // if ranks differ

  execute::Outcome perform(const plan::Scenario& scenario, execute::Options options) {
    const auto connector = execute::make_nccl_connector(fake_nccl());
    execute::GpuMaker::Parts parts;
    parts.gpu = [this](int r) {
      LateOptions own = late_of ? late_of(r, late) : late;
      own.seed = own.seed * 1000 + static_cast<unsigned>(r);
      return std::make_unique<LateGpu>(own);
    };
    if (scenario.cluster.gpus > 1) parts.connect = execute::connect_over(*connector);
    parts.options = rank;
    execute::GpuMaker maker(std::move(parts));
    options.maker = &maker;
    const auto world = execute::make_local_world(scenario.grid().ranks(), options.timeout);
    return *execute::perform(scenario, lower::lower(scenario), options, *world);
  }
};

}  // namespace rehearse
