// The report page's part of a search over several numbers of GPUs: speed-up and efficiency as curves, the knee, a
// table. Internal to the report page.
#pragma once

#include <string>

#include "reports/search_file.h"

namespace rehearse::reports::html {

// A section of the page. Throws InputError for a file whose fields are not what rehearse.plan_scaling/1 says.
std::string scaling_sections(const SearchFile& scaling);
std::string scaling_title(const SearchFile& scaling);

}  // namespace rehearse::reports::html
