// What the fluid model leaves out: messages around one switch in ns-3 (ns3_star.h), packet by packet, beside the same
// in the engine's network (fluid_star.h). Tables on standard output; what is asserted follows from the protocol's
// constants, with C the rate of a link, d its latency, and a message of S bytes as k segments of kPayload:
//   frames    k segments are S + (kFrame - kPayload) k bytes on the wire, an acknowledgement kAck bytes
//   alone     a message takes 2 d + frames / C, and its first frame once more, at the switch
//   round     from a frame's start to its acknowledgement: 4 d + 2 kFrame / C + 2 kAck / C
//   windows   10, 20, 40, ... segments; while one is shorter than a round the sender waits for the rest of it
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "fluid_star.h"
#include "ns3_star.h"

namespace rehearse::packets {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr Transport kLossless{}, kDropping{.port_segments = 100};

std::int64_t segments(std::int64_t bytes) {
  return (bytes + kPayload - 1) / kPayload;
}
double wire_s(const Star& star, std::int64_t bytes) {
  return static_cast<double>(bytes + (kFrame - kPayload) * segments(bytes)) / star.bytes_per_s;
}
double frame_s(const Star& star) {
  return kFrame / star.bytes_per_s;
}
double ack_s(const Star& star) {
  return kAck / star.bytes_per_s;
}
double round_s(const Star& star) {
  return 4 * star.hop_s + 2 * frame_s(star) + 2 * ack_s(star);
}
double alone_s(const Star& star, std::int64_t bytes) {
  return 2 * star.hop_s + wire_s(star, bytes) + wire_s(star, std::min(bytes, kPayload));
}

// What a sender waits in slow start before its last window: each is sent at the link's rate as its acknowledgements
// come, the next begins a round later.
double slow_start_s(const Star& star, std::int64_t bytes) {
  double waited = 0;
  std::int64_t sent = kFirstWindow;
  for (std::int64_t window = kFirstWindow; sent < segments(bytes); window *= 2, sent += window)
    waited += std::max(0.0, round_s(star) - static_cast<double>(window) * frame_s(star));
  return waited;
}

std::string size_of(std::int64_t bytes) {
  return bytes >= kMiB ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes / kKiB);
}
void head(const std::string& title) {
  fmt::print("{}\n| size | ns-3 | fluid | ratio | first ends | marked | dropped | timeouts |\n", title);
  fmt::print("|---|---|---|---|---|---|---|---|\n");
}
void row(std::int64_t bytes, const Outcome& outcome, double fluid) {
  fmt::print("| {} | {:.1f} us | {:.1f} us | {:.3f} | {:.1f} us | {} | {} | {} |\n", size_of(bytes),
             outcome.last() * 1e6, fluid * 1e6, outcome.last() / fluid, outcome.first() * 1e6, outcome.marked,
             outcome.dropped, outcome.timeouts);
}

// Given one sender, nothing is shared and nothing queues at the switch: ns-3 is the closed form, and the ratio is
// headers, plus slow start, which is worst a few windows up and is lost in large messages.
TEST(Packets, OneMessageIsHeadersAndSlowStart) {
  for (const double hop : {1e-6, 10e-6}) {
    const Star star{.hosts = 2, .hop_s = hop};
    head(fmt::format("one sender, {:.0f} us a link", hop * 1e6));
    std::vector<double> ratios;
    for (const std::int64_t bytes : {1 * kKiB, 14 * kKiB, 64 * kKiB, 256 * kKiB, 1 * kMiB, 16 * kMiB}) {
      const Outcome outcome = incast(star, bytes, kLossless);
      const double fluid = fluid_incast(star, bytes).front();
      row(bytes, outcome, fluid);
      EXPECT_NEAR(outcome.last() / (alone_s(star, bytes) + slow_start_s(star, bytes)), 1, 1e-4) << bytes;
      EXPECT_EQ(outcome.marked + outcome.dropped, 0);
      ratios.push_back(outcome.last() / fluid);
    }
    EXPECT_GT(ratios[2], ratios[1]);
    EXPECT_GT(ratios[2], ratios[5]);
  }
}

