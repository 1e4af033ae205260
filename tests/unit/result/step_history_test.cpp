// steps.csv read back: the slowest rank of each step, compute by rank, when a loss was reached, and what is refused.
#include "sim/result/step_history.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "tests/support/temporary.h"

namespace rehearse::result {
namespace {

const std::string kStepsHeading = "step,rank,loss,end_s,step_s,compute_s\n";
// Two ranks, of which the second computes longest in two of three steps; the run goes on from step 4.
const std::string kStepsTable = kStepsHeading +
                                "5,0,4.0,1.0,1.0,0.75\n5,1,4.0,1.5,1.5,1.25\n"
                                "6,0,3.0,2.25,1.25,1.0\n6,1,3.0,2.5,1.0,0.5\n"
                                "7,0,1.0,3.0,0.75,0.25\n7,1,1.0,3.5,1.0,1.0\n";

std::string steps_refused(const std::string& text) {
  try {
    parse_steps_csv("steps.csv", text);
  } catch (const InputError& error) {
    const Diagnostic& d = error.diagnostics().front();
    return std::to_string(d.line) + ": " + d.path + ": " + d.message;
  }
  return "";
}

TEST(StepHistory, HasTheSlowestRankOfEachStepAndWhatRanksComputed) {
  const StepHistory h = parse_steps_csv("steps.csv", kStepsTable);
  EXPECT_TRUE(h.known());
  EXPECT_EQ(h.first_step, 5);
  EXPECT_EQ(h.loss, (std::vector<double>{4, 3, 1}));
  EXPECT_EQ(h.step_ps, (std::vector<std::int64_t>{1'500'000'000'000, 1'250'000'000'000, 1'000'000'000'000}));
  EXPECT_EQ(h.end_ps, (std::vector<std::int64_t>{1'500'000'000'000, 2'500'000'000'000, 3'500'000'000'000}));
  EXPECT_EQ(h.computed, (std::vector<std::int64_t>{2'000'000'000'000, 2'750'000'000'000}));
  EXPECT_EQ(h.slowest, (std::vector<std::int64_t>{1, 2}));
}

TEST(StepHistory, SaysWhenALossWasReached) {
  const StepHistory h = parse_steps_csv("steps.csv", kStepsTable);
  EXPECT_EQ(time_to_loss(h, 3, 1).steps, 6);
  EXPECT_EQ(time_to_loss(h, 3, 1).ps, 2'500'000'000'000);
  EXPECT_EQ(time_to_loss(h, 3, 2).steps, 7) << "the mean of the last two";
  EXPECT_EQ(time_to_loss(h, 2, 2).steps, 7);
  EXPECT_EQ(time_to_loss(h, 1.9, 2).steps, -1);
  EXPECT_EQ(time_to_loss(h, 100, 4).steps, -1) << "no window of four steps";
}

TEST(StepHistory, ALossThatIsNoNumberCountsInItsWindowsAlone) {
  StepHistory h = parse_steps_csv("steps.csv", kStepsTable);
  h.loss[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(time_to_loss(h, 3, 2).steps, 7) << "of steps 6 and 7";
  EXPECT_EQ(time_to_loss(h, 3, 3).steps, -1);
}

TEST(StepHistory, KnowsWhenAStepOfTheTrainingEnded) {
  const StepHistory h = parse_steps_csv("steps.csv", kStepsTable);
  EXPECT_EQ(h.end_of(4), std::nullopt) << "before this run";
  EXPECT_EQ(h.end_of(6), 2'500'000'000'000);
  EXPECT_EQ(h.end_of(7), 3'500'000'000'000);
  EXPECT_EQ(h.end_of(8), std::nullopt);
}

std::string simulated_steps(const Result& r) {
  const std::string path = test::temporary_path("steps.csv");
  OutputFile out(path, OutputFile::Format::plain);
  write_simulated_steps(r, out);
  out.commit();
  return read_text_file(path);
}

TEST(StepHistory, ASimulationsStepsReadBackWithoutShares) {
  constexpr std::int64_t kSecond = 1'000'000'000'000;
  Result r;
  EXPECT_EQ(simulated_steps(r), "step,rank,loss,end_s,step_s\n");
  r.step_ends_ps = {{kSecond, 3 * kSecond}, {2 * kSecond, 3 * kSecond + 1}};
  const std::string table = simulated_steps(r);
  EXPECT_EQ(table.substr(0, table.find('\n')), "step,rank,loss,end_s,step_s");
  const StepHistory h = parse_steps_csv("steps.csv", table);
  EXPECT_EQ(h.step_ps, (std::vector<std::int64_t>{2 * kSecond, 2 * kSecond})) << "of the slowest rank";
  EXPECT_EQ(h.end_ps, (std::vector<std::int64_t>{2 * kSecond, 3 * kSecond + 1}));
  EXPECT_TRUE(h.computed.empty());
  EXPECT_FALSE(loss_target(h, 1).step >= 0) << "nothing is trained";
}

TEST(StepHistory, RefusesWhatIsNone) {
  EXPECT_EQ(steps_refused("a,b\n1,2\n").substr(0, 31), "1: : there is no column 'step'");
  EXPECT_EQ(steps_refused(kStepsHeading + "1,0,x,1,1,1\n"),
            "2: loss: expected a number from -1e+30 to 1e+30, found 'x'");
  EXPECT_EQ(steps_refused(kStepsHeading + "1,0,2,1,-1,1\n"),
            "2: step_s: expected a number from 0 to 9000000, found '-1'");
  EXPECT_EQ(steps_refused(kStepsHeading + "1,0,2,1,1\n"), "2: : expected 6 fields, found 5");
  EXPECT_EQ(steps_refused(kStepsHeading + "1,1,2,1,1,1\n").substr(0, 22), "2: : step 1 of rank 1 ");
  EXPECT_NE(steps_refused(kStepsHeading + "1,0,2,1,1,1\n1,2,2,1,1,1\n"), "");
  EXPECT_NE(steps_refused(kStepsHeading + "1,0,2,1,1,1\n3,0,2,1,1,1\n"), "");
  EXPECT_NE(steps_refused(kStepsHeading + "1,0,2,1,1,9e6\n2,0,2,1,1,9e6\n"), "") << "sums are counted, too";
  EXPECT_NE(steps_refused(""), "");
  EXPECT_EQ(steps_refused(kStepsHeading + "1,0,nan,1,1,1\n"), "") << "a run may diverge";
  EXPECT_FALSE(parse_steps_csv("steps.csv", kStepsHeading).known());
}

}  // namespace
}  // namespace rehearse::result
