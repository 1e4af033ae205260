// See text.h.
#include "reports/html/text.h"

#include <fmt/format.h>

#include "sim/base/harmless_text.h"

namespace rehearse::reports::html {

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : masked_controls(text, "\n\t")) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<div class=\"scroll\"><table>\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    out += r == 0 ? "<thead><tr>" : "<tr>";
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const std::string_view tag = r == 0 ? "th scope=\"col\"" : c == 0 ? "th scope=\"row\"" : "td";
      out += fmt::format("<{}>{}</{}>", tag, escape(rows[r][c]), tag.substr(0, 2));
    }
    out += r == 0 ? "</tr></thead><tbody>\n" : "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string details(std::string_view summary, const std::string& body) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", escape(summary), body);
}

std::string legend(const std::vector<Key>& keys) {
  std::string out = "<ul class=\"legend\">";
  for (const Key& key : keys) out += fmt::format("<li><i class=\"{}\"></i>{}</li>", key.style, escape(key.name));
  return out + "</ul>\n";
}

}  // namespace rehearse::reports::html
