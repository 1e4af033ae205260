// See tensorboard.h. Of protocol buffers' wire format three kinds of fields are written: varints (0), 8 bytes (1),
// bytes with their length (2) and 4 bytes (5); a field begins with its number * 8 + kind.
#include "formats/tensorboard.h"

#include <array>
#include <cstring>

namespace rehearse::formats {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reversed

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

template <class Word>
void append_word(std::string& out, Word word) {
  for (std::size_t i = 0; i < sizeof word; ++i) out += static_cast<char>(word >> (8 * i) & 0xFF);
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void append_bytes(std::string& out, unsigned field, std::string_view bytes) {
  append_varint(out, field * 8 + 2);
  append_varint(out, bytes.size());
  out += bytes;
}

void append_double(std::string& out, unsigned field, double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  append_varint(out, field * 8 + 1);
  append_word(out, bits);
}

void append_float(std::string& out, unsigned field, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  append_varint(out, field * 8 + 5);
  append_word(out, bits);
}

// Rotated, and a constant added, so that a checksum of bytes that have checksums among them says something.
std::uint32_t masked(std::uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

void append_record(std::string& out, const std::string& event) {
  std::string length;
  append_word(length, static_cast<std::uint64_t>(event.size()));
  out += length;
  append_word(out, masked(crc32c(length)));
  out += event;
  append_word(out, masked(crc32c(event)));
}

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary. Summary: 1 value. Value: 1 tag, 2 simple_value.
std::string event_of(const ScalarEvent& e) {
  std::string event, summary;
  append_double(event, 1, e.wall_time_s);
  append_varint(event, 2 * 8);
  append_varint(event, static_cast<std::uint64_t>(e.step));
  for (const auto& [tag, scalar] : e.scalars) {
    std::string value;
    append_bytes(value, 1, tag);
    append_float(value, 2, static_cast<float>(scalar));
    append_bytes(summary, 1, value);
  }
  append_bytes(event, 5, summary);
  return event;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::string tensorboard_events(double began_s, const std::vector<ScalarEvent>& events) {
  std::string out, first;
  append_double(first, 1, began_s);
  append_bytes(first, 3, "brain.Event:2");
  append_record(out, first);
  for (const ScalarEvent& e : events) append_record(out, event_of(e));
  return out;
}

}  // namespace rehearse::formats
