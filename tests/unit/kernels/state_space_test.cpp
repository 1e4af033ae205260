// A Mamba-2 mixer's parts (sim/base/state_space.h) as a whole, on numbers of the size of 1: what comes out and every
// gradient are the same however long chunks are - chunks of one token pass everything on by states, one chunk nothing -
// and the gradients are those of finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/state_space_calls.h"

namespace rehearse::kernels::mixers {
namespace {

using Part = StateSpacePart;
using Values = std::vector<float>;

// Buffers by name; each part's operands in their order.
class Mixer {
 public:
  explicit Mixer(std::int64_t chunk) : device_(make_cpu_device(1)) {
    s_.micro_batch = 2, s_.seq = 9, s_.heads = 4, s_.groups = 2, s_.head_dim = 3, s_.state = 5, s_.conv = 3;
    s_.chunk = chunk;
    fill("in", Part::conv, 0), fill("w", Part::conv, 1), fill("b", Part::conv, 2);
    fill("dt_bias", Part::steps, 1), fill("a_log", Part::steps, 2), fill("d", Part::scan, 5);
    fill("gamma", Part::norm, 1), fill("d_out", Part::norm_backward, 0);
  }
  Values& operator[](const std::string& name) { return buffers_[name]; }

  // The sum of what comes out, weighed by d_out.
  double loss() {
    chunks();
    call(Part::scan, {"cb", "xbc", "step", "l", "entering", "d", "in"}, {"y", "raw"});
    call(Part::norm, {"y", "gamma"}, {"out", "stats"});
    double sum = 0;
    for (std::size_t i = 0; i < buffers_["out"].size(); ++i)
      sum += static_cast<double>(buffers_["out"][i]) * static_cast<double>(buffers_["d_out"][i]);
    return sum;
  }
  void gradients() {
    loss();
    call(Part::norm_backward, {"d_out", "y", "stats", "gamma", "d_gamma"}, {"dy", "d_gamma"});
    call(Part::gate_backward, {"dy", "in", "raw", "xbc", "d_d"}, {"d_in", "d_raw", "d_d"});
    call(Part::entering_backward, {"d_raw", "xbc", "l"}, {"d_entering"});
    call(Part::passing_backward, {"d_entering", "entering", "l"}, {"d_states", "d_l_pass"});
    call(Part::x_backward, {"d_raw", "cb", "xbc", "step", "l", "d_states", "d"}, {"d_xbc", "d_step"});
    call(Part::b_backward, {"xbc", "step", "l", "d_states"}, {"d_b", "d_l_state"});
    call(Part::c_backward, {"d_raw", "l", "entering", "xbc"}, {"d_c", "d_l_read"});
    call(Part::scores_backward, {"d_raw", "xbc", "step", "l"}, {"d_cb"});
    call(Part::b_product, {"d_cb", "xbc", "d_b"}, {"d_xbc"});
    call(Part::c_product, {"d_cb", "xbc", "d_c"}, {"d_xbc"});
    call(Part::decay_backward, {"d_raw", "cb", "xbc", "step", "l"}, {"d_l_scan"});
    call(Part::steps_backward,
         {"d_l_scan", "d_l_state", "d_l_read", "d_l_pass", "d_step", "step", "in", "dt_bias", "a_log", "d_dt_bias",
          "d_a_log"},
         {"d_in", "d_dt_bias", "d_a_log"});
    call(Part::conv_backward, {"d_xbc", "in", "w", "b", "d_w", "d_bias"}, {"d_in", "d_w", "d_bias"});
  }

 private:
  void fill(const std::string& name, Part part, std::size_t operand) {
    s_.part = part;
    Values& values = buffers_[name];
    values.resize(static_cast<std::size_t>(s_.reads()[operand]));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(std::sin(1.7 * static_cast<double>(i) + static_cast<double>(name.size())));
  }
  void chunks() {
    call(Part::conv, {"in", "w", "b"}, {"xbc"});
    call(Part::steps, {"in", "dt_bias", "a_log"}, {"step", "l"});
    call(Part::states, {"xbc", "step", "l"}, {"states"});
    call(Part::passing, {"states", "l"}, {"entering"});
    call(Part::scores, {"xbc"}, {"cb"});
  }
  void call(Part part, const std::vector<std::string>& reads, const std::vector<std::string>& writes) {
    s_.part = part;
    const auto operands = [&](const std::vector<std::string>& names, const std::vector<std::int64_t>& sizes) {
      std::vector<Out> out;
      for (std::size_t i = 0; i < names.size(); ++i) {
        Values& values = buffers_[names[i]];
        values.resize(static_cast<std::size_t>(sizes.at(i)));
        out.emplace_back(values.data());
      }
      return out;
    };
    const std::vector<Out> to = operands(writes, s_.writes()), from = operands(reads, s_.reads());
    dynamic_cast<StateSpaceCalls&>(*device_).state_space(s_, from, to);
  }

  StateSpace s_;
  std::unique_ptr<Device> device_;
  std::map<std::string, Values> buffers_;
};

const std::vector<std::string> kInputs = {"in", "w", "b", "dt_bias", "a_log", "d", "gamma"};
std::string gradient_of(const std::string& input) {
  return input == "b" ? "d_bias" : "d_" + input;
}

TEST(StateSpace, ChunksOfAnyLengthGiveTheSame) {
  Mixer one(9);
  one.gradients();
  for (const std::int64_t chunk : {1, 2, 4, 5, 8, 16}) {
    Mixer other(chunk);
    other.gradients();
    std::vector<std::string> compared = {"out"};
    for (const std::string& input : kInputs) compared.push_back(gradient_of(input));
    for (const std::string& name : compared) {
      ASSERT_EQ(one[name].size(), other[name].size()) << name;
      for (std::size_t i = 0; i < one[name].size(); ++i)
        EXPECT_NEAR(other[name][i], one[name][i], 2e-5 * (1 + std::fabs(one[name][i])))
            << name << " " << i << " " << chunk;
    }
  }
}

TEST(StateSpace, GradientsAreDifferences) {
  Mixer m(4);
  m.gradients();
  constexpr float kStep = 4e-3F;
  for (const std::string& input : kInputs) {
    const Values gradient = m[gradient_of(input)];
    for (std::size_t i = 0; i < m[input].size(); i += 1 + m[input].size() / 40) {
      const float kept = m[input][i];
      m[input][i] = kept + kStep;
      const double above = m.loss();
      m[input][i] = kept - kStep;
      const double below = m.loss();
      m[input][i] = kept;
      const double slope = (above - below) / (2 * static_cast<double>(kStep));
      EXPECT_NEAR(gradient[i], slope, 4e-3 * (1 + std::fabs(slope))) << input << " " << i;
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels::mixers
