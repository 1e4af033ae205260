// Pieces of the device files that a calibration writes (YAML; docs/data.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/measured_device.h"

namespace rehearse::calibrate {

// Text between double quotes, on one line: control characters become spaces.
std::string yaml_quoted(std::string_view text);

// `heading`, which ends with a line of its own, and a literal block `rows` of CSV below it; "" without rows.
std::string rows_block(const std::string& heading, const std::vector<std::string>& columns,
                       const std::vector<std::string>& rows);

// A product's first cells in every table of products: types, layout, accumulate, bias, m, n, k.
std::string key_cells(const cost::ProductKey& key);

}  // namespace rehearse::calibrate
