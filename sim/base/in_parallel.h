// A loop whose rounds do not depend on each other, on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace rehearse {

// Calls task(0) to task(count - 1), `threads` at once, the caller's among them. After an error no further ones begin;
// the first is thrown again when all that had begun are done.
void in_parallel(int threads, std::size_t count, const std::function<void(std::size_t)>& task);

// Threads that this machine can run at once; at least 1.
int hardware_threads();

}  // namespace rehearse
