// yaml-cpp's events to a tree with positions, and the limits that keep hostile files cheap: yaml-cpp queues every token
// of an open flow collection before it reports the first one, so brackets are counted before it sees the text.
#include "sim/base/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "sim/base/text_check.h"

namespace rehearse::detail {
namespace {

Place place_of(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1, false};
}

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& file, const std::string& path, Diagnostics& diagnostics)
      : file_(file), path_(path), diagnostics_(diagnostics) {}

  std::unique_ptr<Value> take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) fail(mark, "a second document begins here, expected one document");
    started_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    place_value(mark, Node::Kind::null);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "aliases ('*name') are not supported", "write the value out");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { refuse_anchor(mark, 1); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) {
      open_.back().key = Entry{text, place_of(mark), nullptr};
      return;
    }
    Value* value = place_value(mark, Node::Kind::scalar);
    value->text = text;
    value->quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    enter(mark, place_value(mark, Node::Kind::sequence));
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    Value* value = place_value(mark, Node::Kind::mapping);
    value->mapping = std::make_unique<Mapping>();
    enter(mark, value);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    Value* value;
    std::string path;
    std::optional<Entry> key;  // a mapping's key whose value comes next
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message, const std::string& hint = "") const {
    throw InputError(Diagnostic{file_, mark.line + 1, mark.column + 1, next_path(), message, hint});
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) fail(mark, "anchors ('&name') are not supported", "write the value out where it is needed");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") fail(mark, fmt::format("tags ({}) are not supported", shown(tag)));
  }
  bool expects_key() const { return !open_.empty() && open_.back().value->mapping && !open_.back().key; }

  std::string next_path() const {
    if (open_.empty()) return path_;
    const Open& top = open_.back();
    if (top.key) return child_path(top.path, top.key->key);
    if (top.value->mapping) return top.path;
    return fmt::format("{}[{}]", top.path, top.value->elements.size());
  }

  void enter(const YAML::Mark& mark, Value* value) {
    if (static_cast<int>(open_.size()) >= kMaxDepth) {
      fail(mark, fmt::format("nested more than {} levels deep", kMaxDepth));
    }
    open_.push_back({value, entered_path_, std::nullopt});
  }

  // Puts a new value where the next one belongs: at the root, under the pending key, or at the end of the sequence.
  Value* place_value(const YAML::Mark& mark, Node::Kind kind) {
    if (expects_key()) fail(mark, "expected a key that is text", "or a bracket is not closed");
    if (++values_ > kMaxValues) fail(mark, fmt::format("holds more than {} values", kMaxValues));
    entered_path_ = next_path();
    auto value = std::make_unique<Value>();
    value->kind = kind;
    value->place = place_of(mark);
    Value* const raw = value.get();
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().key) {
      place_entry(std::move(value));
    } else {
      open_.back().value->elements.push_back(std::move(value));
    }
    return raw;
  }

  void place_entry(std::unique_ptr<Value> value) {
    Mapping& mapping = *open_.back().value->mapping;
    Entry entry = *std::exchange(open_.back().key, std::nullopt);
    // yaml-cpp gives an absent value the position of whatever follows it.
    if (value->kind == Node::Kind::null) value->place = entry.place;
    if (const Entry* first = mapping.find(entry.key)) {
      diagnostics_.add(
          {file_, entry.place.line, entry.place.column, child_path(open_.back().path, entry.key),
           fmt::format("duplicate key, first given at line {}, column {}", first->place.line, first->place.column),
           ""});
      duplicates_.push_back(std::move(value));  // still filled by the events to come
      return;
    }
    mapping.add(std::move(entry.key), entry.place).value = std::move(value);
  }

  const std::string& file_;
  const std::string& path_;
  Diagnostics& diagnostics_;
  bool started_ = false;
  std::size_t values_ = 0;
  std::string entered_path_;
  std::vector<Open> open_;
  std::unique_ptr<Value> root_;
  std::vector<std::unique_ptr<Value>> duplicates_;
};

// Counts brackets whether they are structure or text: a file with more than kMaxDepth open ones is no scenario either
// way.
void check_nesting(const std::string& file, const std::string& text) {
  int line = 1, depth = 0;
  std::size_t line_start = 0, flow_values = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line, line_start = at + 1;
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c == '[' || c == '{' || c == ',' || c == '?') ++flow_values;
    const bool too_deep = depth > kMaxDepth;
    if (!too_deep && flow_values <= kMaxValues) continue;
    throw InputError(Diagnostic{file, line, static_cast<int>(at - line_start) + 1, "",
                                too_deep ? fmt::format("nested more than {} levels deep", kMaxDepth)
                                         : fmt::format("holds more than {} values", kMaxValues),
                                ""});
  }
}

}  // namespace

const Entry* Mapping::find(std::string_view key) const {
  if (index.empty()) {
    const auto found =
        std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
    return found == entries.end() ? nullptr : &*found;
  }
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &entries[found->second];
}

const Entry* Mapping::ask(std::string_view key) const {
  const Entry* const entry = find(key);
  if (entry != nullptr)
    entry->asked = true;
  else if (missed.empty() || missed.back() != key)
    missed.emplace_back(key);
  return entry;
}

std::vector<std::string> Mapping::asked() const {
  std::vector<std::string> keys = missed;
  for (const Entry& entry : entries)
    if (entry.asked) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

Entry& Mapping::add(std::string key, Place place) {
  constexpr std::size_t kFew = 16;  // are looked through one by one
  if (entries.size() == kFew)
    for (std::size_t i = 0; i < kFew; ++i) index.emplace(entries[i].key, i);
  if (entries.size() >= kFew) index.emplace(key, entries.size());
  return entries.emplace_back(Entry{std::move(key), place, nullptr});
}

void Value::become_mapping() {
  kind = Node::Kind::mapping;
  mapping = std::make_unique<Mapping>();
}

std::string child_path(const std::string& parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

std::unique_ptr<Value> parse_yaml(const std::string& file, const std::string& text, const std::string& path,
                                  Diagnostics& diagnostics) {
  if (const auto problem = not_text(text)) throw InputError(Diagnostic{file, 0, 0, path, *problem, ""});
  check_nesting(file, text);
  std::istringstream stream(text);
  TreeBuilder builder(file, path, diagnostics);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 0 : error.mark.line + 1;
    throw InputError(Diagnostic{file, line, error.mark.column + 1, path, fmt::format("not YAML: {}", error.msg), ""});
  }
  auto root = builder.take_root();
  return root ? std::move(root) : std::make_unique<Value>();
}

}  // namespace rehearse::detail
