// See plan_links.h.
#include "reports/html/plan_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "reports/html/text.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports::html {
namespace {

using result::OpText;
using result::Result;
using result::StoredResult;

constexpr double kPanel = 350, kBetween = 25, kTitle = 22;
constexpr std::int64_t kReplicas = 10, kTensorRanks = 8, kStages = 6;

// Bytes of a step by group and kind, of the recorded rank of one stage.
using Traffic = std::map<std::string, std::map<std::string, std::int64_t>>;

std::map<std::int32_t, Traffic> traffic_of(const StoredResult& run) {
  std::map<std::int32_t, Traffic> of_stage;
  for (const result::OpRow& row : run.ops) {
    const OpText& op = run.text_of(row);
    if (op.group.empty() || op.bytes == 0) continue;
    if (op.kind.find("send") == std::string::npos && op.kind.find("receive") == std::string::npos) {
      of_stage[op.stage][op.group][op.kind] += op.bytes;
      continue;
    }
    // "send pipeline+1 elements=..." for each leg, all of a size.
    std::int64_t legs = 0, next = 0, previous = 0;
    for (std::size_t at = 0; (at = op.shape.find(op.group, at)) != std::string::npos; at += op.group.size()) {
      ++legs;
      const bool sends = at >= 5 && op.shape.compare(at - 5, 5, "send ") == 0;
      const std::size_t sign = at + op.group.size();
      if (sends && sign < op.shape.size()) ++(op.shape[sign] == '-' ? previous : next);
    }
    if (next > 0) of_stage[op.stage][op.group]["next"] += op.bytes * next / legs;
    if (previous > 0) of_stage[op.stage][op.group]["previous"] += op.bytes * previous / legs;
  }
  return of_stage;
}

// "nvlink, nic" of those among the busiest that carry the group's transfers, else where its members are.
std::string links_of(const Result& r, const std::string& group) {
  std::set<std::string> kinds;
  for (const result::LinkUse& link : r.links.busiest)
    for (const result::LinkUser& user : link.users)
      if (user.name.starts_with(group + " ")) kinds.insert(link.kind == "link" ? "links of the fabric" : link.kind);
  if (!kinds.empty()) return fmt::format("over {}", fmt::join(kinds, ", "));
  for (const result::CollectiveUse& use : r.collectives)
    if (use.group == group && r.source != "measured") return use.nodes > 1 ? "between nodes" : "within a node";
  return r.source == "measured" ? "between ranks of this machine" : "";
}

std::string algorithms_of(const Result& r, const std::string& group) {
  std::set<std::string> names;
  for (const result::CollectiveUse& use : r.collectives)
    if (use.group == group) names.insert(use.algorithm);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string spaced_kind(std::string kind) {
  std::replace(kind.begin(), kind.end(), '_', '-');
  return kind;
}

std::string link_text(double x, double y, const std::string& text, std::string_view anchor = "middle",
                      std::string_view style = "label") {
  return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", style, coordinate(x),
                     coordinate(y), anchor, escape(text));
}

std::string wire(std::string_view style, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"wire {}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", style, coordinate(x1),
                     coordinate(y1), coordinate(x2), coordinate(y2));
}

// The tip at (x, y), pointing along (dx, dy) of length 1.
std::string arrowhead(std::string_view style, double x, double y, double dx, double dy) {
  constexpr double kLong = 8, kHalf = 4;
  const double bx = x - dx * kLong, by = y - dy * kLong;
  return fmt::format("<polygon class=\"{}\" points=\"{},{} {},{} {},{}\"/>\n", style, coordinate(x), coordinate(y),
                     coordinate(bx - dy * kHalf), coordinate(by + dx * kHalf), coordinate(bx + dy * kHalf),
                     coordinate(by - dx * kHalf));
}

std::string node(double x, double y, double width, double height, const std::string& text, bool shown) {
  return fmt::format("<rect class=\"box{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\"/>\n",
                     shown ? " shown" : "", coordinate(x - width / 2), coordinate(y - height / 2), coordinate(width),
                     coordinate(height)) +
         link_text(x, y + 4, text, "middle", "label small");
}

