// See shell_script.h. One pass: words are expanded as they are read, so that a variable has the value of that moment.
#include "formats/shell_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "formats/shell_arithmetic.h"
#include "formats/shell_condition.h"
#include "sim/base/text_check.h"

namespace rehearse::formats {
namespace {

constexpr std::size_t kMostShellBytes = 4 << 20, kMostShellWords = 200'000;
constexpr int kMostShellDepth = 50;

// What a variable has: a text, or an array of words.
struct ShellValue {
  bool array = false;
  std::vector<ShellWord> words;
};

// A branch that is open: of an if, or of a loop or case, none of whose commands are taken.
struct ShellBlock {
  std::string end;     // "fi", "done", "esac"
  bool active = true;  // its commands are taken
  bool outer = true;   // those around it are
  bool taken = false;  // a branch before was
  bool known = true;   // every condition so far could be judged
};

class ShellReader {
 public:
  ShellReader(const std::string& file, const std::string& text) : file_(file), text_(text) {}

  ShellScript read() {
    while (at_ < text_.size()) statement();
    if (!blocks_.empty()) fail(fmt::format("ends before '{}'", blocks_.back().end));
    for (const auto& [name, value] : values_)
      if (!value.array && !value.words.empty()) script_.variables[name] = value.words.front();
    return std::move(script_);
  }

 private:
  [[noreturn]] void fail(std::string message, std::string hint = "") const {
    throw InputError(Diagnostic{file_, line_, column(), "", std::move(message), std::move(hint)});
  }
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }
  bool active() const { return blocks_.empty() || blocks_.back().active; }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char take() {
    const char c = text_[at_++];
    if (c == '\n') {
      ++line_;
      line_start_ = at_;
    }
    return c;
  }
  void skip_line() {
    while (at_ < text_.size() && peek() != '\n') take();
  }
  void pass_over(const std::string& what) {
    if (script_.passed_over.size() < 200) script_.passed_over.push_back(fmt::format("line {}: {}", line_, what));
  }
  void grow(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > kMostShellBytes || ++words_ > kMostShellWords)
      fail("the variables expand to more than 4 MB", "expected the script of one launch");
  }

  // Blanks, line continuations and comments; newlines too where a list goes on over them.
  void skip_blanks(bool newlines) {
    for (;;) {
      if (peek() == ' ' || peek() == '\t' || peek() == '\r' || (newlines && peek() == '\n')) {
        take();
      } else if (peek() == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
        while (take() != '\n') continue;
      } else if (peek() == '#') {
        comment();
      } else {
        return;
      }
      if (at_ >= text_.size()) return;
    }
  }

  void comment() {
    constexpr std::string_view kSbatch = "#SBATCH ";
    const int line = line_, at_column = column();
    const std::size_t start = at_;
    skip_line();
    const std::string_view all = std::string_view(text_).substr(start, at_ - start);
    if (!all.starts_with(kSbatch) || at_column != 1) return;
    std::size_t at = kSbatch.size();
    while (at < all.size() && all[at] != '#') {
      const std::size_t end = std::min(all.find_first_of(" \t\r", at), all.size());
      if (end > at)
        script_.directives.push_back({std::string(all.substr(at, end - at)), line, static_cast<int>(at) + 1, ""});
      at = end + 1;
    }
  }

  // One command, or an end of one.
  void statement() {
    skip_blanks(true);
    if (at_ >= text_.size()) return;
    const bool name = peek() == '{' && peek(1) != ' ' && peek(1) != '\n';
    if (!name && std::string_view(";&|(){}").find(peek()) != std::string_view::npos) return void(take());
    std::vector<ShellWord> words;
    command(words);
    after_command(words);
  }

  // Words up to the end of the command; assignments before the first word are taken.
  void command(std::vector<ShellWord>& words) {
    for (;;) {
      skip_blanks(false);
      const char c = peek();
      if (at_ >= text_.size() || c == '\n' || c == ';' || c == ')') return;
      if (c == '&') {
        if (peek(1) != '>') return;
        take();  // &>file
        continue;
      }
      if (c == '|') return;
      if (c == '<' || c == '>') {
        redirection();
        continue;
      }
      if (c == '(') {  // of a function's definition, or an arithmetic command
        if (words.empty()) return;
        take();
        continue;
      }
      if (words.empty() && assignment()) continue;
      const std::size_t before = at_;
      word(words, 0);
      if (at_ == before) fail(fmt::format("unexpected {}", detail::shown(std::string(1, take()))));
      if (words.size() == 1 && (words[0].text == "then" || words[0].text == "else" || words[0].text == "do" ||
                                words[0].text == "{" || words[0].text == "!"))
        after_command(std::exchange(words, {}));
      if (words.size() == 1 && (words[0].text == "if" || words[0].text == "elif")) return;
    }
  }

