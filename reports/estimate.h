// What a training run needs before any plan is made: FLOPs, tokens, memory of parameters, gradients and optimizer
// states under every stage of ZeRO and every split, GPUs that hold them, time. Rules of thumb, each with its source,
// from the number of parameters alone or from a model; the simulation of a plan is what replaces them.
// - Training takes 6 FLOPs a parameter and token (Kaplan et al. 2020, arXiv 2001.08361, section 2.1: 2 forward, 4
//   backward), without attention's own products. Of a model with experts the parameters that a token uses count.
// - Compute-optimal is 20 tokens a parameter (Hoffmann et al. 2022, arXiv 2203.15556, table 3: 67B parameters, 1.5T
//   tokens, 5.76e23 FLOPs; Chinchilla itself: 70B, 1.4T).
// - Mixed precision with Adam holds 16 bytes a parameter: 2 of the parameter, 2 of its gradient, 12 of optimizer states
//   (fp32 parameter and two moments; Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1).
// Leaves out: what frameworks and allocators hold, activations but for one line, communication.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/model/model.h"

namespace rehearse::reports {

inline constexpr double kTokensAParameter = 20, kFlopsAParameterAndToken = 6;
inline constexpr double kParameterBytes = 2, kGradientBytes = 2, kOptimizerBytes = 12;

// What is asked. Without `model` a bare number of parameters.
struct EstimateRequest {
  std::string name;
  double parameters = 0;
  std::optional<model::Model> model;
  std::int64_t seq_len = 0;  // of a model: for attention's products
  double tokens = 0;         // 0: kTokensAParameter for each parameter that a token uses
  std::string device;        // whose peak it is
  Bytes memory{80'000'000'000};
  double memory_percent = 80;  // of it, for parameters, gradients and optimizer states
  FlopRate peak;               // dense bf16
  double mfu_percent = 40;
  std::int64_t global_batch = 0;  // sequences, or samples, a step; 0: not given
  std::int64_t gpus = 0;          // of the table of memory; 0: the next power of two that holds a replica, 8 at least
};

// Bytes a GPU holds of parameters, gradients and optimizer states with ZeRO 0 to 3.
struct EstimateSplit {
  std::int64_t tensor = 1, pipeline = 1, data = 1;
  std::array<double, 4> bytes{};
};

struct Estimate {
  EstimateRequest of;
  double active = 0;        // parameters that a token uses
  double tokens = 0;        // 0: not known (a cnn or an mlp)
  double flops = 0;         // 6 x active x tokens
  double flops_exact = 0;   // by the model's products, attention in full; 0: no model
  double state_bytes = 0;   // of one replica
  std::int64_t needed = 0;  // GPUs whose share of memory holds state_bytes
  std::int64_t gpus = 0;
  std::vector<EstimateSplit> splits = {};
  double checkpoint_bytes = 0;  // of a sequence: every layer's input in 2 bytes, what full recomputation keeps
  double seconds = 0;           // on one GPU; 0: not known
};

// "175B", "1.3b", "540 B", "125M", "1.5T": parameters; nothing if it is no such size.
std::optional<double> parse_model_size(std::string_view text);

// Bytes a GPU holds of `parameters` split over `split` GPUs and trained by `data` replicas, under ZeRO `stage`:
// (2 + 2 + 12) n, (2 + 2 + 12 / d) n, (2 + (2 + 12) / d) n, (2 + 2 + 12) n / d for n = parameters / split (arXiv
// 1910.02054, figure 1).
double zero_state_bytes(double parameters, std::int64_t split, std::int64_t data, int stage);

Estimate estimate_of(const EstimateRequest& request);

// For a terminal, 80 columns; and rehearse.estimate/1.
std::string estimate_text(const Estimate& e);
std::string estimate_json(const Estimate& e);

}  // namespace rehearse::reports
