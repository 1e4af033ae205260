// What may be an output, whoever writes it. No device is ever named here: a pipe and a socket stand for them.
#include "sim/result/output_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"
#include "tests/support/temporary.h"

namespace rehearse::result {
namespace {

namespace fs = std::filesystem;

class OutputRule : public testing::Test {
 protected:
  OutputRule() : folder_(test::temporary_path("outputs")) { fs::create_directories(folder_); }
  ~OutputRule() override { fs::remove_all(folder_); }

  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(in(name)) << content;
    return in(name);
  }
  std::string content(const std::string& name) const {
    std::ifstream stream(in(name));
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  // The message; "" if the output was written.
  static std::string problem(const std::string& path) {
    try {
      write_output(path, "new");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(OutputRule, RegularFilesAndNewNamesAreWritten) {
  EXPECT_EQ(problem(in("new")), "");
  EXPECT_EQ(problem(file("old", "old")), "");
  EXPECT_EQ(content("new"), "new");
  EXPECT_EQ(content("old"), "new");
  EXPECT_EQ(files(), 2) << "nothing temporary is left";
}

TEST_F(OutputRule, LinksAreNeitherFollowedNorReplaced) {
  file("target", "mine");
  fs::create_symlink("target", in("link"));
  fs::create_symlink("nowhere", in("dangling"));
  EXPECT_NE(problem(in("link")).find("is a symbolic link"), std::string::npos);
  EXPECT_NE(problem(in("dangling")).find("is a symbolic link"), std::string::npos);
  EXPECT_EQ(content("target"), "mine");
  EXPECT_TRUE(fs::is_symlink(in("link")));
  EXPECT_TRUE(fs::is_symlink(in("dangling")));
  EXPECT_EQ(files(), 3);
}

TEST_F(OutputRule, WhatIsNoFileStays) {
  ASSERT_EQ(::mkfifo(in("pipe").c_str(), 0600), 0);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(in("s").size(), sizeof address.sun_path);
  in("s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  fs::create_directory(in("folder"));
  EXPECT_NE(problem(in("pipe")).find("is a pipe"), std::string::npos);
  EXPECT_NE(problem(in("s")).find("is a socket"), std::string::npos);
  EXPECT_NE(problem(in("folder")).find("is a directory"), std::string::npos);
  EXPECT_NE(problem("").find("is no name of a file"), std::string::npos);
  EXPECT_TRUE(fs::is_fifo(in("pipe")));
  EXPECT_TRUE(fs::is_socket(in("s")));
  EXPECT_EQ(files(), 3);
  ::close(fd);
}

TEST_F(OutputRule, InputsStayWhateverTheyAreCalled) {
  file("input", "mine");
  ASSERT_EQ(::link(in("input").c_str(), in("hard").c_str()), 0);
  fs::create_directory_symlink(folder_, in("way"));
  EXPECT_FALSE(is_input(in("input")));
  EXPECT_EQ(read_text_file(in("input")), "mine");
  for (const char* name : {"input", "hard", "way/input", "./input"})
    EXPECT_NE(problem(in(name)).find("is an input of this command"), std::string::npos) << name;
  EXPECT_EQ(content("input"), "mine");
  write_output(in("input"), "more", Over::its_own_input);
  EXPECT_EQ(content("input"), "more");
  note_input(in("not there yet"));
  EXPECT_NE(problem(in("not there yet")).find("is an input of this command"), std::string::npos);
}

TEST_F(OutputRule, APlaceThatChangesMeanwhileIsSeen) {
  OutputFile out(in("f"), OutputFile::Format::plain);
  out.write("new");
  ASSERT_EQ(::mkfifo(in("f").c_str(), 0600), 0);
  EXPECT_THROW(out.commit(), InputError);
  EXPECT_TRUE(fs::is_fifo(in("f")));
}

TEST_F(OutputRule, ATemporaryNameThatIsTakenIsNotTouched) {
  const std::string taken = file("f." + std::to_string(::getpid()) + "-0.tmp", "mine");
  EXPECT_EQ(problem(in("f")), "");
  EXPECT_EQ(content(fs::path(taken).filename()), "mine");
  EXPECT_EQ(files(), 2);
}

TEST_F(OutputRule, AnInterruptLeavesNothing) {
  file("f", "old");
  detail::first_signal = SIGINT;
  EXPECT_THROW(write_output(in("f"), "new"), Interrupted);
  detail::first_signal = 0;
  EXPECT_EQ(content("f"), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputRule, AWritePastTheLimitOfFilesIsAnErrorThatSaysSo) {
  const pid_t child = ::fork();
  if (child == 0) {
    handle_end_signals();
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_output(in("f"), std::string(5000, 'x'));
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      ::_exit(text.find("1000 bytes") != std::string::npos && text.find("ulimit -f") != std::string::npos ? 3 : 4);
    }
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_EQ(files(), 0);
}

TEST_F(OutputRule, OtherErrorsNameThePath) {
  try {
    write_output(in("absent/f"), "x");
    ADD_FAILURE() << "written";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(in("absent/f")), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rehearse::result
