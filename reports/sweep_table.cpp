// The table of a sweep (sweep_rows.h). It is laid out in three ways, the first that has room: a line a plan; the same
// with letters for the keys' names and without some columns; two lines a plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "reports/sweep_rows.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using Cells = std::vector<std::vector<std::string>>;  // the first row is the heading

constexpr const char* kWhereAll = "-o DIR and --json have all columns";
constexpr std::size_t kMostNotes = 3;

// For the table; the other formats have all reasons.
std::string first_reason(const SweepRow& row) {
  const std::size_t others = row.problems.size() - 1;
  return row.problems.front().message + (others == 0 ? "" : fmt::format(" (and {} more)", others));
}

std::string last_part(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

// The last parts of the keys, where they differ.
std::vector<std::string> headings(const std::vector<SweepAxis>& axes) {
  std::vector<std::string> names;
  for (const SweepAxis& axis : axes) names.push_back(last_part(axis.key));
  std::vector<std::string> parts = names;
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (std::count(parts.begin(), parts.end(), parts[a]) > 1) names[a] = axes[a].key;
  return names;
}

// "plan.layers_per_stage" -> "lps"; where another key has that name already, as many letters of the key as it takes.
std::vector<std::string> short_headings(const std::vector<SweepAxis>& axes) {
  std::set<std::string> taken;
  std::vector<std::string> names;
  for (const SweepAxis& axis : axes) {
    const std::string part = last_part(axis.key);
    std::string name(1, part[0]);
    for (std::size_t i = 1; i < part.size(); ++i)
      if (part[i - 1] == '_') name += part[i];
    for (std::size_t letters = 2; !taken.insert(name).second; ++letters)
      name = letters <= part.size() ? part.substr(0, letters) : fmt::format("{}{}", part, letters - part.size());
    names.push_back(std::move(name));
  }
  return names;
}

std::string which(const SweepRow& row) {
  std::string text;
  for (const std::string& value : row.values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

// A column of results. Those with the highest `drop` are left out first, those with 0 never.
struct SweepColumn {
  std::string name;
  int drop = 0;
  std::vector<std::string> cells;  // one a row
};

template <class Cell>
SweepColumn column(std::string name, int drop, const std::vector<SweepRow>& rows, std::string none, Cell&& cell) {
  SweepColumn c{std::move(name), drop, {}};
  for (const SweepRow& row : rows) c.cells.push_back(row.status == SweepStatus::infeasible ? none : cell(row));
  return c;
}

// A number all plans have, or 0.
template <class Value>
bool all_alike(const std::vector<SweepRow>& rows, Value&& value) {
  const SweepRow* first = nullptr;
  for (const SweepRow& row : rows) {
    if (row.status == SweepStatus::infeasible) continue;
    if (first == nullptr) first = &row;
    if (value(row) != value(*first)) return false;
  }
  return true;
}

bool one_batch(const std::vector<SweepRow>& rows) {
  return all_alike(rows, [](const SweepRow& row) { return batch_text(row.batch); });
}

bool several_gpus(const std::vector<SweepRow>& rows) {
  return !all_alike(rows, [](const SweepRow& row) { return row.gpus; });
}

// Whether the plan has other GPUs than the reference.
bool scales(const SweepRow& row) {
  return row.status != SweepStatus::infeasible && row.scaling != Scaling::none;
}

bool one_scaling(const std::vector<SweepRow>& rows) {
  std::set<Scaling> kinds;
  for (const SweepRow& row : rows)
    if (scales(row)) kinds.insert(row.scaling);
  return kinds.size() < 2;
}

// Frameworks that were chosen automatically, and are not the same for all plans.
bool several_frameworks(const std::vector<SweepRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const SweepRow& row) { return row.framework_chosen; }) &&
         !all_alike(rows, [](const SweepRow& row) { return row.framework; });
}

constexpr const char* kSpeedUp = "speed-up";

// Plans of as many GPUs, of which one is the reference. Their speed-ups say what their steps say, so that the column is
// there where it has room and is not missed.
bool compares(const std::vector<SweepRow>& rows) {
  return rows.size() > 1 && !several_gpus(rows) &&
         std::any_of(rows.begin(), rows.end(), [](const SweepRow& row) { return row.reference && row.speed_up > 0; });
}

// "12.1-14.9 s", in the unit of the higher.
std::string interval(const SweepRow& row) {
  std::string high = format_time(Time::from_seconds(row.high_s));
  const std::size_t unit = high.rfind(' ');
  const double in_unit = row.high_s > 0 ? std::strtod(high.c_str(), nullptr) / row.high_s : 0;
  return fmt::format("{:.3g}-{:.3g}{}", row.low_s * in_unit, row.high_s * in_unit, high.substr(unit));
}

std::vector<SweepColumn> columns_of(const std::vector<SweepRow>& rows, TableOf kind) {
  const bool searched = kind == TableOf::search;
  std::vector<SweepColumn> list;
  const auto add = [&](std::string name, int drop, std::string none, auto&& cell) {
    list.push_back(column(std::move(name), drop, rows, std::move(none), cell));
  };
  if (!one_batch(rows))
    add("batch", searched ? 3 : 0, "", [](const SweepRow& row) {
      const Batch& b = row.batch;
      return fmt::format("{}={}x{}x{}", b.global(), b.micro_batch, b.micro_batches, b.data);
    });
  if (several_frameworks(rows)) add("framework", 0, "", [](const SweepRow& row) { return row.framework; });
  add("step", 0, "-", [](const SweepRow& row) {
    return format_time(Time::from_ps(row.step_time_ps)) + (row.notes.empty() ? "" : "*");
  });
  if (searched) add("between", 1, "", interval);
  if (!all_alike(rows, [](const SweepRow& row) { return row.sought; }))
    add("a sample", 0, "", [](const SweepRow& row) { return row.sought; });
  if (several_gpus(rows)) {
    add("speed-up", 0, "", [](const SweepRow& row) { return fmt::format("{:.2f}", row.speed_up); });
    add("effic.", 0, "", [](const SweepRow& row) { return percent(row.efficiency); });
    if (!one_scaling(rows))
      add("scaling", 7, "", [](const SweepRow& row) { return row.reference ? "-" : std::string(scaling_name(row)); });
  }
  if (compares(rows)) add(kSpeedUp, 0, "", [](const SweepRow& row) { return fmt::format("{:.2f}", row.speed_up); });
  add("MFU", 0, "", [](const SweepRow& row) { return percent(row.mfu); });
  add("peak", searched ? 0 : 1, "", [](const SweepRow& row) { return format_bytes(Bytes(row.peak_bytes)); });
  if (searched)
    add("cost", 2, "", [](const SweepRow& row) { return row.cost; });
  else
    add("fits", 0, "-", [](const SweepRow& row) { return row.status == SweepStatus::fits ? "yes" : "no"; });
  add("bubble", 5, "", [](const SweepRow& row) { return percent(row.bubble); });
  add("comm.", 6, "", [](const SweepRow& row) { return percent(row.exposed); });
  add("limited by", 4, "cannot be", [](const SweepRow& row) { return row.limit; });
  return list;
}

Cells join(const std::vector<std::string>& names, const std::vector<SweepRow>& rows,
           const std::vector<SweepColumn>& list) {
  Cells cells(rows.size() + 1);
  cells[0] = names;
  for (std::size_t r = 0; r < rows.size(); ++r) cells[r + 1] = names.empty() ? Cells::value_type() : rows[r].values;
  for (const SweepColumn& c : list) {
    cells[0].push_back(c.name);
    for (std::size_t r = 0; r < rows.size(); ++r) cells[r + 1].push_back(c.cells[r]);
  }
  return cells;
}

// Leaves columns out until the table has room; their names, "" if none was; false if there is no room even so.
bool make_room(const std::vector<std::string>& names, const std::vector<SweepRow>& rows, std::size_t indent,
               std::size_t width, std::vector<SweepColumn>& list, std::string& left_out) {
  while (aligned_width(join(names, rows, list), indent) > width) {
    const auto least =
        std::max_element(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.drop < b.drop; });
    if (least == list.end() || least->drop == 0) return false;
    left_out += (left_out.empty() ? "" : ", ") + least->name;
    list.erase(least);
  }
  return true;
}

