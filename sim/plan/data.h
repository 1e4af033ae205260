// What a run trains on and how it gets there (section `data` of a scenario): how many examples an epoch has, and what
// reading, decoding and copying one takes. By it a simulation knows when a micro-batch is there (sim/run/
// input_pipeline.h) and how long an epoch is (sim/account/epoch.h). What is performed trains on what `execute` makes or
// reads (execute/data.h), so there only the numbers about epochs count.
#pragma once

#include <cstdint>

#include "sim/base/units.h"

namespace rehearse::plan {

// Whom storage_bandwidth is for: each node has as much, or all nodes together have it.
enum class StorageOf : unsigned char { node, cluster };

struct Data {
  std::int64_t samples = 0;  // of an epoch; 0: not given
  bool drop_last = true;     // of what does not fill a batch; false: batches are padded
  std::int64_t epochs = 0;   // that the run is to take; 0: not given
  // As PyTorch's DataLoader: processes that load for a replica, and micro-batches that each may be ahead. 0 workers:
  // the training process loads itself.
  std::int64_t workers = 0, prefetch = 2;
  Time sample_time;    // of a worker's core, to decode and augment a sample
  Bytes sample_bytes;  // of a sample as stored
  Bandwidth storage_bandwidth;
  StorageOf storage_of = StorageOf::cluster;
  Bytes to_device;  // of a sample as it is copied to the device; zero: as the model reads it

  // Whether loading takes any time; else a micro-batch is there when it is asked for.
  bool takes_time() const { return sample_time > Time() || sample_bytes > Bytes() || to_device > Bytes(); }
};

}  // namespace rehearse::plan
