// Reports a broken invariant of our own. The message carries the condition and its place, so that a user's bug report
// is enough to find it; the throw lets a caller that runs many simulations go on with the others.
#include "sim/base/check.h"

namespace rehearse {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(fmt::format("{}:{}: {} (broken: {})", file, line, message, condition));
}

}  // namespace rehearse
