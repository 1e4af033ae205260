// See step_account.h. A simulated run says of each op when its wait was over and whose end that was; what that one's
// stream did meanwhile is followed back along the streams. A measured run (and an older file) does not: there it is the
// latest of the ops that the one behind the gap waits for. Of an op of the step before it is taken that the step before
// was as this one, a step's time earlier.
#include "reports/step_account.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "reports/op_class.h"
#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::reports {
namespace {

using result::OpRow;
using result::OpText;
using result::Share;
using result::StoredResult;

constexpr int kDeepest = 64;  // waits that lead from one to the next: more than a step has streams

// By the group that trades, or where the name of its kind is not its own, by that kind.
Share exposed(std::string_view axis) {
  if (axis == "tensor" || axis == "key_head") return Share::exposed_tensor;
  if (axis == "context") return Share::exposed_context;
  if (axis == "expert" || axis == "tables") return Share::exposed_expert;
  if (axis == "data" || axis == "expert_data" || axis == "replica" || axis == "batch_norm" ||
      axis.starts_with("copies"))
    return Share::exposed_data;
  if (axis == "input") return Share::exposed_input;
  if (axis == "pipeline" || axis == "embedding") return Share::exposed_pipeline;
  return Share::other;
}

// As sim/account/blame.h; files of before the column `group` have the stream's name.
Share share_of_op(const OpText& op) {
  if (op.stream == "to_device" && op.phase == "param_gather") return Share::exposed_data;  // to be gathered
  if (op.stream == "cpu" || (op.phase == "optimizer" && (op.stream == "to_host" || op.stream == "to_device")))
    return Share::optimizer;  // the optimizer's step on the host, and the copies there and back
  return op.kind == "host_sync" ? Share::host
                                : exposed(op.group.empty() || op.group == "routing" ? op.stream : op.group);
}

// Whom a transfer waits for if the file does not say (before the column waited_for): members of groups within a stage
// have one role.
Share usual_late(const OpText& op, bool several_stages) {
  const Share share = share_of_op(op);
  const bool within = share != Share::exposed_pipeline && share != Share::other;
  return within || !several_stages ? Share::straggler : Share::bubble;
}

// What is the same for all executions of an op.
struct Facts {
  Share share = Share::other, late = Share::other;
  std::string line, label;  // as a kernel
  bool main = false, transfer = false, sync = false;
  std::vector<std::uint32_t> after;  // texts
};

using Key = std::tuple<std::string, std::string, std::string>;  // line, phase, detail

// The executions of one rank.
struct RankOps {
  std::vector<const OpRow*> main, syncs;                                      // in time order
  std::unordered_map<std::uint32_t, std::vector<const OpRow*>> of_text;       // by slot
  std::unordered_map<std::string_view, std::vector<const OpRow*>> of_stream;  // in time order
};

class Accountant {
 public:
  explicit Accountant(const StoredResult& stored)
      : stored_(stored),
        stages_(static_cast<int>(stored.result.stages.size())),
        measured_(stored.result.source == "measured") {
    std::map<std::tuple<int, std::string>, std::uint32_t> by_name;
    for (std::size_t t = 0; t < stored.texts.size(); ++t)
      by_name.emplace(std::tuple(stored.texts[t].stage, stored.texts[t].body + '/' + stored.texts[t].op),
                      static_cast<std::uint32_t>(t));
    for (const OpText& op : stored.texts) {
      Facts f;
      f.share = share_of_op(op);
      f.late = usual_late(op, stages_ > 1);
      f.line = kernel_class(op.kind);
      f.label = op_label(op, stages_);
      f.main = op.stream == "compute";
      f.transfer = is_transfer(op);
      f.sync = op.kind == "host_sync";
      for (const std::string& name : op.after)
        if (const auto known = by_name.find(std::tuple(op.stage, name)); known != by_name.end())
          f.after.push_back(known->second);
      facts_.push_back(std::move(f));
    }
  }

