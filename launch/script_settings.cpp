// What the commands of a launch script say as settings; see megatron.h.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "launch/megatron.h"

namespace rehearse::launch {
namespace {

using formats::ShellCommand;
using formats::ShellScript;
using formats::ShellWord;

std::string name_of(std::string_view flag) {
  std::string name(flag.substr(flag.find_first_not_of('-')));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool is_flag(const ShellWord& word) {
  return word.text.size() > 2 && word.text.starts_with("--") && word.text[2] != '-' && word.text[2] != '=';
}

// "-tp", not "-1".
bool is_short(const ShellWord& word) {
  return word.text.size() > 1 && word.text[0] == '-' && std::isalpha(static_cast<unsigned char>(word.text[1])) != 0;
}

// `bash -c`, `python -u -m`.
bool belongs_to_interpreter(const std::string& before, const std::string& option) {
  if (option == "-c" || option == "-lc") return before.ends_with("sh");
  return (option == "-m" || option == "-u") && (before == "-u" || before.find("python") != std::string::npos);
}

// Where the name of an assignment ends, "a.b=1" or "+a.b=1", as Hydra has them; 0: it is none.
std::size_t assignment_of(const ShellWord& word, PlainNames plain) {
  const std::size_t equals = word.text.find('='), first = word.text.find_first_not_of('+');
  if (equals == std::string::npos || first >= equals) return 0;
  const std::string_view name = std::string_view(word.text).substr(first, equals - first);
  if (plain == PlainNames::no && name.find('.') == std::string_view::npos) return 0;
  const bool names =
      std::isalpha(static_cast<unsigned char>(name.front())) != 0 && std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
      });
  return names ? equals : 0;
}

// Those of long options and assignments.
std::size_t long_count(const std::vector<Setting>& settings) {
  return static_cast<std::size_t>(
      std::count_if(settings.begin(), settings.end(), [](const Setting& one) { return !one.key.starts_with('-'); }));
}

// `eval "a b"` and `bash -c "a b"`: the text is a command of its own.
}  // namespace

ShellCommand parted_command(const ShellCommand& command) {
  ShellCommand out;
  const bool eval = command.words.front().text == "eval";
  for (std::size_t i = 0; i < command.words.size(); ++i) {
    const ShellWord& word = command.words[i];
    const bool inner = (eval && i > 0) || (i > 0 && command.words[i - 1].text == "-c") || word.text.starts_with("--");
    if (!inner || word.text.find(' ') == std::string::npos) {
      out.words.push_back(word);
      continue;
    }
    for (std::size_t at = 0; at < word.text.size();) {
      const std::size_t start = word.text.find_first_not_of(" \t\n\\", at);
      if (start == std::string::npos) break;
      const std::size_t end = std::min(word.text.find_first_of(" \t\n", start), word.text.size());
      out.words.push_back({word.text.substr(start, end - start), word.line, word.column, word.unset});
      at = end;
    }
  }
  return out;
}

namespace {

// Variables of the environment that a key may follow from.
bool is_told(std::string_view name) {
  return name.starts_with("NCCL_") || name.starts_with("NVTE_");
}

}  // namespace

std::vector<CommandOption> options_of(const ShellCommand& command, PlainNames plain) {
  std::vector<CommandOption> list;
  bool open = false;  // whether a word may be a value
  for (std::size_t i = 0; i < command.words.size(); ++i) {
    const ShellWord& word = command.words[i];
    const bool of_shell = i > 0 && belongs_to_interpreter(command.words[i - 1].text, word.text);
    if (const std::size_t equals = assignment_of(word, plain); equals != 0) {
      list.push_back({word.text.substr(0, equals), {word.text.substr(equals + 1)}, word});
      open = false;
    } else if (is_short(word)) {
      open = !of_shell;
      if (of_shell) continue;
      const std::size_t end = word.text.find('=');
      list.push_back({word.text.substr(0, end), {}, word});
      if (end != std::string::npos) list.back().values.push_back(word.text.substr(end + 1));
    } else if (is_flag(word)) {
      open = true;
      const std::size_t end = word.text.find('=');
      list.push_back({word.text.substr(0, end), {}, word});
      if (end != std::string::npos) list.back().values.push_back(word.text.substr(end + 1));
    } else if (open && !list.back().values.empty() && word.text.ends_with(".py")) {
      open = false;  // the program that a launcher starts
    } else if (open) {
      if (list.back().values.empty()) list.back().at.unset = word.unset;
      list.back().values.push_back(word.text);
    }
  }
  return list;
}

namespace {

std::vector<Setting> settings_of(const ShellCommand& command) {
  std::vector<Setting> list;
  for (const CommandOption& one : options_of(command, PlainNames::no)) {
    const bool is_long = one.name.starts_with("--");
    Setting setting{is_long ? name_of(one.name) : one.name, one.values, one.at.line, one.at.column, one.at.unset};
    if (!is_long) setting.as = one.at.text;
    list.push_back(std::move(setting));
  }
  return list;
}

}  // namespace

