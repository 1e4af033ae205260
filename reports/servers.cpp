// See servers.h.
#include "reports/servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {

namespace {

constexpr std::size_t kMostLines = 16, kServerBar = 34;

std::string rates(const result::ParameterServers& p) {
  const bool step = p.consistency == "synchronous";
  if (p.window_ps <= 0) return "not known: no iteration lies between the first ones and the last ones";
  std::string text = fmt::format("{} {} a second, {} samples", compact(p.updates_per_s), step ? "steps" : "updates",
                                 compact(p.samples_per_s));
  if (p.iterations_per_s.empty()) return text;
  const auto [least, most] = std::minmax_element(p.iterations_per_s.begin(), p.iterations_per_s.end());
  text += compact(*least) == compact(*most)
              ? fmt::format("; each worker {} iterations", compact(*least))
              : fmt::format("; workers {} to {} iterations", compact(*least), compact(*most));
  if (p.dropped > 0) text += fmt::format("; {} iterations given up", grouped(static_cast<double>(p.dropped)));
  return text;
}

std::string staleness(const result::ParameterServers& p) {
  std::string text = fmt::format("mean {:.3g} updates", p.mean_staleness);
  text += fmt::format("; a worker was {} iteration{} ahead of the slowest at most", p.most_ahead,
                      p.most_ahead == 1 ? "" : "s");
  if (p.bound >= 0) text += fmt::format(", the bound is {}", p.bound);
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> server_rows(const result::Result& r) {
  const result::ParameterServers& p = r.servers;
  if (!p.known) return {};
  std::string servers =
      fmt::format("{} parameter server{}, {} worker{}{}, {}", p.servers, p.servers == 1 ? "" : "s", p.workers,
                  p.workers == 1 ? "" : "s", p.backup_workers > 0 ? fmt::format(" ({} spare)", p.backup_workers) : "",
                  p.consistency);
  if (p.own_devices > 0)
    servers += fmt::format("; {} device{} of their own, which rates a device and GPU-hours count too", p.own_devices,
                           p.own_devices == 1 ? "" : "s");
  if (p.consistency != "synchronous")
    servers += "; the step above is the mean time of as many updates as make a global batch";
  std::vector<std::pair<std::string, std::string>> rows{{"Servers", servers}, {"Rates", rates(p)}};
  if (!p.bound_by.empty())
    rows.emplace_back("Busiest", fmt::format("{}, {} of the time; a worker pulls {} and pushes {} an iteration",
                                             p.bound_by, percent(p.busy), format_bytes(Bytes(p.parameter_bytes)),
                                             format_bytes(Bytes(p.gradient_bytes))));
  if (p.consistency != "synchronous") rows.emplace_back("Staleness", staleness(p));
  return rows;
}

std::string staleness_histogram(const result::ParameterServers& p) {
  if (!p.known || p.consistency == "synchronous" || p.staleness.empty()) return "";
  const double most = static_cast<double>(*std::max_element(p.staleness.begin(), p.staleness.end()));
  const double all = static_cast<double>(std::accumulate(p.staleness.begin(), p.staleness.end(), std::int64_t{0}));
  if (most <= 0) return "";
  std::string out = "How old gradients are when they are applied, in updates\n";
  // Neighbours share a line where there are many.
  const std::size_t each = (p.staleness.size() + kMostLines - 1) / kMostLines;
  std::vector<double> lines;
  for (std::size_t k = 0; k < p.staleness.size(); ++k) {
    if (k % each == 0) lines.push_back(0);
    lines.back() += static_cast<double>(p.staleness[k]);
  }
  const double longest = *std::max_element(lines.begin(), lines.end());
  for (std::size_t line = 0; line < lines.size(); ++line) {
    const std::size_t first = line * each, last = std::min(first + each, p.staleness.size()) - 1;
    const auto bar = static_cast<std::size_t>(std::lround(static_cast<double>(kServerBar) * lines[line] / longest));
    const std::string text = fmt::format(
        "  {}{}  {}", left(first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last), 18),
        right(percent(lines[line] / all), 6), std::string(bar, '#'));
    out += clip(text.substr(0, text.find_last_not_of(' ') + 1), kWidth) + '\n';
  }
  return out + '\n';
}

}  // namespace rehearse::reports
