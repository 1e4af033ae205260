// Commands of NVIDIA's NeMo: scripts/performance of Megatron-Bridge, `nemo llm`, recipes with assignments; see
// nemo.cpp.
#pragma once

#include "formats/shell_script.h"
#include "launch/fields.h"

namespace rehearse::launch {

bool is_nemo(const formats::ShellScript& script);
Imported import_nemo(const std::string& file, const formats::ShellScript& script, const ImportHints& hints);

}  // namespace rehearse::launch
