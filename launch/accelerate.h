// Hugging Face Accelerate's configuration (`accelerate launch --config_file`), Accelerate 1.x:
// src/accelerate/commands/config/config_args.py, utils/dataclasses.py (FullyShardedDataParallelPlugin,
// ParallelismConfig) and examples/config_yaml_templates. Batches and the length of sequences are the program's that it
// starts; gradient accumulation is in the file with DeepSpeed alone.
#pragma once

#include "launch/fields.h"

namespace rehearse::launch {

Exported export_accelerate(const plan::Scenario& scenario, std::int64_t gpus_a_node);
Imported import_accelerate(const std::string& file, const std::string& text, const ImportHints& hints);

}  // namespace rehearse::launch
