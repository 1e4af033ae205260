// Why a better machine makes a step longer, or a worse one shorter, as happens where kernels run during communication
// and where a collective library chooses anew: what the two simulations differ in.
#pragma once

#include <string>

#include "sim/engine/engine.h"

namespace rehearse::run {

// A sentence; "" where the step is as expected or nearly so. `change`: "halved" or "doubled", which makes the machine
// `better` or worse.
std::string why_against_expectation(const engine::Outcome& plain, const engine::Outcome& changed,
                                    const std::string& change, bool better);

}  // namespace rehearse::run
