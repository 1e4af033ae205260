// Transfers between ranks of this machine: as many threads as ranks, each with a communicator of the transport, doing
// one collective after the other, or sending a message to and fro. Timed from the last participant's arrival to the
// end, mean over participants; a message from its post, as the receiver waits already. Buffers go round in memory
// larger than a core's caches, and are used in place, as programs do.
#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <vector>

#include "calibrate/budget.h"
#include "calibrate/jitter.h"
#include "calibrate/profile_targets.h"
#include "calibrate/statistics.h"
#include "execute/transport/communicator.h"
#include "sim/cost/calibration_file.h"

namespace rehearse::calibrate {

struct TransferKey {
  bool send = false;  // else `kind`
  program::CollectiveKind kind = program::CollectiveKind::all_reduce;
  int ranks = 2;
  std::int64_t bytes = 0;
  friend auto operator<=>(const TransferKey&, const TransferKey&) = default;
};

// The ranks of one transport (rank_group.cpp), with a communicator each.
struct RankGroup {
  std::shared_ptr<void> keep;                         // what the communicators live in
  std::vector<execute::Communicator*> communicators;  // by rank
  std::function<void()> stop;                         // ends every wait of theirs, for good; from any thread
  std::int64_t sequence = 0;                          // number of the next call; even
};
using MakeRankGroup = std::function<RankGroup(int ranks)>;
RankGroup make_local_group(int ranks);
// Each rank a world of its own, as in a process of its own, but in threads of this one: over the loopback.
RankGroup make_gloo_group(int ranks);

// Memory by rank, kept from one measurement to the next: touching it for the first time takes longer than most
// transfers.
class RankMemory {
 public:
  // At least so many bytes of the rank's, touched.
  float* of(int rank, std::int64_t bytes);

 private:
  std::vector<std::vector<float>> memory_;
};

// For about `seconds`; fewer than two samples if the budget ended before, which stops the group.
std::vector<double> measure_transfer(const TransferKey& key, RankGroup& group, double seconds, const Budget& budget,
                                     RankMemory& memory);

// What the targets' programs transfer, exact in ranks and bytes.
std::vector<TransferKey> transfers_of(const std::vector<Target>& targets);
// What no simulation of ranks on a shared host goes without: a collective and a message, small and large, between two.
std::vector<TransferKey> least_transfers();
// Every kind from 1 KiB to 64 MiB between 2, 4, 3 (and more, up to `most_ranks`) ranks, the most telling first.
std::vector<TransferKey> transfer_grid(int most_ranks);

// The keys in order until the time is up, each once; what would take more than is left is skipped. Their scatter is
// added to `jitter`.
std::vector<cost::CalibratedTransfer> measure_transfers(const std::vector<TransferKey>& keys, cost::Transport transport,
                                                        const MakeRankGroup& make, double seconds, const Budget& budget,
                                                        JitterSamples& jitter);

}  // namespace rehearse::calibrate
