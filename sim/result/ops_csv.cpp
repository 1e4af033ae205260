// ops.csv: one row an executed op of a representative rank, in the result's order (rank, then start). The id
// rank/step/slot/body/op is the same in a simulated and a measured run, so that rows can be joined.
#include <fmt/format.h>

#include "sim/base/check.h"
#include "sim/base/csv_field.h"
#include "sim/result/records.h"

namespace rehearse::result {
int role_of(const Result& r, const OpRecord& record) {
  const auto role = r.role_of_rank.find(record.rank);
  REHEARSE_CHECK(role != r.role_of_rank.end(), "recorded rank {} has no role", record.rank);
  return role->second;
}

const OpName& name_of(const Result& r, const OpRecord& record) {
  const auto role = r.names.find(role_of(r, record));
  REHEARSE_CHECK(role != r.names.end(), "the role of recorded rank {} has no names", record.rank);
  const auto body = static_cast<std::size_t>(record.body), op = static_cast<std::size_t>(record.op);
  REHEARSE_CHECK(body < role->second.size() && op < role->second[body].size(), "rank {}: no op {} in body {}",
                 record.rank, record.op, record.body);
  return role->second[body][op];
}

int micro_batch_of(const Result& r, const OpRecord& record) {
  const auto role = r.micro_batch_of_slot.find(role_of(r, record));
  const auto slot = static_cast<std::size_t>(record.slot);
  if (role == r.micro_batch_of_slot.end() || slot >= role->second.size()) return -1;
  return role->second[slot] + name_of(r, record).micro_batch_delta;
}

namespace {
std::string_view waited_for(const OpRecord& record) {
  if (record.waited_ps == 0 || record.waited_for == Share::other) return "";
  return kShareNames[static_cast<std::size_t>(record.waited_for)];
}

const std::string& woken_by(const Result& r, const OpRecord& record) {
  static const std::string nobody;
  const auto streams = r.streams.find(role_of(r, record));
  if (record.woken_by < 0 || streams == r.streams.end()) return nobody;
  return streams->second.at(static_cast<std::size_t>(record.woken_by));
}

const std::string& peers_of(const Result& r, const OpRecord& record) {
  static const std::string nobody;
  const auto ops = r.peers.find(record.rank);
  if (ops == r.peers.end()) return nobody;
  return ops->second.at(static_cast<std::size_t>(record.body)).at(static_cast<std::size_t>(record.op));
}

std::string if_known(std::int64_t ps) {
  return ps < 0 ? std::string() : std::to_string(ps);
}
}  // namespace

void write_ops_csv(const Result& r, OutputFile& out) {
  out.write(
      "id,rank,stage,stream,kind,phase,shape,start_ps,duration_ps,coverage,bytes,flops,"
      "micro_batch,group,group_size,waited_ps,after,waited_for,queued_ps,woken_by,moving_ps,peers\n");
  for (const OpRecord& record : r.records) {
    const OpName& n = name_of(r, record);
    const std::string id = fmt::format("{}/{}/{}/{}/{}", record.rank, record.step, record.slot, n.body, n.op);
    out.write(fmt::format("{},{},{},{},{},{},{},{},{},{},{},{:.0f},{},{},{},{},{},{},{},{},{},{}\n", csv_field(id),
                          record.rank, role_of(r, record), csv_field(n.stream), csv_field(n.kind), csv_field(n.phase),
                          csv_field(n.shape), record.start_ps, record.duration_ps, csv_field(n.coverage), n.bytes,
                          n.flops, micro_batch_of(r, record), csv_field(n.group), n.group_size, record.waited_ps,
                          csv_field(n.after), waited_for(record), if_known(record.queued_ps),
                          csv_field(woken_by(r, record)), if_known(record.moving_ps), csv_field(peers_of(r, record))));
  }
}

}  // namespace rehearse::result
