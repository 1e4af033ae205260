// Sections of the report page: samples, noise, busiest links, what-ifs. "" where no run has any. Internal to the page.
#pragma once

#include <string>
#include <vector>

#include "sim/result/read_directory.h"

namespace rehearse::reports::html {

using RunNames = std::vector<std::string>;

std::string phases_section(const std::vector<result::StoredResult>& runs, const RunNames& names);
std::string samples_section(const std::vector<result::StoredResult>& runs, const RunNames& names);
std::string noise_section(const std::vector<result::StoredResult>& runs, const RunNames& names);
std::string collectives_section(const std::vector<result::StoredResult>& runs, const RunNames& names);
std::string links_section(const std::vector<result::StoredResult>& runs, const RunNames& names);
std::string jobs_section(const std::vector<result::StoredResult>& runs, const RunNames& names);
std::string what_if_section(const std::vector<result::StoredResult>& runs, const RunNames& names);

}  // namespace rehearse::reports::html
