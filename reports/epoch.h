// What a result says of training as a whole: how examples come, how long an epoch is, and what becomes of the learning
// rate when the batch changes. Sentences for the terminal and the report page alike.
//
// Learning rates. With k times the batch, linear scaling takes k times the rate: k steps along gradients that are alike
// are one step of their sum (Goyal et al. 2017, arXiv 1706.02677: SGD with momentum, a rate that rises over the first 5
// epochs, ResNet-50 on ImageNet as good as before up to 8,192 images). Square-root scaling takes sqrt(k) times: the
// gradient's noise then moves weights as much as before (Krizhevsky 2014, arXiv 1404.5997), and so it is for optimizers
// that divide by the gradients' size (Malladi et al. 2022, arXiv 2205.10287, who scale Adam's betas and eps too).
#pragma once

#include <string>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::reports {

inline constexpr double kLinearUpTo = 8192;  // images of a batch to which linear scaling held
inline constexpr int kWarmupEpochs = 5;

// "1,562 steps that drop the last samples (1,563 that pad), 1.9 min; 90 epochs take 2.8 h"; "" if it is not known.
std::string epoch_text(const result::Result& r);
// "a micro-batch each 40 ms at most, by storage, ..."; "" where loading takes no time.
std::string input_text(const result::Result& r);
// "the step is the mean over a round of 16: 15 of 0.5 s, then one of 2 s, which ends with ..."; "" without any.
std::string local_steps_text(const result::LocalSteps& l);
// "broadcast before the first step: 2.2 s for 13.5 GB to each rank in 54 messages (ring/simple)"; "" where ranks draw
// their own.
std::string first_weights_text(const result::Result& r);
// Of training.base_batch; empty without.
std::vector<std::string> learning_rate_sentences(const result::Result& r);
// From the first to the second; empty where their global batches are the same or not known.
std::vector<std::string> learning_rate_sentences(const result::Result& first, const result::Result& second,
                                                 const std::string& first_label, const std::string& second_label);

}  // namespace rehearse::reports
