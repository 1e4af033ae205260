// See ledger_marks.h.
#include "reports/ledgers/ledger_marks.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>

#include "reports/html/text.h"
#include "reports/text.h"

namespace rehearse::reports::html {
namespace {

constexpr int kColours = 10, kShapes = 5;

// A path around (x, y), about as large as a circle of radius 4.
std::string shape_path(int shape, double x, double y) {
  const auto c = [](double value) { return coordinate(value); };
  switch (shape) {
    case 0:
      return fmt::format("M{} {}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", c(x - 4), c(y));
    case 1:
      return fmt::format("M{} {}l4.8 8.2h-9.6z", c(x), c(y - 5));
    case 2:
      return fmt::format("M{} {}h7.2v7.2h-7.2z", c(x - 3.6), c(y - 3.6));
    case 3:
      return fmt::format("M{} {}l5 5l-5 5l-5 -5z", c(x), c(y - 5));
    default:
      return fmt::format("M{} {}l4.8 -8.2h-9.6z", c(x), c(y + 5));
  }
}

}  // namespace

LedgerRows used_rows(const std::vector<ThroughputRow>& rows) {
  LedgerRows out;
  for (const ThroughputRow& row : rows)
    if (row.used) out.push_back(&row);
  return out;
}

SoftwareLooks::SoftwareLooks(const LedgerRows& rows) {
  for (const ThroughputRow* row : rows) ++counts_[row->software];
}

int SoftwareLooks::place(const std::string& software) const {
  return static_cast<int>(std::distance(counts_.begin(), counts_.find(software)));
}

std::string SoftwareLooks::mark(const std::string& software, double x, double y, const std::string& title) const {
  const int i = place(software);
  return fmt::format("<path class=\"lf-m lf-{}\" d=\"{}\"><title>{}</title></path>\n", i % kColours,
                     shape_path((i % kShapes + i / kShapes) % kShapes, x, y), escape(title));
}

double Scale::at(double value) const {
  const auto place = [&](double v) { return logarithmic ? std::log(v) : v; };
  return from + (to - from) * (place(value) - place(low)) / (place(high) - place(low));
}

std::string short_number(double value) {
  return fmt::format("{:.3g}", value);
}

std::string row_title(const ThroughputRow& row) {
  return fmt::format("{} ({}, {} GPU{}, {}): measured {} s, predicted {} s, {:+.1f}%{}", row.id, row.model,
                     grouped(row.gpus), row.gpus == 1 ? "" : "s", row.split, short_number(row.measured_s),
                     short_number(row.predicted_s), row.error() * 100, row.fits ? "" : ", predicted not to fit");
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style) {
  return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", style, coordinate(x),
                     coordinate(y), anchor, escape(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", style, coordinate(x1),
                     coordinate(y1), coordinate(x2), coordinate(y2));
}

std::string svg_rectangle(double x, double y, double width, double height, std::string_view style) {
  return fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", style, coordinate(x),
                     coordinate(y), coordinate(width), coordinate(height));
}

std::string open_svg(std::string_view id, double width, double height, const std::string& title,
                     const std::string& description, bool xml) {
  return fmt::format(
      "<svg{0} class=\"lf-figure\" viewBox=\"0 0 {1} {2}\"{3} role=\"img\" aria-labelledby=\"{4}-title "
      "{4}-desc\">\n<title id=\"{4}-title\">{5}</title>\n<desc id=\"{4}-desc\">{6}</desc>\n",
      xml ? " xmlns=\"http://www.w3.org/2000/svg\"" : "", coordinate(width), coordinate(height),
      xml ? fmt::format(" width=\"{}\" height=\"{}\"", coordinate(width), coordinate(height)) : "", id, escape(title),
      escape(description));
}

}  // namespace rehearse::reports::html
