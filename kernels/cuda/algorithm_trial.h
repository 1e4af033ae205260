// Which of a library's algorithms for a product is the fastest, by times of the product itself. Each has kRuns runs,
// the first of which is not timed: it loads the algorithm's code. An algorithm's time is the least of the others, since
// what disturbs a kernel only makes it longer.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace rehearse::kernels::cuda {

// Index of the least of `seconds`, by which an algorithm took, 0: not timed; the first, the library's own choice,
// unless another is faster by more than kTieShare of its time and by more than kTieSeconds. The times of events are
// half a microsecond apart (CUDA runtime, cudaEventElapsedTime), of two events so a microsecond; that 2% lie within the
// scatter of a kernel's times is a judgement.
inline constexpr double kTieShare = 0.02, kTieSeconds = 1e-6;
std::size_t fastest_algorithm(std::span<const double> seconds);

class AlgorithmTrial {
 public:
  static constexpr int kRuns = 4;

  explicit AlgorithmTrial(std::size_t algorithms) : runs_(algorithms), seconds_(algorithms) {}

  struct Turn {
    std::size_t algorithm = 0;
    bool timed = false;
  };
  // Whose turn it is, two runs at a time; nobody's once all have had theirs, or if there is no choice.
  std::optional<Turn> next() const;
  void add(const Turn& turn, double seconds);                      // ignored of a turn that is not timed
  const std::vector<double>& seconds() const { return seconds_; }  // by algorithm; 0: not timed
  std::size_t fastest() const { return fastest_algorithm(seconds_); }

 private:
  std::vector<int> runs_;
  std::vector<double> seconds_;
};

}  // namespace rehearse::kernels::cuda
