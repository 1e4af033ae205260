// See gpu_maker.h.
#include "execute/rank/gpu/gpu_maker.h"

#include <fmt/format.h>

#include <map>

#include "execute/performer.h"
#include "execute/rank/run.h"
#include "sim/base/diagnostics.h"
#include "sim/base/units.h"

namespace rehearse::execute {
namespace {

std::string text(std::int64_t bytes) {
  return format_bytes(Bytes(bytes));
}

void check_products(const GpuOptions& options, const plan::RankGrid& grid) {
  if (!options.measure_products || grid.ranks() == 1) return;
  throw InputError(Diagnostic{"--products", 0, 0, "measured",
                              "is for a rank that meets no others: several take the library's first choice, alike",
                              "--products first"});
}

}  // namespace

void GpuMaker::check(const std::vector<Timeline>& timelines, const plan::RankGrid& grid, std::span<const int> ranks) {
  if (parts_.options.graphs == Graphs::on)
    for (const Timeline& t : timelines)
      if (!graphs_possible(t))
        throw InputError(
            Diagnostic{"--cuda-graphs", 0, 0, "on",
                       fmt::format("in {} the host waits within the step, which no graph can hold", t.role->name),
                       "--cuda-graphs auto, or a framework that does not wait"});
  check_products(parts_.options, grid);
  if (parts_.devices.empty()) return;
  std::map<int, std::pair<std::int64_t, int>> needed;  // by device: bytes, ranks
  for (const int rank : ranks) {
    auto& [bytes, count] = needed[parts_.device(rank)];
    bytes += timeline_of(timelines, grid, rank).memory.arena_bytes;
    ++count;
  }
  for (const auto& [device, need] : needed) {
    const DeviceMemory& memory = parts_.devices.at(static_cast<std::size_t>(device));
    if (need.first > memory.free_bytes)
      throw DoesNotFit(fmt::format(
          "does not fit on GPU {} ({}): {} of it need {} for their tensors, {} of {} are free: {} too much", device,
          memory.name, need.second == 1 ? "1 rank" : fmt::format("{} ranks", need.second), text(need.first),
          text(memory.free_bytes), text(memory.total_bytes), text(need.first - memory.free_bytes)));
  }
}

std::unique_ptr<Rank> GpuMaker::make(Run& run, int rank, bool reports_loss) {
  const std::int64_t arena = run.timeline(rank).memory.arena_bytes;
  check_products(parts_.options, run.grid);
  try {
    auto gpu = parts_.gpu(rank);
    memory_of_a_rank_ = gpu->memory().total_bytes / parts_.options.ranks_on_device;
    GpuRank::Connect connect;
    if (parts_.connect) connect = [this, &run, rank] { return parts_.connect(run, rank); };
    GpuOptions options = parts_.options;
    options.send_slots = run.send_slots;
    return std::make_unique<GpuRank>(run, rank, reports_loss, std::move(gpu), std::move(connect), options);
  } catch (const GpuOutOfMemory& error) {
    throw DoesNotFit(
        fmt::format("rank {} does not fit on its GPU: its tensors need {}; {}", rank, text(arena), error.what()));
  }
}

}  // namespace rehearse::execute
