// Plain text for a terminal: wrapping, columns, and numbers for people. Every line these make is at most `width`
// columns, kWidth where no width is given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rehearse::reports {

inline constexpr std::size_t kWidth = 80;
// In the place of a part of the step that a result does not know (Result::late_ranks_known).
inline constexpr std::string_view kUnknownShare = "not known: ranks on hosts without a common clock";

// Columns `text` takes: its UTF-8 code points.
std::size_t columns(std::string_view text);
// At most `width` columns, the end replaced by "~" if it does not fit. Control characters become '?' (harmless_text.h),
// so that a name from a file cannot drive the terminal.
std::string clip(std::string_view text, std::size_t width);
// Words wrapped at `width`, every line after `indent` spaces, each ended by a newline. A word longer than a line is
// cut.
std::string wrap(std::string_view text, std::size_t indent = 0, std::size_t width = kWidth);
// Rows of label and value: values from column `indent` on, wrapped there.
std::string labelled(const std::vector<std::pair<std::string, std::string>>& rows, std::size_t indent = 18);
// `text` padded with spaces to `width` columns, text to the left or to the right of them.
std::string left(std::string_view text, std::size_t width);
std::string right(std::string_view text, std::size_t width);

// 1234567 -> "1,234,567".
std::string grouped(double value);
// Four significant digits at most: "0.1234", "12.3", "1,234", "5.68M", "3.2G".
std::string compact(double value);
std::string percent(double share);       // 0.4567 -> "45.7%"
std::string loss_text(double loss);      // "2.3026"; of a run that went apart "not a number"
std::string joules_text(double joules);  // three significant digits: "12.3 kJ"

// Names without the words ("gpt3-175b-") that all of them begin with, up to the last dash they share; one name stays
// whole.
std::vector<std::string> without_common_words(std::vector<std::string> names);
// "exposed_data" -> "exposed data".
std::string spaced(std::string_view key);
// "scenarios/gpt3-175b.yaml" -> "gpt3-175b".
std::string file_stem(std::string_view path);

// Rows of cells as aligned columns, two spaces between; the first row is the heading. Column 0 to the left, the others
// to the right. Column 0 is clipped if the table would be wider than `width`.
std::string align(const std::vector<std::vector<std::string>>& rows, std::size_t indent = 0,
                  std::size_t width = kWidth);
// How wide `rows` are as columns, if nothing is clipped.
std::size_t aligned_width(const std::vector<std::vector<std::string>>& rows, std::size_t indent = 0);

}  // namespace rehearse::reports
