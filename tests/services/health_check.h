// Asks the health service of gRPC. It speaks protobuf; its two messages are a string and an enum,
// written here by hand, because this project does not generate them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

#include "services/grpc/grpc_server.h"

namespace switchyard::testing {

inline constexpr int kServing = 1;
inline constexpr int kNotServing = 2;

// kServing, kNotServing, or a negative number: the code of the error.
inline int HealthOf(const std::string& endpoint, const std::string& service) {
  grpc::GenericStub stub(MakeGrpcChannel(endpoint, 1 << 20));
  std::string request;
  if (!service.empty()) {
    request = "\x0a" + std::string(1, static_cast<char>(service.size())) + service;
  }
  grpc::Slice slice(request);
  const grpc::ByteBuffer buffer(&slice, 1);
  grpc::ByteBuffer answer;
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(std::chrono::seconds(5)));
  std::mutex mutex;
  std::condition_variable done;
  std::optional<grpc::Status> status;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &buffer, &answer,
                 [&](grpc::Status result) {
                   const std::lock_guard lock(mutex);
                   status = std::move(result);
                   done.notify_all();
                 });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return status.has_value(); });
  if (!status->ok()) return -static_cast<int>(status->error_code());
  grpc::Slice out;
  EXPECT_TRUE(answer.DumpToSingleSlice(&out).ok());
  return out.size() == 2 ? out.begin()[1] : 0;
}

}  // namespace switchyard::testing
