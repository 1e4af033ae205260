#include "sim/base/harmless_text.h"

#include <gtest/gtest.h>

#include "sim/base/diagnostics.h"
#include "sim/base/text_check.h"

namespace rehearse {
namespace {

TEST(HarmlessText, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(escaped_controls("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(escaped_controls("\u009b31m\u0085\u007f"), "\\u009b31m\\u0085\\u007f") << "C1: U+009B is ESC [";
  EXPECT_EQ(escaped_controls("a\u202eb\u2066c\u2069\u200f\u061c"), "a\\u202eb\\u2066c\\u2069\\u200f\\u061c");
  EXPECT_EQ(escaped_controls("\x9b"
                             "31m\xff"),
            "\\x9b31m\\xff")
      << "bytes that are no UTF-8: a terminal of 8 bits takes them for C1";
  EXPECT_EQ(escaped_controls("a\nb\tc", "\n\t"), "a\nb\tc");
}

TEST(HarmlessText, EveryOtherTextStays) {
  const std::string text = "é 日本語 \U0001F680 עברית \u00a0\u0080";
  EXPECT_EQ(escaped_controls(text), "é 日本語 \U0001F680 עברית \u00a0\\u0080") << "U+0080 to U+009F only";
  EXPECT_EQ(masked_controls(text), "é 日本語 \U0001F680 עברית \u00a0?");
}

TEST(HarmlessText, EveryCodePointOfTheListAndNoOther) {
  int harmful = 0;
  for (unsigned code = 0x80; code < 0x3000; ++code) {
    std::string text;
    if (code < 0x800)
      text.push_back(static_cast<char>(0xC0 | code >> 6));
    else
      text.append({static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F))});
    text.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    const bool listed = code < 0xA0 || code == 0x61C || code == 0x200E || code == 0x200F ||
                        (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    harmful += listed;
    EXPECT_EQ(masked_controls(text), listed ? "?" : text) << std::hex << code;
  }
  EXPECT_EQ(harmful, 32 + 3 + 7 + 4);
}

TEST(HarmlessText, MessagesShowIt) {
  EXPECT_EQ((Diagnostic{"a\u009b.yaml", 3, 1, "\u202ekey", "unknown key", ""}.text()),
            "a\\u009b.yaml:3:1: error: \\u202ekey: unknown key");
  EXPECT_EQ(detail::shown("\u009b1m"), "'\\u009b1m'");
}

}  // namespace
}  // namespace rehearse
