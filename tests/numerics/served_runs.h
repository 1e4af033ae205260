// Plans with parameter servers, performed for tests: by threads, or by the worlds of several processes, here in threads
// of one, connected over the loopback.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "execute/processes/process_world.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "tests/numerics/plan_runs.h"
#include "tests/support/temporary.h"

namespace rehearse::served {

struct ProcessRuns {
  std::optional<execute::Outcome> outcome;  // the root's
  std::vector<std::string> failures;        // by rank; servers behind workers
  std::string failure() const {             // the longest: who else has little to say
    std::string longest;
    for (const std::string& f : failures)
      if (f.size() > longest.size()) longest = f;
    return longest;
  }
};

inline ProcessRuns by_processes(const plan::Scenario& scenario, const execute::Options& options) {
  const std::string folder = test::temporary_path("served");
  const program::Program program = lower::lower(scenario);
  const auto ranks = static_cast<int>(scenario.cluster.gpus + scenario.plan.servers);
  ProcessRuns runs;
  runs.failures.resize(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        execute::ProcessOptions o;
        o.rank = rank, o.ranks = ranks, o.folder = folder;
        o.timeout = std::max(options.timeout, std::chrono::milliseconds(20'000));
        const auto world = execute::make_process_world(o);
        auto outcome = execute::perform(scenario, program, options, *world);
        EXPECT_EQ(outcome.has_value(), rank == 0);
        if (outcome) runs.outcome = std::move(outcome);
      } catch (const std::exception& error) {
        runs.failures[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  std::filesystem::remove_all(folder);
  return runs;
}

inline bool processes_can_be() {
#ifdef __SANITIZE_THREAD__
  return false;  // Gloo is not built for the thread sanitizer, which cannot see how its threads agree
#else
  return execute::gloo_available();
#endif
}

}  // namespace rehearse::served
