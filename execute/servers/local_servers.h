// Parameter servers that are threads of the workers' process. Whatever a server's thread throws is reported to the
// World and stops the run.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "execute/servers/parameter_servers.h"
#include "execute/servers/server.h"

namespace rehearse::execute {

class LocalServers final : public ParameterServers {
 public:
  explicit LocalServers(Run& run);
  ~LocalServers() override;

  bool given_up(std::int64_t iteration) const override { return iteration < servers_.front()->decided(); }
  void finish() override;
  ServedRecords records() const override;

 private:
  Clock::time_point get(int worker, std::int64_t iteration, Shards& values) override;
  void begin(Shards values) override;
  bool ask_whether_counts(int worker, std::int64_t iteration) override;
  void send(int worker, std::int64_t iteration, Shards gradients) override;
  void end(int) override {}  // finish() is
  void serve(Server& server);

  const ServerOrder order_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::thread> threads_;
};

}  // namespace rehearse::execute
