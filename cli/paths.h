// Where the program's data is, and which file a user means.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace rehearse::cli {

// The folder that holds scenarios/ and topologies/: REHEARSE_ROOT if set, else the nearest one above the program's own
// file (a checkout, or PREFIX/share/rehearse for PREFIX/bin/rehearse). Throws InputError if there is none.
std::string data_root();

// The file of a scenario: `given` if it is there, else scenarios/`given`.yaml of the data root for a bare name, which a
// directory of that name does not hide; noted as an input. Throws InputError with the nearest scenario.
std::string scenario_file(const std::string& given, const std::string& root);
std::vector<std::string> scenario_names(const std::string& root);
// A path below the data root without it, any other path as it is: what a result shows.
std::string shown_path(const std::string& path, const std::string& root);

// The file of prices: `given`, or the shipped one (reports/prices.h).
std::string prices_file(const std::string& given, const std::string& root);

// Before a command works for long, whether what it will write may be written (sim/result/output_file.h); each throws
// InputError. Inputs that are read later are noted before (sim/base/input_files.h). `files` of a directory that need
// not be there yet; a result's files; the one file that -o names, in a folder that is there.
void check_output_directory(const std::string& dir, std::initializer_list<const char*> files);
void check_result_directory(const std::string& dir);
void check_output_path(const std::string& file);

// The names of `folder`'s .yaml files, sorted, without the parts of others (NAME.part.yaml).
std::vector<std::string> yaml_names(const std::string& folder);

}  // namespace rehearse::cli
