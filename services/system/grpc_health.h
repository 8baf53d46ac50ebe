// The health service of gRPC, which every port of the programs has: "" is liveness, a name of the
// program's own readiness.
#pragma once

#include <string>

#include "services/grpc/grpc_server.h"
#include "services/system/health_monitor.h"

namespace switchyard {

// Sets both answers of `server`. Thread-safe; does not block.
inline void SetGrpcHealth(const Health& health, const std::string& ready_name, GrpcServer* server) {
  server->SetServing("", health.live());
  server->SetServing(ready_name, health.ready());
}

}  // namespace switchyard
