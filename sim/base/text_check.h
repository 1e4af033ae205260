// Whether bytes are text at all: UTF-8 (RFC 3629, so no overlong forms and no surrogates) without NUL bytes. Files that
// are not are refused before any parser sees them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rehearse::detail {

// Length of the well-formed sequence at the start of `bytes`, 0 if there is none.
std::size_t sequence_length(std::string_view bytes);

// What is wrong, with the offset of the first bad byte; nullopt if the bytes are text.
std::optional<std::string> not_text(std::string_view bytes);

// A user's word as it may stand in a message: in single quotes, cut after 60 bytes, control characters escaped
// (harmless_text.h).
std::string shown(std::string_view word);

}  // namespace rehearse::detail