  void redirection() {
    if (peek() == '<' && peek(1) == '<' && peek(2) != '<') return here_document();
    while (peek() == '<' || peek() == '>' || peek() == '&') take();
    skip_blanks(false);
    std::vector<ShellWord> unused;
    if (at_ < text_.size() && std::string_view("\n;|&()").find(peek()) == std::string_view::npos) word(unused, 0);
  }

  // The lines up to the delimiter belong to another program.
  void here_document() {
    take();
    take();
    if (peek() == '-') take();
    std::string end;
    skip_blanks(false);
    while (at_ < text_.size() && (name_char(peek()) || peek() == '\'' || peek() == '"')) {
      const char c = take();
      if (name_char(c)) end += c;
    }
    if (end.empty()) fail("expected the word that ends a here-document");
    const int line = line_;
    skip_line();
    while (at_ < text_.size()) {
      take();
      const std::size_t start = at_;
      skip_line();
      std::string_view all = std::string_view(text_).substr(start, at_ - start);
      while (!all.empty() && (all.front() == '\t' || all.front() == ' ')) all.remove_prefix(1);
      while (!all.empty() && (all.back() == '\r')) all.remove_suffix(1);
      if (all == end) return pass_over(fmt::format("a here-document from line {}", line));
    }
    fail(fmt::format("the here-document of line {} has no end '{}'", line, end));
  }

  // NAME=word, NAME+=word, NAME=(words) at the start of a command.
  bool assignment() {
    std::size_t end = at_;
    if (!name_start(peek())) return false;
    while (end < text_.size() && name_char(text_[end])) ++end;
    const std::string name = text_.substr(at_, end - at_);
    const bool adds = end + 1 < text_.size() && text_[end] == '+' && text_[end + 1] == '=';
    if (!adds && (end >= text_.size() || text_[end] != '=')) return false;
    at_ = end + (adds ? 2 : 1);
    ShellValue value;
    const int line = line_, at_column = column();
    if (peek() == '(') {
      take();
      value.array = true;
      for (skip_blanks(true); peek() != ')'; skip_blanks(true)) {
        if (at_ >= text_.size()) fail(fmt::format("the array {} is not closed", name));
        const std::size_t before = at_;
        word(value.words, 0);
        if (at_ == before) fail(fmt::format("unexpected {} in an array", detail::shown(std::string(1, take()))));
      }
      take();
    } else {
      std::vector<ShellWord> list;
      if (at_ < text_.size() && std::string_view(" \t\r\n;|&)").find(peek()) == std::string_view::npos)
        word(list, 0, true);
      ShellWord whole{"", line, at_column, ""};
      for (const ShellWord& one : list) {
        whole.text += (whole.text.empty() ? "" : " ") + one.text;
        if (whole.unset.empty()) whole.unset = one.unset;
      }
      value.words = {whole};
    }
    if (active()) assign(name, std::move(value), adds);
    return true;
  }

  void assign(const std::string& name, ShellValue value, bool adds) {
    for (const ShellWord& one : value.words) grow(one.text.size());
    ShellValue& here = values_[name];
    if (!adds || (!value.array && here.words.empty())) {
      here = std::move(value);
    } else if (value.array) {
      here.array = true;
      here.words.insert(here.words.end(), value.words.begin(), value.words.end());
    } else {
      here.words.front().text += value.words.front().text;
      grow(here.words.front().text.size());
    }
  }

  // What stands where a field of words is being put together.
  struct Field {
    std::vector<ShellWord>* words;
    ShellWord now;
    bool any = false;    // now is a word, if it is empty too
    bool whole = false;  // never split at blanks: of an assignment
  };

