// What a process does with memory that it has given up.
#pragma once

namespace rehearse {

// Keeps it for what comes next, as far as the C library lets itself be told: one simulation takes as much as the one
// before, and to hand memory back to the system and take it again is a sixth of the time of a large one. To be called
// before there are threads.
void keep_freed_memory();

}  // namespace rehearse