  StepAccount account() {
    std::map<int, RankOps> ranks = sorted();
    find_window();
    for (const auto& [rank, ops] : ranks) {
      ops_ = &ops;
      walk();
    }
    return mean(static_cast<int>(ranks.size()));
  }

 private:
  const Facts& facts(const OpRow& row) const { return facts_[row.text]; }
  static std::int64_t end_of(const OpRow& row) { return row.start_ps + row.duration_ps; }

  std::map<int, RankOps> sorted() const {
    std::map<int, RankOps> ranks;
    for (const OpRow& row : stored_.ops) {
      RankOps& own = ranks[row.rank];
      if (facts(row).main) own.main.push_back(&row);
      if (facts(row).sync) own.syncs.push_back(&row);
      own.of_text[row.text].push_back(&row);
      own.of_stream[stored_.text_of(row).stream].push_back(&row);
    }
    const auto by_start = [](const OpRow* a, const OpRow* b) { return a->start_ps < b->start_ps; };
    const auto by_slot = [](const OpRow* a, const OpRow* b) { return a->slot < b->slot; };
    for (auto& [rank, own] : ranks) {
      check_interrupt();
      std::stable_sort(own.main.begin(), own.main.end(), by_start);
      std::stable_sort(own.syncs.begin(), own.syncs.end(), by_start);
      for (auto& [text, rows] : own.of_text) std::stable_sort(rows.begin(), rows.end(), by_slot);
      for (auto& [stream, rows] : own.of_stream) std::stable_sort(rows.begin(), rows.end(), by_start);
    }
    return ranks;
  }

  void find_window() {
    const bool simulated = !measured_, alone = stored_.result.steps == 1;
    std::int64_t first = INT64_MAX;
    end_ = 0;
    for (const OpRow& row : stored_.ops) {
      if (facts(row).main) first = std::min(first, row.start_ps);
      if (facts(row).main || (simulated && alone)) end_ = std::max(end_, end_of(row));
    }
    begin_ = simulated ? end_ - result::recorded_step_ps(stored_.result) : std::min(first, end_);
    tail_by_streams_ = simulated && alone;
  }

  void add(const std::string& line, const std::string& phase, const std::string& detail, std::int64_t from,
           std::int64_t to) {
    from = std::max(from - shift_, begin_);
    to -= shift_;
    if (to > from) sums_[{line, phase, detail}] += to - from;
  }
  void add_wait(Share share, const std::string& detail, std::int64_t from, std::int64_t to) {
    if (to > from) add(std::string(result::kShareNames[static_cast<std::size_t>(share)]), "", detail, from, to);
  }

  // The time of the compute stream, from the window's begin to its end.
  void walk() {
    std::int64_t at = begin_;
    const OpRow* last = nullptr;
    for (const OpRow* row : ops_->main) {
      check_interrupt();
      const std::int64_t start = std::max(row->start_ps, at), end = std::max(end_of(*row), start);
      gap(*row, at, start);
      const Facts& f = facts(*row);
      if (f.transfer)
        parts(*row, start, end);
      else
        add(f.line.empty() ? "other kernels" : f.line, stored_.text_of(*row).phase, f.label, start, end);
      at = end;
      last = row;
    }
    tail(last, at);
  }

  // After the last op: in a single step first what other streams still do, then until the last rank has finished.
  void tail(const OpRow* last, std::int64_t at) {
    if (tail_by_streams_) {
      const OpRow* latest = nullptr;
      for (const auto& [stream, rows] : ops_->of_stream)
        for (const OpRow* row : rows)
          if (end_of(*row) > at && (latest == nullptr || end_of(*row) > end_of(*latest))) latest = row;
      if (latest != nullptr) {
        stream_until(*latest, at, end_of(*latest));
        at = end_of(*latest);
      }
    }
    const std::string whose = last == nullptr ? "" : "stage " + std::to_string(stored_.text_of(*last).stage) + ": ";
    add_wait(stages_ > 1 ? Share::bubble : Share::straggler, whose + "after its last op", at, end_);
  }

