// Steps of generation to be timed (profile_run.h): what execute/reinforcement/generation.h does beside their ops, for
// replicas all of whose sequences are under way behind plan.cached_tokens tokens each, in steps that nobody asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/reinforcement/generation.h"
#include "sim/plan/rank_grid.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::calibrate {

class GenerationProfile final : public execute::PhaseSteps, public execute::Data {
 public:
  // Of plan.data replicas (run::replica_scenario); what they name outlives it.
  GenerationProfile(const plan::Scenario& scenario, const program::Program& program, const plan::RankGrid& grid);
  // Of all replicas' keys and values.
  static std::int64_t cache_bytes(const plan::Scenario& scenario);

  bool begin(int, std::int64_t, const execute::RankMemory&) override { return true; }
  void end(int) override {}
  void perform(const program::Op& op, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
               const execute::CallContext& c) override;
  void load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
            void* out) override;
  std::int64_t examples() const override { return 0; }
  std::string description() const override { return "made prompts"; }

 private:
  struct Replica {
    Replica(const execute::PhasePlan& plan, std::int64_t tokens);
    execute::KeyValueCache cache;
    execute::GenerationSteps steps;
  };
  const plan::RankGrid& grid_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // by coordinate on the axis of data
};

}  // namespace rehearse::calibrate
