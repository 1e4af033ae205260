// Where the value of a scenario's key lies: a member of the struct that its section is read into. By it one row of the
// table of keys (keys.h) reads the key, says it in results, and compares it between ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/size_or_share.h"
#include "sim/base/units.h"

namespace rehearse::plan {

// As a key has it: a choice is its word.
using Value = std::variant<std::int64_t, double, bool, std::string, Bytes, Bandwidth, SizeOrShare, Time,
                           std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;
// Of an enumeration in its order: Key::values.
using Words = std::vector<std::string_view>;

// As a file would say it: "3", "true", "[1, 2]", "26214400B".
std::string text_of(const Value& value);

namespace detail {

template <class T>
struct EnumArray : std::false_type {};
template <class E, std::size_t N>
struct EnumArray<std::array<E, N>> : std::is_enum<E> {};

template <class E>
E enum_of(const std::string& word, const Words& words) {
  const auto found = std::find(words.begin(), words.end(), word);
  REHEARSE_CHECK(found != words.end(), "'{}' is no word of the key", word);
  return static_cast<E>(found - words.begin());
}

template <class M>
Value packed(const M& member, const Words& words) {
  if constexpr (std::is_enum_v<M>) {
    return std::string(words.at(static_cast<std::size_t>(member)));
  } else if constexpr (EnumArray<M>::value) {
    std::vector<std::string> list;
    for (const auto& one : member) list.emplace_back(words.at(static_cast<std::size_t>(one)));
    return list;
  } else if constexpr (std::is_integral_v<M> && !std::is_same_v<M, bool>) {
    return static_cast<std::int64_t>(member);
  } else {
    return member;
  }
}

template <class M>
void unpack(const Value& value, const Words& words, M& member) {
  if constexpr (std::is_enum_v<M>) {
    member = enum_of<M>(std::get<std::string>(value), words);
  } else if constexpr (EnumArray<M>::value) {
    const auto& list = std::get<std::vector<std::string>>(value);
    REHEARSE_CHECK(list.size() == member.size(), "{} words for {}", list.size(), member.size());
    for (std::size_t i = 0; i < list.size(); ++i) member[i] = enum_of<typename M::value_type>(list[i], words);
  } else if constexpr (std::is_integral_v<M> && !std::is_same_v<M, bool>) {
    member = static_cast<M>(std::get<std::int64_t>(value));
  } else {
    member = std::get<M>(value);
  }
}

}  // namespace detail

class Field {
 public:
  Field() = default;
  // Implicit, so that a row says `.field = &Plan::tensor`.
  template <class S, class M>
  Field(M S::*member)
      : owner_(&typeid(S)),
        get_([member](const void* s, const Words& words) {
          return detail::packed(static_cast<const S*>(s)->*member, words);
        }),
        set_([member](void* s, const Value& value, const Words& words) {
          detail::unpack(value, words, static_cast<S*>(s)->*member);
        }) {}

  // Of several members.
  template <class S>
  static Field of(std::function<Value(const S&)> get, std::function<void(S&, const Value&)> set) {
    Field field = shown<S>(std::move(get));
    field.set_ = [set = std::move(set)](void* s, const Value& value, const Words&) { set(*static_cast<S*>(s), value); };
    return field;
  }
  // Shown only; the section's reader reads it itself.
  template <class S>
  static Field shown(std::function<Value(const S&)> get) {
    Field field;
    field.owner_ = &typeid(S);
    field.get_ = [get = std::move(get)](const void* s, const Words&) { return get(*static_cast<const S*>(s)); };
    return field;
  }

  bool readable() const { return static_cast<bool>(set_); }
  template <class S>
  bool is_of() const {
    return owner_ != nullptr && *owner_ == typeid(S);
  }
  template <class S>
  Value get(const S& section, const Words& words) const {
    REHEARSE_CHECK(is_of<S>(), "a key of another struct");
    return get_(&section, words);
  }
  template <class S>
  void set(S& section, const Value& value, const Words& words) const {
    REHEARSE_CHECK(is_of<S>(), "a key of another struct");
    set_(&section, value, words);
  }

 private:
  const std::type_info* owner_ = nullptr;
  std::function<Value(const void*, const Words&)> get_;
  std::function<void(void*, const Value&, const Words&)> set_;
};

}  // namespace rehearse::plan
