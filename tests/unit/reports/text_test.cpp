// Text for people: wrapping, columns and numbers.
#include "reports/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rehearse::reports {
namespace {

TEST(Wrap, BreaksBetweenWordsAndIndentsEveryLine) {
  std::string words;
  for (int i = 0; i < 30; ++i) words += "eight888 ";
  const std::string out = wrap(words, 4);
  // 76 columns hold eight words of eight and their seven spaces (71), not nine (80).
  EXPECT_EQ(out.substr(0, out.find('\n')),
            "    eight888 eight888 eight888 eight888 eight888 eight888 eight888 eight888");
}

TEST(Wrap, CutsAWordLongerThanALine) {
  const std::string out = wrap(std::string(100, 'x'));
  EXPECT_EQ(out, std::string(80, 'x') + "\n" + std::string(20, 'x') + "\n");
}

TEST(Labelled, WrapsTheValuesBesideTheirLabels) {
  const std::string text = labelled({{"First", "short"}, {"Empty", ""}, {"Long", std::string(60, 'a') + " next"}});
  EXPECT_EQ(text, "First" + std::string(13, ' ') + "short\n" + "Empty" + std::string(13, ' ') + "\n" + "Long" +
                      std::string(14, ' ') + std::string(60, 'a') + "\n" + std::string(18, ' ') + "next\n");
}

TEST(Clip, CountsCodePointsAndTamesControlCharacters) {
  EXPECT_EQ(columns("\xC3\xA9t\xC3\xA9"), 3u);
  EXPECT_EQ(clip("\xC3\xA9t\xC3\xA9s", 3), "\xC3\xA9t~");
  EXPECT_EQ(clip("\x1b[31mred", 20), "?[31mred");
  EXPECT_EQ(clip("\u009b31m\u202ered", 20), "?31m?red") << "a column stays a column";
  EXPECT_EQ(wrap("a\u0085b"), "a?b\n");
}

TEST(Numbers, AreWrittenForPeople) {
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(loss_text(2.30258), "2.3026");
  EXPECT_EQ(loss_text(-std::nan("")), "not a number");
  EXPECT_EQ(compact(0.12345), "0.1235");
  EXPECT_EQ(compact(12345), "12,345");
  EXPECT_EQ(compact(5.678e6), "5.678M");
  EXPECT_EQ(compact(2.4e10), "24G");
  EXPECT_EQ(percent(0.4567), "45.7%");
}

TEST(Names, LoseTheWordsTheyShare) {
  EXPECT_EQ(without_common_words({"gpt3-175b-gpipe", "gpt3-175b-gpipe-full"}),
            (std::vector<std::string>{"gpipe", "gpipe-full"}));
  EXPECT_EQ(without_common_words({"gpt3-175b"}), std::vector<std::string>{"gpt3-175b"});
  EXPECT_EQ(without_common_words({"ab", "ac"}), (std::vector<std::string>{"ab", "ac"})) << "no whole word is shared";
  EXPECT_EQ(file_stem("a.b/c-d.yaml"), "c-d");
  EXPECT_EQ(file_stem("plain"), "plain");
}

TEST(Align, ClipsTheFirstColumnToFit) {
  const std::string out = align({{"name", "a"}, {std::string(100, 'n'), "1"}});
  EXPECT_EQ(out.substr(0, out.find('\n')).size(), 80u);
  EXPECT_EQ(out.substr(out.find('\n') + 1), std::string(76, 'n') + "~  1\n");
}

}  // namespace
}  // namespace rehearse::reports
