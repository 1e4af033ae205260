// Launch scripts as bash would expand them: variables, arrays, quotes, arithmetic, conditions; and what is no script.
#include "formats/shell_script.h"

#include <gtest/gtest.h>

#include "formats/shell_arithmetic.h"

namespace rehearse::formats {
namespace {

using Texts = std::vector<std::string>;

ShellScript script(const std::string& text) {
  return read_shell_script("s.sh", text);
}

// The words of the last command.
Texts words(const std::string& text) {
  const ShellScript s = script(text);
  Texts list;
  if (s.commands.empty()) return list;
  for (const ShellWord& word : s.commands.back().words) list.push_back(word.text);
  return list;
}

TEST(ShellScript, VariablesAreThoseOfTheMoment) {
  EXPECT_EQ(words("A=1\nB=$A\nA=2\nrun $A ${B}x \"$A $B\" '$A'"), (Texts{"run", "2", "1x", "2 1", "$A"}));
  EXPECT_EQ(words("export N=8 M=\"a b\"\nrun $N $M \"$M\""), (Texts{"run", "8", "a", "b", "a b"}));
  EXPECT_EQ(words("A=1; A+=2\nrun $A"), (Texts{"run", "12"}));
  EXPECT_EQ(words("run ${X:-7} ${X:-\"a b\"} ${1:-\"c\"}"), (Texts{"run", "7", "a", "b", "c"}));
  EXPECT_EQ(words("X=3\nrun ${X:-7} ${X:+yes} ${Y:+no}"), (Texts{"run", "3", "yes"}));
}

TEST(ShellScript, ArraysAreWordsEach) {
  const char* arrays =
      "A=(--x 1   # a comment\n  --y \"2 3\"\n)\nA+=(\"${B[@]}\")\nB=(--z)\nA+=(\"${B[@]}\")\nrun \"${A[@]}\" ${A[@]}";
  EXPECT_EQ(words(arrays), (Texts{"run", "--x", "1", "--y", "2 3", "--z", "--x", "1", "--y", "2", "3", "--z"}));
}

TEST(ShellScript, LinesGoOnAfterABackslash) {
  EXPECT_EQ(words("run --a 1 \\\n  --b=2 \\\r\n  --c"), (Texts{"run", "--a", "1", "--b=2", "--c"}));
  EXPECT_EQ(words("O=\" --a 1 \\\n --b 2 \"\nrun $O"), (Texts{"run", "--a", "1", "--b", "2"}));
}

TEST(ShellScript, ArithmeticIsWorkedOut) {
  EXPECT_EQ(words("A=8\nN=4\nrun $((A * $N / (1 + 1)))"), (Texts{"run", "16"}));
  EXPECT_EQ(shell_arithmetic("7 % 4 - -2", nullptr), 5);
  for (const char* wrong : {"", "1 /0", "1 +", "x", "9223372036854775807 + 1", "(1", "1 2", "2 ** 3"})
    EXPECT_EQ(shell_arithmetic(wrong, nullptr), std::nullopt) << wrong;
}

TEST(ShellScript, ConditionsOnTextsAreJudged) {
  const std::string body = " ]]; then\n  X=1\nelif [ \"$T\" = b ]; then\n  X=2\nelse\n  X=3\nfi\nrun $X";
  EXPECT_EQ(words("T=a\nif [[ \"$T\" == \"a\"" + body), (Texts{"run", "1"}));
  EXPECT_EQ(words("T=b\nif [[ \"$T\" == \"a\"" + body), (Texts{"run", "2"}));
  EXPECT_EQ(words("T=c\nif [[ \"$T\" == \"a\"" + body), (Texts{"run", "3"}));
  EXPECT_EQ(words("N=4\nX=0\nif [ $N -gt 2 ] && [ -n \"$N\" ]; then X=1; fi\nrun $X"), (Texts{"run", "1"}));
  EXPECT_EQ(words("N=4\nX=0\nif [ $N -gt 5 ] || [ -z \"$Q\" ]; then X=1; fi\nrun $X"), (Texts{"run", "1"}));
}

TEST(ShellScript, WhatCannotBeJudgedIsPassedOver) {
  const ShellScript s =
      script("X=0\nif [ -f /etc/passwd ]; then\n  X=1\nelse\n  X=2\nfi\nfor i in 1 2; do X=3; done\nrun $X");
  EXPECT_EQ(s.commands.back().words[1].text, "0");
  ASSERT_EQ(s.passed_over.size(), 2u);
  EXPECT_EQ(s.passed_over[0].substr(0, 7), "line 2:");
  const ShellScript unset = script("run --n $N --m $(nproc)");
  EXPECT_EQ(unset.commands[0].words[2].unset, "N");
  EXPECT_EQ(unset.commands[0].words[4].unset, "(a program's output)");
}

TEST(ShellScript, HereDocumentsBelongToOthers) {
  EXPECT_EQ(words("cat > x.json <<EOT\n{ \"a\": 'b' \nEOT\nrun 1"), (Texts{"run", "1"}));
}

TEST(ShellScript, PlacesAndDirectivesAreKept) {
  const ShellScript s =
      script("#!/bin/bash\n#SBATCH --nodes=4 --gpus-per-node=8\nA=(\n  --x 1\n)\nrun \"${A[@]}\" --y");
  ASSERT_EQ(s.directives.size(), 2u);
  EXPECT_EQ(s.directives[1].text, "--gpus-per-node=8");
  const std::vector<ShellWord>& all = s.commands.back().words;
  EXPECT_EQ(all[1].line, 4);
  EXPECT_EQ(all[1].column, 3);
  EXPECT_EQ(all[3].line, 6);
}

TEST(ShellScript, WhatIsNoneIsRefusedWithItsPlace) {
  struct Case {
    const char *text, *place;
  };
  for (const Case& c : {Case{"run 'a\n\n", "s.sh:1:5: error: this quote is not closed"},
                        {"run\nrun \"a", "s.sh:2:5: error: this quote is not closed"},
                        {"A=(1 2", "s.sh:1:7: error: the array A is not closed"},
                        {"run ${A", "this brace is not closed"},
                        {"run $((1", "this $(( is not closed"},
                        {"run $(( 1 + ))", "cannot work out"},
                        {"run $(ls", "this substitution is not closed"},
                        {"if [ 1 = 1 ]; then\nrun", "ends before 'fi'"},
                        {"cat <<E\nx", "the here-document of line 1 has no end 'E'"},
                        {"A=x\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\n"
                         "A=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\nA=$A$A$A$A\n",
                         "expand to more than 4 MB"}}) {
    try {
      script(c.text);
      ADD_FAILURE() << c.text;
    } catch (const InputError& error) {
      EXPECT_NE(error.diagnostics().front().text().find(c.place), std::string::npos)
          << error.diagnostics().front().text();
    }
  }
}

}  // namespace
}  // namespace rehearse::formats
