// See pins.h.
#include "sim/collective/pins.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::collective {

using program::CollectiveKind;

static_assert(kCollectiveKindWords[static_cast<std::size_t>(CollectiveKind::reduce)] == "reduce");

std::string_view name_of(CollectiveKind kind) {
  return kCollectiveKindWords[static_cast<std::size_t>(kind)];
}

Pin pin_of(std::string_view kind, std::string_view algorithm, std::string_view protocol, std::string key) {
  Pin pin{{}, {}, {}, std::move(key)};
  const auto* const word = std::find(kCollectiveKindWords.begin(), kCollectiveKindWords.end(), kind);
  REHEARSE_CHECK(word != kCollectiveKindWords.end(), "no collective is called '{}'", kind);
  pin.kind = static_cast<CollectiveKind>(word - kCollectiveKindWords.begin());
  if (algorithm != "auto") {
    pin.algorithm = algorithm_called(algorithm);
    REHEARSE_CHECK(pin.algorithm, "no algorithm is called '{}'", algorithm);
  }
  for (int p = 0; p < kProtocols; ++p)
    if (name_of(static_cast<Protocol>(p)) == protocol) pin.protocol = static_cast<Protocol>(p);
  REHEARSE_CHECK(pin.protocol || protocol == "auto", "no protocol is called '{}'", protocol);
  return pin;
}

}  // namespace rehearse::collective
