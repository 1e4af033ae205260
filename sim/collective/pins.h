// What a user pins of the library's choice, as NCCL_ALGO and NCCL_PROTO do (a scenario's cluster.collectives): of the
// entries for a collective, the fastest that a group's machine offers is taken, and a group that is offered none of
// them is an error that names what there is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/collective/nccl_tuning.h"
#include "sim/program/op.h"

namespace rehearse::collective {

struct Pin {
  program::CollectiveKind kind{};
  std::optional<Algorithm> algorithm;  // none: any
  std::optional<Protocol> protocol;
  std::string key;  // where it is given, for messages: "cluster.collectives[0]"
};
using Pins = std::vector<Pin>;

// From names as a scenario has them; "auto" for any. The names must be known: the scenario's reader has checked them.
Pin pin_of(std::string_view kind, std::string_view algorithm, std::string_view protocol, std::string key);

std::string_view name_of(program::CollectiveKind kind);

}  // namespace rehearse::collective
