// Limits and timeouts on which both ends of a gRPC connection must agree. See gRPC's
// doc/keepalive.md. Its defaults do not suit idle streams: clients send no pings, and servers close
// a connection with too_many_pings if pings arrive more often than every 5 minutes.
#pragma once

#include <chrono>
#include <cstddef>

#include "core/base/clock.h"

namespace switchyard {

// Largest control message: plans, prepares, attachments, administration. Checked by the sender and
// again by the receiver. Error: kResourceExhausted (MESSAGE_TOO_LARGE).
inline constexpr std::size_t kControlMessageBytesMax = std::size_t{4} << 20;
// Largest message of a worker to its coordinator, and largest request about a session: some
// kilobytes in fact, and many may wait at a coordinator.
inline constexpr std::size_t kSmallMessageBytesMax = std::size_t{256} << 10;
// Largest gateway step or answer.
inline constexpr std::size_t kStepMessageBytesMax = std::size_t{64} << 20;
// Most bytes of a step's message besides its rows, ids and weights.
inline constexpr std::size_t kStepHeaderBytesMax = 64;
// gRPC's own limit is higher than ours by this much, so that ours applies first: gRPC's error has
// no ErrorInfo.
inline constexpr std::size_t kGrpcCapSlackBytes = std::size_t{4} << 20;

// gRPC may hold so much on one port for messages that have arrived in part, of all peers together.
// Enough for several of the largest, and for more control messages than there are threads.
inline constexpr std::size_t kServerMemoryBytesMax = std::size_t{512} << 20;

// Keepalive detects a peer whose host is gone: TCP itself reports it only after many minutes.
struct KeepaliveOptions {
  // Either side sends a ping after this long without data, even on a connection without streams.
  Duration ping_interval = std::chrono::seconds(20);
  // A connection is dead if a ping is not answered within this time.
  Duration ping_timeout = std::chrono::seconds(10);
  // A server closes a connection whose client sends pings more often than this. Less than
  // ping_interval, so that jitter does not close a healthy connection.
  Duration ping_interval_min = std::chrono::seconds(10);
};

// Most messages of one stream that wait for the one being written. More means that the peer does
// not read; its stream is ended and it has to reconnect.
inline constexpr std::size_t kStreamQueueMessagesMax = 64;
inline constexpr std::size_t kStreamQueueBytesMax = std::size_t{16} << 20;

// Credits already bound the number of steps. This limit is for a caller that ignores them.
inline constexpr std::size_t kStepQueueBytesMax = std::size_t{4} * kStepMessageBytesMax;

// A server closes a connection that has not begun to speak HTTP/2 after this time, and one that has
// had no call for this long; gRPC's clients connect again by themselves.
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(10);
inline constexpr Duration kIdleConnectionMax = std::chrono::seconds(60);

// Most concurrent streams of one connection.
inline constexpr int kStreamsPerConnectionMax = 1024;

// How long a client tries to reach a server before a call fails, and the backoff between attempts.
// The last backoff is short because a restarted coordinator should get its workers back quickly.
inline constexpr Duration kConnectTimeout = std::chrono::seconds(2);
inline constexpr Duration kReconnectFirst = std::chrono::milliseconds(100);
inline constexpr Duration kReconnectLast = std::chrono::seconds(1);

}  // namespace switchyard
