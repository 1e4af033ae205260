// Reinforcement learning from feedback (section `reinforcement` of a scenario): a step of it generates responses to
// prompts with the model that is trained, scores them by forward passes of this and other models, and trains on them.
// What the sections model, plan and training say is of the training of the model, the actor;
// sim/run/reinforcement/reinforcement.h simulates the step, execute/reinforcement/ performs it.
#pragma once

#include <cstdint>
#include <string>

#include "sim/base/size_or_share.h"
#include "sim/base/units.h"

namespace rehearse::plan {

// grpo: advantages are of the responses to one prompt among themselves (Shao et al. 2024, arXiv 2402.03300), no critic.
// ppo: Schulman et al. 2017, arXiv 1707.06347, with a critic that is trained too.
enum class Algorithm : unsigned char { grpo, ppo };

struct Generation {
  std::int64_t gpus = 0;  // devices of its own, behind those of cluster.gpus; 0: on these, colocated
  std::int64_t tensor = 1;
  SizeOrShare memory;             // of a device that its weights, activations and cache may take
  std::int64_t sequences = 1024;  // of a replica at once, at most
  Time step_overhead;             // of the host, between two decode steps
};

struct Reinforcement {
  bool given = false;
  Algorithm algorithm = Algorithm::grpo;
  std::int64_t prompts = 1, samples = 1;  // of a step; responses to each
  std::int64_t prompt_tokens = 1;
  double response_tokens = 1;            // mean before the longest are cut
  double response_sigma = 0.5;           // of the lognormal length's logarithm; 0: all alike
  std::int64_t max_response_tokens = 0;  // 0: what training.seq_len leaves
  std::int64_t epochs = 1;
  bool packing = true;
  bool reference = true;
  std::string reward = "rule";           // or "same", or a model's name
  std::string critic = "same";           // of ppo: or a model's name
  std::int64_t scoring_micro_batch = 0;  // 0: plan.micro_batch
  bool offload = true;
  bool asynchronous = false;
  double clip = 0.2;                    // of the loss: ratios of probabilities count between 1 - clip and 1 + clip
  double kl = 0.04;                     // of the loss: weight of the distance from the reference, where there is one
  double gamma = 1, gae_lambda = 0.95;  // of ppo's advantages: discount of rewards, and of what is estimated from them
  double value_clip = 0.2;              // of the critic's loss: values count within this of what they were
  std::int64_t rule_modulus = 2;        // of the rule that rewards, where responses are generated for real
  Generation generation;

  std::int64_t sequences() const { return prompts * samples; }
  bool colocated() const { return generation.gpus == 0; }
  bool has_critic() const { return algorithm == Algorithm::ppo; }
  std::int64_t longest_response(std::int64_t seq_len) const {
    return max_response_tokens > 0 ? max_response_tokens : seq_len - prompt_tokens;
  }
};

}  // namespace rehearse::plan
