// A peer that speaks just enough HTTP/2 to send a part of one gRPC message and never the rest.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/string_view.h"

namespace switchyard::testing {

// Not thread-safe. Sends zeros, as far as the server's windows allow.
class HalfMessage {
 public:
  // Calls `method`, "/package.Service/Method", with a message of `bytes` bytes at 127.0.0.1:`port`.
  // All but the last byte are sent by Pump.
  HalfMessage(int port, absl::string_view method, std::uint32_t bytes) : left_(bytes + 4) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    over_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0;
    out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    Frame(kSettings, 0, 0, "");
    std::string headers = "\x83\x86";  // :method POST, :scheme http
    Header(":path", method, &headers);
    Header(":authority", "localhost", &headers);
    Header("content-type", "application/grpc", &headers);
    Header("te", "trailers", &headers);
    Frame(kHeaders, kEndHeaders, 1, headers);
    prefix_ = std::string(1, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) prefix_ += static_cast<char>(bytes >> shift);
  }
  ~HalfMessage() { ::close(socket_); }
  HalfMessage(const HalfMessage&) = delete;
  HalfMessage& operator=(const HalfMessage&) = delete;

  [[nodiscard]] int socket() const { return socket_; }
  // POLLIN, and POLLOUT while there is something that may be sent.
  [[nodiscard]] short events() {
    Fill();
    return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT);
  }
  // The server has ended the stream or the connection.
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] bool sent_all() const { return left_ == 0 && out_.empty(); }

  // Reads and writes what it can without waiting.
  void Pump() {
    std::string buffer(1 << 16, '\0');
    for (ssize_t got = 1; got > 0;) {
      got = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got == 0) over_ = true;
      if (got > 0) in_.append(buffer.data(), static_cast<std::size_t>(got));
    }
    while (in_.size() >= kHeaderBytes && in_.size() >= kHeaderBytes + LengthOf(in_)) {
      const std::size_t length = LengthOf(in_);
      OnFrame(in_[3], in_[4], Number(in_.substr(5, 4)), in_.substr(kHeaderBytes, length));
      in_.erase(0, kHeaderBytes + length);
    }
    Fill();
    if (out_.empty()) return;
    const ssize_t put = ::send(socket_, out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put > 0) out_.erase(0, static_cast<std::size_t>(put));
    if (put < 0 && errno != EAGAIN) over_ = true;
  }

 private:
  static constexpr std::size_t kHeaderBytes = 9;
  static constexpr std::int64_t kFrameMax = 16384;
  static constexpr char kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7,
                        kWindow = 8;
  static constexpr char kAck = 1, kEndHeaders = 4;

  static std::uint32_t Number(absl::string_view bytes) {
    std::uint32_t number = 0;
    for (const char byte : bytes) number = (number << 8) | static_cast<std::uint8_t>(byte);
    return number;
  }
  static std::size_t LengthOf(const std::string& frame) { return Number(frame.substr(0, 3)); }
  // A literal without indexing; all lengths here are below 127.
  static void Header(absl::string_view name, absl::string_view value, std::string* out) {
    *out += '\0';
    *out += static_cast<char>(name.size());
    out->append(name.data(), name.size());
    *out += static_cast<char>(value.size());
    out->append(value.data(), value.size());
  }
  void Frame(char type, char flags, std::uint32_t stream, absl::string_view payload) {
    for (int shift = 16; shift >= 0; shift -= 8) {
      out_ += static_cast<char>(payload.size() >> shift);
    }
    out_ += type;
    out_ += flags;
    for (int shift = 24; shift >= 0; shift -= 8) out_ += static_cast<char>(stream >> shift);
    out_.append(payload.data(), payload.size());
  }
  void OnFrame(char type, char flags, std::uint32_t stream, const std::string& payload) {
    if (type == kSettings && (flags & kAck) == 0) {
      for (std::size_t at = 0; at + 6 <= payload.size(); at += 6) {
        // INITIAL_WINDOW_SIZE changes the windows of open streams too.
        if (Number(payload.substr(at, 2)) != 4) continue;
        const std::int64_t initial = Number(payload.substr(at + 2, 4));
        stream_window_ += initial - initial_window_;
        initial_window_ = initial;
      }
      Frame(kSettings, kAck, 0, "");
    } else if (type == kPing && (flags & kAck) == 0) {
      Frame(kPing, kAck, 0, payload);
    } else if (type == kWindow) {
      (stream == 0 ? connection_window_ : stream_window_) += Number(payload);
    } else if (type == kReset || type == kGoAway || (type == kHeaders && stream == 1)) {
      over_ = true;  // a server that answers before it has the message refuses it
    }
  }
  // One frame at a time, so that no memory is used here.
  void Fill() {
    if (!out_.empty() || over_ || left_ == 0) return;
    const std::int64_t bytes = std::min({kFrameMax, left_, connection_window_, stream_window_});
    if (bytes <= 0) return;
    std::string payload(static_cast<std::size_t>(bytes), '\0');
    std::memcpy(payload.data(), prefix_.data(), std::min(payload.size(), prefix_.size()));
    prefix_.clear();
    Frame(kData, 0, 1, payload);
    left_ -= bytes;
    connection_window_ -= bytes;
    stream_window_ -= bytes;
  }

  int socket_ = -1;
  bool over_ = false;
  std::string prefix_;
  std::string in_;
  std::string out_;
  std::int64_t left_;  // of the message and its prefix, without the last byte
  std::int64_t initial_window_ = 65535;
  std::int64_t connection_window_ = 65535;
  std::int64_t stream_window_ = 65535;
};

}  // namespace switchyard::testing
