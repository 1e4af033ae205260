// See op_records.h.
#include "sim/engine/simulator/op_records.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace rehearse::engine {

std::vector<result::OpRecord> OpRecords::take() {
  std::sort(records_.begin(), records_.end(), [](const result::OpRecord& a, const result::OpRecord& b) {
    return std::tie(a.rank, a.start_ps, a.slot, a.op) < std::tie(b.rank, b.start_ps, b.slot, b.op);
  });
  return std::move(records_);
}

}  // namespace rehearse::engine
