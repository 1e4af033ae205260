// What `simulate --fold explain` prints.
#pragma once

#include <string>

#include "sim/engine/folding/reasons.h"

namespace rehearse::cli {

// Up to 80 columns a line; of a role the classes that have most ranks, `most_classes` of them at most.
std::string folding_text(const engine::FoldReport& report, std::size_t most_classes = 12);

}  // namespace rehearse::cli
