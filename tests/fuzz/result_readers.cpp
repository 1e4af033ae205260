// Result directories, and what compare and report make of them.
#include <fstream>
#include <iterator>

#include "reports/difference.h"
#include "reports/html/html.h"
#include "reports/step_account.h"
#include "sim/result/read_directory.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/small_plans.h"

namespace rehearse::fuzz {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream in(source_file(path), std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

void use(const result::StoredResult& stored) {
  print_all(stored.result);
  (void)reports::step_account(stored);
  const reports::Difference same = reports::difference(stored, stored);
  (void)reports::difference_table(same);
  (void)reports::difference_json(same);
  (void)reports::difference_csv(same);
  reports::HtmlOptions options;
  options.script = false;
  (void)reports::html_page({stored}, options);
}

void read_result(const std::string& bytes) {
  static const std::string ops = content_of("tests/fuzz/corpus/ops/llama.csv");
  result::StoredResult stored;
  stored.directory = "input";
  stored.result = result::parse_result_json("input/result.json", bytes);
  result::parse_ops_csv("input/ops.csv", ops, stored);
  use(stored);
}

void read_ops(const std::string& bytes) {
  static const std::string json = content_of("tests/fuzz/corpus/result/llama.json");
  result::StoredResult stored;
  stored.directory = "input";
  stored.result = result::parse_result_json("input/result.json", json);
  result::parse_ops_csv("input/ops.csv", bytes, stored);
  use(stored);
}

void read_steps(const std::string& bytes) {
  static const std::string json = content_of("tests/fuzz/corpus/result/llama.json");
  static const std::string ops = content_of("tests/fuzz/corpus/ops/llama.csv");
  result::StoredResult stored;
  stored.directory = "input";
  stored.result = result::parse_result_json("input/result.json", json);
  result::parse_ops_csv("input/ops.csv", ops, stored);
  stored.history = result::parse_steps_csv("input/steps.csv", bytes);
  use(stored);
}

}  // namespace

void add_result_readers(std::vector<Reader>& list) {
  list.push_back({.name = "result", .read = read_result});
  list.push_back({.name = "ops", .read = read_ops});
  list.push_back({.name = "steps", .read = read_steps});
}

}  // namespace rehearse::fuzz
