# CUDA as a language of the build, with the pinned toolkit of scripts/cuda_toolkit unless
# CMAKE_CUDA_COMPILER names another nvcc. Included only with SWITCHYARD_CUDA on.
#
# switchyard_cuda_target(NAME): the device code of a target is for Hopper (sm_90a), host code may
# include the runtime's headers, and the runtime is linked statically.
# switchyard_cuda_portable(FILE...): the device code of these files is for Blackwell (sm_100) too, and
# as PTX for what comes later. They use nothing that only Hopper has.
include_guard(GLOBAL)

if(NOT CMAKE_CUDA_COMPILER)
  execute_process(
    COMMAND "${PROJECT_SOURCE_DIR}/scripts/cuda_toolkit"
    OUTPUT_VARIABLE SWITCHYARD_CUDA_TOOLKIT
    OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  set(CMAKE_CUDA_COMPILER "${SWITCHYARD_CUDA_TOOLKIT}/bin/nvcc")
endif()
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
set(CMAKE_CUDA_ARCHITECTURES OFF)  # stated as -gencode below: CMake 3.25 knows no sm_90a
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()
enable_language(CUDA)
# CMake 3.25 does not know this nvcc's flag for C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")

function(switchyard_cuda_target target)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_include_directories(${target} SYSTEM PUBLIC ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-O3;-gencode=arch=compute_90a,code=sm_90a>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror;-Werror=all-warnings>")
endfunction()

function(switchyard_cuda_portable)
  set_source_files_properties(${ARGN}
    PROPERTIES COMPILE_OPTIONS "-gencode=arch=compute_100,code=[sm_100,compute_100]")
endfunction()