// What a group's collectives move, a line each kind, and over what.
std::vector<std::string> words_of(const Result& r, const Traffic& traffic, const std::string& group) {
  std::vector<std::string> lines;
  const auto found = traffic.find(group);
  if (found == traffic.end()) return {"no transfers"};
  for (const auto& [kind, bytes] : found->second)
    lines.push_back(fmt::format("{} of {}", spaced_kind(kind), format_bytes(Bytes(bytes))));
  const std::string links = links_of(r, group), algorithms = algorithms_of(r, group);
  if (!links.empty()) lines.push_back(links);
  if (!algorithms.empty()) lines.push_back(algorithms);
  return lines;
}

std::string lines_at(double x, double y, const std::vector<std::string>& lines) {
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i)
    out += link_text(x, y + 15 * static_cast<double>(i), lines[i], "middle", "label small");
  return out;
}

std::string data_panel(const Result& r, const PlanGrid& grid, const Traffic& traffic, double left) {
  constexpr double kRadius = 112;
  const double x = left + kPanel / 2, y = kTitle + 16 + kRadius + 14;
  std::string out = link_text(x, 14, fmt::format("Data: {} replica{}", grid.data, grid.data == 1 ? "" : "s"));
  if (grid.data == 1) return out + link_text(x, y, "one replica: nothing is exchanged", "middle", "label small");
  const auto shown = drawn(grid.data, kReplicas);
  const auto n = static_cast<double>(shown.size());
  const auto place = [&](double i) {
    const double angle = 2 * std::numbers::pi * i / n - std::numbers::pi / 2;
    return std::pair(x + kRadius * std::cos(angle), y + kRadius * std::sin(angle));
  };
  std::string nodes;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto [ax, ay] = place(static_cast<double>(i));
    const auto [bx, by] = place(static_cast<double>(i) + 1);
    const double length = std::hypot(bx - ax, by - ay), dx = (bx - ax) / length, dy = (by - ay) / length;
    out += wire("data", ax, ay, bx, by);
    out += arrowhead("data", (ax + bx) / 2 + 4 * dx, (ay + by) / 2 + 4 * dy, dx, dy);
    nodes += shown[i] < 0
                 ? node(ax, ay, 56, 20, fmt::format("+{} more", grid.data - static_cast<std::int64_t>(n) + 1), false)
                 : node(ax, ay, 34, 20, fmt::format("{}", shown[i]), shown[i] == 0);
  }
  std::vector<std::string> lines = words_of(r, traffic, "data");
  if (traffic.contains("replica")) {  // plan.zero_group: what is sharded is exchanged in groups, and between them
    lines.insert(lines.begin(), "in a group of shards:");
    lines.emplace_back("between groups:");
    for (std::string& line : words_of(r, traffic, "replica")) lines.push_back(std::move(line));
  }
  return out + nodes + lines_at(x, y - 7.5 * static_cast<double>(lines.size() - 1) + 4, lines);
}

std::string tensor_panel(const Result& r, const PlanGrid& grid, const Traffic& traffic, double left) {
  const double x = left + kPanel / 2, y = kTitle + 50, bus = y + 60;
  std::string out =
      link_text(x, 14, fmt::format("Model: each layer over {} rank{}", grid.tensor, grid.tensor == 1 ? "" : "s"));
  if (grid.tensor == 1) return out + link_text(x, bus, "layers are whole on a rank", "middle", "label small");
  const auto shown = drawn(grid.tensor, kTensorRanks);
  const double step = (kPanel - 20) / static_cast<double>(shown.size());
  std::string nodes;
  double first = 0, last = 0;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const double at = left + 10 + step * (static_cast<double>(i) + 0.5);
    if (i == 0) first = at;
    last = at;
    out += wire("tensor", at, y, at, bus);
    const std::int64_t rank = shown[i] * grid.tensor_stride;
    nodes += shown[i] < 0
                 ? node(at, y, step - 4, 22,
                        fmt::format("+{} more", grid.tensor - static_cast<std::int64_t>(shown.size()) + 1), false)
                 : node(at, y, step - 4, 22,
                        grid.tensor_stride > 0 ? fmt::format("{}", rank) : fmt::format("t{}", shown[i]), shown[i] == 0);
  }
  return out + wire("tensor", first, bus, last, bus) + nodes + lines_at(x, bus + 24, words_of(r, traffic, "tensor"));
}

