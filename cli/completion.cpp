// rehearse completion: a script with which bash, zsh or fish completes commands, options and values. It is written from
// the parser's own tree, so it cannot know another option than the program does; the names of scenarios, models and
// keys in it are those of the moment (a shell that reads it at every start has the newest).
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command_tree.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/names.h"
#include "cli/paths.h"
#include "sim/plan/keys.h"

namespace rehearse::cli {
namespace {

// What may follow an option or stand as an argument.
struct Values {
  std::vector<std::string> words;
  bool files = false, folders = false, assignment = false;
};

Values values_of(const Word& word, const std::string& root) {
  Values v;
  v.words = word.choices;
  std::string kind = word.type.empty() ? word.names.front() : word.type;
  if (kind.ends_with("...")) kind.resize(kind.size() - 3);  // several of them
  v.assignment = kind.starts_with("KEY=");
  v.folders = kind == "DIR";
  v.files = kind == "FILE" || kind == "CSV";
  if (kind == "SCENARIO") v = {names_of("scenarios", root), true};
  if (kind == "MODEL") v.words = names_of("models", root);
  if (kind == "DEVICE") v = {names_of("devices", root), true};
  if (kind == "TOPOLOGY") v = {names_of("topologies", root), true};
  if (kind == "KEY") v.words = plan::key_paths();
  // Another argument without listed values, such as a result, is most likely a file.
  if (word.type.empty() && v.words.empty()) v.files = true;
  return v;
}

// "plan.zero=0 plan.zero=1 ...": a key without listed values ends with its "=".
std::vector<std::string> assignments(const std::string& root) {
  std::vector<std::string> list;
  for (const plan::Key& key : plan::keys()) {
    if (key.path.find('[') != std::string_view::npos || !key.available()) continue;
    std::vector<std::string> values = listed_values(key, root);
    if (values.empty()) values.emplace_back();
    for (const std::string& value : values) list.push_back(fmt::format("{}={}", key.path, value));
  }
  return list;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string option_names(const Command& command) {
  std::vector<std::string> all;
  for (const Word& option : command.options) all.insert(all.end(), option.names.begin(), option.names.end());
  return joined(all);
}

std::string command_names(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return joined(names);
}

// "simulate:--set|simulate:-o", a pattern of bash and zsh.
std::string pattern(const Command& command, const Word& option) {
  std::string all;
  for (const std::string& name : option.names) all += (all.empty() ? "" : "|") + command.name + ":" + name;
  return all;
}

// One arm of a `case` for each option with a value and each positional: PATTERN) ACTION ;;
// `action` writes how the shell offers the values.
template <typename ActionOf>
std::string arms(const std::vector<Command>& commands, const std::string& root, ActionOf action) {
  std::string out;
  for (const Command& command : commands) {
    for (const Word& option : command.options)
      if (option.takes_value)
        out += fmt::format("    {}) {} ;;\n", pattern(command, option), action(values_of(option, root)));
    for (std::size_t p = 0; p < command.positionals.size(); ++p)
      out += fmt::format("    {}:{}) {} ;;\n", command.name, p, action(values_of(command.positionals[p], root)));
  }
  return out;
}

std::string bash_action(const Values& v) {
  std::string out;
  if (v.assignment) out = "_rehearse_assign";
  if (!v.words.empty()) out = fmt::format("_rehearse_words '{}'", joined(v.words));
  if (v.files) out += std::string(out.empty() ? "" : "; ") + "_rehearse_files -f";
  if (v.folders) out = "_rehearse_files -d";
  return out.empty() ? ":" : out;
}

std::string value_patterns(const std::vector<Command>& commands) {
  std::string all;
  for (const Command& command : commands)
    for (const Word& option : command.options)
      if (option.takes_value) all += (all.empty() ? "" : "|") + pattern(command, option);
  return all;
}

std::string options_arms(const std::vector<Command>& commands, const char* offer) {
  std::string out;
  for (const Command& command : commands)
    out += fmt::format("    {}) {} '{}' ;;\n", command.name, offer, option_names(command));
  return out;
}

std::string bash(const std::vector<Command>& commands, const std::string& root) {
  return R"(# bash completion for rehearse, made by `rehearse completion bash`:
#   source <(rehearse completion bash)
_rehearse_words() { COMPREPLY+=($(compgen -W "$1" -- "$current")); }
_rehearse_files() {
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY+=($(compgen "$1" -- "$current"))
}
# A key first, its values after the "=".
_rehearse_assign() {
  local assignments=')" +
         joined(assignments(root)) + R"('
  [[ $current == *=* ]] && { _rehearse_words "$assignments"; [[ ${COMPREPLY[*]} != *= ]] || COMPREPLY=(); return; }
  compopt -o nospace 2>/dev/null
  local one keys=
  for one in $assignments; do [[ $keys == *" ${one%%=*}= "* ]] || keys+=" ${one%%=*}= "; done
  _rehearse_words "$keys"
}
_rehearse() {
  # The line by blanks alone: bash itself would also split at "=".
  local line=${COMP_LINE:0:COMP_POINT} current= previous= command= before= position=0 i
  local -a words
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  COMPREPLY=()
  current=${words[${#words[@]}-1]}
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    if [[ -z $command ]]; then
      [[ ${words[i]} == -* ]] || command=${words[i]}
    elif [[ ${words[i]} == -* ]]; then
      case $command:${words[i]} in
    )" + value_patterns(commands) +
         R"() ((++i)) ;;
      esac
    else
      ((++position))
    fi
  done
  [[ ${#words[@]} -gt 1 ]] && previous=${words[${#words[@]}-2]}
  if [[ -n $command && $current == --*=* ]]; then
    previous=${current%%=*} current=${current#*=}
  fi
  case $command:$previous in
    )" + value_patterns(commands) +
         R"() before=$previous ;;
  esac
  if [[ -z $command ]]; then
    _rehearse_words ')" +
         command_names(commands) + R"( --help --version'
  elif [[ -z $before && $current == -* ]]; then
    case $command in
)" + options_arms(commands, "_rehearse_words") +
         R"(    esac
  else
    case $command:${before:-$position} in
)" + arms(commands, root, bash_action) +
         R"(    esac
  fi
  # Where bash splits at "=", it replaces only what follows.
  if [[ $COMP_WORDBREAKS == *=* && $current == *=* ]]; then
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"${current%"${current##*=}"}"}; done
  fi
}
complete -F _rehearse rehearse
)";
}

std::string zsh_action(const Values& v) {
  std::string out;
  if (v.assignment) out = "_rehearse_assign";
  if (!v.words.empty()) out = fmt::format("compadd -- {}", joined(v.words));
  if (v.files) out += std::string(out.empty() ? "" : "; ") + "_files";
  if (v.folders) out = "_files -/";
  return out.empty() ? ":" : out;
}

std::string zsh_options(const std::vector<Command>& commands) {
  std::string out;
  for (const Command& command : commands)
    out += fmt::format("      {}) compadd -- {} ;;\n", command.name, option_names(command));
  return out;
}

std::string zsh(const std::vector<Command>& commands, const std::string& root) {
  return R"(#compdef rehearse
# zsh completion for rehearse, made by `rehearse completion zsh`: a file _rehearse in a folder of $fpath, or
#   source <(rehearse completion zsh)     after compinit
_rehearse_assign() {
  local -a all=()" +
         joined(assignments(root)) + R"()
  if compset -P '*='; then
    compadd -- ${${(M)all:#${IPREFIX##* }*}#*=}
  else
    compadd -S '' -- ${(u)${all%%=*}/%/=}
  fi
}
_rehearse() {
  local command= before= position=0 i
  for ((i = 2; i < CURRENT; ++i)); do
    if [[ -z $command ]]; then
      [[ ${words[i]} == -* ]] || command=${words[i]}
    elif [[ ${words[i]} == -* ]]; then
      case $command:${words[i]} in
        )" +
         value_patterns(commands) + R"() ((i + 1 == CURRENT)) && before=${words[i]}; ((++i)) ;;
      esac
    else
      ((++position))
    fi
  done
  if [[ -z $command ]]; then
    compadd -- )" +
         command_names(commands) + R"( --help --version
  elif [[ -z $before && ${words[CURRENT]} == -* ]]; then
    case $command in
)" + zsh_options(commands) +
         R"(    esac
  else
    case $command:${before:-$position} in
)" + arms(commands, root, zsh_action) +
         R"(    esac
  fi
}
if [[ ${funcstack[1]} == _rehearse ]]; then _rehearse; else compdef _rehearse rehearse; fi
)";
}

// In single quotes of fish.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("'\\", at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return "'" + text + "'";
}

std::string fish_values(const Values& v, const std::string& root) {
  std::string out = v.files ? " -F" : " -f";
  if (v.folders) out += " -a '(__fish_complete_directories)'";
  if (v.assignment) out += " -a " + quoted(joined(assignments(root)));
  if (!v.words.empty()) out += " -a " + quoted(joined(v.words));
  return out;
}

std::string fish(const std::vector<Command>& commands, const std::string& root) {
  std::string out =
      "# fish completion for rehearse, made by `rehearse completion fish`:\n"
      "#   rehearse completion fish > ~/.config/fish/completions/rehearse.fish\n"
      "complete -c rehearse -f\n"
      "complete -c rehearse -n __fish_use_subcommand -l help -d 'Print help'\n"
      "complete -c rehearse -n __fish_use_subcommand -l version -d 'Print the version'\n";
  for (const Command& command : commands)
    out +=
        fmt::format("complete -c rehearse -n __fish_use_subcommand -a {} -d {}\n", command.name, quoted(command.help));
  for (const Command& command : commands) {
    const std::string here = fmt::format("complete -c rehearse -n '__fish_seen_subcommand_from {}'", command.name);
    for (const Word& option : command.options) {
      out += here;
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.takes_value) out += " -r" + fish_values(values_of(option, root), root);
      out += " -d " + quoted(option.help) + "\n";
    }
    for (const Word& positional : command.positionals)
      out += here + fish_values(values_of(positional, root), root) + "\n";
  }
  return out;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes commands in a shell");
  command->add_option("SHELL", *shell, "bash, zsh, fish")
      ->required()
      ->type_name("")
      ->check(one_of({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(rehearse completion bash)    # in ~/.bashrc\n"
      "  source <(rehearse completion zsh)     # in ~/.zshrc, after compinit\n"
      "  rehearse completion fish > ~/.config/fish/completions/rehearse.fish");
  command->callback([shell, &app, &action] {
    action = [shell, &app] {
      const std::vector<Command> commands = command_tree(app);
      const std::string root = data_root();
      print(*shell == "bash" ? bash(commands, root) : *shell == "zsh" ? zsh(commands, root) : fish(commands, root));
      return kDone;
    };
  });
}

}  // namespace rehearse::cli
