// A scenario's plan as other programs are started with it, and what such a file says as a scenario. Each format is a
// file of this folder; docs/launch-files.md maps every field both ways. What a format has no field for is listed and
// never left out silently; what a file says that a plan has no key for is listed as ignored.
// Leaves out: data, tokenizers, checkpoints and logging, which are no part of a plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/discovered.h"
#include "sim/base/diagnostics.h"
#include "sim/plan/scenario.h"

namespace rehearse::launch {

// A key of the scenario that the format cannot say, and what it is there.
struct LeftOut {
  std::string key, why;
};

struct Exported {
  std::string text;
  std::vector<std::string> run;    // how to start it, where the file itself does not: lines of a shell
  std::vector<LeftOut> left_out;   // also comments in the text, where the format has any
  std::vector<std::string> notes;  // what it is for, and what it leaves to the user
};

// The words of `rehearse export --to`.
std::vector<std::string> export_formats();

// `gpus_a_node`: of the scenario's topology. Throws InputError for a model that the format's program does not train.
Exported export_plan(std::string_view format, const plan::Scenario& scenario, std::int64_t gpus_a_node);

// What the user says where a file does not.
struct ImportHints {
  std::string model;    // a preset; "": what the file says
  std::string cluster;  // a topology
  std::int64_t gpus = 0;
  std::string data_root = {};  // of named topologies; "": of those it is not known what their nodes have
};

struct Imported {
  std::string format;    // "megatron"
  std::string scenario;  // a scenario file
  formats::Report report;
  std::map<std::string, Diagnostic> places;  // of keys: where the file says them; its message is the field
};

// Tells the format by looking. Throws InputError with lines and columns.
Imported import_plan(const std::string& file, const std::string& text, const ImportHints& hints);

}  // namespace rehearse::launch
