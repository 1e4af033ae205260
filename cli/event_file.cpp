// See event_file.h.
#include "cli/event_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "formats/tensorboard.h"

namespace rehearse::cli {

std::string event_file(const execute::Outcome& outcome) {
  const execute::StepShares& shares = outcome.shares;  // by rank and step
  const std::size_t steps = shares.empty() ? 0 : shares.front().size(), ranks = shares.size();
  const auto before = static_cast<std::size_t>(outcome.first_step);
  std::array<bool, result::kShares> any{};
  for (const auto& rank : shares)
    for (const auto& parts : rank)
      for (std::size_t i = 0; i < result::kShares; ++i) any[i] = any[i] || parts[i] > 0;
  std::vector<formats::ScalarEvent> events;
  std::vector<std::int64_t> ends(ranks, 0);
  for (std::size_t s = 0; s < steps; ++s) {
    std::int64_t longest = 0;
    std::array<std::int64_t, result::kShares> sums{};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto& parts = shares[rank][s];
      const std::int64_t total = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
      longest = std::max(longest, total);
      ends[rank] += total;
      for (std::size_t i = 0; i < result::kShares; ++i) sums[i] += parts[i];
    }
    formats::ScalarEvent& event = events.emplace_back();
    event.wall_time_s = static_cast<double>(*std::max_element(ends.begin(), ends.end())) * 1e-12;
    event.step = static_cast<std::int64_t>(before + s + 1);
    event.scalars = {{"loss", outcome.result.loss.at(before + s)}, {"step_s", static_cast<double>(longest) * 1e-12}};
    for (const auto& part : outcome.result.loss_parts)
      event.scalars.emplace_back("loss/" + part.name, part.of_steps.at(before + s));
    for (std::size_t i = 0; i < result::kShares; ++i)
      if (any[i])
        event.scalars.emplace_back(fmt::format("breakdown/{}_s", result::kShareNames[i]),
                                   static_cast<double>(sums[i]) * 1e-12 / static_cast<double>(ranks));
  }
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double began = now - (events.empty() ? 0 : events.back().wall_time_s);
  for (formats::ScalarEvent& event : events) event.wall_time_s += began;
  return formats::tensorboard_events(began, events);
}

}  // namespace rehearse::cli
