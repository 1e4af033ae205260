// Messages between hosts around one switch in ns-3 3.37, packet by packet: TCP with its windows, acknowledgements and
// queues, which the engine's network (sim/engine/network.h) knows nothing of.
//
// Links are full duplex; a packet is received whole before it is sent on, and waits at the port it leaves by. Segments
// carry kPayload bytes, as Linux sends them over an MTU of 1500: 20 bytes of IP and 32 of TCP with time stamps, and a
// point-to-point frame adds 2 (Ethernet would add 38). Every segment is acknowledged at once, the first window is 10
// segments (RFC 6928), no retransmission comes before 200 ms (Linux's TCP_RTO_MIN); connections stand before time
// begins. Leaves out: what hosts take (system calls, copies, interrupts), priority flow control and RDMA, which
// ns-3 3.37 lacks.
#pragma once

#include <cstdint>
#include <vector>

namespace rehearse::packets {

constexpr std::int64_t kPayload = 1448, kFrame = kPayload + 20 + 32 + 2, kAck = 20 + 32 + 2;  // bytes
constexpr std::int64_t kFirstWindow = 10, kMarkedFrom = 65;                                   // segments
constexpr double kRetransmitAfter = 0.2;                                                      // s, at least

struct Star {
  int hosts = 2;
  double bytes_per_s = 12.5e9;
  double hop_s = 1e-6;  // of a link
};

// DCTCP (RFC 8257), whose segments are marked from kMarkedFrom waiting ones on, at ports that never overflow: as near
// as ns-3 comes to a fabric that loses nothing. Or TCP NewReno at ports that hold `port_segments` and drop the rest.
struct Transport {
  std::int64_t port_segments = 0;  // 0: lossless
};

struct Outcome {
  std::vector<double> ends;  // s, of each message of an incast; of each host's part of a ring
  std::int64_t dropped = 0, marked = 0, timeouts = 0;
  double last() const;
  double first() const;
};

// Hosts 1 .. n-1 send `bytes` each to host 0, all at once.
Outcome incast(const Star& star, std::int64_t bytes, const Transport& transport);
// Host h sends `steps` messages of `bytes` to host h + 1, the first at once, each other one when it has received as
// many whole messages.
Outcome ring(const Star& star, int steps, std::int64_t bytes, const Transport& transport);

}  // namespace rehearse::packets
