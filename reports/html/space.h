// A search's part of the report page: its space as a scatter of time against memory, its answer in tables. Internal to
// the report page.
#pragma once

#include <string>
#include <vector>

#include "reports/search_file.h"
#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

// Sections of the page. `runs` are of the plans whose results are there. Throws InputError for a file whose fields are
// not what rehearse.search/1 says.
std::string search_sections(const SearchFile& search, bool script);
// For the script: the file, packed, with the number of the run of each plan that was kept.
std::string search_payload(const SearchFile& search, const std::vector<result::StoredResult>& runs);
std::string search_title(const SearchFile& search);

// What such files say, as the page writes it: "1.5 s", "62.0 GB", and a key without its block, "tensor" of
// "plan.tensor".
std::string space_seconds(double s);
std::string space_bytes(double bytes);
std::string leaf_of(const std::string& key);

}  // namespace rehearse::reports::html
