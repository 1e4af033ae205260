// See refuse.h.
#include "cli/refuse.h"

#include <utility>

#include "sim/base/diagnostics.h"

namespace rehearse::cli {

void refuse(const std::string& where, std::string message, std::string hint) {
  throw InputError(Diagnostic{where, 0, 0, "", std::move(message), std::move(hint)});
}

}  // namespace rehearse::cli
