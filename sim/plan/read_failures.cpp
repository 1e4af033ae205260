// The sections `failures` and `checkpoint`: by their rows (key_table_failures.cpp); here is which keys need one
// another.
#include <fmt/format.h>

#include "sim/plan/read_keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {
namespace {

constexpr Bandwidth kLowestBandwidth(1'000'000);

}  // namespace

Failures read_failures(const Node& node) {
  Failures failures;
  read_keys(node, "failures.", failures);
  node.finish();
  return failures;
}

CheckpointRequest read_checkpoint(const Node& node) {
  CheckpointRequest checkpoint;
  read_keys(node, "checkpoint.", checkpoint);
  const auto check_least = [&node](const char* key, Bandwidth rate) {
    if (node.has(key) && rate < kLowestBandwidth)
      node.get(key).error(
          fmt::format("{} is out of range, expected at least 1MB/s", node.get(key).as_text().value_or("")), "2GB/s");
  };
  check_least("storage_bandwidth", checkpoint.storage_bandwidth);
  check_least("rank_bandwidth", checkpoint.rank_bandwidth);
  check_least("copy_bandwidth", checkpoint.copy_bandwidth);
  node.finish();
  return checkpoint;
}

}  // namespace rehearse::plan::detail
