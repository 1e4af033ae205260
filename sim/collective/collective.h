// What a collective or a send puts on the network, and how long it takes alone. The engine shares resources among what
// is in flight; this says which bytes cross which resources, what does not stretch with contention, and what a device
// pays.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/cluster/cluster.h"
#include "sim/collective/pins.h"
#include "sim/program/op.h"

namespace rehearse::collective {

// Bytes of the whole activity that cross a resource.
struct Use {
  cluster::ResourceId resource;
  std::int64_t bytes;
};

// All edges of an activity advance together: one progress from 0 to 1, limited by its slowest resource's share and by
// min_duration (its own time to move the bytes when nothing else is in flight, >= what capacities alone would give).
struct Activity {
  std::vector<Use> uses;  // one entry a resource, sorted by resource
  Time min_duration;
};

enum class Coverage : unsigned char { exact, interpolated, extrapolated, spec };

struct Steps;  // steps.h

struct TransferPlan {
  Time startup;                      // latency and fixed kernel time: before the bytes move, never stretched
  std::vector<Activity> activities;  // done when the last is; identical channels are merged
  int sms = 0;                       // multiprocessors held on each participant from launch to end
  std::int64_t memory_bytes = 0;     // device memory traffic on each participant over the transfer
  Coverage coverage = Coverage::spec;
  double low = 1, high = 1;  // error interval, as factors of the time
  std::string algorithm;     // a word of sim/base/collective_words.h, or "local"
  std::string protocol;      // of NCCL: ll, ll128, simple; "": none is known
  bool pinned = false;       // the scenario pins what goes this way (pins.h)
  // On a host whose ranks share its cores: how many of them the bytes of a collective keep busy while they move, spread
  // over its participants, and then they cross no resources. 0: moved by something else.
  int threads = 0;
  // A buffered message (CollectiveModel::buffered_messages): what the sender's and the receiver's stream do themselves.
  Time copy_out, copy_in;
  // Fidelity `step`: instead of startup and activities, which still say what it takes alone.
  std::shared_ptr<const Steps> steps;
  Time alone() const;  // startup + the longest min_duration + the copies
};

// An all-to-all of unequal parts or of forwarded rows: of what each member sends, member i gets parts[i] bytes, or, on
// the way back, sends each of the others that many (program::Collective). n * n parts of n members: of what member i
// sends, member j gets [i * n + j], and on the way back the other way round; such are not forwarded.
struct Exchange {
  std::vector<Bytes> parts;
  bool back = false;
  program::ExpertChoice to = {};  // without experts: not forwarded
};

// Costs of communication on one kind of device and fabric, from what was measured there (measurements.h).
class CollectiveModel {
 public:
  virtual ~CollectiveModel() = default;
  // `members`: devices in group order, at least 1 (one member: nothing to move, no time). bytes: the full size (op.h).
  virtual TransferPlan collective(program::CollectiveKind kind, const std::vector<int>& members, Bytes bytes) const = 0;
  // It takes alone what an all-to-all of n times the largest part takes, n members: the member that gets, or sends,
  // most is as busy then. Forwarded rows (forwarding.h) take what an all-to-all takes whose busiest port or NIC is as
  // busy: DeepEP and HybridEP come as close to the rate of either. Where nothing else is said it puts on the network
  // what that one does, forwarded or not.
  virtual TransferPlan exchange(const std::vector<int>& members, const Exchange& what) const;
  virtual TransferPlan send(int from, int to, Bytes bytes) const = 0;
  // Whether a sender leaves a copy for the receiver and goes on (execute/transport/communicator.h), where others meet:
  // the sender is done after copy_out, the message then moves (activities, after startup), and the receiver, if it has
  // waited for it, goes on and takes copy_in. With nothing to move, startup is what waking a receiver that waited
  // takes.
  virtual bool buffered_messages() const { return false; }
};

// `device_file`: path of a device file X.yaml; measured collectives are read from X.collectives.yaml next to it (and
// the CSV it names). "" or no such file: a ring on the topology's bandwidths and latencies (spec). A calibration
// (.json) on a local host: what it measured there (local_model.h). On a network of explicit links: links_model.h.
// Throws InputError for bad files, and for pins that the machine does not offer; collective() does where a group does
// not. The cluster must outlive the model. `more`: files that add measurements to the device's; where it has none, they
// have nothing to add to.
std::unique_ptr<CollectiveModel> make_model(const cluster::Cluster& cluster, const std::string& device_file,
                                            const Pins& pins = {}, const std::vector<std::string>& more = {});
// Of a cluster of several kinds of devices (cluster::Cluster::device_names), the files of each (mixed_model.cpp).
// Throws InputError as make_model does, for pins once a group is asked about.
struct KindFiles {
  std::string device_file;
  std::vector<std::string> more;
};
std::unique_ptr<CollectiveModel> make_mixed_model(const cluster::Cluster& cluster, const std::vector<KindFiles>& kinds,
                                                  const Pins& pins = {});
// Whether X.yaml says `collectives: {of: topology}`: a calibration of one GPU measured none, and those of the
// topology's own device stand in.
bool takes_collectives_of_topology(const std::string& device_file);
// Ring formula on the topology's capacities, start-up = steps * latency_per_step (2(n-1) steps for all_reduce, n-1 for
// the other collectives, 1 for a send); for tests and what-ifs.
std::unique_ptr<CollectiveModel> make_plain_model(const cluster::Cluster& cluster, Time latency_per_step);
// Everything takes no time.
std::unique_ptr<CollectiveModel> make_free_model();

}  // namespace rehearse::collective
