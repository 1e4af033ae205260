// A launch script of bash, read plainly: variables, arrays and exports are assigned and expanded in order, and what is
// left are the commands with their words, each with the place where it stands. Not run: programs, command
// substitutions, functions' arguments and loops. A condition that compares texts is judged; one that asks for files or
// programs is not, and neither of its branches is taken. What was passed over stands in `passed_over`, a line each.
// Source of the grammar: the Bash reference manual 5.2, chapters 3.1 to 3.5.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostics.h"

namespace rehearse::formats {

struct ShellWord {
  std::string text;
  int line = 0, column = 0;  // where it is written: of an element of an array, where that is
  std::string unset;         // a variable in it that the script gives no value
};

struct ShellCommand {
  std::vector<ShellWord> words;  // at least one
};

struct ShellScript {
  std::vector<ShellCommand> commands;
  std::map<std::string, ShellWord> variables;  // scalars, exported or not, as they are at the end
  std::vector<ShellWord> directives;           // of "#SBATCH --nodes=4": "--nodes=4"
  std::vector<std::string> passed_over;
};

// Throws InputError: a quote or bracket that is not closed, an arithmetic expression that is none, values that grow
// beyond what a launch script has.
ShellScript read_shell_script(const std::string& file, const std::string& text);

}  // namespace rehearse::formats
