// The part of a topology file that is peculiar to kind: links.
#pragma once

#include "sim/base/document.h"
#include "sim/cluster/links.h"

namespace rehearse::cluster {

// Reports what is wrong to the document's diagnostics. `open_cores`: of a host whose number of cores is `auto`.
LinksNumbers read_links(const Node& root, int open_cores);

}  // namespace rehearse::cluster
