// Writes messages as protobuf's JSON, with the names of the .proto files. Thread-safe.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace switchyard {

// Errors in it are complete: the details of a v1.Status, which go by the public names of google.rpc
// and are messages of ours, are written out. Fields that have their default are left out. Linear;
// tens of milliseconds for a plan of 61 layers x 256 experts.
std::string MessageJson(const google::protobuf::Message& message);

}  // namespace switchyard
