// Device memory of tests and benchmarks: owned, typed, and checked; a failed CUDA call ends the
// program with its place, so that no figure or comparison is made of garbage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "worker/device/cuda/decode/grouped_gemm.h"

namespace switchyard::cuda::testing {

inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stderr);
  std::_Exit(3);
}

inline bool HasDevice() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::int64_t count) : count_(count) {
    Check(cudaMalloc(reinterpret_cast<void**>(&data_), Bytes() == 0 ? 16 : Bytes()), "cudaMalloc");
  }
  explicit DeviceBuffer(const std::vector<T>& from)
      : DeviceBuffer(static_cast<std::int64_t>(from.size())) {
    Check(cudaMemcpy(data_, from.data(), Bytes(), cudaMemcpyHostToDevice), "copy to device");
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~DeviceBuffer() { cudaFree(data_); }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::size_t Bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

  void Fill(int byte) { Check(cudaMemset(data_, byte, Bytes()), "cudaMemset"); }
  [[nodiscard]] std::vector<T> ToHost() const {
    std::vector<T> out(static_cast<std::size_t>(count_));
    Check(cudaMemcpy(out.data(), data_, Bytes(), cudaMemcpyDeviceToHost), "copy from device");
    return out;
  }

 private:
  T* data_ = nullptr;
  std::int64_t count_ = 0;
};

}  // namespace switchyard::cuda::testing
