// The framework profiles, one file each. Each fact names where it is documented; numbers chosen by judgement within a
// documented range say so. A profile describes the defaults of a release line, not a particular run: a run that turned
// an option on says so in its scenario.
#pragma once

#include "sim/plan/framework.h"

namespace rehearse::plan {

FrameworkProfile rehearse_profile();
FrameworkProfile megatron_2021_profile();
FrameworkProfile megatron_2022_profile();
FrameworkProfile megatron_core_profile();
FrameworkProfile megatron_deepspeed_profile();
FrameworkProfile nemo_profile();
FrameworkProfile nemo_2023_profile();
FrameworkProfile deepspeed_profile();
FrameworkProfile deepspeed_2021_profile();
FrameworkProfile torch_ddp_profile();
FrameworkProfile torch_fsdp_profile();
FrameworkProfile torch_fsdp2_profile();
FrameworkProfile torch_fsdp2_compile_profile();
FrameworkProfile torch_fsdp2_compile_2024_profile();
FrameworkProfile llm_foundry_profile();
FrameworkProfile llm_foundry_torch1_profile();
FrameworkProfile nanotron_profile();
FrameworkProfile accelerate_profile();
FrameworkProfile nvidia_bert_profile();
FrameworkProfile mxnet_profile();
FrameworkProfile tensorflow_xla_profile();

}  // namespace rehearse::plan
