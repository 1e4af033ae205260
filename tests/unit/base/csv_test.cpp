// Tables of comma-separated values: what is read, and that each problem is reported where it stands.
#include "sim/base/csv.h"

#include <gtest/gtest.h>

namespace rehearse {
namespace {

using Fields = std::vector<std::vector<std::string>>;

Fields fields_of(const std::string& text, CsvDialect dialect = CsvDialect::plain) {
  CsvReader reader("t.csv", text, dialect);
  Fields all;
  while (reader.next()) {
    all.emplace_back();
    for (std::size_t i = 0; i < reader.size(); ++i) all.back().emplace_back(reader[i]);
  }
  return all;
}

std::string problems(const std::string& text, const CsvColumns& columns) {
  Diagnostics diagnostics;
  CsvTable table("t.csv", text, columns, diagnostics);
  try {
    while (const CsvRow* row = table.next()) row->positive_integer("n");
    diagnostics.throw_if_any();
  } catch (const InputError& error) {
    std::string out;
    for (const Diagnostic& d : error.diagnostics()) out += d.text() + "\n";
    return out;
  }
  return "";
}

TEST(CsvReader, ReadsQuotesCommasAndLineEnds) {
  CsvReader reader("t.csv", "a,b\r\n\"x, \"\"y\"\"\nz\",2\r\n\n3,\n");
  ASSERT_TRUE(reader.next() && reader.next());
  EXPECT_EQ(reader[0], "x, \"y\"\nz");
  EXPECT_EQ(reader[1], "2");
  EXPECT_EQ(reader.line(), 2);
  EXPECT_EQ(reader.line_of(1), 3) << "the quoted field took one line more";
  EXPECT_EQ(reader.column_of(1), 4);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.line(), 5) << "and a blank line one";
  EXPECT_EQ(reader.size(), 2u);
  EXPECT_EQ(reader[1], "");
  EXPECT_FALSE(reader.next());
}

TEST(CsvReader, TakesOffTheMarkOfText) {
  EXPECT_EQ(fields_of("'=1+1,\"'=a,b\",'x'\n"), (Fields{{"=1+1", "=a,b", "'x'"}}));
}

TEST(CsvReader, CommentsAndBlanksAreOfOneDialect) {
  const std::string text = "# from a machine\n a , b\t\n  # more\n \n1, \"2 \" ,\n";
  EXPECT_EQ(fields_of(text, CsvDialect::commented), (Fields{{"a", "b"}, {"1", "2 ", ""}}));
  EXPECT_EQ(fields_of("#a, b\n"), (Fields{{"#a", " b"}}));
}

TEST(CsvReader, NothingHoldsNoRow) {
  EXPECT_EQ(fields_of(""), Fields{});
  EXPECT_EQ(fields_of("\n\r\n"), Fields{});
  EXPECT_EQ(fields_of("# a", CsvDialect::commented), Fields{});
  EXPECT_EQ(fields_of("a,"), (Fields{{"a", ""}}));
}

TEST(CsvReader, BrokenQuotesAndLineEndsAreErrorsWithTheirPlace) {
  const auto found = [](const std::string& text) -> std::string {
    try {
      fields_of(text);
    } catch (const InputError& error) {
      return error.diagnostics().front().text();
    }
    return "none";
  };
  EXPECT_EQ(found("a,b\n1,\"2\n3"), "t.csv:2:3: error: a quoted field that never ends");
  EXPECT_EQ(found("a,b\n\"1\"x,2\n"), "t.csv:2:4: error: text after a closing quote");
  EXPECT_EQ(found("a,b\n1\r2,3\n"), "t.csv:2:2: error: a carriage return without a line feed");
}

TEST(CsvTable, EveryProblemIsReportedWhereItStands) {
  const CsvColumns columns{{"name", "n"}};
  EXPECT_EQ(problems("n,name\n1,a\n2,b\n", columns), "") << "in any order";
  EXPECT_EQ(problems("name,n\na,x\nb\nc,-1\nd,99999999999999999999\n", columns),
            "t.csv:2:3: error: n: 'x' is not a positive whole number\n"
            "t.csv:3:1: error: expected 2 fields, found 1\n"
            "t.csv:4:3: error: n: '-1' is not a positive whole number\n"
            "t.csv:5:3: error: n: 99999999999999999999 is out of range, expected at most 1073741824\n");
  EXPECT_EQ(problems("name,nam,name\n", columns),
            "t.csv:1:1: error: there is no column 'n'\n"
            "t.csv:1:6: error: unknown column 'nam' (did you mean 'name'?)\n"
            "t.csv:1:10: error: there is a second column 'name'\n");
  EXPECT_EQ(problems("", columns), "t.csv:1:1: error: expected a row that names the columns, found none\n");
}

TEST(CsvTable, OtherColumnsMayBeThere) {
  EXPECT_EQ(problems("more,n\nx,1\n", {{"n"}, true}), "");
  EXPECT_EQ(problems("id,metrik\n", {{"metric"}, true}),
            "t.csv:1:1: error: there is no column 'metric' (did you mean 'metrik'?)\n");
}

TEST(CsvTable, ATextWithinAFileHasTheLinesOfTheFile) {
  Diagnostics diagnostics;
  CsvTable table("device.yaml", "n\n-\nx\n", {{"n"}}, diagnostics, CsvDialect::commented, 12);
  EXPECT_EQ(table.next()->integer_or_dash("n"), 0);
  EXPECT_EQ(table.next()->choice("n", {"no", "yes"}), 0);
  EXPECT_EQ(table.next(), nullptr);
  ASSERT_EQ(diagnostics.list().size(), 1u);
  EXPECT_EQ(diagnostics.list().front().text(), "device.yaml:14:1: error: n: 'x' is not one of no, yes");
}

}  // namespace
}  // namespace rehearse
