// What a parameter server does, in order. From a simulation, or recorded of a run that was performed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rehearse::account {

// pull: the worker gets the values as they are then, for its iteration. apply: the iteration's gradient is applied; of
// synchronous servers it counts for the step of the same number.
enum class ServerAct : unsigned char { pull, apply };
struct ServerEvent {
  std::int32_t server = 0, worker = 0;
  std::int64_t iteration = 0;
  ServerAct act = ServerAct::pull;
  friend bool operator==(const ServerEvent&, const ServerEvent&) = default;
};

// [k]: updates of gradients that are k updates old: so many the server applied between the pull of their iteration and
// theirs. Of iterations [first, last) and all servers together; `events` of one server are in its order.
std::vector<std::int64_t> staleness_of(const std::vector<ServerEvent>& events, std::int64_t first, std::int64_t last);
double mean_of_counts(const std::vector<std::int64_t>& counts);  // of k by how often; 0 if there are none

// The table `server,place,act,worker,iteration`.
std::string server_event_table(const std::vector<ServerEvent>& events);
// Of such a table. Throws InputError, with all problems up to a number of them.
std::vector<ServerEvent> parse_server_events(const std::string& file, const std::string& text);

}  // namespace rehearse::account
