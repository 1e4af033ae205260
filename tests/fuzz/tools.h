// What both programs understand beside fuzzing: --list, --dictionary and --seeds=FOLDER, for tests/fuzz/run.sh.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/readers.h"

namespace rehearse::fuzz {

// Takes --target=NAME, chooses that reader and returns it. Ends the process where something else was asked for, or no
// reader of that name is there (exit code 2).
const Reader& begin(const std::vector<std::string>& arguments);

}  // namespace rehearse::fuzz
