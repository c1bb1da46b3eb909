# Sets TORCH_DIR, TORCH_VERSION and TORCH_CXX11_ABI from the PyTorch that Python_EXECUTABLE imports. PyTorch's own
# find_package(Torch) is not used: it changes global flags and asks for libraries that we do not link.
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${Python_EXECUTABLE} -c "import os, torch
print(os.path.dirname(torch.__file__), torch.__version__, int(torch.compiled_with_cxx11_abi()), sep=';', end='')"
  OUTPUT_VARIABLE torch_facts RESULT_VARIABLE torch_failed ERROR_VARIABLE torch_error)
if(torch_failed)
  message(FATAL_ERROR "${Python_EXECUTABLE} cannot import torch: run `make build`, which installs it into .venv, or name "
                      "another interpreter with -DPython_EXECUTABLE=.\n${torch_error}")
endif()
list(GET torch_facts 0 TORCH_DIR)
list(GET torch_facts 1 TORCH_VERSION)
list(GET torch_facts 2 TORCH_CXX11_ABI)
if(NOT TORCH_VERSION MATCHES "^2\\.13\\.")
  message(FATAL_ERROR "The glue in src/torch is written for PyTorch 2.13 and ${Python_EXECUTABLE} has ${TORCH_VERSION}: "
                      "install torch==2.13.0.")
endif()
message(STATUS "PyTorch ${TORCH_VERSION} in ${TORCH_DIR}")
