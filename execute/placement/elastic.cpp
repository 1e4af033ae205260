// See elastic.h.
#include "execute/placement/elastic.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "execute/checkpoint/folder.h"
#include "execute/checkpoint/rank_state.h"
#include "execute/processes/failures.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"

namespace rehearse::execute {
namespace {

// The ranks that are performing are not those that are to.
struct RanksChange {};

std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return number;
}

std::string counted(int ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

std::int64_t last_checkpoint(const std::string& folder) {
  const std::vector<std::int64_t> steps = checkpoints_in(folder);
  return steps.empty() ? 0 : steps.back();
}

[[noreturn]] void refuse_elastic(const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{"--elastic", 0, 0, "", message, hint});
}

// One start after another; what changes between them.
class Starts {
 public:
  explicit Starts(const ElasticRun& run)
      : run_(run), members_(run.range, run.first, run.folder + "/" + kRanksFile, run.note) {}

  int until_done() {
    members_.look();
    for (int starts = 0;; ++starts) {
      choose(starts);
      try {
        return run_.perform(ranks_, starts, [this] { watch(); });
      } catch (const RanksChange&) {
        why_ = fmt::format("there {} {} now", members_.present() == 1 ? "is" : "are", counted(members_.present()));
      } catch (const RankFailure& failure) {
        after(failure);
      }
    }
  }

 private:
  void choose(int starts) {
    const std::optional<int> ranks = ranks_to_perform_with(run_.range, members_.present(), run_.possible);
    if (starts == 0 && members_.present() < run_.range.least)
      refuse_elastic(fmt::format("there {} {}, and at least {} are asked for", members_.present() == 1 ? "is" : "are",
                                 counted(members_.present()), run_.range.least),
                     "more of cluster.gpus, or a smaller LEAST");
    if (!ranks && starts == 0)
      refuse_elastic(fmt::format("no number of ranks from {} to {} can perform the plan", run_.range.least,
                                 std::min(members_.present(), run_.range.most)),
                     "whole replicas, of which the global batch is a multiple");
    if (!ranks)
      throw RankFailure(fmt::format("{}\n  {} left, which cannot perform the plan: --elastic asks for at least {}",
                                    why_, counted(std::max(0, members_.present())), run_.range.least));
    ranks_ = *ranks;
    wanted_at_.reset();
    if (starts > 0) ask_for_none();  // at first the user may have asked
    if (starts > 0)
      run_.note(fmt::format("rehearse: {}\nrehearse: note: going on from step {} with {} of {}", why_,
                            last_checkpoint_before(run_.folder, run_.steps), ranks_, counted(members_.present())));
  }

  // Many times a second, while ranks perform.
  void watch() {
    const int before = members_.present();
    if (members_.look()) {
      const auto ranks = ranks_to_perform_with(run_.range, members_.present(), run_.possible);
      if (!ranks) {
        run_.note(fmt::format("rehearse: note: with {} the plan cannot be performed: not followed",
                              counted(members_.present())));
        members_.lost(members_.present() - before);
        return;
      }
      wanted_at_.reset();
      if (ranks != ranks_) {
        wanted_at_ = last_checkpoint(run_.folder);
        ask_for_checkpoint();
      } else {
        ask_for_none();
      }
    }
    if (!wanted_at_) return;
    const std::int64_t step = last_checkpoint(run_.folder);
    if (step > *wanted_at_ && step < run_.steps) throw RanksChange{};
  }

  // At the end of the next step that all ranks can end with it (asked_now.h).
  void ask_for_checkpoint() const { std::ofstream(run_.folder + "/" + kNowFile); }
  void ask_for_none() const { ::unlink((run_.folder + "/" + kNowFile).c_str()); }

  void after(const RankFailure& failure) {
    if (end_signal() != 0) throw failure;
    why_ = failure.what();
    if (failure.left() > 0) return members_.lost(failure.left());
    if (++failures_ > run_.failures_at_most) throw failure;
  }

  const ElasticRun& run_;
  Membership members_;
  int ranks_ = 0, failures_ = 0;
  std::string why_;                        // the last start ended
  std::optional<std::int64_t> wanted_at_;  // another number of ranks, from a later checkpoint than this on
};

}  // namespace

RankRange parse_rank_range(const std::string& option, const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::optional<int> least = whole_number(std::string_view(text).substr(0, colon));
  const std::optional<int> most =
      colon == std::string::npos ? least : whole_number(std::string_view(text).substr(colon + 1));
  if (!least || !most || *least < 1 || *most < *least || *most > kMaxRanks)
    throw InputError(Diagnostic{option, 0, 0, "",
                                fmt::format("'{}' is no range of ranks: LEAST:MOST, from 1 to {}", text, kMaxRanks),
                                "as 2:8"});
  return {*least, *most};
}

std::optional<int> ranks_to_perform_with(const RankRange& range, int present,
                                         const std::function<bool(int ranks)>& possible) {
  for (int ranks = std::min(present, range.most); ranks >= range.least; --ranks)
    if (possible(ranks)) return ranks;
  return {};
}

Membership::Membership(RankRange range, int first, std::string file, std::function<void(const std::string&)> note)
    : range_(range), file_(std::move(file)), note_(std::move(note)), present_(first) {}

bool Membership::look() {
  struct stat facts {};
  if (::stat(file_.c_str(), &facts) != 0) return false;
  const Stamp now{facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, facts.st_size};
  if (now == read_) return false;
  std::ostringstream text;
  text << std::ifstream(file_).rdbuf();
  std::string words = text.str();
  while (!words.empty() && (words.back() == '\n' || words.back() == '\r' || words.back() == ' ')) words.pop_back();
  if (words.empty()) return false;  // about to be written
  read_ = now;
  const std::optional<int> ranks = whole_number(words);
  if (!ranks || *ranks < range_.least || *ranks > range_.most) {
    note_(fmt::format("rehearse: note: {}: '{}' is not followed: expected a number of ranks from {} to {}", file_,
                      words.substr(0, 40), range_.least, range_.most));
    return false;
  }
  return std::exchange(present_, *ranks) != *ranks;
}

void Membership::lost(int ranks) {
  present_ -= ranks;
}

int run_elastic(const ElasticRun& run) {
  return Starts(run).until_done();
}

void check_elastic(const plan::Scenario& scenario, const CheckpointOptions& checkpoint) {
  if (checkpoint.every == 0)
    refuse_elastic(
        "a rank that is killed takes the steps since the last checkpoint with it, and there is none before "
        "the end",
        "--every N");
  if (scenario.plan.served())
    refuse_elastic(
        "workers of parameter servers do not come and go yet: resumed, a run may have another number of them",
        "--max-restarts, or plan.servers: 0");
  if (const auto kept = kept_by_rank(scenario))
    refuse_elastic(fmt::format("{}: no other number of ranks can go on from {}", kept->what, kept->it), kept->instead);
}

}  // namespace rehearse::execute
