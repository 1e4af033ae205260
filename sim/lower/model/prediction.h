// Multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2) on the stage of the head: what the parts of
// its modules and the head share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/lower/model/unit.h"

namespace rehearse::lower {

// By module, from 0: the hidden state that it takes, which the head reads too, and what the head's loss of that state
// adds to its gradient, in the body of the head's backward.
struct Predictions {
  std::vector<BufferId> hidden, gradients;
};

// "mtp1.", of module 1, with which the names of its parts but the block begin; "" of 0, the model itself.
inline std::string prediction_prefix(int module) {
  return module > 0 ? "mtp" + std::to_string(module) + "." : "";
}

// Before module `module`'s block, from 1: the norms, the embedding of the tokens so many places on, and the product
// that joins both rows. `table`: of the embedding, if this stage has it already.
std::unique_ptr<Unit> make_prediction_entry(UnitScope scope, int module, ParamId table, Predictions& predictions);
// The embedding of the tokens `module` places on, a part of that.
std::unique_ptr<Unit> make_embedding_ahead(UnitScope scope, int module, ParamId table);
// make_head with the losses of all modules: it takes the last one's hidden state, and the others from `predictions`.
std::unique_ptr<Unit> make_prediction_head(UnitScope scope, ParamId table_on_this_stage, Predictions& predictions);

}  // namespace rehearse::lower
