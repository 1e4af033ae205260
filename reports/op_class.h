// Ops in the groups that comparisons speak of, from the texts of ops.csv.
#pragma once

#include <string>
#include <string_view>

#include "sim/result/read_directory.h"

namespace rehearse::reports {

// "gemm", "attention" (its softmax and dropout included), "norm", "activation", "elementwise", "copies" (cast, copy,
// fill), "cross-entropy", "embedding", "optimizer" (updates, gradient norm and clipping), "convolution", "pooling",
// "input"; "other kernels" for a kind not known here; "" for transfers and host syncs, which are no kernels.
std::string_view kernel_class(std::string_view kind);

bool is_collective(const result::OpText& op);
bool is_message(const result::OpText& op);  // send, receive or both
inline bool is_transfer(const result::OpText& op) {
  return is_collective(op) || is_message(op);
}

// "gemm m=64 n=64 k=8"; "all_reduce tensor 33.55 MB"; "stage 1: receive from stage 0".
std::string op_label(const result::OpText& op, int stages);

}  // namespace rehearse::reports
