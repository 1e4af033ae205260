// What jobs in a queue come to (sim/result/queue.h): a table for people, JSON (rehearse.queue/1) for programs.
#pragma once

#include <string>
#include <vector>

#include "reports/text.h"
#include "sim/result/queue.h"

namespace rehearse::reports {

std::string queue_text(const result::QueueResult& r, std::size_t width = kWidth);
std::string queue_json(const result::QueueResult& r);

// Over numbers of GPUs a job (rehearse.queue_choice/1); the one whose last job ends first is named.
std::string queue_choices_text(const std::vector<result::QueueChoice>& choices, std::size_t width = kWidth);
std::string queue_choices_json(const std::vector<result::QueueChoice>& choices);

}  // namespace rehearse::reports
