// Event files of TensorBoard: the checksum's known answers, and a file read back by the rules of its format.
#include "formats/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>

namespace rehearse::formats {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, HasItsKnownAnswers) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

template <class Word>
Word word_at(const std::string& bytes, std::size_t at) {
  Word word{};
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

std::uint32_t masked(const std::string& bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = word_at<std::uint64_t>(file, at);
    EXPECT_EQ(word_at<std::uint32_t>(file, at + 8), masked(file.substr(at, 8)));
    all.push_back(file.substr(at + 12, length));
    EXPECT_EQ(word_at<std::uint32_t>(file, at + 12 + length), masked(all.back()));
    at += 12 + length + 4;
  }
  return all;
}

// The bytes that protoc's own encoder gives for these messages, by the wire format's rules.
TEST(TensorboardEvents, AreRecordsOfEvents) {
  const std::string file = tensorboard_events(2.0, {{3.0, 300, {{"loss", 0.5}}}});
  const std::vector<std::string> all = records(file);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0], std::string("\x09\0\0\0\0\0\0\0\x40", 9) + "\x1A\x0D" + "brain.Event:2") << "2.0 is 0x4000...";
  EXPECT_EQ(all[1], std::string("\x09\0\0\0\0\0\0\x08\x40", 9) +         // wall_time 3.0
                        std::string("\x10\xAC\x02", 3) +                 // step 300
                        std::string("\x2A\x0D\x0A\x0B", 4) +             // summary of one value
                        std::string("\x0A\x04loss\x15\0\0\0\x3F", 11));  // tag, simple_value 0.5
}

}  // namespace
}  // namespace rehearse::formats
