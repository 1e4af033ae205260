// Quantities: exact values read from text, what is refused, rounding of transfer times, and what people get to read.
#include "sim/base/units.h"

#include <gtest/gtest.h>

#include "sim/base/check.h"

namespace rehearse {
namespace {

TEST(ParseBytes, ReadsDecimalAndBinaryUnitsExactly) {
  EXPECT_EQ(parse_bytes("25MiB"), Bytes(25 * 1024 * 1024));
  EXPECT_EQ(parse_bytes("25 MB"), Bytes(25'000'000));
  EXPECT_EQ(parse_bytes("80GiB"), Bytes(85'899'345'920));
  EXPECT_EQ(parse_bytes("1.5KiB"), Bytes(1536));
  EXPECT_EQ(parse_bytes("7B"), Bytes(7));
  EXPECT_EQ(parse_bytes("7 bytes"), Bytes(7));
  EXPECT_EQ(parse_bytes("0"), Bytes(0));
  EXPECT_EQ(parse_bytes("8388607TiB"), Bytes(8388607LL << 40));
}

TEST(ParseBytes, RefusesWhatIsNoSizeOrDoesNotFit) {
  for (const char* text : {"", " ", "25", "-1MB", "MiB", "25mib", "25 Mi B", "0x10B", "inf GB", "nan B", "8388608TiB",
                           "1e400GB", "1..5MB", "25MiB/s", "0.1B", "5us"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

// A Gb is an eighth of a GB: mixing them is the commonest error of the field.
TEST(ParseBandwidth, BitsAreAnEighthOfBytes) {
  EXPECT_EQ(parse_bandwidth("400Gbps"), Bandwidth(50'000'000'000));
  EXPECT_EQ(parse_bandwidth("50GB/s"), Bandwidth(50'000'000'000));
  EXPECT_EQ(parse_bandwidth("25.6Tbps"), Bandwidth(3'200'000'000'000));
  EXPECT_EQ(parse_bandwidth("1 GiB/s"), Bandwidth(1 << 30));
  EXPECT_EQ(parse_bandwidth("8bps"), Bandwidth(1));
  EXPECT_EQ(parse_bandwidth("0"), Bandwidth(0));
  for (const char* text : {"400", "400Gb", "400GB", "400gbps", "1bps", "5/s", "0/s"}) {
    EXPECT_EQ(parse_bandwidth(text), std::nullopt) << text;
  }
}

TEST(ParseTime, IsExactInPicoseconds) {
  EXPECT_EQ(parse_time("5us"), Time::from_us(5));
  EXPECT_EQ(parse_time("1.234567 us"), Time::from_ps(1'234'567));
  EXPECT_EQ(parse_time("2h"), Time::from_ps(7'200'000'000'000'000));
  EXPECT_EQ(parse_time("3min"), Time::from_ps(180'000'000'000'000));
  EXPECT_EQ(parse_time("0.1ps"), std::nullopt) << "a positive time must not become zero";
  EXPECT_EQ(parse_time("2563h"), std::nullopt) << "int64 picoseconds end at 2562 h";
}

TEST(ParseFlopRate, TakesCommonUnits) {
  EXPECT_EQ(parse_flop_rate("312TFLOPS"), FlopRate(312e12));
  EXPECT_EQ(parse_flop_rate("1.979 PFLOPS"), FlopRate(1.979e15));
  EXPECT_EQ(parse_flop_rate("312"), std::nullopt);
  EXPECT_EQ(parse_flop_rate("312TFLOP"), std::nullopt);
}

// 10 bytes at 3 bytes/s take 3.33... s: the transfer has not ended before the next picosecond.
TEST(TransferTime, RoundsUp) {
  EXPECT_EQ(transfer_time(Bytes(10), Bandwidth(3)).ps(), 3'333'333'333'334);
  EXPECT_EQ(transfer_time(Bytes(9), Bandwidth(3)).ps(), 3'000'000'000'000);
  EXPECT_EQ(transfer_time(Bytes(0), Bandwidth(3)), Time());
  EXPECT_EQ(transfer_time(Bytes(1LL << 40), Bandwidth(1LL << 40)).ps(), 1'000'000'000'000) << "needs 128-bit products";
}

TEST(TransferTime, RefusesARateOfZeroAndTimesThatDoNotFit) {
  EXPECT_THROW(transfer_time(Bytes(1), Bandwidth(0)), InternalError);
  EXPECT_THROW(transfer_time(Bytes(INT64_MAX), Bandwidth(1)), InternalError);
  EXPECT_THROW(Time::from_seconds(1e7), InternalError);
}

TEST(TimeFromSeconds, RoundsToNearest) {
  EXPECT_EQ(Time::from_seconds(1.4e-12).ps(), 1);
  EXPECT_EQ(Time::from_seconds(1.6e-12).ps(), 2);
  EXPECT_EQ(Time::from_seconds(-1.6e-12).ps(), -2);
}

TEST(Format, ShowsFourDigitsAtMost) {
  EXPECT_EQ(format_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(format_bytes(Bytes(999)), "999 B");
  EXPECT_EQ(format_bytes(Bytes(31'416'000'000)), "31.42 GB");
  EXPECT_EQ(format_bytes(Bytes(25'000'000)), "25 MB");
  EXPECT_EQ(format_bytes(Bytes(999'960)), "1 MB") << "999.96 kB rounds into the next unit";
  EXPECT_EQ(format_bytes(Bytes(-1'500)), "-1.5 kB");
  EXPECT_EQ(format_bandwidth(Bandwidth(50'000'000'000)), "50 GB/s");
}

TEST(Format, TimeChangesToMinutesAndHours) {
  EXPECT_EQ(format_time(Time::from_ps(999)), "999 ps");
  EXPECT_EQ(format_time(Time::from_ps(1'234'400'000)), "1.234 ms");
  EXPECT_EQ(format_time(Time::from_seconds(120)), "120 s");
  EXPECT_EQ(format_time(Time::from_seconds(150)), "2.5 min");
  EXPECT_EQ(format_time(Time::from_seconds(7200)), "120 min");
  EXPECT_EQ(format_time(Time::from_seconds(9000)), "2.5 h");
  EXPECT_EQ(format_time(Time::from_seconds(-150)), "-2.5 min");
}

}  // namespace
}  // namespace rehearse