  void word(std::vector<ShellWord>& words, int depth, bool whole = false) {
    Field field{&words, {"", line_, column(), ""}, false, whole};
    while (at_ < text_.size()) {
      const char c = peek();
      if (std::string_view(" \t\r\n;&|<>()").find(c) != std::string_view::npos) break;
      if (c == '\'') {
        single(field);
      } else if (c == '"') {
        quoted(field, depth);
      } else if (c == '\\') {
        take();
        if (at_ < text_.size()) {
          const char next = take();
          if (next != '\n') add(field, std::string(1, next));
        }
      } else if (c == '$' || c == '`') {
        expansion(field, false, depth);
      } else {
        add(field, std::string(1, take()));
      }
    }
    flush(field);
  }

  static void add(Field& field, const std::string& text) {
    field.now.text += text;
    field.any = true;
  }
  void flush(Field& field) {
    if (field.any || !field.now.unset.empty()) {
      grow(field.now.text.size());
      field.words->push_back(field.now);
    }
    field.now.text.clear();
    field.now.unset.clear();
    field.any = false;
  }

  void single(Field& field) {
    const int line = line_, at_column = column();
    take();
    field.any = true;
    while (peek() != '\'') {
      if (at_ >= text_.size()) unclosed(line, at_column);
      field.now.text += take();
    }
    take();
  }

  [[noreturn]] void unclosed(int line, int at_column, std::string_view what = "quote") const {
    throw InputError(Diagnostic{file_, line, at_column, "", fmt::format("this {} is not closed", what), ""});
  }

  void quoted(Field& field, int depth) {
    const int line = line_, at_column = column();
    take();
    field.any = true;
    while (peek() != '"') {
      if (at_ >= text_.size()) unclosed(line, at_column);
      if (peek() == '$' || peek() == '`') {
        expansion(field, true, depth);
      } else if (peek() == '\\' && std::string_view("$`\"\\\n").find(peek(1)) != std::string_view::npos &&
                 at_ + 1 < text_.size()) {
        take();
        const char next = take();
        if (next != '\n') field.now.text += next;
      } else {
        field.now.text += take();
      }
    }
    take();
  }

  // $NAME, ${...}, $((...)), $(...), `...`
  void expansion(Field& field, bool in_quotes, int depth) {
    if (depth > kMostShellDepth) fail("nested more than 50 levels");
    if (peek() == '`') return substitution(field, '`');
    if (peek(1) == '(') {
      if (peek(2) == '(') return arithmetic(field);
      return substitution(field, ')');
    }
    take();
    if (peek() == '{') return braces(field, in_quotes, depth);
    std::string name;
    if (name_start(peek())) {
      while (name_char(peek())) name += take();
    } else if (peek() != '\0' && std::string_view("0123456789@*#?$!-").find(peek()) != std::string_view::npos) {
      name = take();
    } else {
      return add(field, "$");
    }
    put(field, name, values_.contains(name) ? &values_[name] : nullptr, false, in_quotes);
  }

  void put(Field& field, const std::string& name, const ShellValue* value, bool all, bool in_quotes) {
    if (value == nullptr && all) {  // an array that has nothing is no word at all
      if (in_quotes) field.any = !field.now.text.empty();
      return;
    }
    if (value == nullptr) {
      if (field.now.unset.empty()) field.now.unset = name;
      return;
    }
    if (all && in_quotes && !field.whole) {  // "${A[@]}": a word each
      for (std::size_t i = 0; i < value->words.size(); ++i) {
        if (i > 0) flush(field);
        field.now.line = value->words[i].line;
        field.now.column = value->words[i].column;
        field.now.unset = value->words[i].unset;
        add(field, value->words[i].text);
      }
      if (value->words.empty()) field.any = !field.now.text.empty();
      return;
    }
    const std::size_t count = all ? value->words.size() : std::min<std::size_t>(value->words.size(), 1);
    for (std::size_t i = 0; i < count; ++i) {
      const ShellWord& one = value->words[i];
      if (i > 0) field.whole || in_quotes ? add(field, " ") : flush(field);
      if (!one.unset.empty() && field.now.unset.empty()) field.now.unset = one.unset;
      if (in_quotes || field.whole)
        add(field, one.text);
      else
        split(field, one, all);
    }
  }

