// A Document is a parsed tree with the name of its file; assignments from the command line are merged into it before it
// is read, so that a reader cannot tell (but a diagnostic can) where a value came from.
#include "sim/base/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>

#include "sim/base/document_impl.h"
#include "sim/base/text_check.h"

namespace rehearse {
namespace {

using detail::Value;

void mark_command_line(Value& value) {
  value.place = {0, 0, true};
  for (auto& element : value.elements) mark_command_line(*element);
  if (!value.mapping) return;
  for (auto& entry : value.mapping->entries) {
    entry.place = {0, 0, true};
    mark_command_line(*entry.value);
  }
}

// As if parsed again: nobody has asked for anything.
std::unique_ptr<Value> copy_of(const Value& value) {
  auto copy = std::make_unique<Value>();
  copy->kind = value.kind;
  copy->quoted = value.quoted;
  copy->place = value.place;
  copy->text = value.text;
  for (const auto& element : value.elements) copy->elements.push_back(copy_of(*element));
  if (!value.mapping) return copy;
  copy->mapping = std::make_unique<detail::Mapping>();
  copy->mapping->index = value.mapping->index;
  copy->mapping->entries.reserve(value.mapping->entries.size());
  for (const detail::Entry& entry : value.mapping->entries)
    copy->mapping->entries.push_back({entry.key, entry.place, copy_of(*entry.value)});
  return copy;
}

std::vector<std::string> split_at_dots(const std::string& path) {
  std::vector<std::string> keys(1);
  for (const char c : path) {
    if (c == '.') {
      keys.emplace_back();
    } else {
      keys.back() += c;
    }
  }
  return keys;
}

// The value under `key` of `parent`, made null if it was not there; nullptr if `parent` cannot have keys.
Value* descend(Value& parent, const std::string& key) {
  if (parent.kind == Node::Kind::null) {
    parent.become_mapping();
    parent.place = {0, 0, true};
  }
  if (!parent.mapping) return nullptr;
  if (const detail::Entry* found = parent.mapping->find(key)) return found->value.get();
  detail::Entry& entry = parent.mapping->add(key, {0, 0, true});
  entry.value = std::make_unique<Value>();
  entry.value->place = {0, 0, true};
  return entry.value.get();
}

// Of files that were read before, the text and what it was parsed to without a problem: files of devices and topologies
// are read again for every scenario, and several times for one; so are assignments, which a search has the same few of
// for thousands of plans. Safe for several threads.
class LastParsed {
 public:
  // nullptr: it has another text now, or is not known.
  std::unique_ptr<Value> find(const std::string& path, const std::string& text) const {
    const std::lock_guard lock(mutex_);
    const auto known = files_.find(path);
    return known == files_.end() || known->second.text != text ? nullptr : copy_of(*known->second.root);
  }

  void keep(const std::string& path, std::string text, const Value& root) {
    constexpr std::size_t kMostBytes = 8 << 20, kOfOne = 512;  // of short texts the rest is what counts
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = path.size() + text.size() + kOfOne;
    if (bytes_ + bytes > kMostBytes) files_.clear(), bytes_ = 0;
    if (bytes > kMostBytes) return;
    bytes_ += bytes;
    files_.insert_or_assign(path, File{std::move(text), copy_of(root)});
  }

 private:
  struct File {
    std::string text;
    std::unique_ptr<const Value> root;
  };
  mutable std::mutex mutex_;
  std::map<std::string, File> files_;
  std::size_t bytes_ = 0;  // of all kept since the last were let go
};

LastParsed& last_parsed() {
  static LastParsed all;
  return all;
}

// Words and whole or decimal numbers, which are scalars of just this text in YAML: a search of plans assigns hundreds
// of thousands of them.
bool is_plain_scalar(const std::string& text) {
  const auto is_alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  constexpr std::string_view kNull = "null";
  const bool null =
      text.size() == kNull.size() && std::equal(text.begin(), text.end(), kNull.begin(),
                                                [](char a, char b) { return a == b || a + ('a' - 'A') == b; });
  return !text.empty() && !null && is_alphanumeric(text.front()) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alphanumeric(c) || c == '_' || c == '-' || c == '.';
  });
}

// What an assignment gives the key at `path`.
std::unique_ptr<Value> parse_assigned(const std::string& path, const std::string& text, Diagnostics& diagnostics) {
  if (is_plain_scalar(text)) {
    auto plain = std::make_unique<Value>();
    plain->kind = Node::Kind::scalar;
    plain->text = text;
    return plain;
  }
  const std::string assignment = path + "=" + text;
  if (std::unique_ptr<Value> known = last_parsed().find(assignment, text)) return known;
  const std::size_t problems = diagnostics.list().size();
  std::unique_ptr<Value> value = detail::parse_yaml(detail::kCommandLineFile, text, path, diagnostics);
  if (diagnostics.list().size() == problems) last_parsed().keep(assignment, text, *value);
  return value;
}

}  // namespace

