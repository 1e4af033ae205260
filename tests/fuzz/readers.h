// What is fuzzed: every reader of something a user hands to the program, and random plans. Each entry is a function
// from bytes to nothing. A reader may return or throw InputError; whatever else happens is a bug (harness.h says what).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::fuzz {

struct Reader {
  std::string name;                              // "scenario"; its corpus is corpus/NAME
  std::function<void(const std::string&)> read;  // of the whole input
  // What inputs are made from beside the corpus: files of the checkout, a folder's by ending ("topologies/*.yaml").
  std::vector<std::string> seeds = {};
  bool scenario_keys = false;  // words of the scenario's key table help
  // The bytes are choices of a generator, not text: no seeds, any bytes will do.
  bool choices = false;
  int runs = 1000;  // of the plain mutator in the test suite; a quarter of them under sanitizers
};

const std::vector<Reader>& readers();
// nullptr: there is none of that name.
const Reader* find_reader(std::string_view name);

// The parts, a file each.
void add_scenario_readers(std::vector<Reader>& list);
void add_machine_readers(std::vector<Reader>& list);
void add_cost_readers(std::vector<Reader>& list);
void add_network_readers(std::vector<Reader>& list);
void add_result_readers(std::vector<Reader>& list);
void add_other_readers(std::vector<Reader>& list);
void add_launch_readers(std::vector<Reader>& list);
void add_plans(std::vector<Reader>& list);

// A broken promise: prints it and aborts, which every fuzzer takes for a find.
[[noreturn]] void fail(const std::string& what);
// Fails unless `text` is UTF-8 without control characters (C0 but for line ends, DEL, C1): what a terminal would obey.
void check_printable(const std::string& text, const char* what);

// Writes `content` to `name` in a folder of this process, gone when it ends; returns the path.
std::string put_file(const std::string& name, const std::string& content);
std::string temporary_folder();
// A file of the checkout.
std::string source_file(const std::string& path);

}  // namespace rehearse::fuzz
