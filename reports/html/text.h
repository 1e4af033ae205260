// Pieces of HTML and SVG as text. Internal to the report page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rehearse::reports::html {

// Text for between tags and inside quoted attributes: & < > " ' escaped, control characters and what turns the
// direction of text replaced (sim/base/harmless_text.h).
std::string escape(std::string_view text);
// A coordinate of a figure: at most two decimals, no trailing zeros.
std::string coordinate(double value);
// Rows of cells as a table; the first row is the heading, the first column names the row. Cells are escaped here.
std::string table(const std::vector<std::vector<std::string>>& rows);
// A closed <details> element with `body` (HTML) inside.
std::string details(std::string_view summary, const std::string& body);
// A legend: names with the CSS class that colours each.
struct Key {
  std::string_view style, name;
};
std::string legend(const std::vector<Key>& keys);

}  // namespace rehearse::reports::html
