// Calls of a Device that CPUs have and GPUs have no kernels of yet (execute/placement/gpus.h refuses what needs them).
// Operands and rules as in device.h.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "kernels/attention_shapes.h"
#include "kernels/expert_shapes.h"
#include "kernels/operands.h"

namespace rehearse::kernels {

enum class Unary : unsigned char;  // device.h

class CpuOnlyCalls {
 public:
  virtual ~CpuOnlyCalls() = default;

  // Of attention's out [rows, heads * values] and its logsumexp [rows, heads], those with sinks [heads] beside the
  // scores (sim/program/op.h, Attention): out * sigmoid(logsumexp - sink), log(e^logsumexp + e^sink).
  virtual void attention_sinks(const AttentionShape& /*s*/, In /*sinks*/, Out /*out*/, float* /*logsumexp*/) { none(); }
  // d_sinks += -sum over rows of e^(sink - logsumexp) (d_out . out), out and logsumexp being those with sinks.
  virtual void attention_sink_gradient(const AttentionShape& /*s*/, In /*d_out*/, In /*out*/,
                                       const float* /*logsumexp*/, In /*sinks*/, Out /*d_sinks*/) {
    none();
  }
  // sim/base/swiglu_oai.h; operands as of swiglu_forward, and with weights [rows], which may be null, each row times
  // its weight: backward gives d_weights [rows] then.
  virtual void swiglu_oai_forward(std::int64_t /*rows*/, std::int64_t /*cols*/, In /*gate_up*/, In /*up*/,
                                  const float* /*weights*/, Out /*y*/) {
    none();
  }
  virtual void swiglu_oai_backward(std::int64_t /*rows*/, std::int64_t /*cols*/, In /*dy*/, In /*gate_up*/, In /*up*/,
                                   const float* /*weights*/, Out /*d_gate_up*/, float* /*d_weights*/) {
    none();
  }
  // Without a gate, each row times its weight [rows]: y = w f(x); backward {dx, d_weights [rows]} of {dy, x}.
  virtual void weighted_activation_forward(Unary /*fn*/, std::int64_t /*rows*/, std::int64_t /*cols*/, In /*x*/,
                                           const float* /*weights*/, Out /*y*/) {
    none();
  }
  virtual void weighted_activation_backward(Unary /*fn*/, std::int64_t /*rows*/, std::int64_t /*cols*/, In /*dy*/,
                                            In /*x*/, const float* /*weights*/, Out /*dx*/, float* /*d_weights*/) {
    none();
  }
  // A bias for each group of rows (sim/program/expert_ops.h, GroupedBias). loads [groups] may be null: as many rows
  // each; weights [rows] may be: all 1.
  virtual void grouped_bias(const GroupedBiasShape& /*s*/, In /*bias*/, const float* /*loads*/,
                            const float* /*weights*/, Out /*y*/) {
    none();
  }
  virtual void grouped_bias_backward(const GroupedBiasShape& /*s*/, In /*dy*/, const float* /*loads*/,
                                     const float* /*weights*/, Out /*d_bias*/) {
    none();
  }
  virtual void grouped_bias_weights(const GroupedBiasShape& /*s*/, In /*dy*/, In /*bias*/, const float* /*loads*/,
                                    float* /*d_weights*/) {
    none();
  }
  // Rows [rows, cols] times a number each; d_weights [rows].
  virtual void row_scale(std::int64_t /*rows*/, std::int64_t /*cols*/, In /*x*/, const float* /*weights*/, Out /*y*/) {
    none();
  }
  virtual void row_scale_backward(std::int64_t /*rows*/, std::int64_t /*cols*/, In /*dy*/, In /*x*/,
                                  const float* /*weights*/, Out /*dx*/, float* /*d_weights*/) {
    none();
  }

 private:
  [[noreturn]] static void none() { throw std::logic_error("this device has no kernel for this layer"); }
};

}  // namespace rehearse::kernels
