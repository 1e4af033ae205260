# REHEARSE_STATIC: the libraries as archives, before they are looked for otherwise. Where a distribution ships none, the
# build stops and says which; {fmt} is used as headers, since Debian has no archive of it. CLI11, nlohmann-json and Eigen
# are headers anyway. Sets REHEARSE_FMT, REHEARSE_YAML and
# REHEARSE_PUGIXML, what the program links for the three.
if(REHEARSE_SANITIZE)
  message(FATAL_ERROR "REHEARSE_STATIC and REHEARSE_SANITIZE exclude each other: sanitizers are shared libraries")
endif()

# Optional ways for ranks to talk that are only to be had as shared libraries.
foreach(option REHEARSE_GLOO REHEARSE_MPI)
  if("${${option}}" MATCHES "^(ON|on|1|TRUE|true)$")
    message(FATAL_ERROR "REHEARSE_STATIC and ${option} exclude each other: it needs shared libraries")
  endif()
  set(${option} OFF)
endforeach()

set(ZLIB_USE_STATIC_LIBS ON)
set(REHEARSE_FMT fmt::fmt-header-only)
find_package(yaml-cpp REQUIRED)
find_library(REHEARSE_YAML_ARCHIVE NAMES libyaml-cpp.a)
if(NOT REHEARSE_YAML_ARCHIVE)
  message(FATAL_ERROR "REHEARSE_STATIC needs libyaml-cpp.a (Debian: libyaml-cpp-dev)")
endif()
get_target_property(includes yaml-cpp INTERFACE_INCLUDE_DIRECTORIES)
add_library(rehearse-yaml-cpp STATIC IMPORTED)
set_target_properties(rehearse-yaml-cpp PROPERTIES IMPORTED_LOCATION ${REHEARSE_YAML_ARCHIVE})
if(includes)
  set_target_properties(rehearse-yaml-cpp PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${includes}")
endif()
set(REHEARSE_YAML rehearse-yaml-cpp)
find_library(REHEARSE_PUGIXML NAMES libpugixml.a)
if(NOT REHEARSE_PUGIXML)
  message(FATAL_ERROR "REHEARSE_STATIC needs libpugixml.a (Debian: libpugixml-dev)")
endif()
