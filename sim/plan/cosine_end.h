// Where a cosine schedule of the learning rate ends: at a tenth of training.lr, as GPT-3 (arXiv 2005.14165, appendix B)
// and Llama 2 (arXiv 2307.09288, section 2.2) were trained. Launch files say the same number to other software.
#pragma once

namespace rehearse::plan {

inline constexpr double kCosineEnd = 0.1;  // of training.lr, at the last step

}  // namespace rehearse::plan
