// What pages have in common: the head, which lets nothing be fetched, and sections. Internal to the pages.
#pragma once

#include <string>
#include <string_view>

namespace rehearse::reports::html {

// From the doctype to </head>, with the style of reports/page and `more_style` behind it.
std::string page_head(const std::string& title, bool script, std::string_view more_style = "");
// "" where `body` (HTML) is empty; the title is escaped here.
std::string section(std::string_view id, std::string_view title, const std::string& body);
// One of the large numbers at the top: inside <dl class="numbers">.
std::string headline_number(const std::string& value, std::string_view name);

}  // namespace rehearse::reports::html
