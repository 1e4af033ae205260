// The page's style and script as CMake put them into the program: reports/page/style.css, and the bundle that esbuild
// makes of reports/page/main.js, which is empty where Node or npm was missing.
#pragma once

#include <string_view>

namespace rehearse::reports {

std::string_view page_style();
std::string_view page_script();

}  // namespace rehearse::reports