std::string left_out_note(const std::string& names, std::size_t width) {
  return names.empty() ? "" : wrap(fmt::format("Left out for want of room: {}; {}.", names, kWhereAll), 0, width);
}

// Letters for names that are wider than their values, and what they mean.
std::string legend(const std::vector<SweepAxis>& axes, std::vector<std::string>& names, std::size_t width) {
  const std::vector<std::string> letters = short_headings(axes);
  std::string text;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    names[a] = letters[a];
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", letters[a], axes[a].key);
  }
  return wrap("Keys: " + text + ".", 0, width);
}

// Keys and values on a line, numbers below them.
std::string two_lines(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows, std::size_t width,
                      TableOf kind) {
  std::vector<SweepColumn> list = columns_of(rows, kind);
  if (compares(rows)) std::erase_if(list, [](const SweepColumn& c) { return c.name == kSpeedUp; });
  std::string left_out;
  make_room({}, rows, 2, width, list, left_out);
  const std::string numbers = align(join({}, rows, list), 2, width);
  const std::vector<std::string> names = headings(axes);
  std::size_t at = numbers.find('\n') + 1;
  std::string out = numbers.substr(0, at);
  for (const SweepRow& row : rows) {
    std::string keys;
    for (std::size_t a = 0; a < axes.size(); ++a)
      keys += fmt::format("{}{}={}", a == 0 ? "" : ", ", names[a], row.values[a]);
    const std::size_t end = numbers.find('\n', at) + 1;
    out += wrap(keys, 0, width) + numbers.substr(at, end - at);
    at = end;
  }
  return out + left_out_note(left_out, width);
}

