// The messages of ns3_star.h as a simulation has them: a topology file of kind links, what a collective or a send puts
// on its links (sim/collective/links_model.h), and the engine's network, alone.
#pragma once

#include <cstdint>
#include <vector>

#include "ns3_star.h"

namespace rehearse::packets {

// When each of the messages to host 0 ends, in seconds.
std::vector<double> fluid_incast(const Star& star, std::int64_t bytes);
// An all-reduce of `bytes` around the ring of all hosts: fidelity flow, and fidelity step, message by message.
double fluid_ring(const Star& star, std::int64_t bytes);
double stepped_ring(const Star& star, std::int64_t bytes);

}  // namespace rehearse::packets
