// The section `data`: by its rows (key_table_data.cpp); here is which keys need one another.
#include <fmt/format.h>

#include "sim/plan/read_keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

Data read_data(const Node& node) {
  Data data;
  read_keys(node, "data.", data);
  const bool reads = data.sample_bytes > Bytes(), stored = data.storage_bandwidth > Bandwidth();
  if (reads && !stored && !node.has("storage_bandwidth"))
    node.get("sample_bytes")
        .error("needs storage_bandwidth, the rate at which samples are read", "storage_bandwidth: 2GB/s");
  if (stored && !reads)
    node.get("storage_bandwidth").error("needs sample_bytes, the size of a stored sample", "sample_bytes: 110kB");
  if (node.has("storage_bandwidth") && !stored)
    node.get("storage_bandwidth").error("expected a bandwidth above zero", "storage_bandwidth: 2GB/s");
  if (node.has("epochs") && !node.has("samples"))
    node.get("epochs").error("needs samples, the examples of an epoch", "samples: 50000");
  node.finish();
  return data;
}

}  // namespace rehearse::plan::detail
