// What a run of weeks comes to (sim/result/goodput.h): a table for people, JSON (rehearse.goodput/1) for programs.
#pragma once

#include <string>

#include "sim/result/goodput.h"

namespace rehearse::reports {

std::string goodput_text(const result::Goodput& goodput);
std::string goodput_json(const result::Goodput& goodput);

}  // namespace rehearse::reports
