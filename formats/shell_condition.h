// Tests of bash on texts and integers: [ A = B ], [[ A != B ]], [ -z A ], [ -n A ], [ A -gt B ] and its kin, with !.
#pragma once

#include <vector>

#include "formats/shell_script.h"

namespace rehearse::formats {

// In this order && is the least of two and || the most.
enum class Truth : unsigned char { no, unknown, yes };

// `words`: from "[" or "[[" to its bracket. Unknown: another command, or what asks for files or a program's output.
Truth shell_test(std::vector<ShellWord> words);

}  // namespace rehearse::formats
