// What a result answers besides its step: statistics over samples, what noise costs, the busiest links, what-ifs, other
// jobs. Rows and sentences for the terminal and for the report page alike; empty where the result has none.
#pragma once

#include <string>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::reports {

using Rows = std::vector<std::vector<std::string>>;  // the first is the heading

// A lever's better direction: rates doubled, times halved.
struct Gain {
  std::string name;          // "memory bandwidth"
  bool doubled = true;       // else halved
  std::int64_t step_ps = 0;  // then
  double shorter = 0;        // of the step; below 0: longer
};
std::vector<Gain> gains(const result::Result& r);  // the largest first

// "ring ll128 (pinned)".
std::string way_of(const result::CollectiveUse& use);
Rows sample_rows(const result::Result& r);
// "Rank 3 is slow (its kernels take 1.2 times as long): that costs 1.23 s a step, 18.0% more than without it."
std::vector<std::string> noise_sentences(const result::Result& r);
Rows link_rows(const result::Result& r, std::size_t most);
// When the link is busy, and who uses it.
std::string link_sentence(const result::Result& r, const result::LinkUse& link);
// How collectives went: a row each, the longest in all first; "" where the result does not say.
// How bytes come from GPUs to NICs, of collectives over several nodes; "" where there are none.
std::string collective_path_sentence(const result::Result& r);
Rows collective_rows(const result::Result& r, std::size_t most);
Rows what_if_rows(const result::Result& r);
// Where a better machine makes the step longer, or a worse one shorter: why.
std::vector<std::string> what_if_sentences(const result::Result& r);
// Jobs on one cluster, with the others and alone.
Rows job_rows(const result::Result& r);
// What must not be overlooked, as MFU above 100 %.
std::vector<std::string> warnings(const result::Result& r);

// The table of collectives; "" without any.
std::string collectives_text(const result::Result& r);
// All of it for a terminal, in parts that end with an empty line.
std::string answers_text(const result::Result& r);

}  // namespace rehearse::reports
