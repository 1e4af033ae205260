// A plan's miniature for people: what of the large plan it kept, and what its run here says of the large prediction.
//
// Carried back: of each line of the step's account (step_account.h: kernels by class, then waits) the miniature's
// measured time over its simulated one is a factor. Put on the same lines of the large plan's simulated step they give
// a corrected step, and an interval: each line between as simulated and as corrected, be the machine's own change of
// pace between calibration and run taken out of the factor or not. Lines that are small here say nothing (factor 1).
// The factors are of this machine's kernels and transfers; that the simulation errs there as it errs here is an
// assumption, and the texts say so.
#pragma once

#include <string>
#include <vector>

#include "reports/difference.h"
#include "sim/result/read_directory.h"

namespace rehearse::reports {

struct ShrunkRow {
  std::string what, large, small, fate;  // "kept", "reduced", "raised", "dropped"
  std::string why;                       // "" where nothing forbids it
};
std::string shrunk_table(const std::vector<ShrunkRow>& rows);  // 80 columns

// Of the miniature's step, simulated or measured: less than this is too little to judge a line by.
inline constexpr double kLeastCarried = 0.01;

struct CarriedLine {
  std::string line;
  std::int64_t simulated_ps = 0, measured_ps = 0;  // of the miniature
  double factor = 1;                               // 1 where it is not carried
  bool carried = false;
  std::int64_t large_ps = 0;
};
struct Carried {
  std::vector<CarriedLine> lines;  // of either account, kernels first
  std::int64_t large_step_ps = 0;
  double model_low_s = 0, model_high_s = 0;  // the large prediction's own interval
  double corrected_s = 0, low_s = 0, high_s = 0;
  double drift = 1;          // of the machine's pace (Difference::drift); 1: not known
  double carried_share = 0;  // of the large step: lines that have a factor
};
// `miniature`: simulated first, measured second.
Carried carry_back(const Difference& miniature, const result::StoredResult& large);
std::string carried_text(const Carried& c);

// schema rehearse.miniature/1
std::string miniature_json(const std::vector<ShrunkRow>& rows, const Difference& miniature, const Carried& c);

}  // namespace rehearse::reports
