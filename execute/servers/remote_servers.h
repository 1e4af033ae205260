// A worker's end of parameter servers that are processes, the ranks that follow the workers' (server_wire.h).
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "execute/servers/parameter_servers.h"
#include "execute/servers/server_wire.h"

namespace rehearse::execute {

class RemoteServers final : public ParameterServers {
 public:
  explicit RemoteServers(Run& run);
  ~RemoteServers() override;

  bool given_up(std::int64_t iteration) const override { return iteration < decided_.load(std::memory_order_relaxed); }
  void finish() override;
  ServedRecords records() const override { return {workers(), {}}; }

 private:
  Clock::time_point get(int worker, std::int64_t iteration, Shards& values) override;
  void begin(Shards values) override;
  bool ask_whether_counts(int worker, std::int64_t iteration) override;
  void send(int worker, std::int64_t iteration, Shards gradients) override;
  void end(int worker) override;

  int rank_of(std::size_t server) const { return run_.grid.ranks() + static_cast<int>(server); }
  void tell(std::size_t server, ServerMessage::Kind kind, std::int64_t iteration, std::string body = "");
  // Until done(), with the deadline that parameter_servers.h says.
  template <class Done>
  void await(const Done& done, std::size_t server, const char* what);
  void wait(Wire::Transfer& transfer, std::size_t server, const char* what);
  void listen();

  Wire& wire_;
  std::vector<ShardBytes> values_, gradients_;  // by server
  std::vector<std::int64_t> sent_;              // by server: messages
  std::atomic<std::int64_t> decided_ = 0;
  std::atomic<bool> closing_ = false;
  std::thread listener_;  // of what server 0 decides, where there are backup workers
};

}  // namespace rehearse::execute
