// One search of rehearse plan, as its several ways to ask use it. Internal to rehearse plan.
#pragma once

#include <string>
#include <vector>

#include "cli/plan.h"
#include "reports/search.h"
#include "sim/search/search.h"

namespace rehearse::cli {

search::Request request_of(const PlanArguments& a, const std::string& root);
// `what` stands before its progress. Of several processes that share it, those that do not answer get an empty report.
// Throws InputError, also where no plan of the space can be.
reports::SearchReport search_once(const PlanArguments& a, search::Request request, const std::string& what,
                                  const std::string& root);
// All processes have done their part; whether this one answers.
bool finish_shared(const PlanArguments& a);
// "256,512,1024", ascending.
std::vector<std::int64_t> numbers_of_gpus(const std::string& text);

// Several clusters, or as many GPUs as a number of days needs: prints the answer, returns the exit code.
int choose_cluster(const PlanArguments& a, const std::string& root);

}  // namespace rehearse::cli
