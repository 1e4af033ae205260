// The files this process has read as input, so that no output replaces one of them (sim/result/output_file.h), whatever
// name or link it was read by. Whoever opens an input notes it: read_text_file() (document.h) does for all text files.
// Safe for several threads.
#pragma once

#include <string>

namespace rehearse {

// `path` may not exist; then its name alone counts.
void note_input(const std::string& path);
// Whether `path` names a file noted before: the same device and inode, or the same absolute name.
bool is_input(const std::string& path);

}  // namespace rehearse
