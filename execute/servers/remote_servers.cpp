// See remote_servers.h.
#include "execute/servers/remote_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace rehearse::execute {

using account::ServerParameter;
using Kind = ServerMessage::Kind;

namespace {

class ServerSilent : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace

RemoteServers::RemoteServers(Run& run)
    : ParameterServers(run), wire_(*run.world.wire()), sent_(servers()), decided_(run.first_step) {
  for (std::size_t s = 0; s < servers(); ++s) {
    values_.emplace_back(*timeline_.role, parameters_, static_cast<int>(s), &ServerParameter::value);
    gradients_.emplace_back(*timeline_.role, parameters_, static_cast<int>(s), &ServerParameter::gradient);
  }
  if (run.scenario.plan.backup_workers > 0) listener_ = std::thread([this] { listen(); });
}

RemoteServers::~RemoteServers() {
  closing_ = true;
  if (listener_.joinable()) listener_.join();
}

void RemoteServers::tell(std::size_t server, Kind kind, std::int64_t iteration, std::string body) {
  const ServedHeader header{kind, iteration, static_cast<std::int64_t>(body.size())};
  const std::int64_t number = sent_[server]++;
  wire_.post(rank_of(server), kServedLane, served_tag(ServedTopic::header, number),
             {reinterpret_cast<const char*>(&header), sizeof header});
  if (!body.empty()) wire_.post(rank_of(server), kServedLane, served_tag(ServedTopic::body, number), std::move(body));
}

template <class Done>
void RemoteServers::await(const Done& done, std::size_t server, const char* what) {
  const auto limit = run_.options.timeout + kForServersToSpeak;
  const Clock::time_point deadline = Clock::now() + limit;
  while (!done()) {
    if (run_.world.stop().requested()) throw Stopped({rank_of(server)});
    if (run_.options.timeout.count() > 0 && Clock::now() >= deadline)
      throw ServerSilent(fmt::format("{} for {} of server {} (rank {})\n  {}", waited_text(limit), what, server,
                                     rank_of(server), run_.whereabouts(rank_of(server))));
  }
}

void RemoteServers::wait(Wire::Transfer& transfer, std::size_t server, const char* what) {
  await([&] { return wire_.look(transfer); }, server, what);
}

void RemoteServers::begin(Shards values) {
  for (std::size_t s = 0; s < servers(); ++s) {
    std::string body(static_cast<std::size_t>(values_[s].bytes()), '\0');
    values_[s].pack(values[s], body.data());
    tell(s, Kind::begin, 0, std::move(body));
  }
}

Clock::time_point RemoteServers::get(int, std::int64_t iteration, Shards& values) {
  const Clock::time_point asked = Clock::now();
  std::vector<std::string> bodies(servers());
  std::vector<std::unique_ptr<Wire::Transfer>> transfers;
  for (std::size_t s = 0; s < servers(); ++s) {
    bodies[s].resize(sizeof(std::int64_t) + static_cast<std::size_t>(values_[s].bytes()));
    transfers.push_back(wire_.receive(rank_of(s), kServedLane, served_tag(ServedTopic::values, iteration),
                                      bodies[s].data(), bodies[s].size()));
    tell(s, Kind::pull, iteration);
  }
  std::chrono::nanoseconds longest{0};
  for (std::size_t s = 0; s < servers(); ++s) {
    wait(*transfers[s], s, "the parameters");
    std::int64_t held = 0;
    std::memcpy(&held, bodies[s].data(), sizeof held);
    longest = std::max(longest, std::chrono::nanoseconds(held));
    values[s].resize(static_cast<std::size_t>(elements_[s]));
    values_[s].unpack(bodies[s].data() + sizeof held, values[s]);
  }
  return asked + longest;
}

bool RemoteServers::ask_whether_counts(int, std::int64_t iteration) {
  char verdict = 0;
  const auto transfer =
      wire_.receive(rank_of(0), kServedLane, served_tag(ServedTopic::verdict, iteration), &verdict, sizeof verdict);
  tell(0, Kind::ended, iteration);
  wait(*transfer, 0, "the verdict");
  return verdict != 0;
}

void RemoteServers::send(int, std::int64_t iteration, Shards gradients) {
  for (std::size_t s = 0; s < servers(); ++s) {
    std::string body(static_cast<std::size_t>(gradients_[s].bytes()), '\0');
    gradients_[s].pack(gradients[s], body.data());
    tell(s, Kind::push, iteration, std::move(body));
  }
}

// Every step is decided before the last worker ends, so all of these messages come.
void RemoteServers::listen() {
  try {
    for (std::int64_t step = run_.first_step; step < run_.options.steps; ++step) {
      char decided = 0;
      const auto transfer =
          wire_.receive(rank_of(0), kServedLane, served_tag(ServedTopic::decided, step), &decided, sizeof decided);
      while (!wire_.look(*transfer))
        if (closing_ || run_.world.stop().requested()) return;
      decided_ = step + 1;
    }
  } catch (const WaitEnded&) {
  } catch (const std::exception& error) {
    const int rank = run_.world.here().front();
    run_.world.failures().fail(rank, fmt::format("rank {} failed: {}", rank, error.what()));
  }
}

void RemoteServers::end(int) {
  for (std::size_t s = 0; s < servers(); ++s) tell(s, Kind::done, run_.options.steps);
}

// Other workers may be at work for as long as they need: that they are silent is for the servers to notice. What a
// worker notices is that a server is.
void RemoteServers::finish() {
  const auto poll = [this] {
    if (run_.options.poll) run_.options.poll();
  };
  try {
    for (std::size_t s = 0; s < servers(); ++s) {
      char sign = kServing;
      for (std::int64_t number = 0; sign == kServing; ++number) {
        const auto transfer =
            wire_.receive(rank_of(s), kControlLane, served_tag(ServedTopic::life, number), &sign, sizeof sign);
        const auto come = [&] {
          poll();
          return wire_.look(*transfer);
        };
        await(come, s, "a sign of life");
      }
    }
    const auto heard = [&] {
      poll();
      if (!listener_.joinable() || decided_ >= run_.options.steps) return true;
      std::this_thread::sleep_for(kLook);
      return false;
    };
    await(heard, 0, "the last verdicts");
    if (listener_.joinable()) listener_.join();
  } catch (const Stopped&) {
  } catch (const ServerSilent& silent) {
    const int rank = run_.world.here().front();
    run_.world.failures().fail(rank, fmt::format("rank {} {}", rank, silent.what()));
  }
}

}  // namespace rehearse::execute