  // [posted, everybody there, end) of a transfer, all of a kernel: of it [from, to).
  void parts(const OpRow& row, std::int64_t from, std::int64_t to) {
    const Facts& f = facts(row);
    const std::int64_t started = f.transfer ? std::clamp(row.start_ps + row.waited_ps, from, to) : from;
    add_wait(row.waited_for == Share::other ? f.late : row.waited_for, f.label, from, started);
    add_wait(f.share, f.label, started, to);
  }

  // The execution of `text` that an op of `slot` which starts at `start` waits for; nullptr if it is of the step
  // before.
  const OpRow* execution(std::uint32_t text, const OpRow& waiting) const {
    const auto rows = ops_->of_text.find(text);
    if (rows == ops_->of_text.end()) return nullptr;
    const OpRow* found = nullptr;
    for (auto it = std::upper_bound(rows->second.begin(), rows->second.end(), waiting.slot,
                                    [](int slot, const OpRow*row) { return slot < row->slot; });
         it != rows->second.begin() && found == nullptr;) {
      --it;
      if ((*it)->start_ps < waiting.start_ps || end_of(**it) <= waiting.start_ps) found = *it;
    }
    return found;
  }

  // Of the ops that `row` waits for the one that ended last, after `from`; and the end as far as `row` saw it. `shift`:
  // its execution was this long before the recorded one, in the step before.
  struct Waited {
    const OpRow* row = nullptr;
    std::int64_t end = 0, shift = 0;
  };
  std::optional<Waited> latest(const OpRow& row, std::int64_t from, std::int64_t to) const {
    std::optional<Waited> best;
    for (const std::uint32_t text : facts(row).after) {
      if (facts_[text].sync) continue;
      Waited waited{execution(text, row), 0, 0};
      if (waited.row == nullptr) {
        const auto rows = ops_->of_text.find(text);
        if (rows == ops_->of_text.end() || stored_.result.steps == 1) continue;
        waited = {rows->second.back(), 0, end_ - begin_};
      }
      waited.end = std::min(end_of(*waited.row) - waited.shift, to);
      if (waited.end > from && (!best || waited.end >= best->end)) best = waited;
    }
    return best;
  }

  // What the row says of the gap before it: the op of the stream that woke it which ended last by then, perhaps in the
  // step before.
  std::optional<Waited> waker(const OpRow& row, std::int64_t from, std::int64_t to) const {
    const std::int64_t woken = std::min(row.start_ps - row.queued_ps, to);
    if (row.woken_by < 0 || woken <= from) return {};
    const auto rows = ops_->of_stream.find(stored_.streams[static_cast<std::size_t>(row.woken_by)]);
    if (rows == ops_->of_stream.end()) return {};
    const auto after = std::upper_bound(rows->second.begin(), rows->second.end(), woken,
                                        [](std::int64_t time, const OpRow* r) { return time < end_of(*r); });
    if (after != rows->second.begin()) return Waited{*std::prev(after), woken, 0};
    if (stored_.result.steps == 1) return {};
    return Waited{rows->second.back(), woken, end_ - begin_};
  }

  // What a row that does not say waited for: the latest of the ops in its `after`, or of those of a host sync.
  std::optional<Waited> latest_cause(const OpRow& row, std::int64_t from, std::int64_t to) const {
    std::optional<Waited> cause = latest(row, from, to);
    // The latest sync the host passed in the gap: what it waited for held the launch back.
    const auto sync = std::upper_bound(ops_->syncs.begin(), ops_->syncs.end(), to,
                                       [](std::int64_t time, const OpRow* s) { return time < s->start_ps; });
    if (sync != ops_->syncs.begin() && (*std::prev(sync))->start_ps > from) {
      const auto through = latest(**std::prev(sync), from, to);
      if (through && (!cause || through->end > cause->end)) cause = through;
    }
    return cause;
  }

