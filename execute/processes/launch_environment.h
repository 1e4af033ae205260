// Which rank of how many this process is, as whoever started it says in the environment: torchrun (and scripts that set
// its variables), Open MPI's mpirun, MPICH's Hydra, Slurm's srun. The first of these that speaks is believed; the
// others must say the same, unless they plainly speak of another process (see the .cpp). Starts nothing and connects
// nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace rehearse::execute {

enum class Launcher : unsigned char { none, torchrun, open_mpi, hydra, slurm };

// For people: "torchrun", "mpirun (Open MPI)", ...; "no launcher".
std::string name_of(Launcher launcher);

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0, ranks = 1;        // none: one process on its own
  std::optional<int> local_rank;  // among the ranks of this host, if the launcher says
  std::string source;             // what said so, "RANK=3, WORLD_SIZE=8"; empty: none
  // Where the ranks meet, if MASTER_ADDR is set, by whichever launcher; port 29500 if only the address is given.
  std::optional<std::string> master_address;
  int master_port = 0;
  bool slurm_shell = false;  // in a Slurm allocation, but not started by srun
};

// The value of a variable, nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Throws InputError, with all problems at once, naming variables and values: half a pair, no number, out of range, two
// launchers that disagree.
Launch read_launch(const Environment& environment);

// Throws InputError unless the launcher started as many ranks as the scenario has, and a process for each of its
// parameter servers.
void check_ranks(const Launch& launch, std::int64_t scenario_ranks, std::int64_t servers = 0);

}  // namespace rehearse::execute
