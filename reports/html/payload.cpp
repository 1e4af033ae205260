// See payload.h. The page undoes it in reports/page/payload.js.
#include "reports/html/payload.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/base/check.h"
#include "sim/base/harmless_text.h"
#include "sim/base/interrupt.h"

namespace rehearse::reports::html {
namespace {

using nlohmann::json;

std::int64_t tick_of(const Row& row, std::int64_t first_ps) {
  std::int64_t most = 0, before = first_ps;
  for (const Bar& bar : row.bars) {
    most = std::max({most, bar.start_ps - before, bar.duration_ps});
    before = bar.start_ps;
  }
  std::int64_t unit = 1;
  while (most / unit >= std::numeric_limits<std::uint32_t>::max()) unit *= 10;
  return unit;
}

json text_header(const result::OpText& t) {
  return {masked_controls(t.body),
          masked_controls(t.op),
          masked_controls(t.kind),
          masked_controls(t.shape),
          masked_controls(t.phase),
          masked_controls(t.coverage),
          t.bytes,
          t.flops,
          t.group_size,
          phase_class(t),
          kind_class(t)};
}

// When each loss was known, since the run began: null of steps before, and [] where there is no steps.csv.
json loss_times(const result::StoredResult& run) {
  json out = json::array();
  const result::StepHistory& h = run.history;
  if (!h.known()) return out;
  for (std::size_t s = 0; s < run.result.loss.size(); ++s) {
    if (const auto end = h.end_of(static_cast<std::int64_t>(s) + 1))
      out.push_back(static_cast<double>(*end) * 1e-12);
    else
      out.push_back(nullptr);
  }
  return out;
}

json run_header(const Series& series) {
  const result::Result& r = series.run->result;
  json out = {{"label", masked_controls(series.label)},
              {"source", masked_controls(r.source)},
              {"step_s", static_cast<double>(r.step_time_ps) * 1e-12},
              {"window_s", static_cast<double>(series.timeline.window_ps) * 1e-12},
              {"first_s", static_cast<double>(series.timeline.first_ps) * 1e-12},
              {"last_s", static_cast<double>(series.timeline.last_ps) * 1e-12},
              {"merged_below_s", static_cast<double>(series.timeline.merged_below_ps) * 1e-12},
              {"ops", series.timeline.ops},
              {"loss", r.loss},
              {"loss_s", loss_times(*series.run)},
              {"texts", json::array()},
              {"rows", json::array()}};
  for (const result::OpText& text : series.run->texts) out["texts"].push_back(text_header(text));
  for (const Row& row : series.timeline.rows)
    out["rows"].push_back({{"stage", row.stage},
                           {"rank", row.rank},
                           {"stream", masked_controls(row.stream)},
                           {"unit_s", static_cast<double>(tick_of(row, series.timeline.first_ps)) * 1e-12},
                           {"bars", row.bars.size()}});
  return out;
}

void append(std::string& out, std::uint64_t value) {
  REHEARSE_CHECK(value <= std::numeric_limits<std::uint32_t>::max(), "{} does not fit 32 bits", value);
  for (int byte = 0; byte < 4; ++byte) out += static_cast<char>(value >> (8 * byte) & 0xFF);
}

void append_row(std::string& out, const Row& row, std::int64_t first_ps) {
  const std::int64_t unit = tick_of(row, first_ps);
  std::int64_t before = 0;
  for (const Bar& bar : row.bars) {
    const std::int64_t start = (bar.start_ps - first_ps) / unit;
    append(out, static_cast<std::uint64_t>(start - before));
    before = start;
  }
  for (const Bar& bar : row.bars)
    append(out, static_cast<std::uint64_t>((bar.start_ps + bar.duration_ps - first_ps) / unit -
                                           (bar.start_ps - first_ps) / unit));
  for (const Bar& bar : row.bars) append(out, bar.text);
  for (const Bar& bar : row.bars) append(out, static_cast<std::uint64_t>(std::max(bar.micro_batch, -1) + 1));
  for (const Bar& bar : row.bars) append(out, bar.ops);
}

}  // namespace

std::string payload(const std::vector<Series>& series) {
  json header = {{"format", 1}, {"runs", json::array()}};
  for (const Series& one : series) header["runs"].push_back(run_header(one));
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.append((4 - text.size() % 4) % 4, ' ');
  std::string out;
  append(out, text.size());
  out += text;
  for (const Series& one : series)
    for (const Row& row : one.timeline.rows) append_row(out, row, one.timeline.first_ps);
  return out;
}

std::string gzip(std::string_view bytes) {
  constexpr int kGzip = 15 + 16, kMemory = 8;  // zlib.h: windowBits of 16 more write a gzip header, without a time
  z_stream stream{};
  REHEARSE_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) == Z_OK,
                 "zlib cannot start");
  REHEARSE_CHECK(bytes.size() <= std::numeric_limits<uInt>::max(), "{} bytes for one page", bytes.size());
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = 0;
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const auto done = [](z_stream* used) { deflateEnd(used); };
  const std::unique_ptr<z_stream, decltype(done)> ends(&stream, done);
  constexpr std::size_t kPiece = 1 << 20;  // between two questions whether to stop
  int status = Z_OK;
  for (std::size_t at = 0; status == Z_OK;) {
    check_interrupt();
    const std::size_t piece = std::min(kPiece, bytes.size() - at);
    at += piece;
    stream.avail_in += static_cast<uInt>(piece);
    status = deflate(&stream, at == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
  }
  out.resize(stream.total_out);
  REHEARSE_CHECK(status == Z_STREAM_END, "zlib stopped with {}", status);
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) out += i <= bytes.size() - at ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

}  // namespace rehearse::reports::html
