// DeepSpeed's configuration file (ds_config.json), DeepSpeed 0.16.4 and later: deepspeed/runtime/config.py,
// runtime/constants.py, runtime/zero/config.py, and tensor_parallel.autotp_size of its tutorial on automatic tensor
// parallelism in training. Pipeline stages, the model and the length of sequences are in the program that reads it.
#pragma once

#include "launch/fields.h"

namespace rehearse::launch {

Exported export_deepspeed(const plan::Scenario& scenario, std::int64_t gpus_a_node);
Imported import_deepspeed(const std::string& file, const std::string& text, const ImportHints& hints);

}  // namespace rehearse::launch
