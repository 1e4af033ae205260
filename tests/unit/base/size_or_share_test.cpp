// Sizes and percentages from text, and what a percentage comes to.
#include "sim/base/size_or_share.h"

#include <gtest/gtest.h>

namespace rehearse {
namespace {

TEST(SizeOrShare, ReadsSizesAndPercentages) {
  EXPECT_EQ(parse_size_or_share("2GiB"), (SizeOrShare{Bytes(std::int64_t{2} << 30), 0}));
  EXPECT_EQ(parse_size_or_share("0"), SizeOrShare());
  EXPECT_EQ(parse_size_or_share("5%"), (SizeOrShare{Bytes(), 5}));
  EXPECT_EQ(parse_size_or_share("2.5 %"), (SizeOrShare{Bytes(), 2.5}));
  EXPECT_EQ(parse_size_or_share("99.9%"), (SizeOrShare{Bytes(), 99.9}));
  for (const char* text : {"", "%", "5", "100%", "-5%", "5%%", "5 percent", "inf%", "nan%", "0x5%", "5%GiB"})
    EXPECT_EQ(parse_size_or_share(text), std::nullopt) << text;
}

// A twentieth of 80 GiB is 4 GiB to the byte; a part of a byte is a byte.
TEST(SizeOrShare, IsAPartOfTheWholeRoundedUp) {
  EXPECT_EQ(parse_size_or_share("5%")->of(Bytes(std::int64_t{80} << 30)), Bytes(std::int64_t{4} << 30));
  EXPECT_EQ(parse_size_or_share("1%")->of(Bytes(101)), Bytes(2));
  EXPECT_EQ(parse_size_or_share("7B")->of(Bytes(3)), Bytes(7));
  EXPECT_EQ(text_of(*parse_size_or_share("2.5%")), "2.5%");
  EXPECT_EQ(text_of(*parse_size_or_share("1KiB")), "1024B");
}

}  // namespace
}  // namespace rehearse
