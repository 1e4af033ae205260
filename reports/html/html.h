// Results as one HTML file that needs nothing else: no network, no other file. The tables and figures are made here and
// stand without a script; the script (reports/page, built in where Node was there) makes the timeline one that can be
// zoomed. Texts of a scenario are escaped, so that a name cannot become markup.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/search_file.h"
#include "sim/result/read_directory.h"

namespace rehearse::reports {

struct HtmlOptions {
  double tokens = 0;                       // days and GPU-hours are for so many; 0: 300e9 tokens, of a simulated run
  double price_per_hour = 0;               // of a GPU; 0: no price is shown
  const SearchFile* search = nullptr;      // of a search whose plans `runs` are
  bool script = true;                      // false: tables and static figures alone
  std::optional<double> target_loss = {};  // that runs are to come to; else the lowest that all do
  const SearchFile* scaling = nullptr;     // of searches, one a number of GPUs, whose best plans `runs` are
};

// `runs` are shown in their order; at least one, unless there is a search. Throws InputError for a search's or
// scaling's fields.
std::string html_page(const std::vector<result::StoredResult>& runs, const HtmlOptions& options);
// Whether this program was built with the page's script.
bool has_page_script();

}  // namespace rehearse::reports
