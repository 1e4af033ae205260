// Quantities to and from text. Numbers are read in decimal and scaled by the unit in extended precision, then rounded
// to the nearest integer: every quantity of up to 18 digits that is a whole number of bytes or picoseconds comes out
// exactly. A positive quantity that would round to zero (0.1 ps, 1 bps) is refused rather than silently becoming
// nothing.
#include "sim/base/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

#include "sim/base/check.h"

namespace rehearse {
namespace {

struct Unit {
  std::string_view name;
  long double factor;
};

constexpr Unit kByteUnits[] = {{"bytes", 1},  {"B", 1},         {"kB", 1e3L},     {"MB", 1e6L},     {"GB", 1e9L},
                               {"TB", 1e12L}, {"KiB", 1024.0L}, {"MiB", 0x1p20L}, {"GiB", 0x1p30L}, {"TiB", 0x1p40L}};
constexpr Unit kBitRateUnits[] = {
    {"bps", 0.125L}, {"kbps", 125.0L}, {"Mbps", 125e3L}, {"Gbps", 125e6L}, {"Tbps", 125e9L}};
constexpr Unit kTimeUnits[] = {{"ps", 1},    {"ns", 1e3L},    {"us", 1e6L},   {"ms", 1e9L},
                               {"s", 1e12L}, {"min", 60e12L}, {"h", 3600e12L}};
constexpr Unit kFlopUnits[] = {{"FLOPS", 1},     {"kFLOPS", 1e3L},  {"MFLOPS", 1e6L},
                               {"GFLOPS", 1e9L}, {"TFLOPS", 1e12L}, {"PFLOPS", 1e15L}};

bool is_space(char c) {
  return c == ' ' || c == '\t';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

struct Quantity {
  long double number;
  std::string_view unit;
};

std::optional<Quantity> split_quantity(std::string_view text) {
  text = trimmed(text);
  const bool starts_a_number = !text.empty() && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
  if (!starts_a_number) return std::nullopt;
  long double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  return Quantity{number, trimmed(text.substr(static_cast<std::size_t>(end - text.data())))};
}

std::optional<long double> scaled(const Quantity& quantity, std::span<const Unit> units) {
  if (quantity.unit.empty() && quantity.number == 0) return 0;
  for (const Unit& unit : units) {
    if (unit.name == quantity.unit) return quantity.number * unit.factor;
  }
  return std::nullopt;
}

std::optional<std::int64_t> whole(std::optional<long double> value) {
  if (!value || *value >= 0x1p63L) return std::nullopt;
  const auto rounded = static_cast<std::int64_t>(std::roundl(*value));
  if (rounded < 0 || (rounded == 0 && *value > 0)) return std::nullopt;
  return rounded;
}

std::optional<std::int64_t> parse_whole(std::string_view text, std::span<const Unit> units) {
  const auto quantity = split_quantity(text);
  return quantity ? whole(scaled(*quantity, units)) : std::nullopt;
}

// At most four significant digits, no trailing zeros after the point.
std::string four_digits(double value) {
  if (value >= 999.95) return fmt::format("{:.0f}", value);
  std::string text = fmt::format("{:.{}f}", value, value >= 99.995 ? 1 : value >= 9.9995 ? 2 : 3);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// In the largest unit in which the rounded value is at least 1, going up by thousands.
std::string in_thousands(double value, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  const double sign = value < 0 ? -1 : 1;
  value *= sign;
  while (unit + 1 < units.size() && value >= 999.95) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{}{} {}", sign < 0 ? "-" : "", four_digits(value), units[unit]);
}

}  // namespace

Time Time::from_seconds(double s) {
  REHEARSE_CHECK(std::abs(s) < 9.2e6, "{} s does not fit in 64 bits of picoseconds (106 days)", s);
  return Time(static_cast<std::int64_t>(std::llroundl(static_cast<long double>(s) * 1e12L)));
}

Time transfer_time(Bytes bytes, Bandwidth rate) {
  REHEARSE_CHECK(rate.per_s() > 0, "a transfer of {} bytes at {} bytes/s", bytes.count(), rate.per_s());
  REHEARSE_CHECK(bytes.count() >= 0, "a transfer of {} bytes", bytes.count());
  __extension__ using Wide = unsigned __int128;
  const Wide byte_ps = static_cast<Wide>(bytes.count()) * 1'000'000'000'000U;
  const Wide per_s = static_cast<Wide>(rate.per_s());
  const Wide ps = (byte_ps + per_s - 1) / per_s;
  REHEARSE_CHECK(ps <= static_cast<Wide>(INT64_MAX), "{} bytes at {} bytes/s take over 106 days", bytes.count(),
                 rate.per_s());
  return Time::from_ps(static_cast<std::int64_t>(ps));
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto count = parse_whole(text, kByteUnits);
  return count ? std::optional(Bytes(*count)) : std::nullopt;
}

std::optional<Bandwidth> parse_bandwidth(std::string_view text) {
  auto quantity = split_quantity(text);
  if (!quantity) return std::nullopt;
  std::span<const Unit> units = kBitRateUnits;
  if (quantity->unit.ends_with("/s")) {
    quantity->unit = trimmed(quantity->unit.substr(0, quantity->unit.size() - 2));
    if (quantity->unit.empty()) return std::nullopt;
    units = kByteUnits;
  }
  const auto per_s = whole(scaled(*quantity, units));
  return per_s ? std::optional(Bandwidth(*per_s)) : std::nullopt;
}

std::optional<Time> parse_time(std::string_view text) {
  const auto ps = parse_whole(text, kTimeUnits);
  return ps ? std::optional(Time::from_ps(*ps)) : std::nullopt;
}

std::optional<FlopRate> parse_flop_rate(std::string_view text) {
  const auto quantity = split_quantity(text);
  if (!quantity) return std::nullopt;
  const auto per_s = scaled(*quantity, kFlopUnits);
  if (!per_s || *per_s > 1e300L) return std::nullopt;
  return FlopRate(static_cast<double>(*per_s));
}

std::string format_bytes(Bytes bytes) {
  static constexpr std::string_view units[] = {"B", "kB", "MB", "GB", "TB"};
  return in_thousands(static_cast<double>(bytes.count()), units);
}

std::string format_time(Time time) {
  static constexpr std::string_view units[] = {"ps", "ns", "us", "ms", "s"};
  const double seconds = std::abs(time.seconds());
  const char* sign = time < Time() ? "-" : "";
  if (seconds > 7200) return fmt::format("{}{} h", sign, four_digits(seconds / 3600));
  if (seconds > 120) return fmt::format("{}{} min", sign, four_digits(seconds / 60));
  return in_thousands(static_cast<double>(time.ps()), units);
}

std::string format_bandwidth(Bandwidth rate) {
  static constexpr std::string_view units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  return in_thousands(static_cast<double>(rate.per_s()), units);
}

}  // namespace rehearse
