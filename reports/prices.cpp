// See prices.h.
#include "reports/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/base/csv.h"
#include "sim/base/document.h"

namespace rehearse::reports {
namespace {

constexpr double kMostAnHour = 1e6;

// YYYY-MM or YYYY-MM-DD.
bool is_date(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-dd";
  if (text.size() != 7 && text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (kForm[i] == '-' ? text[i] != '-' : text[i] < '0' || text[i] > '9') return false;
  return true;
}

}  // namespace

std::string Price::text() const {
  const std::string amount = fmt::format("${:.4g} a GPU-hour", usd);
  return instance.empty() ? amount : fmt::format("{} ({}, {})", amount, instance, date);
}

Prices Prices::from_file(const std::string& path) {
  return from_text(path, read_text_file(path));
}

Prices Prices::from_text(const std::string& path, const std::string& text) {
  Diagnostics problems;
  Prices prices;
  CsvTable table(path, text, {{"cluster", "instance", "usd_per_gpu_hour", "date", "source"}}, problems,
                 CsvDialect::commented);
  while (const CsvRow* row = table.next()) {
    Row read{std::string(row->text("cluster")),
             {row->positive_number("usd_per_gpu_hour", 1e-6, kMostAnHour), std::string(row->text("instance")),
              std::string(row->text("date"))}};
    if (read.cluster.empty()) row->error("cluster", "is empty", "a name of rehearse list topologies");
    if (!is_date(read.price.date)) row->error("date", "expected the day it was asked, YYYY-MM or YYYY-MM-DD");
    if (std::any_of(prices.rows_.begin(), prices.rows_.end(), [&](const Row& r) { return r.cluster == read.cluster; }))
      row->error("cluster", fmt::format("{} has a row above", read.cluster));
    prices.rows_.push_back(std::move(read));
  }
  problems.throw_if_any();
  return prices;
}

Price Prices::of(const std::string& cluster) const {
  for (const std::string& name : {cluster, std::filesystem::path(cluster).stem().string()})
    for (const Row& row : rows_)
      if (row.cluster == name) return row.price;
  return {};
}

}  // namespace rehearse::reports
