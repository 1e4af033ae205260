// What `rehearse execute` prints of a run: a table for people.
#pragma once

#include <string>

#include "execute/performer.h"
#include "execute/reinforcement/learn.h"
#include "sim/plan/scenario.h"
#include "sim/result/result.h"

namespace rehearse::cli {

std::string measured_text(const execute::Outcome& outcome, const plan::Scenario& scenario);

// Of steps of reinforcement learning.
std::string learning_text(const execute::LearningOutcome& outcome);

// Of the same training on one rank: speed-up and efficiency.
std::string against_one_rank(const result::Result& many, const result::Result& one);

}  // namespace rehearse::cli
