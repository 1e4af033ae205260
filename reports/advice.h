// Why the plan that a search answers is of its kind - replicas, ZeRO, tensor, pipeline, hybrid - in words, from what
// the search found of every simpler kind: none of its plans fits, or the best of them is so much slower.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rehearse::reports {

// Kinds by number, the simpler the less: replicas 0, sharded replicas 1, groups 2, stages 3, stages of split layers 4.
struct SimplerKind {
  int kind = 0;
  std::int64_t plans = 0, too_large = 0;
  std::int64_t least_bytes = 0;  // of the plan that needs least of those too large; 0: none is
  double objective = 0;          // of its best plan, 0 where none was simulated
};

struct Advice {
  bool known = false;
  int kind = 0;               // of the plan to take
  bool tables_apart = false;  // plan.embedding_tables: sharded
  std::int64_t gpus = 0;
  std::int64_t peak_bytes = 0, capacity_bytes = 0;
  double objective = 0;                         // of the plan to take
  std::string verb = "takes", more = "longer";  // "the best takes 12% longer"
  bool proven = true;                           // else simpler kinds were not all looked at
  bool all_read = true;                         // else a limit of time ended the search before it had read all plans
  std::vector<SimplerKind> simpler;             // simpler kinds than its own
};

// A sentence that says the kind and its reason, then a line each simpler kind; "" where nothing is known.
std::string advice_text(const Advice& advice, std::size_t width);
std::string kind_name(int kind);
// What the plan's kind is called, which of one GPU is another.
std::string advice_kind(const Advice& advice);
// The sentence alone.
std::string advice_reason(const Advice& advice);
// Of a simpler kind: "none of 12 plans fits; the least needs ...".
std::string advice_against(const Advice& advice, const SimplerKind& kind);

}  // namespace rehearse::reports
