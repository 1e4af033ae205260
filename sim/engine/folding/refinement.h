// Colour refinement (Weisfeiler and Leman 1968; Paige and Tarjan, "Three partition refinement algorithms", 1987):
// colours by facts are split by the colours of neighbours until none splits any more.
#pragma once

#include <vector>

#include "sim/engine/folding/graph.h"

namespace rehearse::engine {

// By hashes, so that different things may end with one colour, if very rarely. Colours are numbered by their first
// bearers. `history`: gets the colours before the first round and after each, if asked for.
void refine(FoldGraph& graph, std::vector<FoldColours>* history = nullptr);

// Whether everything of a colour has the same facts and as many neighbours of each colour, exactly. `facts`: the
// colours before refinement.
bool equitable(const FoldGraph& graph, const FoldColours& facts);

}  // namespace rehearse::engine