  // Blanks part words; each stands where the value was given, if that was a list.
  void split(Field& field, const ShellWord& one, bool placed) {
    std::size_t at = 0;
    while (at < one.text.size()) {
      const std::size_t start = one.text.find_first_not_of(" \t\n", at);
      if (start != at && field.any) flush(field);
      if (start == std::string::npos) return;
      const std::size_t end = std::min(one.text.find_first_of(" \t\n", start), one.text.size());
      if (placed) field.now.line = one.line, field.now.column = one.column;
      add(field, one.text.substr(start, end - start));
      at = end;
    }
  }

  // ${NAME}, ${NAME[@]}, ${NAME:-word} and its kin.
  void braces(Field& field, bool in_quotes, int depth) {
    const int line = line_, at_column = column();
    take();
    std::string name;
    while (at_ < text_.size() && (name_char(peek()) || (name.empty() && peek() != '}' && !name_char(peek()))))
      name += take();
    bool all = false, colon = false;
    if (peek() == '[' && (peek(1) == '@' || peek(1) == '*') && peek(2) == ']') {
      at_ += 3;
      all = true;
    }
    const auto found = values_.find(name);
    const ShellValue* value = found == values_.end() ? nullptr : &found->second;
    if (peek() == ':' && std::string_view("-=?+").find(peek(1)) != std::string_view::npos && peek(1) != '\0') {
      take();
      colon = true;
    }
    std::string rest;
    char kind = '\0';
    std::vector<ShellWord> fallback;
    if (peek() != '}' && at_ < text_.size()) {
      kind = take();
      Field inner{&fallback, {"", line_, column(), ""}, false, true};
      for (int open = 0; !(peek() == '}' && open == 0);) {
        if (at_ >= text_.size()) unclosed(line, at_column, "brace");
        if (peek() == '\'' && !in_quotes) {
          single(inner);
        } else if (peek() == '"') {
          quoted(inner, depth + 1);
        } else if (peek() == '$' || peek() == '`') {
          expansion(inner, true, depth + 1);
        } else {
          open += peek() == '{' ? 1 : peek() == '}' ? -1 : 0;
          add(inner, std::string(1, take()));
        }
      }
      flush(inner);
    }
    if (at_ >= text_.size()) unclosed(line, at_column, "brace");
    take();
    if (kind == '\0') return put(field, name, value, all, in_quotes);
    const bool empty = value == nullptr || (colon && (value->words.empty() || value->words.front().text.empty()));
    if (kind == '-' || kind == '=') {
      if (!empty) return put(field, name, value, all, in_quotes);
      const ShellValue given{false, fallback.empty() ? std::vector<ShellWord>{{"", line_, column(), ""}} : fallback};
      return put(field, name, &given, false, in_quotes);
    }
    if (kind == '+') return !empty && !fallback.empty() ? add(field, fallback.front().text) : void();
    if (kind == '?') return put(field, name, value, all, in_quotes);
    if (field.now.unset.empty()) field.now.unset = name;  // ${NAME%...} and others are not worked out
  }

  void arithmetic(Field& field) {
    const int line = line_, at_column = column();
    at_ += 3;
    const std::size_t start = at_;
    int open = 0;
    while (at_ < text_.size() && !(open == 0 && peek() == ')' && peek(1) == ')')) {
      open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
      take();
    }
    if (at_ >= text_.size()) unclosed(line, at_column, "$((");
    const std::string expression = text_.substr(start, at_ - start);
    at_ += 2;
    std::string unset;
    const auto value_of = [&](const std::string& name) -> std::optional<std::string> {
      const auto found = values_.find(name);
      if (found == values_.end() || found->second.words.empty() || !found->second.words.front().unset.empty()) {
        unset = name;
        return std::nullopt;
      }
      return found->second.words.front().text;
    };
    const std::optional<std::int64_t> value = shell_arithmetic(expression, value_of);
    if (value) return add(field, fmt::format("{}", *value));
    if (unset.empty() && active())
      throw InputError(Diagnostic{file_, line, at_column, "",
                                  fmt::format("cannot work out {}", detail::shown(expression)),
                                  "+ - * / % of integers"});
    if (field.now.unset.empty()) field.now.unset = unset.empty() ? "(())" : unset;
  }

  // The output of a program, which is not run.
  void substitution(Field& field, char end) {
    const int line = line_, at_column = column();
    take();
    if (end == ')') take();
    int open = 0;
    while (at_ < text_.size() && !(open == 0 && peek() == end)) {
      if (end == ')') open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
      take();
    }
    if (at_ >= text_.size()) unclosed(line, at_column, "substitution");
    take();
    if (field.now.unset.empty()) field.now.unset = "(a program's output)";
  }

