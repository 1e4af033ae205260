// What `rehearse --version` prints.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace rehearse::cli {

// "rehearse 0.1.0", then how it was built, with which libraries, and how ranks may run.
std::string version_text(CLI::App& app);

}  // namespace rehearse::cli
