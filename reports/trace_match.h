// A simulated result beside a profiler's trace of the run itself: the kernels of one measured step are mapped to the
// executed ops of the recorded rank, by what they are (a product's sizes, a collective's kind, bytes and group, another
// kernel's kind and bytes), and among equals by stream and order. A program has the products of queries, keys and
// values, and those of gate and up-projection, in one; where a run has none of such a product's size, calls that have
// two of its three sizes and together the third are its parts. What stays without a partner on either side is listed,
// never dropped. Leaves out: where the two steps' idle time is, since a trace of one rank does not say for whom
// it waited.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/result/read_directory.h"

namespace rehearse::reports {

// The kernels of one call of an operator, or a kernel that belongs to none.
struct MeasuredCall {
  std::string op, kernel;  // names; op "" where it is linked to none
  std::string kind;        // as program::kind_name calls such an op; "": nobody knows
  std::string key;         // what tells equal kinds apart (match_key); "": by kind and order alone
  std::string why;         // of what has no kind
  int stream = 0;
  std::int64_t kernels = 1, start_ps = 0, duration_ps = 0;
};

// "4096x8192x512" of a product (which way round it was computed does not count), "33554432 B over 8 ranks",
// "16777216 B".
std::string product_key(std::int64_t m, std::int64_t n, std::int64_t k);
std::string collective_key(std::int64_t bytes, int ranks);
std::string attention_key(std::int64_t micro_batch, std::int64_t heads, std::int64_t seq, std::int64_t head_dim);
std::string bytes_key(std::int64_t bytes);
std::string match_key(const result::OpText& op);

struct TraceStep {
  std::string file, name;        // "ProfilerStep#12"; name "" where the trace marks no steps
  std::int64_t duration_ps = 0;  // 0: not known
  std::vector<MeasuredCall> calls;
};

struct TracePair {
  const result::OpRow* op = nullptr;
  std::size_t call = 0;
  bool further = false;  // of an op that several calls make: not the first of them
};
// Of a class of kernels (op_class.h), or "collectives" and "messages".
struct TraceClass {
  std::string name;
  std::int64_t simulated = 0, measured = 0, matched = 0;  // ops, calls, pairs
  std::int64_t simulated_ps = 0, measured_ps = 0;         // of all of them
  std::int64_t matched_simulated_ps = 0, matched_measured_ps = 0;
};
// Alike ones without a partner.
struct Unmatched {
  std::string what, why;
  std::int64_t count = 0, ps = 0;
};
struct TraceMatch {
  const result::StoredResult* simulated = nullptr;
  TraceStep step;
  int rank = 0;                  // the recorded one
  std::vector<TracePair> pairs;  // in the order of the calls
  std::vector<TraceClass> classes;
  std::vector<Unmatched> measured_alone, simulated_alone;  // the longest in all first
};

// `rank`: recorded in `simulated`, which must outlive what is returned.
TraceMatch match_trace(const result::StoredResult& simulated, int rank, TraceStep step);

std::string trace_match_text(const TraceMatch& m);  // 80 columns
std::string trace_match_json(const TraceMatch& m);  // schema rehearse.trace_compare/1
std::string trace_match_csv(const TraceMatch& m);   // a line an op and a line a call without one

}  // namespace rehearse::reports
