// See frame.h.
#include "reports/html/frame.h"

#include <fmt/format.h>

#include "reports/html/page_files.h"
#include "reports/html/text.h"

namespace rehearse::reports::html {

std::string page_head(const std::string& title, bool script, std::string_view more_style) {
  // Nothing may be fetched, whatever a browser extension or a later edit puts into the page.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
      "data:{}\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
      "name=\"color-scheme\" "
      "content=\"light dark\">\n<title>{}</title>\n<style>\n{}{}</style>\n</head>\n",
      script ? "; script-src 'unsafe-inline'" : "", escape(title), page_style(), more_style);
}

std::string section(std::string_view id, std::string_view title, const std::string& body) {
  if (body.empty()) return "";
  return fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n{}</section>\n", id, escape(title), body);
}

std::string headline_number(const std::string& value, std::string_view name) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
}

}  // namespace rehearse::reports::html