std::vector<Setting> environment_of(const ShellScript& script) {
  std::vector<Setting> list;
  for (const auto& [name, word] : script.variables)
    if (is_told(name)) list.push_back({name, {word.text}, word.line, word.column, word.unset});
  // NAME=value before a program's name, as `env` and launchers have it, is a word.
  for (const ShellCommand& command : script.commands)
    for (const ShellWord& word : command.words)
      if (is_told(word.text))
        if (const std::size_t equals = word.text.find('='); equals != std::string::npos)
          list.push_back(
              {word.text.substr(0, equals), {word.text.substr(equals + 1)}, word.line, word.column, word.unset});
  for (const ShellWord& word : script.directives) {
    const std::size_t equals = word.text.find('=');
    if (!is_flag(word) || equals == std::string::npos) continue;
    // --gpus-per-node=[TYPE:]N, --gres=gpu[:TYPE]:N
    std::string name = name_of(word.text.substr(0, equals)), value = word.text.substr(equals + 1);
    if (name == "gres" && value.starts_with("gpu:")) name = "gpus-per-node";
    if (name == "gpus-per-node") value.erase(0, value.rfind(':') + 1);
    list.push_back({"sbatch-" + name, {value}, word.line, word.column, ""});
  }
  return list;
}

std::vector<Setting> settings_of(const ShellScript& script) {
  // Arguments alone, a line each, are one command.
  ShellCommand flags;
  std::vector<Setting> best;
  for (const ShellCommand& command : script.commands) {
    const ShellCommand whole = parted_command(command);
    if (is_flag(whole.words.front())) {
      flags.words.insert(flags.words.end(), whole.words.begin(), whole.words.end());
      continue;
    }
    std::vector<Setting> settings = settings_of(whole);
    if (long_count(settings) > long_count(best)) best = std::move(settings);
  }
  if (std::vector<Setting> alone = settings_of(flags); long_count(alone) > long_count(best)) best = std::move(alone);
  std::vector<Setting> beside = environment_of(script);
  std::move(beside.begin(), beside.end(), std::back_inserter(best));
  return best;
}

bool starts_deepspeed(const ShellScript& script) {
  return std::any_of(script.commands.begin(), script.commands.end(), [](const ShellCommand& command) {
    return std::any_of(command.words.begin(), command.words.end(), [](const ShellWord& word) {
      return word.text == "deepspeed" || word.text.ends_with("/deepspeed") || word.text == "deepspeed.launcher.runner";
    });
  });
}

void take_ranks(Taken& taken, const ImportHints& hints, bool by_deepspeed) {
  // The first of each that there is: torchrun's, deepspeed's, Slurm's.
  const Setting* ranks = nullptr;
  std::optional<std::int64_t> a_node, node_count;
  const auto first = [&](std::initializer_list<const char*> keys, const Setting** from) {
    std::optional<std::int64_t> value;
    const char* unset = nullptr;  // of those that are there, one whose variable has no value
    for (const char* key : keys) {
      if (!taken.has(key)) continue;
      const Setting* setting = taken.find(key);
      if (value) continue;
      if (!setting->unset.empty() && (setting->values.empty() || setting->values[0].empty())) {
        if (unset == nullptr) unset = key;
        continue;
      }
      if (!setting->values.empty() && setting->values[0].find_first_not_of("0123456789") != std::string::npos) {
        taken.ignore(fmt::format("{} {}", key, one_line(setting->values[0])));  // "gpu", "auto", "1:4"
        continue;
      }
      value = taken.integer(key);
      if (from != nullptr) *from = setting;
    }
    if (!value && unset != nullptr && hints.gpus == 0) taken.integer(unset);  // an error at its place
    return value;
  };
  if (by_deepspeed) {
    a_node = first({"nproc-per-node", "num-gpus", "sbatch-gpus-per-node", "sbatch-ntasks-per-node"}, &ranks);
    node_count = first({"nnodes", "num-nodes", "sbatch-nodes"}, nullptr);
  } else {
    a_node = first({"nproc-per-node", "sbatch-gpus-per-node", "sbatch-ntasks-per-node"}, &ranks);
    node_count = first({"nnodes", "sbatch-nodes"}, nullptr);
    for (const char* key : {"num-gpus", "num-nodes"})
      if (taken.has(key)) {
        const Setting* own = taken.find(key);
        taken.ignore(
            one_line(fmt::format("--{} {} (line {}): of the program itself, which may mean all or those of a "
                                 "node (--gpus)",
                                 key, own->values.empty() ? "" : own->values[0], own->line)));
      }
  }
  if (!a_node) return;
  if (!node_count) taken.assume("one node, since the file gives no number of them");
  const double product = static_cast<double>(*a_node) * static_cast<double>(node_count.value_or(1));
  if (product < 1 || product > 1e6) {
    taken.error(*ranks, fmt::format("{} x {} ranks, expected 1 to 1,000,000", *a_node, node_count.value_or(1)));
    return;
  }
  taken.put("cluster.gpus", fmt::format("{}", static_cast<std::int64_t>(product)), ranks);
}

}  // namespace rehearse::launch
