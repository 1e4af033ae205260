// What workers and parameter servers that are processes say to one another, over lane 1 of a Wire. To a server: a
// header, and behind it what it says so many bytes of; its n-th message from a worker has sequence n, so one receive
// waits for whatever comes next. From a server: answers, by the iteration that they are for, whose lengths are known.
// Numbers travel in the type that the worker has them in: parameters one after the other, in the model's order.
//
// To a worker that is done a server sends signs of life, numbered from 0, until all are and it has done all that there
// was to do, which is the last of them. These take the control lane: a worker may not come to fetch them for a while,
// and what is posted behind them on a lane would be kept as long.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "execute/servers/server.h"
#include "execute/transport/wire.h"
#include "sim/account/server_shards.h"

namespace rehearse::execute {

inline constexpr int kServedLane = 1;
// A worker waits kForServersToSpeak longer than the run's deadline, so a sign comes in time however short that is.
inline constexpr std::chrono::milliseconds kBetweenSigns{500};
inline constexpr char kServing = 's', kServed = 'e';

struct ServedHeader {
  ServerMessage::Kind kind = ServerMessage::Kind::pull;
  std::int64_t iteration = 0, bytes = 0;
};

enum class ServedTopic : std::int64_t { header, body, values, verdict, decided, life };
inline std::uint64_t served_tag(ServedTopic topic, std::int64_t sequence) {
  return make_tag(TagKind::served, static_cast<std::int64_t>(topic), sequence);
}

// One server's parameters, or their gradients, as they travel.
class ShardBytes {
 public:
  ShardBytes(const program::Role& worker, const std::vector<account::ServerParameter>& parameters, int server,
             program::BufferId account::ServerParameter::*which);

  std::int64_t bytes() const { return bytes_; }
  void pack(std::span<const float> numbers, char* to) const;
  void unpack(const char* from, std::span<float> numbers) const;

 private:
  struct Part {
    DType type;
    std::int64_t first, elements, offset;
  };
  std::vector<Part> parts_;
  std::int64_t bytes_ = 0;
};

}  // namespace rehearse::execute
