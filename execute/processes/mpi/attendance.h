// Which ranks of an MPI job have come to start MPI, where all are on one machine: while MPI starts nobody can be asked,
// and its own wait names nobody. Each process listens on a socket whose name says the job and its rank (abstract, see
// unix(7): gone with the process, whatever ends it). Knows nothing where the launcher does not say which job this is,
// or where ranks are on several machines.
#pragma once

#include <string>

namespace rehearse::execute {

class Attendance {
 public:
  Attendance();
  ~Attendance();
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;

  // "rank 1", "ranks 1, 3": who has not come, or came and has died; empty if that is not known.
  std::string missing_text() const;

 private:
  std::string job_;  // empty: not known
  int ranks_ = 0, socket_ = -1;
};

}  // namespace rehearse::execute
