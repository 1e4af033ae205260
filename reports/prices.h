// What a GPU-hour of a cluster costs, from a file that users edit (topologies/prices.csv says what its rows mean).
#pragma once

#include <string>
#include <vector>

namespace rehearse::reports {

// Of a GPU-hour in US dollars. `instance` and `date` are empty where the price was given by hand.
struct Price {
  double usd = 0;  // 0: not known
  std::string instance, date;

  explicit operator bool() const { return usd > 0; }
  std::string text() const;  // "$4.916 a GPU-hour (p5.48xlarge, 2024-12)"
};

class Prices {
 public:
  // Throws InputError: a column, a number or a date (YYYY-MM or YYYY-MM-DD) that is none, a cluster named twice.
  static Prices from_file(const std::string& path);
  static Prices from_text(const std::string& path, const std::string& text);
  // Of a cluster as scenarios name it: a name in topologies/, or a path, of which the file's name counts where the
  // whole path has no row.
  Price of(const std::string& cluster) const;

 private:
  struct Row {
    std::string cluster;
    Price price;
  };
  std::vector<Row> rows_;
};

}  // namespace rehearse::reports