  // The idle time of its stream before an op.
  void gap(const OpRow& row, std::int64_t from, std::int64_t to) {
    if (to <= from) return;
    const std::optional<Waited> cause = row.queued_ps >= 0 ? waker(row, from, to) : latest_cause(row, from, to);
    if (!cause && stored_.result.servers.known) {
      add_wait(Share::exposed_data, "pulls, pushes and waits for servers", from, to);
      return;
    }
    if (!cause || depth_ == kDeepest) {
      add_wait(Share::host, "launches", from, to);
      return;
    }
    // A performed run counts the time until it woke up as its wait, too; in a simulated one the rest is the launch's.
    const std::int64_t end = measured_ ? to : cause->end;
    ++depth_;
    shift_ += cause->shift;
    stream_until(*cause->row, from + cause->shift, end + cause->shift);
    shift_ -= cause->shift;
    --depth_;
    add_wait(Share::host, "launches", end, to);
  }

  // What the stream of `last` did in [from, to), of which `last` is the end.
  void stream_until(const OpRow& last, std::int64_t from, std::int64_t to) {
    const auto& queue = ops_->of_stream.at(stored_.text_of(last).stream);
    auto at = std::find(std::lower_bound(queue.begin(), queue.end(), last.start_ps,
                                         [](const OpRow* r, std::int64_t time) { return r->start_ps < time; }),
                        queue.end(), &last);
    const std::int64_t shift = shift_, period = end_ - begin_;
    while (from < to && at != queue.end()) {
      const OpRow& row = **at;
      const std::int64_t posted = std::clamp(row.start_ps, from, to);
      parts(row, posted, to);
      // The op before it, perhaps of the step before.
      const bool first = at == queue.begin();
      const bool known = !first || (stored_.result.steps > 1 && shift_ < period);
      const std::int64_t back = first ? period : 0;
      at = first ? std::prev(queue.end()) : std::prev(at);
      to = known ? std::clamp(end_of(**at) - back, from, posted) : from;
      gap(row, to, posted);
      shift_ += back, from += back, to += back;
    }
    shift_ = shift;
  }

  StepAccount mean(int ranks) const {
    StepAccount account;
    account.ranks = ranks;
    account.window_ps = ranks > 0 ? end_ - begin_ : 0;
    std::int64_t left = account.window_ps;
    for (const auto& [key, ps] : sums_) {
      const auto& [line, phase, detail] = key;
      account.parts.push_back({line, phase, detail, ps / ranks});
      left -= ps / ranks;
    }
    REHEARSE_CHECK(left >= 0 && left <= static_cast<std::int64_t>(sums_.size()), "the parts of a step miss it by {} ps",
                   left);
    if (left > 0)
      std::max_element(account.parts.begin(), account.parts.end(), [](const auto& a, const auto& b) {
        return a.ps < b.ps;
      })->ps += left;
    const std::int64_t rest = result::recorded_step_ps(stored_.result) - account.window_ps;
    if (rest != 0) account.parts.push_back({std::string(kNotRecorded), "", "", rest});
    return account;
  }

  const StoredResult& stored_;
  int stages_;
  bool measured_;
  std::vector<Facts> facts_;  // by text
  std::int64_t begin_ = 0, end_ = 0;
  std::int64_t shift_ = 0;  // what is added is this much earlier than it says: times of the step before
  bool tail_by_streams_ = false;
  int depth_ = 0;
  const RankOps* ops_ = nullptr;  // of the rank being walked
  std::map<Key, std::int64_t> sums_;
};

}  // namespace

StepAccount step_account(const StoredResult& stored) {
  return Accountant(stored).account();
}

}  // namespace rehearse::reports
