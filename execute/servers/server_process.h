// A process that performs one parameter server of a run whose ranks are processes (server_wire.h).
#pragma once

#include "execute/rank/run.h"
#include "execute/servers/served_report.h"

namespace rehearse::execute {

class ServerProcess {
 public:
  explicit ServerProcess(Run& run);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // From the run's beginning until all workers are done. Whatever goes wrong is reported to the World and stops the
  // run.
  void serve();
  ServedRecords records() const;  // after it

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rehearse::execute
