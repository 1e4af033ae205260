// The gated activation of gpt-oss (Agarwal et al. 2025, arXiv 2508.10925, section 2.2, "an unconventional SwiGLU";
// openai/gpt-oss gpt_oss/torch/model.py, swiglu; transformers' GptOssExperts._apply_gate): of a gate g and a value u
//
//   g' = min(g, limit), u' = clamp(u, -limit, limit), y = (u' + 1) g' sigmoid(alpha g')
//
// Where an input is clamped its gradient is 0, as torch.clamp's is; on the limit itself it is what passes.
#pragma once

#include <algorithm>
#include <cmath>

namespace rehearse {

inline constexpr float kSwigluOaiAlpha = 1.702F, kSwigluOaiLimit = 7.0F;

struct SwigluOai {
  float y = 0, d_gate = 0, d_value = 0;  // d_*: of y by g and by u
};

inline SwigluOai swiglu_oai(float g, float u) {
  const float gate = std::min(g, kSwigluOaiLimit), value = std::clamp(u, -kSwigluOaiLimit, kSwigluOaiLimit);
  const float s = 1 / (1 + std::exp(-kSwigluOaiAlpha * gate));
  SwigluOai out;
  out.y = (value + 1) * (gate * s);
  out.d_gate = g > kSwigluOaiLimit ? 0 : (value + 1) * (s + kSwigluOaiAlpha * gate * s * (1 - s));
  out.d_value = std::fabs(u) > kSwigluOaiLimit ? 0 : gate * s;
  return out;
}

}  // namespace rehearse
