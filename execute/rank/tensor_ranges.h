// Of optimizers that know tensors: what of each a rank has.
#pragma once

#include <vector>

#include "execute/rank/kernel_call.h"
#include "kernels/whole_tensor_rules.h"
#include "sim/program/op.h"

namespace rehearse::execute {

std::vector<kernels::LambTensor> tensors_here(const program::Lamb& shape, const CallContext& rank);
std::vector<kernels::AdafactorTensor> tensors_here(const program::AdafactorParts& shape, const CallContext& rank);

}  // namespace rehearse::execute
