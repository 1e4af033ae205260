// Where the program's data is, and which file a user means.
#pragma once

#include <string>
#include <vector>

namespace rehearse::cli {

// The folder that holds scenarios/ and topologies/: REHEARSE_ROOT if set, else the nearest one above the program's own
// file (a checkout, or PREFIX/share/rehearse for PREFIX/bin/rehearse). Throws InputError if there is none.
std::string data_root();

// The file of a scenario: `given` if it is there, else scenarios/`given`.yaml of the data root for a bare name, which a
// directory of that name does not hide. Throws InputError with the nearest scenario.
std::string scenario_file(const std::string& given, const std::string& root);
std::vector<std::string> scenario_names(const std::string& root);
// A path below the data root without it, any other path as it is: what a result shows.
std::string shown_path(const std::string& path, const std::string& root);

// Throws InputError unless results can be written to `dir` without touching the scenario's own file.
void check_output(const std::string& dir, const std::string& scenario);

// The names of `folder`'s .yaml files, sorted, without the parts of others (NAME.part.yaml).
std::vector<std::string> yaml_names(const std::string& folder);

}  // namespace rehearse::cli
