// One sentence on what limits a result, from its breakdown and its memory: where a change of plan would have an effect.
#pragma once

#include <string>

#include "sim/base/units.h"
#include "sim/result/result.h"

namespace rehearse::reports {

// Where what-ifs were simulated, what gains most: "NICs and network: doubled, it would make the step 21.0% shorter".
// With loaders of training examples that limit the step: "Input: ...", whatever what-ifs say, which change none of
// them. Otherwise "Does not fit: stage 0 needs 512.3 GB of 80 GB a GPU; activations are 89% of it." if it does not fit;
// else the largest loss if that is kLargeLoss of the step or more; else the kernels themselves, with the largest loss
// beside them.
std::string limited_by(const result::Result& r);

inline constexpr double kSmallGain = 0.01;  // a what-if that shortens the step by less is no limit; a judgement
inline constexpr double kLargeLoss = 0.2;   // a judgement: below it, what the kernels do matters more than any one loss

// Ranks that share the cores of a host, performed or simulated: only such hosts count cores.
bool on_cpu(const result::Result& r);
// Which framework was chosen automatically, why, and what the ideal one's step would be; "": the file names it.
std::string chosen_framework(const result::Result& r);
// What a device is called: "GPU", or "rank" on a CPU.
std::string device_noun(const result::Result& r);
// What its losses are counted in: "nats a token", "nats a sample" or "mean squared error".
std::string loss_unit(const result::Result& r);
// The stage with the highest peak; nullptr if there are none.
const result::StageMemory* largest_stage(const result::Result& r);
// What a plan may fill of a device: its memory less the headroom. And what is said of that after the number:
// " (85.9 GB less 4.295 GB of cluster.headroom)", "" where nothing is kept free.
Bytes usable_memory(const result::Result& r);
std::string headroom_words(const result::Result& r);
// The share of the step in `share`; 0 if the step takes no time.
double share_of(const result::Result& r, result::Share share);
// All exposed communication as a share of the step: bytes that move, not waits for late ranks.
double exposed_communication(const result::Result& r);

}  // namespace rehearse::reports
