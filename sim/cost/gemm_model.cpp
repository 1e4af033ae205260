// The tile and wave model of gemm_model.h and the fit of its constants.
#include "sim/cost/gemm_model.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rehearse::cost {
namespace {

constexpr double kMinLaunch = 1.5e-6;  // no product is shorter; keeps the fit from a negative launch
constexpr int kMinSplitDepth = 256;    // libraries do not split K into shorter pieces
constexpr int kMaxWavesSplit = 4;      // nor products that fill the device this often
constexpr std::array<int, 8> kSplits = {1, 2, 3, 4, 6, 8, 12, 16};

constexpr std::array kConstants = {&GemmConstants::efficiency, &GemmConstants::launch, &GemmConstants::wave,
                                   &GemmConstants::tile,       &GemmConstants::edge,   &GemmConstants::split,
                                   &GemmConstants::partials};

struct Choice {
  double tiles = 0;         // with splits
  double wave_seconds = 0;  // of one wave
  double extra = 0;         // of splitting
  double on(int sms) const { return std::ceil(tiles / sms) * wave_seconds + extra; }
};

Choice make_choice(const GemmMachine& machine, const GemmConstants& c, const GemmShape& s, Tile tile, int split) {
  const double area = static_cast<double>(tile.m) * tile.n;
  const double tiles = std::ceil(static_cast<double>(s.m) / tile.m) * std::ceil(static_cast<double>(s.n) / tile.n) *
                       static_cast<double>(s.batch);
  const double per_k =
      2 * area / (c.efficiency * machine.peak / machine.sms) + c.edge * (tile.m + tile.n) * s.element_bytes / 2;
  Choice choice;
  choice.tiles = tiles * split;
  choice.wave_seconds = c.wave + c.tile * area + static_cast<double>(s.k) / split * s.loop * per_k;
  if (split > 1) {  // fp32 partial sums are written and read once
    const double outputs = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.batch);
    choice.extra = c.split + c.partials * 8 * outputs * split / machine.bandwidth;
  }
  return choice;
}

struct Pick {
  Tile tile;
  int split = 1;
};

// What the library picks when it has the whole device.
Pick best_pick(const GemmMachine& machine, const GemmConstants& c, const GemmShape& shape) {
  Pick best;
  double best_seconds = INFINITY;
  for (const Tile tile : machine.tiles) {
    for (const int split : kSplits) {
      const Choice choice = make_choice(machine, c, shape, tile, split);
      if (split > 1 && (shape.k / split < kMinSplitDepth || choice.tiles > kMaxWavesSplit * machine.sms)) break;
      const double seconds = choice.on(machine.sms);
      if (seconds < best_seconds) best = {tile, split}, best_seconds = seconds;
    }
  }
  return best;
}

}  // namespace

double GemmShape::bytes() const {
  if (traffic > 0) return traffic;
  const double dm = static_cast<double>(m), dn = static_cast<double>(n), dk = static_cast<double>(k);
  const double result = result_bytes > 0 ? result_bytes : element_bytes;
  return static_cast<double>(batch) * (element_bytes * (dm * dk + dk * dn) + result * dm * dn);
}

GemmSeconds gemm_seconds(const GemmMachine& machine, const GemmConstants& c, const GemmShape& shape,
                         const GemmShare& share) {
  return gemm_seconds(machine, c, shape, share, {machine, c});
}

GemmSeconds gemm_seconds(const GemmMachine& machine, const GemmConstants& c, const GemmShape& shape,
                         const GemmShare& share, const GemmLibrary& library) {
  const double bytes = shape.bytes();
  const auto with = [&](double compute, double bandwidth) { return c.launch + std::max(compute, bytes / bandwidth); };
  if (machine.tiles.empty()) {
    const double compute = shape.flops() / (c.efficiency * machine.peak);
    return {with(compute, machine.bandwidth), with(compute * machine.sms / share.sms, share.bandwidth)};
  }
  const Pick pick = best_pick(library.machine, library.constants, shape);
  const Choice choice = make_choice(machine, c, shape, pick.tile, pick.split);
  return {with(choice.on(machine.sms), machine.bandwidth), with(choice.on(share.sms), share.bandwidth)};
}

double gemm_seconds(const GemmMachine& machine, const GemmConstants& constants, const GemmShape& shape) {
  return gemm_seconds(machine, constants, shape, {machine.sms, machine.bandwidth}).alone;
}

double mean_log_error(const GemmMachine& machine, const GemmConstants& constants,
                      const std::vector<GemmPoint>& points) {
  double sum = 0;
  for (const GemmPoint& point : points)
    sum += std::fabs(std::log(point.seconds / gemm_seconds(machine, constants, point.shape)));
  return points.empty() ? 0 : sum / static_cast<double>(points.size());
}

GemmConstants fit_gemm_constants(const GemmMachine& machine, const std::vector<GemmPoint>& points,
                                 GemmConstants start) {
  constexpr double kFirstStep = 0.3, kLastStep = 1e-3;
  std::array<double, kConstants.size()> steps;
  steps.fill(kFirstStep);
  double error = mean_log_error(machine, start, points);
  while (*std::max_element(steps.begin(), steps.end()) > kLastStep) {
    bool improved = false;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const double factor : {1 + steps[i], 1 - steps[i]}) {
        GemmConstants trial = start;
        trial.*kConstants[i] *= factor;
        trial.efficiency = std::min(trial.efficiency, 1.0);
        trial.launch = std::max(trial.launch, kMinLaunch);
        const double trial_error = mean_log_error(machine, trial, points);
        if (trial_error >= error) continue;
        start = trial, error = trial_error, improved = true;
        steps[i] = std::min(0.9, steps[i] * 1.3);
        break;
      }
    }
    if (!improved)
      for (double& step : steps) step /= 2;
  }
  return start;
}

}  // namespace rehearse::cost
