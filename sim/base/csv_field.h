// One field of a comma-separated table, as RFC 4180 has it: quoted if it holds a comma, a quote or a line end, quotes
// doubled. A spreadsheet takes a field that begins with = + - @, their full-width forms, a tab or a line end for a
// formula and may run it (OWASP, CSV Injection); such text, unless it is a number, gets an apostrophe before it, which
// spreadsheets show as text. csv_text() takes it off again, so every text comes back as it was.
#pragma once

#include <string>
#include <string_view>

namespace rehearse {

std::string csv_field(std::string_view text);
// What csv_field() was given, from the field without its quotes.
std::string_view csv_text(std::string_view field);

}  // namespace rehearse
