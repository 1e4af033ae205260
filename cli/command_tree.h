// What the parser knows of commands, as plain data: for shell completion and --version.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rehearse::cli {

struct Word {
  std::vector<std::string> names;    // "-o", "--json"; the name of a positional, "SCENARIO"
  std::string type;                  // "DIR", "KEY=VALUE"; "" for a flag and for a positional
  std::string help;                  // first line
  std::vector<std::string> choices;  // the values it takes, where one_of() lists them
  bool takes_value = false;
};
struct Command {
  std::string name, help;
  std::vector<Word> options, positionals;
};

// The subcommands of `app` in the order they were added.
std::vector<Command> command_tree(CLI::App& app);

}  // namespace rehearse::cli
