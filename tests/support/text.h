// What tests ask of texts.
#pragma once

#include <string>

namespace rehearse {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace rehearse
