// See server_events.h.
#include "sim/account/server_events.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace rehearse::account {

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

}  // namespace rehearse::account
