// See command_tree.h.
#include "cli/command_tree.h"

#include <sstream>

namespace rehearse::cli {
namespace {

// one_of() names its validator by the values: "auto|off".
std::vector<std::string> choices_of(CLI::Option& option) {
  std::vector<std::string> values;
  try {
    std::istringstream names(option.get_validator(0)->get_name());
    for (std::string name; std::getline(names, name, '|');) values.push_back(name);
  } catch (const CLI::OptionNotFound&) {  // no validator
  }
  return values;
}

Word word_of(CLI::Option& option) {
  Word word;
  for (const std::string& name : option.get_snames()) word.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) word.names.push_back("--" + name);
  if (option.get_positional()) word.names = {option.get_name(true)};
  word.takes_value = option.get_positional() || option.get_items_expected_max() > 0;
  word.type = word.takes_value ? option.get_type_name() : "";
  word.help = option.get_description();
  word.choices = choices_of(option);
  return word;
}

}  // namespace

std::vector<Command> command_tree(CLI::App& app) {
  std::vector<Command> commands;
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    Command command{sub->get_name(), sub->get_description(), {}, {}};
    for (CLI::Option* option : sub->get_options([](const CLI::Option*) { return true; }))
      (option->get_positional() ? command.positionals : command.options).push_back(word_of(*option));
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace rehearse::cli