Document Document::from_file(const std::string& path, Diagnostics& diagnostics) {
  std::string text = read_text_file(path);
  if (std::unique_ptr<Value> root = last_parsed().find(path, text)) {
    Document document;
    document.impl_ =
        std::make_shared<Impl>(Impl{std::make_shared<detail::Tree>(detail::Tree{path, std::move(root), &diagnostics})});
    return document;
  }
  const std::size_t problems = diagnostics.list().size();
  Document document = from_text(path, text, diagnostics);
  if (diagnostics.list().size() == problems) last_parsed().keep(path, std::move(text), *document.impl_->tree->root);
  return document;
}

struct ParsedFiles::Impl {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<const Value>> roots;
};

ParsedFiles::ParsedFiles() : impl_(std::make_unique<Impl>()) {}
ParsedFiles::~ParsedFiles() = default;

Document Document::from_file(const std::string& path, Diagnostics& diagnostics, ParsedFiles* files) {
  if (files == nullptr) return from_file(path, diagnostics);
  const Value* known = nullptr;
  {
    const std::lock_guard lock(files->impl_->mutex);
    const auto found = files->impl_->roots.find(path);
    if (found != files->impl_->roots.end()) known = found->second.get();
  }
  if (known == nullptr) {
    Document document = from_file(path, diagnostics);
    if (!diagnostics.list().empty()) return document;
    const std::lock_guard lock(files->impl_->mutex);
    files->impl_->roots.try_emplace(path, copy_of(*document.impl_->tree->root));
    return document;
  }
  Document document;
  document.impl_ =
      std::make_shared<Impl>(Impl{std::make_shared<detail::Tree>(detail::Tree{path, copy_of(*known), &diagnostics})});
  return document;
}

Document Document::from_text(const std::string& name, const std::string& text, Diagnostics& diagnostics) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw InputError(Diagnostic{name, 0, 0, "", "is empty, expected 'key: value' lines (YAML)", ""});
  }
  Document document;
  document.impl_ = std::make_shared<Impl>(Impl{std::make_shared<detail::Tree>(
      detail::Tree{name, detail::parse_yaml(name, text, "", diagnostics), &diagnostics})});
  return document;
}

Document Document::to_fill(const std::string& name, Diagnostics& diagnostics) {
  Document document;
  auto root = std::make_unique<Value>();
  root->become_mapping();
  root->place = {1, 1, false};
  document.impl_ =
      std::make_shared<Impl>(Impl{std::make_shared<detail::Tree>(detail::Tree{name, std::move(root), &diagnostics})});
  return document;
}

void Document::put(const std::string& key, const std::string& value, const Node& from) {
  const detail::Place place{from.line(), from.column(), false};
  detail::Tree& tree = *impl_->tree;
  detail::Entry& entry = tree.root->mapping->add(key, place);
  if (value.starts_with('{') || value.starts_with('[')) {
    entry.value = detail::parse_yaml(key, value, key, *tree.diagnostics);
    entry.value->place = place;
    return;
  }
  entry.value = std::make_unique<Value>();
  entry.value->kind = Node::Kind::scalar;
  entry.value->text = value;
  entry.value->place = place;
}

void Document::set(const std::string& assignment) {
  detail::Tree& tree = *impl_->tree;
  const auto report = [&](const std::string& path, const std::string& message, const std::string& hint = "") {
    tree.diagnostics->add({detail::kCommandLineFile, 0, 0, path, message, hint});
  };
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    return report("", fmt::format("{} has no '=', expected KEY.PATH=VALUE", detail::shown(assignment)),
                  "e.g. plan.tensor=4");
  }
  const std::string path = assignment.substr(0, equals);
  const std::vector<std::string> keys = split_at_dots(path);
  for (const std::string& key : keys) {
    if (key.empty()) {
      return report("", fmt::format("{} has an empty key, expected KEY.PATH=VALUE", detail::shown(assignment)));
    }
  }
  if (keys.size() > detail::kMaxDepth) return report("", fmt::format("nested more than {} levels", detail::kMaxDepth));
  const std::string text = assignment.substr(equals + 1);
  std::unique_ptr<Value> value;
  try {
    value = parse_assigned(path, text, *tree.diagnostics);
  } catch (const InputError& error) {
    for (Diagnostic problem : error.diagnostics()) {
      problem.line = problem.column = 0;
      tree.diagnostics->add(std::move(problem));
    }
    return;
  }
  mark_command_line(*value);
  Value* target = tree.root.get();
  std::string walked;
  for (const std::string& key : keys) {
    Value* const next = descend(*target, key);
    if (next == nullptr) {
      const std::string where = walked.empty() ? "the document" : detail::shown(walked);
      return report(path, fmt::format("{} is {}, not a mapping with keys", where, detail::described(*target)));
    }
    target = next;
    walked = detail::child_path(walked, key);
  }
  *target = std::move(*value);
}

Node Document::root() const {
  Node node;
  node.impl_ = std::make_shared<Node::Impl>(Node::Impl{impl_->tree, impl_->tree->root.get(), {}, nullptr, "", -1, ""});
  return node;
}

}  // namespace rehearse
