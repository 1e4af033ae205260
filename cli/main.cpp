// The rehearse program: reads the command line, runs one command, and turns what went wrong into messages and exit
// codes (exit_code.h). Errors of the user's input are printed as a compiler prints them, one a line, on standard error.
#include <fmt/format.h>

#include <new>
#include <sstream>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/execute_mpi.h"
#include "cli/exit_code.h"
#include "cli/version.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/freed_memory.h"

namespace rehearse::cli {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// The first word that is no option, if it is no command: the parser would call it an unexpected argument.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with('-')) continue;
    const std::vector<std::string> names = command_names(app);
    if (std::find(names.begin(), names.end(), word) != names.end()) return "";
    const std::string near = nearest(word, names);
    return fmt::format("unknown command '{}'{}; the commands are {}", word,
                       near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), fmt::join(names, ", "));
  }
  return "";
}

// The first option the chosen command does not know, with the nearest it does; "" if it knows them all. The parser
// would name the option's value too, and first.
std::string unknown_option(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  const auto option =
      std::find_if(extras.begin(), extras.end(), [](const std::string& word) { return word.starts_with('-'); });
  const auto chosen = app.get_subcommands();
  if (option == extras.end()) return "";
  std::vector<std::string> known;
  for (const CLI::Option* other : (chosen.empty() ? &app : chosen.front())->get_options())
    for (const std::string& name : other->get_lnames()) known.push_back("--" + name);
  const std::string word = option->substr(0, option->find('='));
  const std::string near = word.starts_with("--") ? nearest(word, known) : "";
  return fmt::format("unknown option '{}'{}", word, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

// An empty name, of a variable that a script has not set, must not stand for the default.
void refuse_empty_names(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* option : command->get_options())
      for (const char* type : {"FILE", "DIR", "CSV", "[CSV]"})
        if (option->get_type_name() == type) option->check(not_empty());
}

int usage_error(const std::string& message) {
  note("rehearse: error: " + message);
  note("rehearse: rehearse --help and rehearse COMMAND --help say what there is");
  return kBadInput;
}

// `action` outlives what is said of its errors: it may hold what other processes wait for (execute_mpi.h).
int run(int argc, char** argv, Action& action) {
  CLI::App app("Rehearse a training run on a thousand GPUs before you pay for it.", "rehearse");
  app.set_version_flag(
      "--version", [&app] { return version_text(app); }, "The version and what is compiled in");
  app.require_subcommand(1);
  app.get_formatter()->column_width(26);
  app.footer(
      "Examples:\n  rehearse demo\n  rehearse simulate gpt3-175b-1024xa100 --set plan.pipeline=16\n  rehearse "
      "COMMAND --help");
  add_simulate(app, action);
  add_plan(app, action);
  add_execute(app, action);
  add_calibrate(app, action);
  add_demo(app, action);
  add_validate(app, action);
  add_compare(app, action);
  add_report(app, action);
  add_estimate(app, action);
  add_goodput(app, action);
  add_queue(app, action);
  add_list(app, action);
  add_discover(app, action);
  add_init(app, action);
  add_export(app, action);
  add_import(app, action);
  add_explain(app, action);
  add_schema(app, action);
  add_completion(app, action);
  refuse_empty_names(app);
  if (argc < 2) {
    note(app.help());
    return kBadInput;
  }
  if (const std::string problem = unknown_command(app, argc, argv); !problem.empty()) return usage_error(problem);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream out, unused;
    app.exit(success, out, unused);
    print(out.str());
    return kDone;
  } catch (const CLI::ParseError& error) {
    const std::string option = unknown_option(app);
    return usage_error(option.empty() ? error.what() : option);
  }
  // What is performed is held to the memory that it is stated to need.
  const bool performs = app.got_subcommand("execute") || app.got_subcommand("calibrate") || app.got_subcommand("demo");
  if (!performs) keep_freed_memory();
  // These share their work among the processes of a launcher, or refuse to be several.
  const bool several = performs || app.got_subcommand("plan") || app.got_subcommand("simulate");
  return several ? action() : as_first_process(app.get_subcommands().front()->get_name(), action);
}

int run_reporting_errors(int argc, char** argv, Action& action) {
  try {
    return run(argc, argv, action);
  } catch (const Interrupted& end) {
    note(fmt::format("rehearse: {}", end.what()));
    return end.exit_status();
  } catch (const InputError& error) {
    for (const Diagnostic& d : error.diagnostics()) note(d.file.empty() ? "rehearse: " + d.text() : d.text());
    return kBadInput;
  } catch (const InternalError& error) {
    note(fmt::format("rehearse: internal error: {}", error.what()));
  } catch (const std::bad_alloc&) {
    note("rehearse: error: out of memory");
  } catch (const std::exception& error) {
    note(fmt::format("rehearse: error: {}", error.what()));
  }
  return kFailed;
}

}  // namespace
}  // namespace rehearse::cli

int main(int argc, char** argv) {
  rehearse::cli::prepare_process();
  rehearse::cli::Action action;
  return rehearse::cli::run_reporting_errors(argc, argv, action);
}
