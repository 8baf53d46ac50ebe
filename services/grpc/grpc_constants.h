// Figures that both ends of a gRPC connection must agree on. Sources: grpc's doc/keepalive.md; its
// defaults (no pings from clients, connections with pings more often than every 5 minutes closed
// with too_many_pings) are a trap for streams that idle.
#pragma once

#include <chrono>
#include <cstddef>

#include "core/base/clock.h"

namespace switchyard {

// Largest control message: plans, prepares, attachments, administration. Checked where a message is
// sent and again where it comes in, with RESOURCE_EXHAUSTED and MESSAGE_TOO_LARGE.
inline constexpr std::size_t kControlMessageBytesMax = std::size_t{4} << 20;
// Largest gateway step or answer.
inline constexpr std::size_t kStepMessageBytesMax = std::size_t{64} << 20;
// What a step's message has beside its rows, ids and weights.
inline constexpr std::size_t kStepHeaderBytesMax = 64;
// gRPC's own cap, which gives no ErrorInfo, stands this much above ours.
inline constexpr std::size_t kGrpcCapSlackBytes = std::size_t{4} << 20;

struct KeepaliveOptions {
  // Either side pings a connection on which nothing came for this long, streams or not.
  Duration ping_interval = std::chrono::seconds(20);
  // A connection without answer for this long is dead.
  Duration ping_timeout = std::chrono::seconds(10);
  // A server closes a connection whose client pings more often than this.
  Duration ping_interval_min = std::chrono::seconds(10);
};

// Messages of one stream that wait behind the one being written. A peer that does not read loses
// its stream and dials again.
inline constexpr std::size_t kStreamQueueMessagesMax = 64;
inline constexpr std::size_t kStreamQueueBytesMax = std::size_t{16} << 20;

// Steps are bounded by their credits; this is for a caller that does not keep to them.
inline constexpr std::size_t kStepQueueBytesMax = std::size_t{4} * kStepMessageBytesMax;

// Streams of one connection.
inline constexpr int kStreamsPerConnectionMax = 1024;

// How long a client tries to reach a server before the call fails, and how it comes back.
inline constexpr Duration kConnectTimeout = std::chrono::seconds(2);
inline constexpr Duration kReconnectFirst = std::chrono::milliseconds(100);
inline constexpr Duration kReconnectLast = std::chrono::seconds(1);

}  // namespace switchyard
