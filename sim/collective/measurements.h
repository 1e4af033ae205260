// Measured collectives of one kind of machine, and how they correct a model of them.
//
// For each measured point the ratio r = measured / modelled time is kept. A group that was measured gets the model
// times r, interpolated linearly in (log wire bytes, log r): exact at measured sizes. Any other group gets r of the
// most alike measured one at the same wire bytes per member, if it can be of one on which the library took the same
// algorithm: what a ring misses of its model says little of a sum in the switch. On the shipped data the interpolation
// misses left-out sizes by 2 % in the median (log-log interpolation of the times: 3 %), another collective or size of
// group on the same node by 5 to 10 %.
//
// Such a guess stays within what was measured of the same collective: it takes no less than the largest measured group
// that could be part of it, and between two measured groups a time between theirs. NCCL's model alone would have eight
// GB200 reduce faster, in the switch, than four were measured to do in a ring.
//
// Files: X.collectives.yaml next to the device file X.yaml, naming a CSV with the columns
//   collective,gpus,nodes,bytes,time_us,source
// where bytes is the full size (nccl-tests' size column) and source an id explained in the YAML file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/collective.h"
#include "sim/collective/prior.h"

namespace rehearse::collective {

struct Interval {
  double low = 1, high = 1;
};

struct Point {
  std::int64_t bytes = 0;
  double time_us = 0;
};
using Key = std::tuple<program::CollectiveKind, int, int>;  // collective, ranks, nodes

struct MeasuredData {
  Prior prior;  // of the machine measured; without measured_on, rates of 0
  bool has_reference = false;
  BlockLimits blocks;
  std::array<Interval, 4> interval;          // by Coverage
  std::map<Key, std::vector<Point>> points;  // by size
};

// Reads the YAML file and its CSV. Throws InputError.
MeasuredData read_measured_data(const std::string& path);
// Those of a device: X.collectives.yaml beside X.yaml, else the section `collectives` of X.yaml, where a calibration
// has them; nothing if there is neither. Throws InputError.
std::optional<MeasuredData> find_measured_data(const std::string& device_file);

// Adds the table of a file of measurements' section `collectives`, if it has one; a row of equal collective, group and
// size replaces the one before. Throws InputError.
void add_measured_rows(const std::string& file, MeasuredData& data);

class Corrections {
 public:
  Corrections() = default;
  // `machine`: the model of the machine simulated; the data's own is used to form the ratios.
  Corrections(const MeasuredData& data, const Prior& machine);

  struct Answer {
    double ratio = 1;
    Coverage coverage = Coverage::spec;
  };
  // `algorithm`: that of a pin; none: the one that the library would take on the machine measured. So the ratio does
  // not depend on the rates of the machine simulated, and what a faster link does to a time is the model's to say.
  Answer at(program::CollectiveKind kind, const nccl::Placement& place, double bytes,
            std::optional<Algorithm> algorithm = std::nullopt) const;
  // Between which times (us) a group that was not measured stays, whatever way it goes; 0 to infinity for one that was.
  Interval bounds(program::CollectiveKind kind, const nccl::Placement& place, double bytes, const Prior& machine) const;

 private:
  struct Table {
    nccl::Placement place;
    program::CollectiveKind kind{};
    std::vector<double> log_wire, log_ratio;
    std::vector<double> bytes;
  };
  static double ratio(const Table& table, double log_wire);
  const Table* most_alike(program::CollectiveKind kind, const nccl::Placement& place, double log_wire,
                          Algorithm algorithm) const;
  Prior reference_;  // of the machine measured
  std::vector<Table> tables_;
  bool same_node_ = true, same_network_ = true;  // the machine simulated has the rates of the one measured
};

}  // namespace rehearse::collective
