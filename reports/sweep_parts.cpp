// See sweep_parts.h.
#include "reports/sweep_parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace rehearse {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Diagnostic, file, line, column, path, message, hint)

namespace reports {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Batch, micro_batch, micro_batches, data, seq_len)
// Without what set_scaling() makes of all rows.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SweepRow, values, directory, status, problems, framework, framework_chosen, gpus,
                                   batch, step_time_ps, peak_bytes, memory_bytes, mfu, tokens_per_s, bubble, exposed,
                                   low_s, high_s, limit, limited_by, notes)

std::string pack_part(const std::vector<SweepRow>& rows, int part, int parts) {
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (row_of_part(i, part, parts)) list.push_back(rows[i]);
  return list.dump();
}

void unpack_part(const std::string& text, std::vector<SweepRow>& rows, int part, int parts) {
  const nlohmann::json list = nlohmann::json::parse(text);
  std::size_t next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!row_of_part(i, part, parts)) continue;
    SweepRow row = list.at(next++).get<SweepRow>();
    if (row.values != rows[i].values)
      throw std::runtime_error(fmt::format("process {} was given another sweep than this one", part));
    rows[i] = std::move(row);
  }
}

}  // namespace reports
}  // namespace rehearse