std::string body(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows, std::size_t width,
                 TableOf kind) {
  std::vector<std::string> names = headings(axes);
  std::vector<SweepColumn> list = columns_of(rows, kind);
  if (const Cells cells = join(names, rows, list); aligned_width(cells) <= width) return align(cells, 0, width);
  if (compares(rows)) {
    std::erase_if(list, [](const SweepColumn& c) { return c.name == kSpeedUp; });
    if (const Cells cells = join(names, rows, list); aligned_width(cells) <= width) return align(cells, 0, width);
  }
  const std::string keys = legend(axes, names, width);
  std::string left_out;
  if (!make_room(names, rows, 0, width, list, left_out)) return two_lines(axes, rows, width, kind);
  return keys + align(join(names, rows, list), 0, width) + left_out_note(left_out, width);
}

std::string batch_line(const std::vector<SweepRow>& rows, std::size_t width) {
  const auto first =
      std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.status != SweepStatus::infeasible; });
  if (first == rows.end() || first->batch.global() == 0) return "";
  if (one_batch(rows)) return wrap("Batch: " + batch_text(first->batch), 0, width);
  const char* unit = first->batch.seq_len > 0 ? "sequences" : "samples";
  std::string text = fmt::format("Batch: {} a step = micro-batch x micro-batches x data parallel", unit);
  if (all_alike(rows, [](const SweepRow& row) { return row.batch.units(); }))
    text += fmt::format("; {} {} a step", grouped(static_cast<double>(first->batch.units())),
                        first->batch.seq_len > 0 ? "tokens" : "samples");
  return wrap(text, 0, width);
}

// What all plans were simulated as, where it was chosen automatically; what is not said is named by the file.
std::string framework_line(const std::vector<SweepRow>& rows, std::size_t width) {
  const auto chosen = std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.framework_chosen; });
  if (chosen == rows.end()) return "";
  return wrap(several_frameworks(rows) ? "Framework: chosen automatically for each plan; with one, as framework: "
                                         "torch-fsdp2, only the plans differ."
                                       : fmt::format("Framework: {}, chosen automatically.", chosen->framework),
              0, width);
}

std::string scaling_line(const std::vector<SweepRow>& rows, std::size_t width) {
  const auto reference = std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.reference; });
  if (!several_gpus(rows) || reference == rows.end()) return "";
  std::string kind = "strong or weak as in the column scaling";
  for (const SweepRow& row : rows) {
    if (!one_scaling(rows) || !scales(row)) continue;
    kind = row.scaling == Scaling::strong ? "strong scaling, the batch stays"
           : row.scaling == Scaling::weak ? "weak scaling, the batch grows with the GPUs"
                                          : "neither strong nor weak scaling, the batch grows in another way";
  }
  return wrap(
      fmt::format("Speed-up: {} a second over those of {} ({} GPUs); efficiency: speed-up over that of the GPUs; {}.",
                  reference->batch.seq_len > 0 ? "tokens" : "samples", which(*reference), reference->gpus, kind),
      0, width);
}

// Each note once, with the plans that have it.
std::string notes_part(const std::vector<SweepRow>& rows, std::size_t width) {
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  for (const SweepRow& row : rows)
    for (const std::string& note : row.notes) {
      auto same = std::find_if(notes.begin(), notes.end(), [&](const auto& n) { return n.first == note; });
      if (same == notes.end()) same = notes.insert(notes.end(), {note, {}});
      same->second.push_back(which(row));
    }
  std::string out;
  for (std::size_t i = 0; i < std::min(notes.size(), kMostNotes); ++i) {
    const auto& [note, plans] = notes[i];
    const std::string more = plans.size() > 1 ? fmt::format(" (and {} more)", plans.size() - 1) : "";
    out += wrap(fmt::format("* {}{}: {}", plans.front(), more, note), 2, width);
  }
  if (notes.size() > kMostNotes)
    out += wrap(fmt::format("and {} more; -o DIR and --json have all.", notes.size() - kMostNotes), 2, width);
  return out.empty() ? "" : "\nNotes\n" + out;
}

}  // namespace

std::string sweep_table(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows, std::size_t width,
                        TableOf kind) {
  std::string reasons;
  bool some_do_not_fit = false;
  for (const SweepRow& row : rows) {
    some_do_not_fit = some_do_not_fit || row.status == SweepStatus::does_not_fit;
    if (row.status == SweepStatus::infeasible) reasons += wrap(which(row) + ": " + first_reason(row), 2, width);
  }
  std::string out = batch_line(rows, width) + framework_line(rows, width) + body(axes, rows, width, kind);
  if (const std::string scaling = scaling_line(rows, width); !scaling.empty()) out += '\n' + scaling;
  if (some_do_not_fit) out += "\nStep and shares of a plan that does not fit are as if it fitted.\n";
  out += notes_part(rows, width);
  if (!reasons.empty()) out += "\nCannot be\n" + reasons;
  return out;
}

}  // namespace rehearse::reports
