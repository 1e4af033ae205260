// Kernels of one kind as points in the space of their shapes, and what the measured ones say about the others.
//
// A shape's text (program::shape_text) is numbers by name and words; the distance of two shapes is that of the log2 of
// their numbers, plus one octave for each word that only one of them has. The time of a shape not measured is a
// roofline's, base + FLOPs / peak + bytes / bandwidth, times the ratio measured / roofline of the nearest shapes,
// weighted by 1 / distance^2 (Shepard 1968, "A two-dimensional interpolation function for irregularly-spaced data").
// So along a line of sizes it is a log-log interpolation, and far outside it grows as the roofline does.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::cost {

struct ShapeKey {
  std::map<std::string, double, std::less<>> log2_numbers;
  std::set<std::string, std::less<>> words;
};
ShapeKey parse_shape(std::string_view text);
// In octaves.
double distance(const ShapeKey& a, const ShapeKey& b);

class ShapeSpace {
 public:
  struct Answer {
    double ratio = 1;     // measured / roofline
    bool inside = false;  // every number lies in the range of those measured, half an octave to spare
  };
  void add(const std::string& shape, double ratio);
  bool empty() const { return points_.empty(); }
  Answer at(const ShapeKey& shape) const { return at(shape, points_.size()); }
  // Measured / predicted, each predicted from the others; of at most `most` points, evenly chosen.
  void leave_one_out(std::size_t most, std::vector<double>& ratios) const;

 private:
  struct Point {
    ShapeKey shape;
    double log_ratio;
  };
  struct Extent {
    double low, high;
  };
  Answer at(const ShapeKey& shape, std::size_t left_out) const;

  std::vector<Point> points_;
  std::map<std::string, Extent, std::less<>> extents_;
};

}  // namespace rehearse::cost
