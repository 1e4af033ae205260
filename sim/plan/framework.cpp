// The list of framework profiles; each stands in a file of framework/.
#include "sim/plan/framework.h"

#include <algorithm>

#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

namespace {

const std::vector<FrameworkProfile>& profiles() {
  static const std::vector<FrameworkProfile> all = {rehearse_profile(),
                                                    megatron_2021_profile(),
                                                    megatron_2022_profile(),
                                                    megatron_core_profile(),
                                                    megatron_deepspeed_profile(),
                                                    nemo_profile(),
                                                    nemo_2023_profile(),
                                                    deepspeed_profile(),
                                                    deepspeed_2021_profile(),
                                                    torch_ddp_profile(),
                                                    torch_fsdp_profile(),
                                                    torch_fsdp2_profile(),
                                                    torch_fsdp2_compile_profile(),
                                                    torch_fsdp2_compile_2024_profile(),
                                                    llm_foundry_profile(),
                                                    llm_foundry_torch1_profile(),
                                                    nanotron_profile(),
                                                    accelerate_profile(),
                                                    nvidia_bert_profile(),
                                                    mxnet_profile(),
                                                    tensorflow_xla_profile()};
  return all;
}

}  // namespace

const FrameworkProfile* find_framework(std::string_view name) {
  const auto found = std::find_if(profiles().begin(), profiles().end(), [&](const auto& p) { return p.name == name; });
  return found == profiles().end() ? nullptr : &*found;
}

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const FrameworkProfile& profile : profiles()) names.push_back(profile.name);
  return names;
}

}  // namespace rehearse::plan
