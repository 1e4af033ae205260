// See version.h.
#include "cli/version.h"

#include <fmt/format.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "cli/command_tree.h"

namespace rehearse::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

// The values of execute's --ranks are those that were compiled in.
std::string ranks(CLI::App& app) {
  for (const Command& command : command_tree(app))
    for (const Word& option : command.options)
      if (command.name == "execute" && option.names.front() == "--ranks")
        return fmt::format("{}", fmt::join(option.choices, ", "));
  return "none";
}

}  // namespace

std::string version_text(CLI::App& app) {
  return fmt::format(
      "rehearse {}\n"
      "built with {}, {}\n"
      "fmt {}.{}.{}, CLI11 {}, nlohmann-json {}.{}.{}, zlib {}\n"
      "ranks of execute: {}",
      REHEARSE_VERSION, compiler(), REHEARSE_BUILD, FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100,
      CLI11_VERSION, NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH,
      ZLIB_VERSION, ranks(app));
}

}  // namespace rehearse::cli
