// What a run was asked and what it answers, in sentences of plain text. Internal to the report page.
#pragma once

#include <string>
#include <vector>

#include "reports/html/html.h"
#include "sim/result/result.h"

namespace rehearse::reports::html {

// A name for each run: its scenario file's, with its source where two would read alike, with a number where still so.
std::vector<std::string> labels(const std::vector<result::StoredResult>& runs);

// Two sentences: what is trained on what, and how it is split.
std::vector<std::string> asked(const result::Result& r);
// Three sentences: how fast and for how long; whether it fits and what limits it; how far off that may be.
std::vector<std::string> answered(const result::Result& r, const HtmlOptions& options);

// A resolved key of the scenario; "" or 0 where it is not there or no number.
std::string key_of(const result::Result& r, const char* key);
std::int64_t integer_of(const result::Result& r, const char* key);
// 174615846912 -> "174.6 billion".
std::string in_words(double n);
// Tokens or samples that days and GPU-hours are for; 0: not asked for, and none are usual for such a run.
double amount_of(const result::Result& r, const HtmlOptions& options);
// "tokens" or "samples".
std::string unit_of(const result::Result& r);

}  // namespace rehearse::reports::html
