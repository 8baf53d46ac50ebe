// The connections to workers: one to each that calls share, and others of single calls. Unused ones
// are closed at the next request, so that workers that left do not keep a connection. Thread-safe.
//
// gRPC frees what callbacks need with the last channel, so this object outlives every call on its
// channels: declare CallsInFlight after it.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/channel.h"

#include "core/base/mutex.h"
#include "services/grpc/grpc_server.h"

namespace switchyard {

class WorkerConnections {
 public:
  // `message_bytes_max` in both directions.
  WorkerConnections(std::size_t message_bytes_max,
                    std::shared_ptr<const TransportSecurity> security)
      : message_bytes_max_(message_bytes_max), security_{std::move(security), Role::kWorker} {}

  // The shared one. `endpoint` is "host:port". Does not dial.
  std::shared_ptr<grpc::Channel> To(const std::string& endpoint) {
    const MutexLock lock(mutex_);
    for (auto it = channels_.begin(); it != channels_.end();) {
      // A use count of 1 means that only this map holds the channel.
      const bool unused = it->first != endpoint && it->second.use_count() == 1;
      it = unused ? channels_.erase(it) : std::next(it);
    }
    std::shared_ptr<grpc::Channel>& channel = channels_[endpoint];
    if (channel == nullptr) channel = MakeGrpcChannel(endpoint, message_bytes_max_, {}, security_);
    return channel;
  }
  // One that nobody else gets: on a shared connection a small message waits behind the large ones
  // of others. Does not dial.
  std::shared_ptr<grpc::Channel> NewTo(const std::string& endpoint) {
    const MutexLock lock(mutex_);
    // Before the unused ones go: they may be the last (above).
    std::shared_ptr<grpc::Channel> made =
        MakeGrpcChannel(endpoint, message_bytes_max_, {}, security_);
    std::erase_if(own_, [](const auto& channel) { return channel.use_count() == 1; });
    own_.push_back(made);
    return made;
  }

 private:
  const std::size_t message_bytes_max_;
  const PeerSecurity security_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ SY_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<grpc::Channel>> own_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