std::string pipeline_panel(const Result& r, const PlanGrid& grid, const std::map<std::int32_t, Traffic>& of_stage,
                           double left) {
  constexpr double kBoxHigh = 22, kStep = 52;
  const double x = left + 110;
  std::string out = link_text(left + kPanel / 2, 14,
                              fmt::format("Pipeline: {} stage{}", grid.pipeline, grid.pipeline == 1 ? "" : "s"));
  if (grid.pipeline == 1)
    return out + link_text(left + kPanel / 2, kTitle + 110, "one stage: nothing is sent", "middle", "label small");
  const std::string links = links_of(r, "pipeline");
  const auto shown = drawn(grid.pipeline, kStages);
  const auto sent = [&](std::int64_t stage, const char* to) -> std::int64_t {
    const auto found = of_stage.find(static_cast<std::int32_t>(stage));
    if (found == of_stage.end() || !found->second.contains("pipeline")) return 0;
    const auto& kinds = found->second.at("pipeline");
    return kinds.contains(to) ? kinds.at(to) : 0;
  };
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const double y = kTitle + 20 + kStep * static_cast<double>(i);
    const std::int64_t more = grid.pipeline - static_cast<std::int64_t>(shown.size()) + 1;
    out += shown[i] < 0 ? link_text(x, y + 4, fmt::format("… {} more stages", more), "middle", "label small")
                        : node(x, y, 150, kBoxHigh, fmt::format("stage {}", shown[i]), true);
    if (i + 1 == shown.size()) continue;
    const double top = y + kBoxHigh / 2 + 1, bottom = y + kStep - kBoxHigh / 2 - 1;
    out += wire("pipeline", x - 14, top, x - 14, bottom) + arrowhead("pipeline", x - 14, bottom, 0, 1);
    out += wire("pipeline", x + 14, top, x + 14, bottom) + arrowhead("pipeline", x + 14, top, 0, -1);
    if (shown[i] < 0 || shown[i + 1] < 0) continue;
    const std::int64_t down = sent(shown[i], "next"), up = sent(shown[i + 1], "previous");
    out += link_text(x + 30, (top + bottom) / 2 + 4,
                     fmt::format("{} down, {} up", format_bytes(Bytes(down)), format_bytes(Bytes(up))), "start",
                     "label small");
  }
  if (!links.empty())
    out += link_text(left + kPanel / 2, kTitle + 20 + kStep * static_cast<double>(shown.size()) - 14, links, "middle",
                     "label small");
  return out;
}

// Groups that have no drawing: "embedding all-reduce of 315 MB over nic".
std::string others(const Result& r, const Traffic& traffic) {
  std::string out;
  for (const auto& [group, kinds] : traffic) {
    if (group == "data" || group == "tensor" || group == "pipeline") continue;
    for (const auto& [kind, bytes] : kinds)
      out += fmt::format("{}{} {} of {} {}", out.empty() ? "" : "; ", group, spaced_kind(kind),
                         format_bytes(Bytes(bytes)), links_of(r, group));
  }
  return out.empty() ? "" : " Beside these: " + escape(out) + ".";
}

}  // namespace

std::string plan_links_figure(const StoredResult& run, const PlanGrid& grid) {
  const std::map<std::int32_t, Traffic> of_stage = traffic_of(run);
  if (of_stage.empty()) return "";
  const Result& r = run.result;
  const Traffic& first = of_stage.begin()->second;
  constexpr double kStep = kPanel + kBetween, kHigh = 350;
  std::string out = fmt::format(
      "<h3>What joins the ranks</h3>\n<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Transfers "
      "of "
      "a step: between {} replicas, {} ranks of a layer, {} stages\">\n",
      coordinate(3 * kPanel + 2 * kBetween), coordinate(kHigh), grid.data, grid.tensor, grid.pipeline);
  out += data_panel(r, grid, first, 0) + tensor_panel(r, grid, first, kStep) +
         pipeline_panel(r, grid, of_stage, 2 * kStep);
  return out + "</svg>\n" +
         fmt::format(
             "<p class=\"note\">Bytes are those of the tensors that the rank outlined moves in a step, of "
             "collectives those they are called with. Replicas and tensor ranks are those of stage {}; down are "
             "activations, up their gradients.{}</p>\n",
             of_stage.begin()->first, others(r, first));
}

}  // namespace rehearse::reports::html
