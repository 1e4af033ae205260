// Reads a Chakra execution trace (MLCommons; schema/protobuf/et_def.proto): a file of protobuf messages, each with its
// length before it, a GlobalMetadata and then a Node each. What is read are nodes as Chakra's own converter of PyTorch
// traces writes them (src/converter/pytorch_converter.py): operators on the host (attribute is_cpu_op true) with the
// shapes and types of their inputs, and kernels (is_cpu_op false) with their duration in whole microseconds, their
// stream, and the operator in ctrl_deps that launched them; collectives with comm_type and comm_size, the bytes of a
// rank's own tensors. Chakra keeps no start (start_time_micros is 0): nodes are taken in the order of the file.
#pragma once

#include <functional>
#include <string>

#include "calibrate/trace/kineto_trace.h"

namespace rehearse::calibrate::trace {

// Whether a file's first bytes are no JSON and no gzip.
bool is_chakra_trace(const std::string& file);
// Groups of collectives have no size: what the trace does not say. Throws InputError with the byte of what is broken.
Trace read_chakra_trace(const std::string& file);

}  // namespace rehearse::calibrate::trace
