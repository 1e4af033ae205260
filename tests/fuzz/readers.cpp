// See readers.h.
#include "tests/fuzz/readers.h"

namespace rehearse::fuzz {

const std::vector<Reader>& readers() {
  static const std::vector<Reader> all = [] {
    std::vector<Reader> list;
    add_scenario_readers(list);
    add_machine_readers(list);
    add_cost_readers(list);
    add_network_readers(list);
    add_result_readers(list);
    add_other_readers(list);
    add_launch_readers(list);
    add_plans(list);
    return list;
  }();
  return all;
}

const Reader* find_reader(std::string_view name) {
  for (const Reader& reader : readers())
    if (reader.name == name) return &reader;
  return nullptr;
}

}  // namespace rehearse::fuzz
