// See server_events.h.
#include "sim/account/server_events.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "sim/base/csv.h"
#include "sim/base/diagnostics.h"

namespace rehearse::account {
namespace {

constexpr std::array<std::string_view, 5> kColumns = {"server", "place", "act", "worker", "iteration"};

bool has_columns(const CsvReader& rows) {
  for (std::size_t c = 0; c < kColumns.size(); ++c)
    if (rows.size() != kColumns.size() || rows[c] != kColumns[c]) return false;
  return true;
}

}  // namespace

std::vector<std::int64_t> staleness_of(const std::vector<ServerEvent>& events, std::int64_t first, std::int64_t last) {
  std::map<std::int32_t, std::int64_t> version;                          // by server
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> pulled;  // by server and worker
  std::vector<std::int64_t> counts;
  for (const ServerEvent& e : events) {
    if (e.act == ServerAct::pull) {
      pulled[{e.server, e.worker}] = version[e.server];
      continue;
    }
    const auto old = static_cast<std::size_t>(version[e.server]++ - pulled[{e.server, e.worker}]);
    if (e.iteration < first || e.iteration >= last) continue;
    if (old >= counts.size()) counts.resize(old + 1);
    ++counts[old];
  }
  return counts;
}

double mean_of_counts(const std::vector<std::int64_t>& counts) {
  double sum = 0, all = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    sum += static_cast<double>(k) * static_cast<double>(counts[k]);
    all += static_cast<double>(counts[k]);
  }
  return all > 0 ? sum / all : 0;
}

std::string server_event_table(const std::vector<ServerEvent>& events) {
  std::string text = "server,place,act,worker,iteration\n";
  std::map<std::int32_t, std::int64_t> places;
  for (const ServerEvent& e : events)
    text += fmt::format("{},{},{},{},{}\n", e.server, places[e.server]++, e.act == ServerAct::pull ? "pull" : "apply",
                        e.worker, e.iteration);
  return text;
}

std::vector<ServerEvent> parse_server_events(const std::string& file, const std::string& text) {
  constexpr std::size_t kMostProblems = 20;
  constexpr std::int64_t kMost = 1'000'000'000;
  Diagnostics problems;
  std::vector<ServerEvent> events;
  CsvReader rows(file, text);
  if (!rows.next() || !has_columns(rows))
    throw InputError(Diagnostic{file, 1, 1, "", "expected the columns server,place,act,worker,iteration",
                                "servers.csv of a result directory of parameter servers"});
  std::map<std::int64_t, std::int64_t> places;
  while (rows.next() && problems.list().size() < kMostProblems) {
    if (rows.size() != kColumns.size()) {
      problems.add({file, rows.line(), 1, "", fmt::format("expected 5 fields, found {}", rows.size()), ""});
      continue;
    }
    const auto number = [&](std::size_t field) {
      const std::string_view digits = rows[field];
      std::int64_t value = 0;
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error == std::errc() && stop == digits.data() + digits.size() && value >= 0 && value <= kMost) return value;
      problems.add({file, rows.line_of(field), rows.column_of(field), std::string(kColumns[field]),
                    fmt::format("expected an integer from 0 to {}, found '{}'", kMost, digits), ""});
      return std::int64_t{0};
    };
    const std::int64_t server = number(0), place = number(1);
    if (rows[2] != "pull" && rows[2] != "apply")
      problems.add({file, rows.line_of(2), rows.column_of(2), "act",
                    fmt::format("expected pull or apply, found '{}'", rows[2]), ""});
    if (place != places[server]++)
      problems.add(
          {file, rows.line_of(1), rows.column_of(1), "place",
           fmt::format("expected {}, the next place of server {}, found {}", places[server] - 1, server, place),
           "rows of a server go by place, from 0"});
    events.push_back({static_cast<std::int32_t>(server), static_cast<std::int32_t>(number(3)), number(4),
                      rows[2] == "pull" ? ServerAct::pull : ServerAct::apply});
  }
  problems.throw_if_any();
  return events;
}

}  // namespace rehearse::account