  // Keywords open and close blocks; other commands are kept.
  void after_command(const std::vector<ShellWord>& words) {
    if (words.empty()) return;
    const std::string& first = words.front().text;
    if (first == "if") return open_if();
    if (first == "elif" || first == "else" || first == "fi") return next_branch(first);
    if (first == "for" || first == "while" || first == "until" || first == "case" || first == "select") {
      pass_over(fmt::format("'{}' and what is in it", first));
      return open_block(first == "case" ? "esac" : "done", false);
    }
    if (first == "done" || first == "esac") {
      if (!blocks_.empty() && blocks_.back().end == first) blocks_.pop_back();
      return;
    }
    if (first == "then" || first == "do" || first == "{" || first == "}" || first == "!") return;
    if (!active()) return;
    if (first == "export" || first == "declare" || first == "readonly" || first == "local" || first == "typeset")
      return exported(words);
    if (first == "unset")
      for (const ShellWord& name : words) values_.erase(name.text);
    script_.commands.push_back({words});
  }

  void exported(const std::vector<ShellWord>& words) {
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::size_t equals = words[i].text.find('=');
      if (equals == std::string::npos || equals == 0 || words[i].text[0] == '-') continue;
      ShellWord value = words[i];
      value.text.erase(0, equals + 1);
      assign(words[i].text.substr(0, equals), {false, {value}}, false);
    }
  }

  void open_block(const char* end, bool known) {
    if (static_cast<int>(blocks_.size()) >= kMostShellDepth) fail("nested more than 50 levels");
    blocks_.push_back({end, false, active(), false, known});
  }

  void open_if() {
    open_block("fi", true);
    branch();
  }

  void next_branch(const std::string& keyword) {
    if (blocks_.empty() || blocks_.back().end != "fi") return;
    if (keyword == "fi") return blocks_.pop_back();
    ShellBlock& block = blocks_.back();
    if (keyword == "elif") return branch();
    block.active = block.outer && block.known && !block.taken;
  }

  // Reads a condition and says whether the commands behind it are taken.
  void branch() {
    const int line = line_;
    const Truth holds = condition();
    ShellBlock& block = blocks_.back();
    if (holds == Truth::unknown) {
      if (block.outer && !block.taken)
        pass_over(fmt::format("a condition (line {}) that cannot be judged here, and its branches", line));
      block.known = false;
    }
    block.active = block.outer && block.known && !block.taken && holds == Truth::yes;
    block.taken = block.taken || block.active;
  }

  // Tests joined by && and ||, up to the end of the line or ';'.
  Truth condition() {
    const bool was = blocks_.back().active;
    blocks_.back().active = false;  // assignments in it are not taken
    Truth result = Truth::unknown;
    for (char join = '\0';;) {
      std::vector<ShellWord> words;
      test_words(words);
      const Truth one = shell_test(words);
      // no < unknown < yes: && is the least of them, || the most.
      result = join == '\0' ? one : join == '&' ? std::min(result, one) : std::max(result, one);
      if ((peek() == '&' && peek(1) == '&') || (peek() == '|' && peek(1) == '|')) {
        join = take();
        take();
        skip_blanks(true);
        continue;
      }
      break;
    }
    blocks_.back().active = was;
    return result;
  }

  void test_words(std::vector<ShellWord>& words) {
    for (;;) {
      skip_blanks(false);
      const char c = peek();
      if (at_ >= text_.size() || c == '\n' || c == ';' || c == '&' || c == '|') return;
      if (c == '(' || c == ')' || c == '<' || c == '>') {
        words.push_back({std::string(1, take()), line_, column(), ""});
        continue;
      }
      word(words, 0);
    }
  }

  const std::string& file_;
  const std::string& text_;
  std::size_t at_ = 0, line_start_ = 0, bytes_ = 0, words_ = 0;
  int line_ = 1;
  std::map<std::string, ShellValue> values_;
  std::vector<ShellBlock> blocks_;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell_script(const std::string& file, const std::string& text) {
  if (const auto problem = detail::not_text(text)) throw InputError(Diagnostic{file, 0, 0, "", *problem, ""});
  return ShellReader(file, text).read();
}

}  // namespace rehearse::formats
