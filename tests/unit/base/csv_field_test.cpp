#include "sim/base/csv_field.h"

#include <gtest/gtest.h>

#include <string>

namespace rehearse {
namespace {

TEST(CsvField, WhatASpreadsheetWouldRunIsText) {
  EXPECT_EQ(csv_field("=1+1"), "'=1+1");
  EXPECT_EQ(csv_field("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(csv_field("-1+cmd|' /C calc'!A0"), "'-1+cmd|' /C calc'!A0");
  EXPECT_EQ(csv_field("+A1"), "'+A1");
  EXPECT_EQ(csv_field("\t=1"), "'\t=1");
  EXPECT_EQ(csv_field("=a,\"b\""), "\"'=a,\"\"b\"\"\"");
  EXPECT_EQ(csv_field("\uFF1D1"), "'\uFF1D1") << "full-width, as some spreadsheets take it";
}

TEST(CsvField, NumbersStayNumbersAndWordsWords) {
  for (const char* text : {"-5", "+5", "-0.25", "-1e-9", "12", "tensor", "a=b", "don't", "'quoted'", ""})
    EXPECT_EQ(csv_field(text), text);
  EXPECT_EQ(csv_field("-inf"), "'-inf") << "no number of a spreadsheet";
}

TEST(CsvField, EveryTextComesBack) {
  const std::string alphabet = "'=-+@\t1a";
  int marked = 0;
  for (int code = 0; code < 8 * 8 * 8 * 8; ++code) {
    std::string text;
    for (int rest = code, k = 0; k < 4; ++k, rest /= 8) text += alphabet[static_cast<std::size_t>(rest % 8)];
    const std::string field = csv_field(text);
    EXPECT_EQ(csv_text(field), text);
    EXPECT_EQ(csv_text(csv_text(csv_field(csv_field(text)))), text);
    marked += field != text;
  }
  EXPECT_GT(marked, 2000);
}

}  // namespace
}  // namespace rehearse