// Given n senders, the switch's port to the receiver carries all frames, which is the least it can take. More comes of
// idling there: first windows together are longer than a round, so only DCTCP's cuts can empty the port. A window that
// was cut grows by a segment a round: what is left has been sent after sqrt(2 k) rounds, or the port is full again
// after as many as a round holds frames. The fluid model has all end together, packets do not.
TEST(Packets, IncastWithoutLossIsHeaders) {
  for (const int senders : {8, 32}) {
    const Star star{.hosts = senders + 1};
    head(fmt::format("{} senders, no loss", senders));
    for (const std::int64_t bytes : {14 * kKiB, 64 * kKiB, 256 * kKiB, 1 * kMiB, 4 * kMiB, 16 * kMiB}) {
      if (senders * bytes > 128 * kMiB) continue;  // 4 s for each 128 MiB
      const Outcome outcome = incast(star, bytes, kLossless);
      const std::vector<double> fluid = fluid_incast(star, bytes);
      row(bytes, outcome, fluid.front());
      EXPECT_EQ(outcome.dropped, 0);
      EXPECT_EQ(fluid.front(), fluid.back());
      EXPECT_NEAR(fluid.front(), 2 * star.hop_s + senders * static_cast<double>(bytes) / star.bytes_per_s, 1e-11);
      const double least = 2 * star.hop_s + frame_s(star) + senders * wire_s(star, bytes);
      const double rounds =
          std::min(std::sqrt(2.0 * static_cast<double>(segments(bytes))), std::ceil(round_s(star) / frame_s(star)));
      EXPECT_GE(outcome.last(), least * (1 - 1e-9)) << senders << " " << bytes;
      EXPECT_LE(outcome.last(), least + rounds * round_s(star)) << senders << " " << bytes;
      EXPECT_LT(outcome.first(), outcome.last());
    }
  }
}

// Given ports of 100 segments and 32 first windows of 10 at once: no more than 100 wait there, one is on the wire, and
// 11 leave while the rest comes. Who has lost the end of a message hears no acknowledgement that would tell of it, and
// waits for the timer. Larger messages lose no less.
TEST(Packets, IncastWithLossWaitsForTimers) {
  for (const int senders : {8, 32}) {
    const Star star{.hosts = senders + 1};
    head(fmt::format("{} senders, ports of {} segments", senders, kDropping.port_segments));
    for (const std::int64_t bytes : {14 * kKiB, 64 * kKiB, 256 * kKiB, 1 * kMiB}) {
      const Outcome outcome = incast(star, bytes, kDropping);
      row(bytes, outcome, fluid_incast(star, bytes).front());
      EXPECT_GE(outcome.last(), 2 * star.hop_s + frame_s(star) + senders * wire_s(star, bytes));
      EXPECT_GE(outcome.dropped, senders * kFirstWindow - kDropping.port_segments - 1 - 11);
      EXPECT_GE(outcome.timeouts, senders == 32 ? 1 : 0) << bytes;
      EXPECT_GE(outcome.last(), outcome.timeouts > 0 ? kRetransmitAfter : 0);
    }
  }
}

// Given a ring, a step is a message alone, so its whole length adds up step by step; the first message also waits in
// slow start. At most one acknowledgement goes over each link for every segment, and may hold up the other direction's
// message by its own length. A sender waits for windows until one holds a message and the one before, of which all may
// still be on their way; each wait is a round at most and doubles the window.
TEST(Packets, RingIsHeadersStoringAndSlowStart) {
  for (const int hosts : {8, 16}) {
    const Star star{.hosts = hosts};
    const int steps = 2 * (hosts - 1);
    head(fmt::format("all-reduce around a ring of {}", hosts));
    double before = 1;
    for (const std::int64_t bytes : {16 * kKiB, 64 * kKiB, 256 * kKiB, 1 * kMiB, 4 * kMiB}) {
      const std::int64_t part = bytes / hosts;
      const Outcome outcome = ring(star, steps, part, kLossless);
      const double fluid = fluid_ring(star, bytes);
      row(bytes, outcome, fluid);
      EXPECT_NEAR(stepped_ring(star, bytes) / fluid, 1, 1e-6);
      EXPECT_EQ(outcome.marked + outcome.dropped, 0);
      const double alone = steps * alone_s(star, part);
      const double acks = steps * static_cast<double>(segments(part)) * ack_s(star);
      double windows = 0;
      for (std::int64_t window = kFirstWindow; window < 2 * segments(part); window *= 2) ++windows;
      EXPECT_GE(outcome.last(), (alone + slow_start_s(star, part)) * (1 - 1e-9)) << hosts << " " << bytes;
      EXPECT_LE(outcome.last(), alone + acks + windows * round_s(star)) << hosts << " " << bytes;
      // Slow start is paid once: from where there is any, its share falls as messages grow.
      if (segments(part) <= kFirstWindow) continue;
      const double share = (outcome.last() - alone - acks) / fluid;
      EXPECT_LT(share, before);
      before = share;
    }
  }
}

// Each port carries one host's messages and never more than its link brings: nothing is lost in however small a one.
TEST(Packets, RingLosesNothing) {
  const Star star{.hosts = 8};
  const Outcome outcome = ring(star, 14, kMiB / 8, kDropping);
  EXPECT_EQ(outcome.dropped + outcome.timeouts, 0);
  EXPECT_EQ(outcome.last(), ring(star, 14, kMiB / 8, kLossless).last());
}

}  // namespace
}  // namespace rehearse::packets
