// The function between a feed-forward layer's products, as its ops name it.
#pragma once

#include "sim/model/model.h"
#include "sim/program/op.h"

namespace rehearse::lower {

inline program::ActivationFn activation_fn(const model::Model& m) {
  using model::ActivationKind;
  using program::ActivationFn;
  switch (m.activation) {
    case ActivationKind::gelu:
      return ActivationFn::gelu;
    case ActivationKind::swiglu:
      return ActivationFn::swiglu;
    case ActivationKind::geglu:
      return ActivationFn::geglu;
    case ActivationKind::swiglu_oai:
      return ActivationFn::swiglu_oai;
    case ActivationKind::relu:
      return ActivationFn::relu;
    case ActivationKind::squared_relu:
      return ActivationFn::squared_relu;
  }
  return ActivationFn::gelu;
}

}  // namespace rehearse::lower
