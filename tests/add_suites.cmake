# A test of CTest for each suite of a program of GoogleTest, for programs whose tests share results within a process.
# Run when the program is built: cmake -DPROGRAM= -DPREFIX= -DLABEL= -DTIMEOUT= -DOUTPUT= -P add_suites.cmake
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" lines "${listed}")
set(text "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ #]+[.])") # a suite: tests follow, indented
    set(suite ${CMAKE_MATCH_1})
    string(REGEX REPLACE "[.]$" "" name ${suite})
    string(APPEND text "add_test([=[${PREFIX}.${name}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}*]=])\n"
                       "set_tests_properties([=[${PREFIX}.${name}]=] PROPERTIES LABELS ${LABEL} TIMEOUT ${TIMEOUT})\n")
  endif()
endforeach()
file(WRITE ${OUTPUT}.new "${text}")
file(RENAME ${OUTPUT}.new ${OUTPUT})
