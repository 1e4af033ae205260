// What this process may use of the machine it runs on.
#pragma once

namespace rehearse {

// Cores this process may run on (its affinity mask), at least 1.
int usable_cores();

}  // namespace rehearse
