// Transfers between ranks of one host, from what a calibration of it measured (sim/cost/calibration_file.h).
#pragma once

#include <memory>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/cost/calibration_file.h"

namespace rehearse::collective {

// The cluster must outlive the model. Throws InputError if the calibration holds no transfers of these ranks' kind.
std::unique_ptr<CollectiveModel> make_local_model(const cluster::Cluster& cluster,
                                                  const cost::Calibration& calibration);

}  // namespace rehearse::collective
