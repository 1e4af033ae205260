// A call of program::Muon.
#pragma once

#include <span>

#include "execute/rank/kernel_call.h"
#include "sim/program/optimizer_ops.h"

namespace rehearse::execute {

// Operands in the order of optimizer_ops.h.
inline void call_muon(const program::Muon& m, const CallContext& c, std::span<const kernels::Out> reads,
                      std::span<const kernels::Out> writes) {
  using program::MuonPart;
  const auto f32 = [](const kernels::Out& operand) { return static_cast<float*>(operand.data); };
  const plan::Training& t = c.scenario.training;
  kernels::Muon shape;
  shape.elements = m.elements, shape.matrices = m.matrices, shape.rows = m.rows, shape.cols = m.cols;
  shape.blocks = m.blocks, shape.apart = m.apart, shape.first = m.first, shape.offset = m.offset;
  shape.parts = m.parts, shape.own = m.parts > 1 ? c.tensor_coordinate : 0, shape.by_columns = m.by_columns;
  shape.momentum = t.momentum, shape.weight_decay = t.weight_decay, shape.step = c.step;
  const float* const coefficient = m.clip ? f32(reads[1]) : nullptr;
  float* const master = m.master ? f32(writes[1]) : nullptr;
  switch (m.part) {
    case MuonPart::momentum:
      return c.device.muon_momentum(shape, reads[0], coefficient, f32(writes[0]), writes[1]);
    case MuonPart::orthogonal:
      return c.device.muon_orthogonal(shape, reads[0], writes[0]);
    case MuonPart::update:
      return c.device.muon_update(shape, reads[0], writes[0], master);
    case MuonPart::apply:
      return c.device.muon_apply(shape, reads[0], coefficient, writes[0], master);
    case MuonPart::whole:
      break;
  }
  c.device.muon(shape, reads[0], coefficient, writes[0], master, f32(writes[m.master ? 2 : 1]));
}

}  // namespace rehearse::execute
