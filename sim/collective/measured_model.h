// The model of collectives over a cluster's resources (model.cpp), for the files of this folder that make one of a part
// of the cluster (mixed_model.cpp).
#pragma once

#include <memory>
#include <optional>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/collective/measurements.h"
#include "sim/collective/pins.h"
#include "sim/collective/prior.h"

namespace rehearse::collective {

// `rates`: of the part's ports (prior_of); the library and its machine are the data's, whose points correct it. The
// cluster must outlive it. Throws InputError for pins that nothing in the cluster offers.
std::unique_ptr<CollectiveModel> make_measured_model(const cluster::Cluster& cluster, const Prior& rates,
                                                     const std::optional<MeasuredData>& data, const Pins& pins);
// Of what nobody has measured: the prior as it is.
std::unique_ptr<CollectiveModel> make_unmeasured_model(const cluster::Cluster& cluster, const Prior& prior,
                                                       const BlockLimits& blocks, const Pins& pins);

}  // namespace rehearse::collective
