// The version of the control messages between sources, workers and the coordinator.
//
// The frames between them have a version of their own (worker/transport/frame.h). Every first
// message of a stream carries this number, and a peer with another one is refused with both numbers
// before anything else of the message is used. It grows when a message of an older release would be
// misunderstood, not with every new field.
#pragma once

#include <cstdint>

namespace switchyard {

// 2: grants are signed. Releases before it send no number, which reads as 0.
inline constexpr std::uint32_t kProtocolVersion = 2;

}  // namespace switchyard
