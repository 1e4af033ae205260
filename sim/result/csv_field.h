// One field of a comma-separated table, as RFC 4180 has it: quoted if it holds a comma, a quote or a line end, quotes
// doubled.
#pragma once

#include <string>
#include <string_view>

namespace rehearse::result {

std::string csv_field(std::string_view text);

}  // namespace rehearse::result
