// The recorded ops of a result as text: one row or one slice each. Internal to this folder.
#pragma once

#include "sim/result/json_writer.h"
#include "sim/result/output_file.h"
#include "sim/result/result.h"

namespace rehearse::result {

// The names of a record's op, its role, and its micro-batch. A record that names no known op is a broken invariant.
const OpName& name_of(const Result& r, const OpRecord& record);
int role_of(const Result& r, const OpRecord& record);
int micro_batch_of(const Result& r, const OpRecord& record);  // -1: none

// The parts of result.json that not every result has: links, samples, noise, what_if, jobs.
void write_answers(const Result& r, JsonWriter& json);

void write_ops_csv(const Result& r, OutputFile& out);
// Chrome trace JSON with the names PyTorch Kineto writes (pytorch/kineto 114171d, libkineto/src/output_json.cpp).
void write_trace(const Result& r, OutputFile& out);

}  // namespace rehearse::result
