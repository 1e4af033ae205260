// Options of a command that cannot be followed.
#pragma once

#include <string>

namespace rehearse::cli {

// Throws InputError about an option or a file.
[[noreturn]] void refuse(const std::string& where, std::string message, std::string hint = "");

}  // namespace rehearse::cli
