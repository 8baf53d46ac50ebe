// A process that shares memory of a GPU with cuda_sharing_test, as it is told: one order a line on
// standard input, one answer a line on standard output.
//
//   make BYTES      allocates memory to share; the answer is its key, in hex digits
//   open KEY BYTES  opens memory of the test; "ok" or why not
//   fill BYTE       writes it all, and waits for the GPU; "ok" or "failed"
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/escaping.h"
#include <cuda_runtime_api.h>

#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard {
namespace {

class Peer {
 public:
  explicit Peer(std::unique_ptr<CudaBackend> device) : device_(std::move(device)) {}

  std::string Do(const std::string& line) {
    std::istringstream words(line);
    std::string order;
    std::string key;
    std::size_t number = 0;
    words >> order;
    if (order == "open") words >> key;
    words >> number;
    if (order == "make") return Make(number);
    return order == "open" ? Open(absl::HexStringToBytes(key), number)
                           : Fill(static_cast<int>(number));
  }

 private:
  std::string Make(std::size_t bytes) {
    auto made = device_->AllocateShared(bytes);
    if (!made.ok()) return std::string(made.status().message());
    made_ = *std::move(made);
    return absl::BytesToHexString(made_.key);
  }
  std::string Open(const std::string& key, std::size_t bytes) {
    auto opened = device_->OpenShared(key, bytes);
    if (!opened.ok()) return std::string(opened.status().message());
    opened_ = *std::move(opened);
    return "ok";
  }
  std::string Fill(int byte) {
    const bool filled = cudaMemset(opened_->data(), byte, opened_->bytes()) == cudaSuccess &&
                        cudaDeviceSynchronize() == cudaSuccess;
    return filled ? "ok" : "failed";
  }

  std::unique_ptr<CudaBackend> device_;
  SharedBuffer made_;
  std::unique_ptr<Buffer> opened_;
};

}  // namespace
}  // namespace switchyard

int main() {
  auto device = switchyard::CudaBackend::Create({});
  if (!device.ok()) return 1;
  switchyard::Peer peer(*std::move(device));
  for (std::string line; std::getline(std::cin, line);) std::cout << peer.Do(line) << std::endl;
  return 0;
}
