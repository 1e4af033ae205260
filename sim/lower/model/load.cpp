// See load.h.
#include "sim/lower/model/load.h"

namespace rehearse::lower {

using program::InputFrom;
using program::StreamKind;

void load_input(const UnitScope& scope, const std::string& name, program::InputKind kind, DType dtype, BufferId to,
                bool first, std::int64_t ahead) {
  RoleBuilder& b = scope.builder;
  program::Input input{kind, b.buffer(to).elements()};
  input.ahead = ahead;
  const plan::Data& data = scope.context.scenario.data;
  if (!data.takes_time()) {
    b.op(name, input, dtype, {}, {{to}}, StreamKind::copy);
    return;
  }
  input.from = first ? InputFrom::taken : InputFrom::with;
  if (first) input.bytes = scope.context.batch * data.to_device.count();
  const OpRef op = b.op_on("input", StreamKind::copy, name, input, dtype, {}, {{to}});
  // The process that loads by itself comes to the next micro-batch once it is done with the one before.
  if (first && data.workers == 0) b.after_compute(op);
}

}  // namespace rehearse::lower
