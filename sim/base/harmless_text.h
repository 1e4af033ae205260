// Text from files and command lines as it may be shown. A terminal obeys control characters (C0, and C1 in UTF-8 too:
// U+009B begins a command as ESC [ does), and characters that set the direction of text make a line read as what it is
// not (Unicode Technical Report 36, section 2.5). The characters taken out are U+0000-001F, U+007F-009F, the
// directional marks U+061C, U+200E-200F, embeddings and overrides U+202A-202E, isolates U+2066-2069 (Unicode Standard
// Annex 9, section 2), the line separators U+2028-2029, and bytes that are no UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace rehearse {

// Such characters as escapes: \x1b for C0 and stray bytes, \u009b for the others. Those in `kept` (ASCII) stay.
std::string escaped_controls(std::string_view text, std::string_view kept = "");
// The same with '?' for each, where a column must stay a column.
std::string masked_controls(std::string_view text, std::string_view kept = "");

}  // namespace rehearse
