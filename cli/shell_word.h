// Words of commands that are printed for the user to run.
#pragma once

#include <string>

namespace rehearse::cli {

// `text` as one word of a POSIX shell: as it is, or in single quotes.
std::string shell_word(const std::string& text);

}  // namespace rehearse::cli
