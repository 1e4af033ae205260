// Quantiles of samples. One definition for all that is measured, printed and learnt here: type 7 of Hyndman and Fan
// 1996, "Sample quantiles in statistical packages", numpy's and R's default - the samples in order lie at the shares 0,
// 1/(n-1), ..., 1, and between two of them the quantile is interpolated linearly. The median of an even number of
// samples is so the mean of the middle two.
//
// Where the answer has to be one of the samples (the step that is reported out of several, or a result that must stay
// what it was) there is at_rank, with the place of type 7 rounded.
#pragma once

#include <vector>

namespace rehearse {

// `share` from 0 to 1; at least one sample, in any order.
double quantile(std::vector<double> samples, double share);
double median(std::vector<double> samples);
// Of samples in ascending order.
double quantile_of_sorted(const std::vector<double>& sorted, double share);

enum class Rank : unsigned char { below, nearest };
double at_rank(const std::vector<double>& sorted, double share, Rank rank);

}  // namespace rehearse
