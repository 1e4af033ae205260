// One function a kind of model that is translated, and what the others lack. Each reads its own keys of the Config and
// names all that its configuration class has besides.
#pragma once

#include <string_view>
#include <vector>

#include "sim/plan/hf/config.h"

namespace rehearse::plan::hf {

struct Kind {
  std::string_view model_type, architecture;
  void (*translate)(Config& config);
};

// The keys that are everywhere and translated nowhere.
void common(Config& config);
const std::vector<Kind>& translated_kinds();
// Why a kind that is known is not translated; "" of one that is not known.
std::string_view missing_for(std::string_view model_type);

}  // namespace rehearse::plan::hf
