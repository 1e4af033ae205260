# cmake -DSTYLE=file -DSCRIPT=file-or-nothing -DOUTPUT=file.cpp -P embed.cmake: the page's files as a C++ source. Bytes as
# numbers: no length limit of string literals, nothing to escape.
function(bytes_of file name)
  set(content "")
  if(file)
    file(READ "${file}" content HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," content "${content}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n"
           content "${content}")
  endif()
  set(${name} "${content}0" PARENT_SCOPE)
endfunction()

bytes_of("${STYLE}" style)
bytes_of("${SCRIPT}" script)
file(WRITE "${OUTPUT}" "// Made by reports/page/embed.cmake.
#include \"reports/html/page_files.h\"

namespace rehearse::reports {
namespace {

constexpr unsigned char kStyle[] = {${style}};
constexpr unsigned char kScript[] = {${script}};

}  // namespace

std::string_view page_style() { return {reinterpret_cast<const char*>(kStyle), sizeof kStyle - 1}; }
std::string_view page_script() { return {reinterpret_cast<const char*>(kScript), sizeof kScript - 1}; }

}  // namespace rehearse::reports
")
