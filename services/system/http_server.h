// A small HTTP server for probes and scrapes, over libmicrohttpd. GET and HEAD of a few fixed
// pages, nothing else.
//
//   listener thread --connections--> event thread: parses, answers quick pages, writes
//                                      | other pages     ^ answers
//                                      v                 |
//                                    threads of their own
//
// A client that is idle, slow or sends garbage holds a descriptor and a few kilobytes, never a
// thread. A connection has one answer and is then closed; one that is silent for `silence_max` is
// closed before. Beyond kHttpConnectionsMax connections, the oldest makes room for the newest, so
// that a probe gets in at once however many others hold on to theirs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/clock.h"

namespace switchyard {

inline constexpr std::size_t kHttpConnectionsMax = 64;
// Bounds a request's line and headers. Requests have no body: one that is sent is not read.
inline constexpr std::size_t kHttpRequestBytesMax = 8192;
// Slow pages that are made at once; a request for one more is answered 503.
inline constexpr std::size_t kHttpSlowPagesMax = 2;
// Queued pages that are made or wait; a request for one more is answered 503.
inline constexpr std::size_t kHttpQueuedPagesMax = 16;

struct HttpAsk {
  // The arguments of the URL, "?after=3", decoded. Of one that is given twice, the last.
  std::map<std::string, std::string> arguments;

  // The argument; empty: there is none.
  [[nodiscard]] std::string Argument(const std::string& name) const;
};

struct HttpAnswer {
  int code = 200;
  std::string body;
  const char* content_type = "text/plain; charset=utf-8";
  // Identifies the body. A client that names it in If-None-Match gets 304 and no body. Without
  // quotes; empty: the answer must not be kept at all.
  std::string etag = {};
  // Further headers, of literals.
  std::vector<std::pair<const char*, const char*>> headers = {};
};

// Who makes a page. What people look at must not keep what machines need: each kind has threads
// and a bound of its own.
enum class HttpWork : std::uint8_t {
  kQuick = 0,   // the event thread, which must not be held up
  kSlow = 1,    // kHttpSlowPagesMax threads
  kQueued = 2,  // one thread, one page after the other
};

struct HttpPage {
  std::string path;  // "/livez"
  std::function<HttpAnswer(const HttpAsk&)> make;
  HttpWork work = HttpWork::kQuick;
  // Answered with 421 unless the Host header is one of this server (services/system/host_check.h).
  bool own_host_only = false;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // address or name to listen on; "0.0.0.0" for all
  int port = 0;                    // 0: any free port
  // A connection on which nothing moves is closed after this. Whole seconds, at least one.
  Duration silence_max = std::chrono::seconds(5);
  // Names for pages of own_host_only, beside `host`, addresses and localhost.
  std::vector<std::string> names = {};
};

// Thread-safe.
class HttpServer {
 public:
  // Starts to listen. Errors: those of Listener::Bind; kInternal (INTERNAL) if there is no thread
  // or memory for it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           std::vector<HttpPage> pages);
  // Closes all connections, and waits for pages that are being made.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }  // "host:port"

 private:
  // Receives libmicrohttpd's callbacks.
  class Daemon;
  HttpServer(std::unique_ptr<Daemon> daemon, std::string endpoint);

  std::unique_ptr<Daemon> daemon_;
  const std::string endpoint_;
};

}  // namespace switchyard
