// "deadlock": executes every representative without time (link/token_run.h), by events alone, or by those and by the
// waits for the reuse of memory.
#include <fmt/format.h>

#include <optional>

#include "sim/base/check.h"
#include "sim/program/check_parts.h"
#include "sim/program/describe.h"
#include "sim/program/link/token_run.h"

namespace rehearse::program {
namespace {

class StuckText {
 public:
  StuckText(const Transfers& transfers, TokenRun& run) : transfers_(transfers), run_(run), roles_(run.roles()) {}

  std::string text() {
    std::vector<RoleId> next(roles_.size(), -1);
    std::string text;
    for (std::size_t r = 0; r < roles_.size(); ++r) {
      const std::optional<StepPosition> position = roles_[r].first_unfinished();
      if (!position) continue;
      const auto obstacle = run_.obstacle(static_cast<RoleId>(r), *position);
      REHEARSE_CHECK(obstacle, "{} is stuck in an op that meets nobody: {}", role(r).name,
                     place_text(role(r), position->slot, position->op));
      const MatchSide& side = transfers_.matches.matches[static_cast<std::size_t>(obstacle->match)]
                                  .sides[static_cast<std::size_t>(obstacle->side)];
      next[r] = side.role;
      const CallPlace& call = transfers_.calls_of(side)[static_cast<std::size_t>(obstacle->call)];
      const Role& other = role(static_cast<std::size_t>(side.role));
      if (!text.empty()) text += "; ";
      text +=
          fmt::format("{} waits in {} for {} to reach {}", who(r), place_text(role(r), position->slot, position->op),
                      rank_text(other, side.rank), place_text(other, call.slot, call.op));
    }
    // From the first stuck role, as many steps as there are roles end on the circle.
    std::size_t at = 0;
    while (next[at] < 0) ++at;
    for (std::size_t i = 0; i < roles_.size(); ++i) at = static_cast<std::size_t>(next[at]);
    std::string circle = fmt::format("rank {}", rank(at)), memory = held_by_memory(at);
    for (auto r = static_cast<std::size_t>(next[at]); r != at; r = static_cast<std::size_t>(next[r])) {
      circle += fmt::format(" -> rank {}", rank(r));
      memory += held_by_memory(r);
    }
    return fmt::format("{}{}. Circle: {} -> rank {}", text, memory, circle, rank(at));
  }

 private:
  const Role& role(std::size_t r) const { return roles_[r].role(); }
  int rank(std::size_t r) const { return transfers_.matches.representative[r]; }
  std::string who(std::size_t r) const { return rank_text(role(r), rank(r)); }

  // What could go on if the memory that it writes were not in use.
  std::string held_by_memory(std::size_t r) {
    std::string text;
    for (StreamId s = 0; s < static_cast<StreamId>(role(r).streams.size()); ++s) {
      const std::optional<StepPosition> position = roles_[r].head(s);
      if (!position || roles_[r].held_by_syncs(*position) || roles_[r].held_by_events(*position)) continue;
      if (const std::optional<StepPosition> user = roles_[r].held_by_memory(*position))
        text +=
            fmt::format("; {} writes in {} where memory is in use until {} is done", who(r),
                        place_text(role(r), position->slot, position->op), place_text(role(r), user->slot, user->op));
    }
    return text;
  }

  const Transfers& transfers_;
  TokenRun& run_;
  std::vector<RoleTokens>& roles_;
};

}  // namespace

void check_deadlock(const Program& program, const Transfers& transfers, const std::vector<const ArenaPlaces*>& places,
                    int send_slots, std::vector<Violation>& violations) {
  TokenRun run(program, transfers.calls, transfers.matches, places, send_slots);
  if (!run.run())
    violations.push_back({places.empty() ? "deadlock" : "reuse-deadlock", StuckText(transfers, run).text()});
}

}  // namespace rehearse::program
