// See pins.h.
#include "sim/collective/pins.h"

#include <array>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr int kKinds = 6;

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  constexpr std::array<std::string_view, kKinds> names = {"all_reduce", "all_gather", "reduce_scatter",
                                                          "broadcast",  "all_to_all", "reduce"};
  return names[static_cast<std::size_t>(kind)];
}

Pin pin_of(std::string_view kind, std::string_view algorithm, std::string_view protocol, std::string key) {
  Pin pin{{}, {}, {}, std::move(key)};
  int k = 0;
  while (k < kKinds && name_of(static_cast<CollectiveKind>(k)) != kind) ++k;
  REHEARSE_CHECK(k < kKinds, "no collective is called '{}'", kind);
  pin.kind = static_cast<CollectiveKind>(k);
  if (algorithm != "auto") {
    pin.algorithm = nccl::algorithm_called(algorithm);
    REHEARSE_CHECK(pin.algorithm, "no algorithm is called '{}'", algorithm);
  }
  for (int p = 0; p < nccl::kProtocols; ++p)
    if (nccl::name_of(static_cast<nccl::Protocol>(p)) == protocol) pin.protocol = static_cast<nccl::Protocol>(p);
  REHEARSE_CHECK(pin.protocol || protocol == "auto", "no protocol is called '{}'", protocol);
  return pin;
}

}  // namespace rehearse::collective
