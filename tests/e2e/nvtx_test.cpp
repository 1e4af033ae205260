// What a profiler is told of a run: a range for each op that is performed, by name, in the op's thread.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "program.h"
#include "tests/support/small_gpt.h"

namespace rehearse::e2e {
namespace {

#ifdef REHEARSE_NVTX_LISTENER

// The ops of one step of a rank, as ops.csv has them: "slot N/BODY/OP".
std::multiset<std::string> ops_of_rank(const std::string& csv, const std::string& rank) {
  std::multiset<std::string> ops;
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream fields(line.substr(0, line.find(',')));
    std::string part[5];
    for (std::string& p : part) std::getline(fields, p, '/');
    if (part[0] == rank) ops.insert("slot " + part[2] + "/" + part[3] + "/" + part[4]);
  }
  return ops;
}

TEST(Nvtx, EveryOpOfARankIsARangeNamedByItsIdentity) {
  const Folder folder;
  const std::string scenario = folder.write("small.yaml", kSmallGpt);
  const std::string log = folder / "nvtx.log", out = folder / "out";
  const Outcome r = shell("NVTX_INJECTION64_PATH=" REHEARSE_NVTX_LISTENER " REHEARSE_NVTX_LOG=" + log +
                          " $REHEARSE execute " + scenario + " --steps 3 -o " + out);
  ASSERT_EQ(r.status, 0) << r.err;
  std::istringstream lines(read(log));
  std::map<std::string, std::multiset<std::string>> of_step;  // by payload, of rank 0
  std::map<std::string, int> open;                            // by thread
  std::string line, last_step;
  bool domain = false;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string what, thread, step, name;
    words >> what >> thread;
    if (what == "domain") domain |= thread == "rehearse";
    if (what == "pop") {
      EXPECT_EQ(--open[thread], 0) << line;
    }
    if (what != "push") continue;
    words >> step;
    std::getline(words, name);
    EXPECT_EQ(++open[thread], 1) << "ranges of a thread do not overlap: " << line;
    const std::string rank = " rank 0/";
    if (name.starts_with(rank)) of_step[step].insert(name.substr(rank.size()));
  }
  EXPECT_TRUE(domain);
  for (const auto& [thread, count] : open) EXPECT_EQ(count, 0) << thread;
  ASSERT_EQ(of_step.size(), 3U);
  EXPECT_EQ(of_step.begin()->first, "0");
  const std::multiset<std::string> recorded = ops_of_rank(read(out + "/ops.csv"), "0");
  ASSERT_GT(recorded.size(), 10U);
  for (const auto& [step, ops] : of_step) EXPECT_EQ(ops, recorded) << "step " << step;
}

#else

TEST(Nvtx, EveryOpOfARankIsARangeNamedByItsIdentity) {
  GTEST_SKIP() << "built without NVTX's headers (of the CUDA toolkit)";
}

#endif

}  // namespace
}  // namespace rehearse::e2e
