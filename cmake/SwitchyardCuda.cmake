# CUDA as a language of the build, with the pinned toolkit of scripts/cuda_toolkit unless
# CMAKE_CUDA_COMPILER names another nvcc. Included only with SWITCHYARD_CUDA on.
#
# switchyard_cuda_target(NAME): the device code of a target is for Hopper (sm_90a), host code may
# include the runtime's headers, and the runtime is linked statically.
# NCCL_INCLUDE_DIRS: the folders of nccl.h and of what it includes.
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

# The library is loaded at run time.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${SWITCHYARD_CUDA_TOOLKIT}/../nccl/include")
if(NOT NCCL_INCLUDE_DIR)
  message(FATAL_ERROR "nccl.h is missing: install libnccl-dev or the wheel nvidia-nccl-cu13, and set "
    "NCCL_INCLUDE_DIR to its folder")
endif()

# CMake 3.25 does not ask nvcc for the folder in which CUDA 13 keeps <nv/target>.
set(NCCL_INCLUDE_DIRS ${NCCL_INCLUDE_DIR} ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
foreach(folder IN LISTS CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES)
  if(EXISTS "${folder}/cccl/nv/target")
    list(APPEND NCCL_INCLUDE_DIRS "${folder}/cccl")
  endif()
endforeach()

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
