#include "services/system/http_server.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <microhttpd.h>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/listener.h"
#include "services/grpc/thread_pool.h"
#include "services/system/host_check.h"

namespace switchyard {
namespace {

// libmicrohttpd closes connections above this, the newest first. Far above kHttpConnectionsMax,
// because a burst can arrive before the event thread has closed the old ones.
constexpr unsigned kConnectionsHardMax = 512;
// A flood of another port that leaves no descriptor must not look like a process that is dead. Half
// of the smallest reserve.
constexpr int kReserveShare = 16;
// A connection holds the request, the headers of the answer, and its own records.
constexpr std::size_t kConnectionBytes = kHttpRequestBytesMax + 4096;

constexpr char kNoPage[] = "no such page; there are: ";
constexpr int kMisdirected = 421;
constexpr char kForeignHost[] =
    "this page is not shown under that name; open it at an address or at localhost, or start the "
    "program with --page-hosts NAME\n";

// One request, from its headers to its end.
struct Exchange {
  const HttpPage* page = nullptr;
  HttpAsk ask;
  HttpAnswer answer = {};  // written by the thread that makes it, before the connection is resumed
  bool made = false;
};

// True if the client says that it has the body already.
bool Has(MHD_Connection* connection, const std::string& etag) {
  const char* known =
      MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
  return known != nullptr && absl::StrContains(known, etag);
}

MHD_Result Send(MHD_Connection* connection, const HttpAnswer& answer) {
  const std::string etag = answer.etag.empty() ? "" : absl::StrCat("\"", answer.etag, "\"");
  const bool known = !etag.empty() && Has(connection, etag);
  MHD_Response* response = MHD_create_response_from_buffer(
      known ? 0 : answer.body.size(), const_cast<char*>(answer.body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;  // closes the connection
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type);
  // A body that is kept is asked for again all the same.
  MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL,
                          etag.empty() ? "no-store" : "no-cache");
  if (!etag.empty()) MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag.c_str());
  for (const auto& [name, value] : answer.headers) MHD_add_response_header(response, name, value);
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
  if (answer.code == MHD_HTTP_METHOD_NOT_ALLOWED) {
    MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  }
  const MHD_Result queued = MHD_queue_response(
      connection, known ? MHD_HTTP_NOT_MODIFIED : static_cast<unsigned>(answer.code), response);
  MHD_destroy_response(response);
  return queued;
}

MHD_Result AddArgument(void* ask, MHD_ValueKind /*kind*/, const char* name, const char* value) {
  static_cast<HttpAsk*>(ask)->arguments[name] = value == nullptr ? "" : value;
  return MHD_YES;
}

// Copied, because libmicrohttpd's own are not for other threads. Bounded by kHttpRequestBytesMax.
HttpAsk AskOf(MHD_Connection* connection) {
  HttpAsk ask;
  MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, &AddArgument, &ask);
  return ask;
}

// Threads for pages, and how many pages they are given at once.
struct Makers {
  explicit Makers(std::size_t threads, std::size_t pages)
      : pool(std::make_unique<ThreadPool>(threads)), pages_max(pages) {}
  std::unique_ptr<ThreadPool> pool;  // null once the server stops
  const std::size_t pages_max;
  std::size_t making = 0;
};

}  // namespace

class HttpServer::Daemon {
 public:
  Daemon(std::vector<HttpPage> pages, std::vector<std::string> names)
      : pages_(std::move(pages)), names_(std::move(names)) {}
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Errors: kInternal (INTERNAL).
  absl::Status Start(std::unique_ptr<Listener> listener, Duration silence_max);

 private:
  // libmicrohttpd's callbacks, on its event thread.
  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char* version, const char* upload,
                              std::size_t* upload_bytes, void** exchange);
  static void OnRequestEnd(void* self, MHD_Connection* connection, void** exchange,
                           MHD_RequestTerminationCode why);
  static void OnConnection(void* self, MHD_Connection* connection, void** place,
                           MHD_ConnectionNotificationCode what);

  MHD_Result Begin(MHD_Connection* connection, const std::string& method, const std::string& path,
                   void** exchange);
  [[nodiscard]] HttpAnswer NotFound() const;
  // Whether the page may be shown to a client that knows this server by the name of its request.
  bool MayShow(MHD_Connection* connection, const HttpPage& page) const;
  // Suspends the connection until the page is made. False: too many are being made.
  bool MakeAside(MHD_Connection* connection, Exchange* exchange);

  const std::vector<HttpPage> pages_;
  const std::vector<std::string> names_;
  std::unique_ptr<Listener> listener_;
  MHD_Daemon* daemon_ = nullptr;
  // Descriptors of the open connections, oldest first. Used by the event thread, and by the
  // destructor when that has ended.
  std::vector<int> open_;

  Mutex mutex_;
  Makers slow_ SY_GUARDED_BY(mutex_){kHttpSlowPagesMax, kHttpSlowPagesMax};
  Makers queued_ SY_GUARDED_BY(mutex_){1, kHttpQueuedPagesMax};
};

absl::Status HttpServer::Daemon::Start(std::unique_ptr<Listener> listener, Duration silence_max) {
  listener_ = std::move(listener);
  const auto silence_s = std::chrono::duration_cast<std::chrono::seconds>(silence_max).count();
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0,
      nullptr, nullptr, &Daemon::OnRequest, this, MHD_OPTION_NOTIFY_COMPLETED,
      &Daemon::OnRequestEnd, this, MHD_OPTION_NOTIFY_CONNECTION, &Daemon::OnConnection, this,
      MHD_OPTION_CONNECTION_LIMIT, kConnectionsHardMax, MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(silence_s), MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,
      MHD_OPTION_END);
  if (daemon_ == nullptr) {
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                     "the HTTP server did not start: no thread, memory or descriptor is left; "
                     "raise the limits of this process");
  }
  listener_->Start(
      [this](int /*socket*/, int connection) {
        sockaddr_storage peer{};
        socklen_t length = sizeof(peer);
        if (::getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &length) != 0) {
          ::close(connection);  // It has gone already.
          return;
        }
        // On a failure too, the connection is closed there.
        MHD_add_connection(daemon_, connection, reinterpret_cast<sockaddr*>(&peer), length);
      },
      kReserveShare);
  return absl::OkStatus();
}

