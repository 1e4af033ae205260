// What `rehearse plan -o` wrote, read for the page. Internal to the report page.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "reports/search_file.h"
#include "sim/base/diagnostics.h"

namespace rehearse::reports::html {

using PlanJson = nlohmann::ordered_json;  // points number the keys in the file's order

// Runs what reads the file's fields; one that is missing or of another type is the file's fault. Throws InputError.
template <class Read>
auto read_fields(const SearchFile& file, std::string_view schema, std::string_view writer, const Read& read) {
  try {
    return read(PlanJson::parse(file.text));
  } catch (const PlanJson::exception& error) {
    throw InputError(Diagnostic{file.file, 0, 0, "", fmt::format("is not {}: {}", schema, error.what()),
                                fmt::format("{} writes it", writer)});
  }
}

}  // namespace rehearse::reports::html
