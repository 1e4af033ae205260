// The program at a terminal: its standard error is one, and Ctrl-C comes when a certain text has appeared there.
#pragma once

#include <string>
#include <vector>

namespace rehearse::e2e {

struct Shown {
  bool seen = false;       // the text that was waited for
  std::string text;        // all that was shown on the terminal
  int status = -1;         // exit status; 128 + signal if a signal ended it
  double cpu_after_s = 0;  // processor time the program took after Ctrl-C: what does not depend on the machine's load
};

// Waits until `awaited` is shown, then interrupts the program once. Gives up after two minutes.
Shown interrupt_at(const std::vector<std::string>& arguments, const std::string& awaited);

}  // namespace rehearse::e2e