HttpServer::Daemon::~Daemon() {
  if (listener_ != nullptr) listener_->Stop();
  std::unique_ptr<ThreadPool> slow;
  std::unique_ptr<ThreadPool> queued;
  {
    const MutexLock lock(mutex_);
    slow = std::move(slow_.pool);
    queued = std::move(queued_.pool);
  }
  // Before the daemon: a page that is being made resumes its connection.
  slow.reset();
  queued.reset();
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

void HttpServer::Daemon::OnConnection(void* self, MHD_Connection* connection, void** /*place*/,
                                      MHD_ConnectionNotificationCode what) {
  std::vector<int>& open = static_cast<Daemon*>(self)->open_;
  const int socket =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
    open.erase(std::find(open.begin(), open.end(), socket));
    return;
  }
  open.push_back(socket);
  if (open.size() <= kHttpConnectionsMax) return;
  // Its descriptor stays open until libmicrohttpd, on this thread, has seen the end and closed it.
  // It goes to the back, so that each further connection ends another one.
  ::shutdown(open.front(), SHUT_RDWR);
  std::rotate(open.begin(), open.begin() + 1, open.end());
}

MHD_Result HttpServer::Daemon::OnRequest(void* self, MHD_Connection* connection, const char* url,
                                         const char* method, const char* /*version*/,
                                         const char* /*upload*/, std::size_t* /*upload_bytes*/,
                                         void** exchange) {
  auto* begun = static_cast<Exchange*>(*exchange);
  // Called again when a page that was made aside is there.
  if (begun != nullptr) return begun->made ? Send(connection, begun->answer) : MHD_NO;
  return static_cast<Daemon*>(self)->Begin(connection, method, url, exchange);
}

MHD_Result HttpServer::Daemon::Begin(MHD_Connection* connection, const std::string& method,
                                     const std::string& path, void** exchange) {
  // Answered before a body is read, which then never is.
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
    return Send(connection, {.code = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "use GET or HEAD\n"});
  }
  for (const HttpPage& page : pages_) {
    if (page.path != path) continue;
    if (!MayShow(connection, page)) {
      return Send(connection, {.code = kMisdirected, .body = kForeignHost});
    }
    if (page.work == HttpWork::kQuick) return Send(connection, page.make(AskOf(connection)));
    auto making = std::make_unique<Exchange>(Exchange{.page = &page, .ask = AskOf(connection)});
    if (!MakeAside(connection, making.get())) {
      return Send(connection, {.code = MHD_HTTP_SERVICE_UNAVAILABLE,
                               .body = "this page is being made for others; ask less often\n"});
    }
    *exchange = making.release();
    return MHD_YES;
  }
  return Send(connection, NotFound());
}

bool HttpServer::Daemon::MayShow(MHD_Connection* connection, const HttpPage& page) const {
  if (!page.own_host_only) return true;
  const char* host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
  return host != nullptr && IsOwnHost(host, names_);
}

bool HttpServer::Daemon::MakeAside(MHD_Connection* connection, Exchange* exchange) {
  const MutexLock lock(mutex_);
  Makers* const makers = exchange->page->work == HttpWork::kSlow ? &slow_ : &queued_;
  if (makers->pool == nullptr || makers->making == makers->pages_max) return false;
  ++makers->making;
  MHD_suspend_connection(connection);  // before the task can resume it
  makers->pool->Run([this, makers, connection, exchange] {
    exchange->answer = exchange->page->make(exchange->ask);
    exchange->made = true;
    {
      const MutexLock done(mutex_);
      --makers->making;
    }
    MHD_resume_connection(connection);
  });
  return true;
}

void HttpServer::Daemon::OnRequestEnd(void* /*self*/, MHD_Connection* /*connection*/,
                                      void** exchange, MHD_RequestTerminationCode /*why*/) {
  delete static_cast<Exchange*>(std::exchange(*exchange, nullptr));
}

HttpAnswer HttpServer::Daemon::NotFound() const {
  HttpAnswer answer{.code = MHD_HTTP_NOT_FOUND, .body = kNoPage};
  for (const HttpPage& page : pages_) absl::StrAppend(&answer.body, page.path, " ");
  answer.body.back() = '\n';
  return answer;
}

std::string HttpAsk::Argument(const std::string& name) const {
  const auto at = arguments.find(name);
  return at == arguments.end() ? "" : at->second;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              std::vector<HttpPage> pages) {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                      Listener::Bind(options.host, options.port));
  std::string endpoint = JoinHostPort(options.host, listener->port());
  std::vector<std::string> names = options.names;
  names.push_back(options.host);
  auto daemon = std::make_unique<Daemon>(std::move(pages), std::move(names));
  SY_RETURN_IF_ERROR(daemon->Start(std::move(listener), options.silence_max));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(daemon), std::move(endpoint)));
}

HttpServer::HttpServer(std::unique_ptr<Daemon> daemon, std::string endpoint)
    : daemon_(std::move(daemon)), endpoint_(std::move(endpoint)) {}

HttpServer::~HttpServer() = default;

}  // namespace switchyard
