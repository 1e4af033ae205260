// torchtitan's TOML as v0.2.2 reads it, the last version with files (torchtitan/config/job_config.py), and the same as
// assignments to the configuration of later versions (pytorch/torchtitan b5bcd76 of August 2026, torchtitan/config/
// configs.py), where a run is a Python function. Shards and gathers are FSDP2's.
#pragma once

#include "launch/fields.h"

namespace rehearse::launch {

Exported export_torchtitan_toml(const plan::Scenario& scenario, std::int64_t gpus_a_node);
Exported export_torchtitan(const plan::Scenario& scenario, std::int64_t gpus_a_node);
Imported import_torchtitan(const std::string& file, const std::string& text, const ImportHints& hints);
// Whether these settings are of torchtitan.
bool is_torchtitan(const std::vector<Setting>& settings);

}  // namespace rehearse::launch
