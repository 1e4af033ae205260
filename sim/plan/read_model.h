// The scenario's `model:` value, read: a preset's name (scenarios/models/NAME.yaml under `data_root`), or a mapping.
#pragma once

#include <string>

#include "sim/base/document.h"
#include "sim/model/model.h"
#include "sim/plan/framework.h"

namespace rehearse::plan {

// What the file leaves open the profile decides. Problems are reported through the node; the returned model is then
// incomplete. `files`: what presets are read through (document.h).
model::Model read_model(const Node& node, const FrameworkProfile& profile, const std::string& data_root,
                        Diagnostics& diagnostics, ParsedFiles* files = nullptr);

}  // namespace rehearse::plan
