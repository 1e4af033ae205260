// What the figures of published runs share: how a software looks, scales, axes, and the frame of an SVG. Internal to
// the ledger's figures.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::reports::html {

using LedgerRows = std::vector<const ThroughputRow*>;
LedgerRows used_rows(const std::vector<ThroughputRow>& rows);

// Software in the order of names; its place decides colour and shape, so that they are the same in every figure of a
// ledger. Ten colours, five shapes: fifty look different, and
// colours that are near each other have different shapes.
class SoftwareLooks {
 public:
  explicit SoftwareLooks(const LedgerRows& rows);
  const std::map<std::string, int>& counts() const { return counts_; }  // rows of each
  int place(const std::string& software) const;
  int size() const { return static_cast<int>(counts_.size()); }
  // A mark around (x, y); `title` is what hovering shows.
  std::string mark(const std::string& software, double x, double y, const std::string& title) const;

 private:
  std::map<std::string, int> counts_;
};

// From values to coordinates, linear or logarithmic.
struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  bool logarithmic = false;
  double at(double value) const;
};

// "bloom-prequel-026 (BLOOM, 384 GPUs, tp8 pp12 ...): measured 143.3 s, predicted 122.6 s, -14.4%".
std::string row_title(const ThroughputRow& row);
// Three digits: "0.281", "14.3", "143".
std::string short_number(double value);

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text,
                     std::string_view style = "lf-text");
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style);
std::string svg_rectangle(double x, double y, double width, double height, std::string_view style);
// `id` names its title and description within a page. `xml`: with the namespace, as a file needs it.
std::string open_svg(std::string_view id, double width, double height, const std::string& title,
                     const std::string& description, bool xml = false);

}  // namespace rehearse::reports::html
