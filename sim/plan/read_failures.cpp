// The sections `failures` and `checkpoint`: by their rows (key_table_failures.cpp); here is which keys need one
// another.
#include "sim/plan/read_keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

Failures read_failures(const Node& node) {
  Failures failures;
  read_keys(node, "failures.", failures);
  node.finish();
  return failures;
}

CheckpointRequest read_checkpoint(const Node& node) {
  CheckpointRequest checkpoint;
  read_keys(node, "checkpoint.", checkpoint);
  const auto above_zero = [&node](const char* key, Bandwidth rate) {
    if (node.has(key) && rate == Bandwidth()) node.get(key).error("expected a bandwidth above zero", "2GB/s");
  };
  above_zero("storage_bandwidth", checkpoint.storage_bandwidth);
  above_zero("rank_bandwidth", checkpoint.rank_bandwidth);
  above_zero("copy_bandwidth", checkpoint.copy_bandwidth);
  node.finish();
  return checkpoint;
}

}  // namespace rehearse::plan::detail
