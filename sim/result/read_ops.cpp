// ops.csv back into rows. A stage executes the same few thousand ops over and over, so the texts of a row are looked up
// and kept once: a row is then some 50 bytes, and the 400,000 of a large plan are read in about a second.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "sim/base/csv.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/result/read_directory.h"

namespace rehearse::result {
namespace {

constexpr std::array<std::string_view, 22> kColumns = {
    "id",          "rank",       "stage",     "stream",   "kind",        "phase", "shape",      "start_ps",
    "duration_ps", "coverage",   "bytes",     "flops",    "micro_batch", "group", "group_size", "waited_ps",
    "after",       "waited_for", "queued_ps", "woken_by", "moving_ps",   "peers"};
constexpr std::size_t kRequired = 12;
constexpr std::size_t kMostProblems = 20;  // of a file whose every row is wrong
// What a row may say, far above any plan's and so low that sums over a file fit their types.
constexpr std::int64_t kMostPs = 9'000'000'000'000'000'000;  // 104 days
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::int32_t kMostCount = 1 << 30;
constexpr double kMostFlops = 1e30;
constexpr int kRowsPerLook = 1024;  // between two questions whether to stop
enum Column {
  id,
  rank,
  stage,
  stream,
  kind,
  phase,
  shape,
  start,
  duration,
  coverage,
  bytes,
  flops,
  micro_batch,
  group,
  group_size,
  waited,
  after,
  late_peer,
  queued,
  waker,
  moving,
  others
};

class OpsReader {
 public:
  OpsReader(const std::string& file, std::string_view text, StoredResult& out)
      : file_(file), rows_(file, text), out_(out) {}

  void read() {
    read_heading();
    for (int row = 0; rows_.next() && problems_.list().size() < kMostProblems; ++row) {
      if (row % kRowsPerLook == 0) check_interrupt();
      if (rows_.size() == columns_)
        read_row();
      else
        fail(fmt::format("expected {} fields, found {}", columns_, rows_.size()));
    }
    problems_.throw_if_any();
  }

 private:
  void fail(std::string message) { problems_.add({file_, rows_.line(), 1, "", std::move(message), ""}); }
  void fail(Column c, std::string message) {
    const auto at = static_cast<std::size_t>(place_[c]);
    problems_.add({file_, rows_.line_of(at), rows_.column_of(at), std::string(kColumns[c]), std::move(message), ""});
  }

  void read_heading() {
    place_.fill(-1);
    if (!rows_.next()) throw InputError(Diagnostic{file_, 1, 1, "", "expected a row that names the columns", ""});
    columns_ = rows_.size();
    std::vector<std::string> found;
    for (std::size_t i = 0; i < columns_; ++i) {
      found.emplace_back(rows_[i]);
      const auto known = std::find(kColumns.begin(), kColumns.end(), rows_[i]);
      if (known != kColumns.end()) place_[static_cast<std::size_t>(known - kColumns.begin())] = static_cast<int>(i);
    }
    for (std::size_t c = 0; c < kRequired; ++c) {
      if (place_[c] >= 0) continue;
      const std::string near = nearest(kColumns[c], found);
      problems_.add(
          {file_, 1, 1, "", fmt::format("there is no column '{}'", kColumns[c]),
           near.empty() ? "ops.csv of a result directory is expected" : fmt::format("did you mean '{}'?", near)});
    }
    problems_.throw_if_any();
  }

  std::string_view text(Column c) const {
    const int at = place_[c];
    return at < 0 ? std::string_view() : rows_[static_cast<std::size_t>(at)];
  }

  template <typename Number>
  Number number(Column c, Number least, Number most, Number absent = 0) {
    if (place_[c] < 0) return absent;
    const std::string_view field = text(c);
    Number value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    const bool whole = error == std::errc() && end == field.data() + field.size();
    if (whole && value >= least && value <= most) return value;
    fail(c, fmt::format("expected a number from {} to {}, found '{}'", least, most, field));
    return absent;
  }

  // -1 if the row does not say.
  std::int64_t if_known(Column c) { return text(c).empty() ? -1 : number<std::int64_t>(c, 0, kMostPs); }

  Share who_was_late() {
    const std::string_view field = text(late_peer);
    if (field.empty()) return Share::other;
    for (const Share share : {Share::straggler, Share::bubble, Share::exposed_input})
      if (field == kShareNames[static_cast<std::size_t>(share)]) return share;
    fail(late_peer, fmt::format("expected straggler, bubble, exposed_input or nothing, found '{}'", field));
    return Share::other;
  }

