// More ranks than GPUs, so that plans can be proven on one: every rank is a process, several of them on a GPU. NCCL
// refuses two ranks of one host on one GPU (2.28: init.cc, by the hash of the host and the bus id), so each rank says
// that it is a host of its own, and their numbers go through sockets of the loopback: GPU, pinned memory, TCP and back.
// Real collectives, algorithms and kernels over a network that is none; times are not those of NVLink.
//
// Without MPS the GPU gives processes slices of time in turn, and each hop of a collective may wait for one. With MPS
// (nvidia-cuda-mps-control, if it is there and REHEARSE_MPS is not "off") their kernels run side by side. NCCL takes
// two multiprocessors a collective, so that the kernels of all ranks find room to wait at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rehearse::execute {

using Variables = std::vector<std::pair<std::string, std::string>>;

// What the environment of a rank needs; the first is the name of its host.
Variables sharing_variables(int rank);
// Sets them here, before CUDA and NCCL are used; what is set already stays, but for the host's name.
void share_device(int rank);

// The control daemon of MPS with a pipe directory of its own, started by us and ended with this object, also if this
// process dies.
class Mps {
 public:
  // Nothing if REHEARSE_MPS is "off", there is no nvidia-cuda-mps-control, or it does not come up; `why` then says so.
  static std::optional<Mps> start(std::string& why);
  ~Mps();
  Mps(Mps&& other) noexcept : folder_(std::exchange(other.folder_, {})), pid_(std::exchange(other.pid_, 0)) {}
  Mps& operator=(Mps&&) = delete;

  // Why nothing runs under it, as a process of its own finds out; "" if a context can be made.
  std::string problem() const;
  Variables variables() const;  // for the processes that are to use it

 private:
  Mps(std::string folder, int pid) : folder_(std::move(folder)), pid_(pid) {}
  void end() const;

  std::string folder_;
  int pid_;
};

}  // namespace rehearse::execute
