// A program of one's own under torchrun: PyTorch 2.6 and later, device mesh, FSDP2 and checkpointing of activations as
// Python (torch/distributed/fsdp/_fully_shard, torch/distributed/device_mesh.py,
// torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py).
#pragma once

#include "launch/fields.h"

namespace rehearse::launch {

Exported export_torchrun(const plan::Scenario& scenario, std::int64_t gpus_a_node);

}  // namespace rehearse::launch
