// Transfers over a network written out link by link (cluster/links.h), as a library over sockets does them.
#pragma once

#include <memory>
#include <optional>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/cost/calibration_file.h"

namespace rehearse::collective {

// With a calibration that measured gloo, what the library itself takes is added. The cluster must outlive the model.
std::unique_ptr<CollectiveModel> make_links_model(const cluster::Cluster& cluster,
                                                  const std::optional<cost::Calibration>& calibration);

}  // namespace rehearse::collective
