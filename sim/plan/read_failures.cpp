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
  node.check_lowest("storage_bandwidth", checkpoint.storage_bandwidth, "2GB/s");
  node.check_lowest("rank_bandwidth", checkpoint.rank_bandwidth, "2GB/s");
  node.check_lowest("copy_bandwidth", checkpoint.copy_bandwidth, "2GB/s");
  node.finish();
  return checkpoint;
}

}  // namespace rehearse::plan::detail
