// See server_shards.h.
#include "sim/account/server_shards.h"

#include <algorithm>
#include <map>
#include <string>

namespace rehearse::account {

std::vector<ServerParameter> server_parameters(const program::Role& role, int servers) {
  std::map<std::string, program::BufferId> by_name;
  for (std::size_t id = 0; id < role.buffers.size(); ++id)
    by_name.emplace(role.buffers[id].name, static_cast<program::BufferId>(id));
  std::vector<ServerParameter> parameters;
  std::vector<std::int64_t> filled(static_cast<std::size_t>(servers), 0);
  for (std::size_t id = 0; id < role.buffers.size(); ++id) {
    const program::Buffer& value = role.buffers[id];
    if (value.init.kind == program::Init::Kind::none || value.init.global_shape.empty()) continue;
    const auto gradient = by_name.find("grad." + value.name);
    if (gradient == by_name.end()) continue;
    const auto least = std::min_element(filled.begin(), filled.end());
    parameters.push_back({static_cast<program::BufferId>(id), gradient->second, value.elements(),
                          static_cast<int>(least - filled.begin()), *least});
    *least += value.elements();
  }
  return parameters;
}

std::vector<std::int64_t> server_elements(const std::vector<ServerParameter>& parameters, int servers) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(servers), 0);
  for (const ServerParameter& p : parameters) elements[static_cast<std::size_t>(p.server)] += p.elements;
  return elements;
}

}  // namespace rehearse::account
