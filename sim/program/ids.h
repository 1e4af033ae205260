// Indices into the tables of a Program or of one of its roles.
#pragma once

#include <cstdint>

#include "sim/base/dtype.h"

namespace rehearse::program {

using BufferId = std::int32_t;  // Role::buffers
using BodyId = std::int32_t;    // Role::bodies
using StreamId = std::int32_t;  // Role::streams
using EventId = std::int32_t;   // Role::events
using GroupId = std::int32_t;   // Program::groups
using RoleId = std::int32_t;    // Program::roles

using rehearse::DType;
using rehearse::name_of;
using rehearse::size_of;

}  // namespace rehearse::program
