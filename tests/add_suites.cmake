# A test of CTest for each suite of a program of GoogleTest, for programs whose tests share results within a process.
# Run when the program is built: cmake -DPROGRAM= -DPREFIX= -DLABEL= -DTIMEOUT= -DOUTPUT= -P add_suites.cmake
#
# Each has one core (tests/numerics/one_core.cpp): the threads of its ranks wait for one another all the time, and to wake
# them on another core takes as long as what they do. Suites whose subject is what happens at once have all cores.
set(on_all_cores "Combined|Failures|LateRanks|Repeats|Worlds|Processes|Servers")
set(core 0)
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" lines "${listed}")
set(text "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ #]+[.])") # a suite: tests follow, indented
    set(suite ${CMAKE_MATCH_1})
    string(REGEX REPLACE "[.]$" "" name ${suite})
    string(APPEND text "add_test([=[${PREFIX}.${name}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}*]=])\n"
                       "set_tests_properties([=[${PREFIX}.${name}]=] PROPERTIES LABELS ${LABEL} TIMEOUT ${TIMEOUT})\n")
    if(NOT name MATCHES "${on_all_cores}")
      string(APPEND text "set_tests_properties([=[${PREFIX}.${name}]=] PROPERTIES ENVIRONMENT REHEARSE_TEST_CORE=${core})\n")
      math(EXPR core "${core} + 1")
    endif()
  endif()
endforeach()
file(WRITE ${OUTPUT}.new "${text}")
file(RENAME ${OUTPUT}.new ${OUTPUT})
