// A launcher that starts another leaves its own variables to that one's processes, where they say nothing of them. So
// - torchrun itself (it sets TORCHELASTIC_RUN_ID; a script that only exports RANK does not) speaks for the processes it
//   starts: srun or mpirun around it started one torchrun a node, and their numbers are those of the node;
// - inside a Slurm job mpirun's daemons are tasks of srun, or mpirun runs in the batch shell: Slurm's numbers are
// theirs;
// - the shells of sbatch and salloc are in a job (SLURM_JOB_ID) but in no step (SLURM_STEP_ID, by which Open MPI too
//   tells them apart): SLURM_NTASKS is what srun would start, SLURM_PROCID 0 or absent. They are no ranks.
// Everything else that disagrees is a mistake, most often RANK=$SLURM_PROCID set where it is 0 for all.
#include "execute/processes/launch_environment.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <vector>

#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

struct Variables {
  Launcher launcher;
  const char *rank, *ranks, *local_rank;
};

// In the order in which they are believed.
constexpr std::array<Variables, 4> kLaunchers = {{
    {Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {Launcher::hydra, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {Launcher::slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
}};
constexpr int kDefaultPort = 29500;  // torchrun's
constexpr int kLastPort = 65535;

class VariableReader {
 public:
  explicit VariableReader(const Environment& environment) : environment_(environment) {}

  Launch read() {
    std::vector<Launch> found;
    Launch launch;
    launch.slurm_shell = set("SLURM_JOB_ID") && !set("SLURM_STEP_ID");
    for (const Variables& v : kLaunchers) {
      if (speaks_of_another(v.launcher, found, launch.slurm_shell)) continue;
      if (std::optional<Launch> one = read_one(v)) found.push_back(std::move(*one));
    }
    for (std::size_t i = 1; i < found.size(); ++i) compare(found.front(), found[i]);
    const bool slurm_shell = launch.slurm_shell;
    if (!found.empty()) launch = std::move(found.front());
    launch.slurm_shell = slurm_shell;
    read_master(launch);
    problems_.throw_if_any();
    return launch;
  }

 private:
  bool set(const char* name) const { return environment_(name).has_value(); }
  void problem(std::string message, std::string hint = "") {
    problems_.add({"", 0, 0, "", std::move(message), std::move(hint)});
  }

  // Whether what `launcher` says is of the process that started ours, not of ours; `found`: who spoke before.
  bool speaks_of_another(Launcher launcher, const std::vector<Launch>& found, bool slurm_shell) const {
    if (!found.empty() && found.front().launcher == Launcher::torchrun && set("TORCHELASTIC_RUN_ID")) return true;
    if (launcher != Launcher::slurm) return false;
    if (slurm_shell) return true;
    return set("SLURM_JOB_ID") && !found.empty() && found.back().launcher != Launcher::torchrun;
  }

  // A whole number in [low, high], or a problem.
  std::optional<int> number(const char* name, const std::string& text, int low, int high) {
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (stop != end || text.empty() || error == std::errc::invalid_argument) {
      problem(fmt::format("{}={} in the environment is no whole number", name, text));
      return {};
    }
    if (error == std::errc() && value >= low && value <= high) return value;
    const std::string range = high == std::numeric_limits<int>::max() ? fmt::format("at least {}", low)
                                                                      : fmt::format("from {} to {}", low, high);
    problem(fmt::format("{}={} in the environment is out of range: {}", name, text, range));
    return {};
  }

  std::optional<Launch> read_one(const Variables& v) {
    const std::optional<std::string> rank = environment_(v.rank), ranks = environment_(v.ranks);
    if (!rank && !ranks) return {};
    if (!rank || !ranks) {
      problem(fmt::format("the environment has {}={} but no {}", rank ? v.rank : v.ranks, rank ? *rank : *ranks,
                          rank ? v.ranks : v.rank),
              "set both or neither");
      return {};
    }
    Launch launch;
    launch.launcher = v.launcher;
    launch.source = fmt::format("{}={}, {}={}", v.rank, *rank, v.ranks, *ranks);
    constexpr int kMost = std::numeric_limits<int>::max();
    const std::optional<int> size = number(v.ranks, *ranks, 1, kMost);
    const std::optional<int> own = number(v.rank, *rank, 0, kMost);
    const std::optional<std::string> local = environment_(v.local_rank);
    if (local) launch.local_rank = number(v.local_rank, *local, 0, kMost);
    if (!size || !own || (local && !launch.local_rank)) return {};
    launch.rank = *own;
    launch.ranks = *size;
    if (launch.rank >= launch.ranks) {
      problem(fmt::format("{} in the environment: a rank is less than the number of ranks", launch.source));
      return {};
    }
    if (local && *launch.local_rank >= launch.ranks) {
      problem(fmt::format("{}={} and {}={} in the environment: a rank on a host is less than the number of ranks",
                          v.local_rank, *local, v.ranks, *ranks));
      return {};
    }
    return launch;
  }

  void compare(const Launch& believed, const Launch& other) {
    if (believed.rank == other.rank && believed.ranks == other.ranks) return;
    problem(fmt::format("two launchers disagree in the environment: {} ({}) and {} ({})", believed.source,
                        name_of(believed.launcher), other.source, name_of(other.launcher)),
            "unset the variables of the one that did not start this process");
  }

  void read_master(Launch& launch) {
    launch.master_address = environment_("MASTER_ADDR");
    if (launch.master_address && launch.master_address->empty())
      problem("MASTER_ADDR in the environment is empty", "the address of rank 0's host");
    const std::optional<std::string> port = environment_("MASTER_PORT");
    if (port)
      launch.master_port = number("MASTER_PORT", *port, 1, kLastPort).value_or(0);
    else if (launch.master_address)
      launch.master_port = kDefaultPort;
  }

  const Environment& environment_;
  Diagnostics problems_;
};

}  // namespace

std::string name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "no launcher";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "mpirun (Open MPI)";
    case Launcher::hydra:
      return "mpirun (MPICH)";
    case Launcher::slurm:
      return "srun (Slurm)";
  }
  return "";
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return {};
    return value;
  };
}

Launch read_launch(const Environment& environment) {
  return VariableReader(environment).read();
}

void check_ranks(const Launch& launch, std::int64_t scenario_ranks, std::int64_t servers) {
  if (launch.ranks == scenario_ranks + servers) return;
  const auto processes = [](std::int64_t n) { return fmt::format("{} process{}", n, n == 1 ? "" : "es"); };
  Diagnostic d;
  d.path = "cluster.gpus";
  d.message = fmt::format("the scenario has {} rank{}, but {} started {}{}", scenario_ranks,
                          scenario_ranks == 1 ? "" : "s", name_of(launch.launcher), processes(launch.ranks),
                          launch.source.empty() ? "" : fmt::format(" ({})", launch.source));
  if (launch.launcher == Launcher::none)
    d.message =
        fmt::format("the scenario has {} ranks, a process each, but this one was started alone", scenario_ranks);
  if (servers > 0) {
    d.message = fmt::format("the scenario has {} workers and {} parameter servers, a process each, but {} started {}",
                            scenario_ranks, servers, name_of(launch.launcher), processes(launch.ranks));
    d.hint = fmt::format("start {}", processes(scenario_ranks + servers));
    throw InputError(d);
  }
  d.hint = fmt::format("{} or set cluster.gpus={}",
                       launch.slurm_shell && launch.launcher == Launcher::none
                           ? fmt::format("start it with srun -n {}", scenario_ranks)
                           : fmt::format("start {}", processes(scenario_ranks)),
                       launch.ranks);
  throw InputError(d);
}

}  // namespace rehearse::execute
