// Figures of published runs against their predictions, as SVG: a mark a used row, which says its row when it is hovered
// over. Colour and shape tell the software; each figure has a title and a description. Internal to the ledger's page
// and picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/ledgers/throughput_ledger.h"

namespace rehearse::reports::html {

// The CSS of the figures' classes, light and dark.
std::string_view ledger_figure_style();

// Predicted against measured step time, both axes logarithmic, with the diagonal and the band of +-10%. `standalone`:
// with its own style, namespace and background, to be a file.
std::string predicted_measured_figure(const std::vector<ThroughputRow>& rows, bool standalone);

// Errors of the step time over one property of the run.
enum class Over { seq_len, gpus, mfu };
std::string residual_figure(const std::vector<ThroughputRow>& rows, Over over);

// The share of each software's runs that lie inside their predicted interval.
std::string coverage_figure(const std::vector<ThroughputRow>& rows);
// Every run's interval over its measured time, from the lowest prediction to the highest.
std::string interval_figure(const std::vector<ThroughputRow>& rows);

}  // namespace rehearse::reports::html
