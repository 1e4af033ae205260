// Quantities with a unit. Time is an integer number of picoseconds (int64: 106 days), bytes and bandwidth are integers,
// FLOPs are doubles (a step of a large model exceeds int64). Each type has only the arithmetic that makes sense, so
// that mixing GB/s with Gb/s, or seconds with picoseconds, does not compile. The explicit ways out are ps(), count(),
// per_s(), seconds(). Text with a unit ("25MiB", "400Gbps", "5us") is read by the parse_* functions, written by the
// format_* ones.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rehearse {

class Time {
 public:
  constexpr Time() = default;
  static constexpr Time from_ps(std::int64_t ps) { return Time(ps); }
  static constexpr Time from_ns(std::int64_t ns) { return Time(ns * 1000); }
  static constexpr Time from_us(std::int64_t us) { return Time(us * 1000000); }
  static Time from_seconds(double s);  // rounds to the nearest picosecond
  static constexpr Time max() { return Time(INT64_MAX); }
  constexpr std::int64_t ps() const { return ps_; }
  constexpr double seconds() const { return static_cast<double>(ps_) * 1e-12; }
  constexpr Time& operator+=(Time o) { return ps_ += o.ps_, *this; }
  constexpr Time& operator-=(Time o) { return ps_ -= o.ps_, *this; }
  friend constexpr Time operator+(Time a, Time b) { return Time(a.ps_ + b.ps_); }
  friend constexpr Time operator-(Time a, Time b) { return Time(a.ps_ - b.ps_); }
  friend constexpr Time operator*(Time a, std::int64_t n) { return Time(a.ps_ * n); }
  friend constexpr auto operator<=>(Time, Time) = default;

 private:
  constexpr explicit Time(std::int64_t ps) : ps_(ps) {}
  std::int64_t ps_ = 0;
};

class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}
  constexpr std::int64_t count() const { return count_; }
  constexpr Bytes& operator+=(Bytes o) { return count_ += o.count_, *this; }
  constexpr Bytes& operator-=(Bytes o) { return count_ -= o.count_, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }
  friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return Bytes(a.count_ * n); }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

 private:
  std::int64_t count_ = 0;
};

// Bytes a second, one direction.
class Bandwidth {
 public:
  constexpr Bandwidth() = default;
  constexpr explicit Bandwidth(std::int64_t bytes_per_s) : per_s_(bytes_per_s) {}
  constexpr std::int64_t per_s() const { return per_s_; }
  friend constexpr auto operator<=>(Bandwidth, Bandwidth) = default;

 private:
  std::int64_t per_s_ = 0;
};

class FlopRate {
 public:
  constexpr FlopRate() = default;
  constexpr explicit FlopRate(double per_s) : per_s_(per_s) {}
  constexpr double per_s() const { return per_s_; }
  friend constexpr auto operator<=>(FlopRate, FlopRate) = default;

 private:
  double per_s_ = 0;
};

// Time to move `bytes` at `rate`, rounded up to the picosecond. rate must be positive.
Time transfer_time(Bytes bytes, Bandwidth rate);

// Readers: number + unit, no space needed between them. nullopt if the text is not such a quantity, is negative, or
// does not fit. Units: bytes B kB MB GB TB KiB MiB GiB TiB; bandwidth <bytes>/s and bps kbps Mbps Gbps Tbps; time ps ns
// us ms s min h; flop rate FLOPS kFLOPS MFLOPS GFLOPS TFLOPS PFLOPS; "0" is accepted without a unit.
std::optional<Bytes> parse_bytes(std::string_view text);
std::optional<Bandwidth> parse_bandwidth(std::string_view text);
std::optional<Time> parse_time(std::string_view text);
std::optional<FlopRate> parse_flop_rate(std::string_view text);

// Writers for people: four significant digits at most, e.g. "31.42 GB", "25 MiB" only where asked, "1.234 ms".
std::string format_bytes(Bytes bytes);         // decimal units: B kB MB GB TB
std::string format_time(Time time);            // ps ns us ms s, above 120 s in min, above 2 h in h
std::string format_bandwidth(Bandwidth rate);  // GB/s and so on

// The least that is asked of a rate between devices, or to memory or storage: slower ones are mistakes, and would make
// steps that do not fit in 106 days of picoseconds.
inline constexpr Bandwidth kLowestBandwidth(1'000'000);

}  // namespace rehearse
