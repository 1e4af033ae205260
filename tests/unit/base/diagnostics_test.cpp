// The text of a diagnostic, the order of several, and when a word counts as near.
#include "sim/base/diagnostics.h"

#include <gtest/gtest.h>

#include "sim/base/check.h"

namespace rehearse {
namespace {

TEST(Diagnostic, ReadsLikeACompilersMessage) {
  EXPECT_EQ((Diagnostic{"a.yaml", 3, 5, "plan.tensr", "unknown key", "did you mean 'tensor'?"}.text()),
            "a.yaml:3:5: error: plan.tensr: unknown key (did you mean 'tensor'?)");
  EXPECT_EQ((Diagnostic{"a.yaml", 0, 0, "", "is a directory", ""}.text()), "a.yaml: error: is a directory");
  EXPECT_EQ((Diagnostic{"", 0, 0, "", "no scenario given", ""}.text()), "error: no scenario given");
}

TEST(Diagnostic, ControlCharactersOfTheUsersWordsReachNoTerminal) {
  EXPECT_EQ((Diagnostic{"a.yaml", 3, 1, "\x1b[31mred", "unknown key\n", ""}.text()),
            "a.yaml:3:1: error: \\x1b[31mred: unknown key\\x0a");
}

TEST(Diagnostics, ThrowsAllOfThemOnceInFileOrder) {
  Diagnostics diagnostics;
  EXPECT_NO_THROW(diagnostics.throw_if_any());
  diagnostics.add({"b", 9, 1, "", "third", ""});
  diagnostics.add({"a", 1, 1, "", "fourth", ""});
  diagnostics.add({"b", 2, 7, "", "second", ""});
  diagnostics.add({"b", 2, 3, "", "first", ""});
  diagnostics.add({"b", 2, 7, "", "second", ""});
  try {
    diagnostics.throw_if_any();
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "b:2:3: error: first\nb:2:7: error: second\nb:9:1: error: third\na:1:1: error: fourth");
    EXPECT_EQ(error.diagnostics().size(), 4U);
  }
}

TEST(Diagnostics, ReadingStopsWhereNobodyWouldReadOn) {
  Diagnostics diagnostics;
  const auto problem = [](std::size_t i) { return Diagnostic{"a", static_cast<int>(i), 1, "", "wrong", ""}; };
  for (std::size_t i = Diagnostics::kMost; i > 1; --i) EXPECT_NO_THROW(diagnostics.add(problem(i)));
  try {
    diagnostics.add(problem(1));
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_EQ(error.diagnostics().size(), Diagnostics::kMost + 1);
    EXPECT_EQ(error.diagnostics().front().text(), "a:1:1: error: wrong");
    EXPECT_EQ(error.diagnostics().back().text(), "a: error: reading stopped after 1000 errors");
  }
}

TEST(Nearest, AcceptsTypingErrorsAndRefusesOtherWords) {
  const std::vector<std::string> keys = {"tensor", "pipeline", "context", "micro_batch"};
  EXPECT_EQ(nearest("tensr", keys), "tensor");
  EXPECT_EQ(nearest("tesnor", keys), "tensor");
  EXPECT_EQ(nearest("microbatch", keys), "micro_batch");
  EXPECT_EQ(nearest("vocabulary", keys), "");
  EXPECT_EQ(nearest("", keys), "");
  EXPECT_EQ(nearest("x", {"y"}), "") << "one letter for another is a different word, not a typing error";
  EXPECT_EQ(nearest(std::string(1 << 20, 'a'), keys), "") << "a huge word is not compared letter by letter";
}

TEST(Check, NamesConditionPlaceAndMessage) {
  const int ranks = 3;
  try {
    REHEARSE_CHECK(ranks == 4, "{} ranks", ranks);
    FAIL() << "expected an InternalError";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("ranks == 4"), std::string::npos);
    EXPECT_NE(text.find("3 ranks"), std::string::npos);
    EXPECT_NE(text.find("diagnostics_test.cpp"), std::string::npos);
  }
}

}  // namespace
}  // namespace rehearse
