// The functions of cuBLASLt that we call, found at run time: the program starts, and says what is missing, on a machine
// without the library. Types are those of the real header, so a wrong signature does not compile. Tests put functions
// of their own in the table.
#pragma once

#include <cublasLt.h>

#include <string>

namespace rehearse::kernels::cuda {

struct BlasApi {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) config_get = nullptr;
};

// The library of this machine, loaded by the first call and kept: REHEARSE_CUBLASLT if set, else the system's
// libcublasLt.so.13, .12 or .so. Any thread. Throws DeviceError with the loader's reasons.
const BlasApi& blas_api();
// Null if there is none; `reason` gets why.
const BlasApi* find_blas_api(std::string* reason);

}  // namespace rehearse::kernels::cuda
