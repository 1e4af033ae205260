// Numbers on the command line: whatever is no finite number in the option's range is refused before anything happens.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

// What --help names the value of an option that takes a number.
const std::regex kNumeric(R"((--[a-z-]+) (N|S|SECONDS|P)\b)");

TEST(Numbers, EveryNumericOptionOfEveryCommandIsChecked) {
  const std::vector<std::pair<std::string, std::string>> commands = {{"simulate", "gpt-tiny-ddp"},
                                                                     {"execute", "gpt-tiny-ddp"},
                                                                     {"calibrate", ""},
                                                                     {"demo", ""},
                                                                     {"validate", ""},
                                                                     {"report", "nowhere"},
                                                                     {"compare", ""},
                                                                     {"init", "nowhere/x.yaml"}};
  std::set<std::string> options;
  for (const auto& [command, positional] : commands) {
    const std::string help = run({command, "--help"}).out;
    for (std::sregex_iterator at(help.begin(), help.end(), kNumeric), end; at != end; ++at) {
      const std::string option = (*at)[1];
      options.insert(option);
      for (const char* value :
           {"nan", "-nan", "inf", "-inf", "-1", "1e400", "1e30", "0x10", "1 2", "1,5", "", "many"}) {
        std::vector<std::string> arguments = {command};
        if (!positional.empty()) arguments.push_back(positional);
        arguments.push_back(option + "=" + value);
        const Outcome r = run(arguments);
        EXPECT_EQ(r.status, 2) << command << " " << option << "=" << value << "\n" << r.err;
        EXPECT_EQ(r.out, "");
        EXPECT_TRUE(has(r.err, option)) << r.err;
        if (*value == '\0') continue;
        EXPECT_TRUE(has(r.err, "found '" + std::string(value) + "'")) << r.err;
      }
    }
  }
  for (const char* option : {"--budget", "--seconds", "--epochs", "--timeout", "--price", "--tokens", "--steps",
                             "--samples", "--threads", "--log-every", "--gpus"})
    EXPECT_TRUE(options.contains(option)) << option << " was not found in the help";
}

TEST(Numbers, RatesOfDiscoverAreChecked) {
  const std::string node = std::string(REHEARSE_SOURCE_DIR) + "/tests/unit/formats/dgx-h100.xml";
  for (const char* rate : {"nan", "inf", "-1Gbps", "0", "0Gbps", "1e400Gbps", "9e18B/s", "400"}) {
    const Outcome r = run({"discover", node, "--nic-rate=" + std::string(rate)});
    EXPECT_EQ(r.status, 2) << rate << r.err;
    EXPECT_TRUE(has(r.err, "--nic-rate: expected a bandwidth")) << r.err;
  }
}

// The parser's own checks let "nan" through; number_between() and between() (cli/commands.h) do not.
TEST(Numbers, NoCommandUsesTheParsersRanges) {
  const Outcome r =
      shell("cd \"$REHEARSE_ROOT\" && grep -rnE 'CLI::(Range|Number|PositiveNumber|NonNegativeNumber|Bound)' cli");
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_EQ(r.out, "");
}

}  // namespace
}  // namespace rehearse::e2e
