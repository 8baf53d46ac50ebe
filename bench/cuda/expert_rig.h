// One layer's experts on a device, and batches of rows for them through the device seam.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <cuda_runtime_api.h>

#include "core/rng.h"
#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard::bench {

template <typename T>
T OrExit(absl::StatusOr<T> made) {
  if (made.ok()) return *std::move(made);
  std::fprintf(stderr, "%s\n", std::string(made.status().message()).c_str());
  std::exit(1);
}
inline void OrExit(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

inline void OrExit(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

inline double Microseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}
inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// How a layer's weights are stored, and its experts round rows; rows travel in the format of the
// weights where there is one, else in BF16.
enum class Layer : std::uint8_t {
  kFp8,     // E4M3 codes, scales of 128 x 128, rows FP8
  kBf16,    // values that no narrower code holds
  kInt8,    // INT8 codes, scales of channels, rows INT8
  kW4Afp8,  // INT4 codes, scales of 128 k of a channel, rows rounded to E4M3 by one scale
  kNvfp4,   // E2M1 codes times E4M3 scales of 16 k, one scale, rows rounded likewise
};

struct Case {
  const char* name;
  MoeShape shape;  // experts: those of this device
  std::uint32_t tokens;
  std::int32_t width;  // experts of a token on this device
  Layer layer;
};

// Each expert shows another part of the same random values.
class Experts {
 public:
  Experts(CudaBackend& device, const Case& one);

  [[nodiscard]] const ExpertTable* table() const { return table_.get(); }
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  std::unique_ptr<ExpertTable> table_;
  std::int64_t weight_bytes_ = 0;
};

class Rig {
 public:
  Rig(CudaBackend& device, const Experts& experts, const Case& one, std::int64_t pairs_max,
      WorkClass work_class = WorkClass::kDecode);

  // `copies`: of rows from host memory, and of answers to it.
  void Enqueue(bool copies);
  void Record() { OrExit(stream_->Record(event_.get())); }
  [[nodiscard]] bool done() const { return event_->done(); }
  void Finish();
  // Medians, in microseconds: of a batch by itself, of batches behind each other, of the call.
  double Latency(bool copies, int rounds);
  double Queued(int rounds, int queued);
  double Call();
  // Lets the device reach the host's rows and answers.
  void Map();
  [[nodiscard]] const std::vector<std::int32_t>& slots() const { return slots_; }
  // Rows whose answer holds a NaN, of the last batch.
  [[nodiscard]] std::uint32_t nan_rows() const { return input_.nan_rows; }

 private:
  void MakeRows(const WireFormat& format);

  CudaBackend* const device_;
  const Case& case_;
  const Experts* const experts_;
  SeededRng rng_{7};
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceEvent> event_;
  std::unique_ptr<Codec> codec_;
  std::size_t data_bytes_ = 0;
  std::vector<std::byte> host_rows_;
  std::vector<std::byte> host_out_;
  std::unique_ptr<HostMapping> mappings_[2];
  std::unique_ptr<Buffer> rows_;
  std::unique_ptr<Buffer> out_;
  std::vector<std::int32_t> slots_;
  std::vector<float> weights_;
  ExpertInput input_;
};

}  // namespace switchyard::bench
