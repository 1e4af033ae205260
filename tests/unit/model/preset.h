// A shipped model, by its name.
#pragma once

#include <string>

#include "sim/plan/read_model.h"

namespace rehearse::model {

inline Model preset(const std::string& name) {
  Diagnostics diagnostics;
  const Document scenario = Document::from_text("s.yaml", "model: " + name, diagnostics);
  Model model = plan::read_model(scenario.root().get("model"), *plan::find_framework("rehearse"), REHEARSE_SOURCE_DIR,
                                 diagnostics);
  diagnostics.throw_if_any();
  return model;
}

}  // namespace rehearse::model