  // Times of all rows together stay within what sums of them can be (kMostPs).
  void read_times(OpRow& row) {
    row.start_ps = number<std::int64_t>(start, 0, kMostPs);
    row.duration_ps = number<std::int64_t>(duration, 0, kMostPs);
    row.waited_ps = std::min(number<std::int64_t>(waited, 0, kMostPs), row.duration_ps);
    row.queued_ps = if_known(queued);
    row.moving_ps = std::min(if_known(moving), row.duration_ps - row.waited_ps);
    if (row.duration_ps > kMostPs - row.start_ps)
      fail(start, fmt::format("{} and duration_ps: {} end after {} ps", row.start_ps, row.duration_ps, kMostPs));
    if (row.duration_ps <= kMostPs - sum_ps_)
      sum_ps_ += row.duration_ps;
    else
      fail(duration, fmt::format("with this row the durations add up to more than {} ps", kMostPs));
  }

  // rank/step/slot/body/op; an op's name may hold a slash, a body's not.
  bool split_id(OpRow& row, std::string_view& body, std::string_view& op) {
    std::string_view rest = text(id);
    std::int32_t* const numbers[] = {&row.rank, &row.step, &row.slot};
    for (std::int32_t* number : numbers) {
      const std::size_t slash = rest.find('/');
      if (slash == std::string_view::npos) return false;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + slash, *number);
      if (error != std::errc() || end != rest.data() + slash || *number < 0) return false;
      rest.remove_prefix(slash + 1);
    }
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos || slash == 0 || slash + 1 == rest.size()) return false;
    body = rest.substr(0, slash);
    op = rest.substr(slash + 1);
    return true;
  }

  void read_row() {
    OpRow row;
    std::string_view body, op;
    if (!split_id(row, body, op)) {
      fail(id, fmt::format("expected rank/step/slot/body/op, found '{}'", text(id)));
      return;
    }
    if (const auto named = number<std::int32_t>(rank, 0, kMostCount); named != row.rank)
      fail(rank, fmt::format("found {}, but the id says {}", named, row.rank));
    read_times(row);
    row.micro_batch = number<std::int32_t>(micro_batch, -1, kMostCount, -1);
    row.waited_for = who_was_late();
    row.text = text_index(body, op);
    row.woken_by = stream_index(text(waker));
    key_ = fmt::format("{}/{}/{}/{}", row.rank, row.slot, body, op);
    if (!seen_.insert(key_).second) fail(id, fmt::format("'{}' is there twice", text(id)));
    out_.ops.push_back(row);
  }

  std::int32_t stream_index(std::string_view name) {
    if (name.empty()) return -1;
    const auto known = std::find(out_.streams.begin(), out_.streams.end(), name);
    const auto index = static_cast<std::int32_t>(known - out_.streams.begin());
    if (known == out_.streams.end()) out_.streams.emplace_back(name);
    return index;
  }

  std::uint32_t text_index(std::string_view body, std::string_view op) {
    key_.assign(body).append(1, '\0').append(op);
    for (const Column c : {stage, stream, kind, phase, shape, coverage, bytes, flops, group, group_size, after, others})
      key_.append(1, '\0').append(text(c));
    const auto [known, fresh] = index_.emplace(key_, static_cast<std::uint32_t>(out_.texts.size()));
    if (!fresh) return known->second;
    OpText t;
    t.body = body, t.op = op;
    t.stage = number<std::int32_t>(stage, 0, kMostCount);
    t.stream = text(stream), t.kind = text(kind), t.phase = text(phase), t.shape = text(shape);
    t.coverage = text(coverage), t.group = text(group);
    t.peers = text(others);
    t.group_size = number<std::int32_t>(group_size, 0, kMostCount);
    t.bytes = number<std::int64_t>(bytes, 0, kMostBytes);
    t.flops = number<double>(flops, 0, kMostFlops);
    for (std::string_view rest = text(after); !rest.empty();) {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      t.after.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    out_.texts.push_back(std::move(t));
    return known->second;
  }

  const std::string& file_;
  CsvReader rows_;
  StoredResult& out_;
  Diagnostics problems_;
  std::array<int, kColumns.size()> place_{};
  std::size_t columns_ = 0;
  std::int64_t sum_ps_ = 0;
  std::string key_;
  std::unordered_map<std::string, std::uint32_t> index_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

void parse_ops_csv(const std::string& file, std::string_view text, StoredResult& out) {
  OpsReader(file, text, out).read();
}

}  // namespace rehearse::result
