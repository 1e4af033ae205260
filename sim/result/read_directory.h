// Reads what write_directory wrote: DIR/result.json (schema rehearse.result/1) and DIR/ops.csv, of simulated and
// measured runs alike. What older files lack (the column micro_batch and those after it, the share straggler) reads as
// absent, as does what a measured run does not know. The trace is not read: it says nothing that ops.csv does not.
// Problems are InputErrors with file and line, all of a file at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/result/result.h"
#include "sim/result/step_history.h"

namespace rehearse::result {

// What is the same for every execution of an op of a stage: its names and texts. `group` of a send or receive is its
// axis; group_size 0 and group "" where there is none.
struct OpText {
  std::int32_t stage = 0;
  std::string body, op, stream, kind, phase, shape, coverage, group;
  std::int32_t group_size = 0;
  std::int64_t bytes = 0;
  double flops = 0;
  std::vector<std::string> after;  // "body/op" it waits for, besides its own stream's order
  std::string peers;               // of a transfer: account::peers_text
};

// A row of ops.csv: one executed op.
struct OpRow {
  std::int32_t rank = 0, step = 0, slot = 0, micro_batch = -1;
  std::uint32_t text = 0;  // index into StoredResult::texts
  std::int64_t start_ps = 0, duration_ps = 0, waited_ps = 0;
  Share waited_for = Share::other;  // OpRecord's, as those that follow
  std::int64_t queued_ps = -1, moving_ps = -1;
  std::int32_t woken_by = -1;  // StoredResult::streams
};

struct StoredResult {
  std::string directory;  // as the user named it
  Result result;          // without records and names: those are below
  std::vector<OpText> texts;
  std::vector<OpRow> ops;            // in the file's order: by rank, then start
  std::vector<std::string> streams;  // that rows name as woken_by
  StepHistory history;               // of steps.csv, where the directory has one

  const OpText& text_of(const OpRow& row) const { return texts[row.text]; }
};

// "rank/step/slot/body/op".
std::string id_of(const StoredResult& stored, const OpRow& row);

// Throws InputError.
StoredResult read_directory(const std::string& dir);
// The parts, from text that came from `file`; for tests and for other sources.
Result parse_result_json(const std::string& file, std::string_view text);
void parse_ops_csv(const std::string& file, std::string_view text, StoredResult& out);

}  // namespace rehearse::result
