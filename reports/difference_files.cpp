// compare.csv and compare.json: see docs/results.md. A ratio that is not finite is null.
#include <fmt/format.h>

#include "reports/batch.h"
#include "reports/difference.h"
#include "reports/op_class.h"
#include "sim/base/csv_field.h"
#include "sim/result/json_writer.h"

namespace rehearse::reports {
namespace {

using result::JsonWriter;
using result::OpRow;
using result::OpText;
using result::StoredResult;

void write_source(JsonWriter& json, const StoredResult& stored, const std::string& label) {
  const result::Result& r = stored.result;
  json.open('{').key("label").text(label).key("directory").text(stored.directory).key("source").text(r.source);
  json.key("name").text(r.scenario_name).key("file").text(r.scenario_file);
  json.key("ranks").integer(r.ranks).key("steps").integer(r.steps);
  json.key("ops").integer(static_cast<std::int64_t>(stored.ops.size()));
  const Batch batch = batch_of(r);
  json.key("global_batch").integer(batch.global()).key("tokens_per_step").integer(batch.units());
  json.key("step_time_s").seconds(r.step_time_ps);
  json.key("loss").open('[');
  for (const double loss : r.loss) json.real(loss);
  json.close(']').close('}');
}

void write_seconds(JsonWriter& json, const Pair<std::int64_t>& ps) {
  json.key("first_s").seconds(ps[kFirst]).key("second_s").seconds(ps[kSecond]);
  json.key("difference_s").seconds(ps[kSecond] - ps[kFirst]);
  json.key("relative").real(relative(static_cast<double>(ps[kFirst]), static_cast<double>(ps[kSecond])));
}

void write_groups(JsonWriter& json, std::string_view key, const std::vector<OpGroup>& groups) {
  json.key(key).open('[');
  for (const OpGroup& g : groups) {
    json.open('{').key("name").text(g.name);
    json.key("first_count").integer(g.count[kFirst]).key("second_count").integer(g.count[kSecond]);
    write_seconds(json, g.ps);
    json.close('}');
  }
  json.close(']');
}

void write_lines(JsonWriter& json, std::string_view key, const std::vector<AccountLine>& lines) {
  json.key(key).open('[');
  for (const AccountLine& line : lines) {
    json.open('{').key("line").text(line.line);
    if (!line.detail.empty()) json.key("detail").text(line.detail);
    write_seconds(json, line.ps);
    json.close('}');
  }
  json.close(']');
}

void write_targets(JsonWriter& json, const Difference& d) {
  if (!d.targets[kFirst].known) return;
  json.key("time_to_loss").open('{').key("loss").real(d.targets[kFirst].loss);
  json.key("mean_over_steps").integer(d.targets[kFirst].window);
  for (const std::size_t side : {kFirst, kSecond}) {
    const result::LossTarget& t = d.targets[side];
    json.key(side == kFirst ? "first" : "second").open('{').key("reached").boolean(t.step >= 0);
    if (t.step >= 0) json.key("step").integer(t.step).key("time_s").seconds(t.ps);
    json.close('}');
  }
  json.close('}');
}

void write_memory(JsonWriter& json, const Difference& d) {
  json.key("memory_peak_bytes").open('[');
  const auto &a = d.results[kFirst]->result.stages, &b = d.results[kSecond]->result.stages;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    json.open('{').key("stage").integer(static_cast<std::int64_t>(i));
    if (i < a.size()) json.key("first").integer(a[i].peak);
    if (i < b.size()) json.key("second").integer(b[i].peak);
    json.close('}');
  }
  json.close(']');
}

}  // namespace

std::string difference_json(const Difference& d) {
  JsonWriter json;
  json.open('{').key("schema").text("rehearse.compare/1");
  json.key("first");
  write_source(json, *d.results[kFirst], d.labels[kFirst]);
  json.key("second");
  write_source(json, *d.results[kSecond], d.labels[kSecond]);
  const auto write_pairs = [&](std::string_view list, std::string_view name, const std::vector<KeyDifference>& pairs) {
    json.key(list).open('[');
    for (const KeyDifference& k : pairs) {
      json.open('{').key(name).text(k.key);
      json.key("first").text(k.values[kFirst]).key("second").text(k.values[kSecond]).close('}');
    }
    json.close(']');
  };
  write_pairs("keys", "key", d.keys);
  write_pairs("collectives", "call", d.ways);
  json.key("ops").open('{').key("matched").integer(d.matched).key("of_another_shape").integer(d.other_shape);
  json.key("first_only").integer(d.alone[kFirst]).key("second_only").integer(d.alone[kSecond]).close('}');
  json.key("step_time").open('{');
  write_seconds(json, {d.results[kFirst]->result.step_time_ps, d.results[kSecond]->result.step_time_ps});
  json.close('}').key("sentence").text(d.sentence);
  if (d.drift > 0) {
    json.key("drift").open('{').key("slower").real(d.drift).key("text").text(d.drift_sentence);
    json.key("step_time_relative_without").real(d.step_change_without_drift()).close('}');
  }
  if (!d.learning_rate.empty()) {
    json.key("learning_rate").open('[');
    for (const std::string& one : d.learning_rate) json.text(one);
    json.close(']');
  }
  if (d.ratio.pairs > 0) {
    json.key("samples_ratio").open('{').key("pairs").integer(d.ratio.pairs).key("mean").real(d.ratio.mean);
    json.key("p2_5").real(d.ratio.p2_5).key("p50").real(d.ratio.p50).key("p97_5").real(d.ratio.p97_5).close('}');
  }
  write_targets(json, d);
  write_lines(json, "account", d.account);
  write_lines(json, "contributions", d.details);
  write_groups(json, "kernel_classes", d.classes);
  write_groups(json, "transfers", d.collectives);
  write_groups(json, "phases", d.phases);
  write_memory(json, d);
  return json.close('}').str();
}

std::string difference_csv(const Difference& d) {
  std::string out =
      "rank,stage,slot,body,op,stream,kind,phase,shape,group,bytes,first_start_ps,first_duration_ps,second_start_ps,"
      "second_duration_ps,difference_ps,relative\n";
  for (const JoinedOp& joined : d.ops) {
    const std::size_t side = joined.rows[kFirst] != nullptr ? kFirst : kSecond;
    const OpRow& row = *joined.rows[side];
    const OpText& op = d.results[side]->text_of(row);
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{}", row.rank, op.stage, row.slot, csv_field(op.body),
                       csv_field(op.op), csv_field(op.stream), csv_field(op.kind), csv_field(op.phase),
                       csv_field(op.shape), csv_field(op.group), op.bytes);
    for (const OpRow* one : joined.rows)
      out += one == nullptr ? ",," : fmt::format(",{},{}", one->start_ps, one->duration_ps);
    if (joined.rows[kFirst] == nullptr || joined.rows[kSecond] == nullptr) {
      out += ",,\n";
      continue;
    }
    const std::int64_t a = joined.rows[kFirst]->duration_ps, b = joined.rows[kSecond]->duration_ps;
    out += fmt::format(",{},", b - a);
    if (a > 0) out += fmt::format("{:.6g}", relative(static_cast<double>(a), static_cast<double>(b)));
    out += '\n';
  }
  return out;
}

}  // namespace rehearse::reports
