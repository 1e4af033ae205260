// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

// Where multi-token prediction is not available.
void check_predictions(const Sections& sections, const Scenario& s) {
  const model::Model& m = s.model;
  if (m.mtp_depth == 0) return;
  const Node model = sections.root.get("model");
  const Node& given = model.has("mtp_depth") ? model.get("mtp_depth") : model;
  if (m.position == model::Position::learned)
    given.error(
        fmt::format(
            "mtp_depth = {}: a module's embedding has no places of its own, which a learned table would give it",
            m.mtp_depth),
        "model.position: rope, or mtp_depth: 0");
  if (s.training.seq_len <= m.mtp_depth)
    given.error(fmt::format("mtp_depth = {} modules look at as many tokens ahead, but sequences have {}", m.mtp_depth,
                            s.training.seq_len),
                fmt::format("at most {}", s.training.seq_len - 1));
  if (s.training.lora())
    given.error(
        fmt::format("mtp_depth = {}: adapters alone are trained (training.lora_rank), and a module's product and "
                    "norms would stay as they are drawn",
                    m.mtp_depth),
        "mtp_depth: 0");
}

}  // namespace rehearse::plan::detail
