// A fixed number of inputs of a fixed seed for every reader and for random plans, and what was found once, again. That
// the harness itself can fail is tested too: a reader that breaks the promise ends the process.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "sim/base/diagnostics.h"
#include "tests/fuzz/campaign.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/plans.h"
#include "tests/fuzz/seeds.h"

namespace rehearse::fuzz {
namespace {

constexpr std::uint64_t kSeed = 1;
#ifdef REHEARSE_FUZZ_CHECKED
// Of the runs: each takes several times as long. Whether every kind is among random plans is asked where all are made.
constexpr double kShare = 0.25, kShareOfPlans = 0.5;
#else
constexpr double kShare = 1, kShareOfPlans = 1;
#endif

class Fuzz : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() { report_deaths(); }
  const Reader& reader() const { return *find_reader(GetParam()); }
};

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const Reader& reader : readers()) list.push_back(reader.name);
  return list;
}

TEST_P(Fuzz, SeedsAndEarlierFinds) {
  EXPECT_TRUE(run_seeds(reader()) > 0 || reader().choices);
}

TEST_P(Fuzz, MutatedInputs) {
  const double share = reader().choices ? kShareOfPlans : kShare;
  run_mutated(reader(), kSeed, 0, static_cast<std::uint64_t>(share * reader().runs));
  if (!reader().choices) return;
  const PlanCounts counts = plan_counts();
  if (share < 1) return;
  RecordProperty("simulated", counts.simulated);
  RecordProperty("folded", counts.folded);
  EXPECT_GE(counts.simulated * 2, counts.made) << "most plans are refused: they show little";
  EXPECT_GE(counts.folded * 3, counts.simulated) << "few plans have ranks that are alike";
  EXPECT_GT(counts.mixed, 0) << "no plan runs on devices of several kinds";
  EXPECT_GT(counts.apart, 0) << "no plan has local steps";
  EXPECT_GT(counts.bounded_mixed, 0) << "no bound of such a plan was compared";
  EXPECT_GT(counts.served, 0) << "no plan has parameter servers";
}

INSTANTIATE_TEST_SUITE_P(Readers, Fuzz, testing::ValuesIn(names()), [](const auto& name) {
  std::string text = name.param;
  for (char& c : text)
    if (c == '-') c = '_';
  return text;
});

TEST(Mutator, GivesTheSameBytesForTheSameNumber) {
  const Reader& reader = *find_reader("scenario");
  const std::vector<Seed> seeds = seeds_of(reader);
  const std::vector<std::string> words = words_of(reader, seeds);
  const Mutator mutator(seeds, words);
  std::set<std::string> different;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::string input = mutator.input(i);
    EXPECT_EQ(input, Mutator(seeds, words).input(i));
    EXPECT_LE(input.size(), kMostInputBytes);
    different.insert(input);
  }
  EXPECT_GT(different.size(), 150u);
}

TEST(Seeds, TheDictionaryHasTheKeysOfScenarios) {
  const Reader& reader = *find_reader("scenario");
  const std::string dictionary = dictionary_of(words_of(reader, seeds_of(reader)));
  for (const char* word : {"\"tensor: \"\n", "\"interleaved\"\n", "\"micro_batch: \"\n"})
    EXPECT_NE(dictionary.find(word), std::string::npos) << word;
}

// What a harness has to notice.
struct Broken {
  const char *name, *message;
  void (*read)(const std::string&);
};

[[noreturn]] void throw_message(const std::string& message) {
  throw InputError(Diagnostic{"file", 1, 1, "", message, ""});
}

const Broken kBroken[] = {
    {"another_exception", "no InputError", [](const std::string&) { throw std::out_of_range("at"); }},
    {"no_exception_at_all", "no std::exception", [](const std::string&) { throw 1; }},
    {"no_diagnostic", "without a diagnostic", [](const std::string&) { throw InputError(std::vector<Diagnostic>()); }},
    {"no_message", "without a message", [](const std::string&) { throw_message(""); }},
    {"not_text", "no valid UTF-8", [](const std::string&) { check_printable("\xff", "it"); }},
    {"escape", "control character 0x1b", [](const std::string&) { check_printable("\x1b[2J", "it"); }},
    {"c1", "control character 0xc2", [](const std::string&) { check_printable("\xc2\x9b", "it"); }},
    {"endless", "too much processor time",
     [](const std::string&) {
       for (volatile bool on = true; on;) {
       }
     }},
    {"crash", "rehearse-fuzz --target=crash", [](const std::string&) { std::abort(); }},
};

class Harness : public testing::TestWithParam<Broken> {};

TEST_P(Harness, Notices) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Reader reader{.name = GetParam().name, .read = GetParam().read};
  EXPECT_DEATH(
      {
        report_deaths();
        run_input(reader, "input", "anything");
      },
      GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(Promises, Harness, testing::ValuesIn(kBroken),
                         [](const auto& broken) { return std::string(broken.param.name); });

TEST(Harness, LetsAnInputErrorPass) {
  const Reader reader{.name = "refusing", .read = [](const std::string&) { throw_message("no"); }};
  run_input(reader, "input", "anything");
}

}  // namespace
}  // namespace rehearse::fuzz
