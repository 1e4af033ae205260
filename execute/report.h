// What a process tells the root of its ranks once they have ended, and its form as bytes: fields in order, each a
// little-endian copy of memory; processes of one run are the same program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "execute/measure.h"
#include "execute/rank/rank.h"
#include "execute/servers/served_report.h"
#include "sim/result/result.h"

namespace rehearse::execute {

struct RankReport {
  std::int32_t rank = 0;
  std::vector<Shares> shares;             // by step
  std::vector<result::OpRecord> records;  // if the rank is a representative and recording was asked for
  std::vector<float> parameters;          // parameter_values(), if asked for
  std::vector<float> loss_scale;          // loss_scale()
  std::int64_t arena_bytes = 0;           // that were in memory
  std::vector<TransferStart> transfer_starts;
  std::vector<TransferWait> transfer_waits;
  DeviceUse device;
  std::vector<result::ProductUse> products;  // Rank::products()
  CheckpointUse checkpoints;
  double first_weights_s = 0;  // Rank::first_weights_s()
  std::vector<model::RoutedChoices> routing;
};
struct Report {
  std::vector<RankReport> ranks;
  ServedRecords served;  // with parameter servers: of the workers and servers here
  std::int64_t peak_rss_bytes = 0;
};

std::string pack(const Report& report);
Report unpack(std::string_view bytes);  // REHEARSE_CHECKs that they are a whole report

}  // namespace rehearse::execute
