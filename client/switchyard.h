/* Switchyard's C interface: the routed experts of a model's MoE layers as a function call.
 *
 *   sy_client_open, sy_session_open, { sy_submit, sy_wait }*, sy_session_close, sy_client_close
 *
 * Structures begin with their size and ABI version, so that newer libraries serve older callers:
 * set both with SY_INIT and zero the rest. Thread-safe. Functions return a sy_code (gRPC's status
 * codes); sy_last_error gives details as JSON. Neither environment nor signal handlers are touched.
 *
 * Handles are opaque and belong to their client. Calls with a closed session or a completed step
 * return SY_FAILED_PRECONDITION while the client is open (strictly: until 1,024 more handles of
 * that kind have ended). sy_client_close frees all; no other thread may be in a call then. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SY_EXPORT __attribute__((visibility("default")))
#else
#define SY_EXPORT
#endif

/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C's own names, no `using`. */

#ifdef __cplusplus
extern "C" {
#endif

#define SY_ABI_VERSION 8u

/* Zeroes a structure of this header and stamps it. */
#define SY_INIT(object)                                                    \
  do {                                                                     \
    char* sy_bytes_ = (char*)&(object);                                    \
    size_t sy_i_;                                                          \
    for (sy_i_ = 0; sy_i_ < sizeof(object); ++sy_i_) sy_bytes_[sy_i_] = 0; \
    (object).size = (uint32_t)sizeof(object);                              \
    (object).abi_version = SY_ABI_VERSION;                                 \
  } while (0)

typedef enum sy_code {
  SY_OK = 0,
  SY_CANCELLED = 1,
  SY_UNKNOWN = 2,
  SY_INVALID_ARGUMENT = 3,
  SY_DEADLINE_EXCEEDED = 4,
  SY_NOT_FOUND = 5,
  SY_ALREADY_EXISTS = 6,
  SY_PERMISSION_DENIED = 7,
  SY_RESOURCE_EXHAUSTED = 8,
  SY_FAILED_PRECONDITION = 9,
  SY_ABORTED = 10,
  SY_OUT_OF_RANGE = 11,
  SY_UNIMPLEMENTED = 12,
  SY_INTERNAL = 13,
  SY_UNAVAILABLE = 14,
  SY_DATA_LOSS = 15,
  SY_UNAUTHENTICATED = 16
} sy_code;
typedef enum sy_transport {
  SY_TRANSPORT_AUTO = 0,
  SY_TRANSPORT_SHM = 1,
  SY_TRANSPORT_TCP = 2
} sy_transport;
typedef enum sy_phase { SY_PHASE_PREFILL = 0, SY_PHASE_DECODE = 1, SY_PHASE_MIXED = 2 } sy_phase;
/* SY_MODE_PLAN: the plan's mode for the phase. */
typedef enum sy_mode { SY_MODE_PLAN = 0, SY_MODE_NORMAL = 1, SY_MODE_LOW_LATENCY = 2 } sy_mode;
/* Dispatch mode: fixed, or chosen per step (sy_mode_of_step). */
typedef enum sy_mode_choice {
  SY_CHOICE_NORMAL = 1,
  SY_CHOICE_LOW_LATENCY = 2,
  SY_CHOICE_AUTO = 3
} sy_mode_choice;
/* The kind of a step; combine flags with |. */
typedef enum sy_step_flags {
  SY_STEP_EXTEND = 1,       /* at least one rank extends a prompt */
  SY_STEP_DRAFT_EXTEND = 2, /* extends a draft: few tokens, so it is treated as decode */
  SY_STEP_GRAPH_CAPTURE = 4 /* recorded for replay; treated as decode */
} sy_step_flags;
/* How rows travel. Collective: in lockstep with the workers' devices, on one host, of one kind. */
typedef enum sy_binding { SY_BIND_AUTO = 0, SY_BIND_P2P = 1, SY_BIND_COLLECTIVE = 2 } sy_binding;
typedef enum sy_dtype { SY_DTYPE_F32 = 0, SY_DTYPE_BF16 = 1 } sy_dtype;
typedef struct sy_client sy_client;
typedef struct sy_session sy_session;
typedef struct sy_step sy_step;
typedef struct sy_client_options {
  uint32_t size;
  uint32_t abi_version;
  const char* coordinator; /* "host:port"; NULL with gateway */
  /* "host:port" of a worker that serves steps over gRPC, or several with commas between; NULL: p2p.
     When one leaves or is lost, its sessions go on through another or a worker of their plan. */
  const char* gateway;
  uint32_t transport;      /* sy_transport, p2p only */
  uint32_t timeout_ms;     /* bounds opening and closing; 0: 10,000 */
  const char* net_devices; /* for UCX's tcp lanes, e.g. "lo"; NULL: all */
  uint32_t busy_poll_us;   /* p2p: look for frames for so long before sleeping; at most 1,000,000 */
  const char* ring_dir; /* the --ring-dir that workers in other Pods of this host share; or NULL */
  const char* device;   /* of tensors: "cuda:0", "cuda:index=0,busy_poll_us=2000"; NULL: host */
  const char* data_ports; /* p2p only: "FIRST-LAST", the TCP ports that workers dial; NULL: any */
  const char* tls_dir;    /* folder for mutual TLS, see docs/SECURITY.md; NULL: no encryption */
  const struct sy_worker* worker; /* of this process, for `hosts`; used while opening; or NULL */
} sy_client_options;
typedef struct sy_session_options {
  uint32_t size;
  uint32_t abi_version;
  const char* deployment;    /* NULL: the only deployment that serves model */
  const char* model;         /* NULL: the deployment's */
  uint32_t phase;            /* sy_phase */
  uint32_t mode;             /* sy_mode */
  uint32_t y_dtype;          /* sy_dtype */
  uint32_t strict;           /* not 0: a NaN in x or weights is an error */
  int32_t max_tokens;        /* largest batch of one step; 0: default of mode and binding */
  uint32_t step_deadline_ms; /* 0: 1,000 in decode, 60,000 otherwise */
  uint32_t binding;          /* sy_binding; auto: collective for a group that can be, else p2p */
  const char* group; /* collective, auto: its sources name it, each with its number; NULL: alone */
  uint32_t source;   /* from 0 */
  uint32_t sources;  /* 0: 1 */
  uint32_t fp8_sums; /* not 0: collective and normal: sums of workers come back as FP8, coarser */
  const char* hosts; /* collective: "rank-0,rank-1", see switchyard_worker.h; or NULL */
  uint32_t in_step;  /* not 0: collective: every source submits every step (switchyard_graph.h) */
} sy_session_options;
/* One MoE layer for one batch. Strides count elements from one row to the next; rows are dense.
 * With one token a stride may be 0; any other is at least the row's length, or SY_INVALID_ARGUMENT.
 * With a device in the client, x, ids, weights and y are memory of it or pinned memory of the host.
 * The step begins when all is complete that `stream` held at sy_submit, which records an event
 * there and does not wait. When sy_wait has returned SY_OK, work enqueued from then on, on any
 * stream, reads the whole y. SY_INVALID_ARGUMENT: pageable memory, memory or a stream of another
 * device, or a `stream` or such memory without a device; SY_FAILED_PRECONDITION: `stream` is being
 * captured. Small steps pass through pinned memory of the session; one larger than all before waits
 * milliseconds for it. If work on `stream` outlasts the deadline, sy_wait fails once it has ended,
 * or after a minute, when the device counts as lost. */
typedef struct sy_step_request {
  uint32_t size;
  uint32_t abi_version;
  int32_t layer;
  int32_t tokens;
  int32_t top_k;
  uint32_t deadline_ms; /* 0: the session's; in a collective session no other */
  const uint16_t* x;    /* BF16 [tokens, hidden] */
  int64_t x_stride;
  const int32_t* ids; /* [tokens, top_k]; -1: no expert */
  int64_t ids_stride;
  const float* weights; /* [tokens, top_k] */
  int64_t weights_stride;
  void* y; /* [tokens, hidden] in y_dtype */
  int64_t y_stride;
  void* stream; /* a cudaStream_t; NULL: the legacy default stream, or no device */
  /* Not 0, in a collective session with a device: work that `stream` gets after sy_submit reads the
     whole y. sy_wait, some steps later, ends the handle and says whether that was a result. */
  uint32_t y_on_stream;
} sy_step_request;

SY_EXPORT const char* sy_version(void); /* "0.1.0" */

/* The mode for a step with these sy_step_flags. A fixed choice gives its own mode. SY_CHOICE_AUTO
 * gives normal for extends that are neither drafts nor captured, and low_latency for all others:
 * open a session in each, and submit each step to that of its mode. Returns SY_MODE_PLAN for an
 * unknown choice or flag. Pure. A captured step needs a session with "supports_graphs". */
SY_EXPORT sy_mode sy_mode_of_step(uint32_t choice, uint32_t flags);

/* Sets *out unless `options` is a bad structure (SY_INVALID_ARGUMENT), also on other errors, so
 * that sy_last_error works. Always close it. Does not connect. A device takes a second to open;
 * SY_FAILED_PRECONDITION: there is no such GPU, or the library is without CUDA. */
SY_EXPORT sy_code sy_client_open(const sy_client_options* options, sy_client** out);
/* Also closes its sessions. NULL is allowed. */
SY_EXPORT void sy_client_close(sy_client* client);

/* Blocks until steps can be submitted, at most timeout_ms. Sets *out to NULL on error. */
SY_EXPORT sy_code sy_session_open(sy_client* client, const sy_session_options* options,
                                  sy_session** out);
/* Steps in flight fail; sy_wait reports it. */
SY_EXPORT sy_code sy_session_close(sy_session* session);

/* Starts a step, whose memory stays valid and unchanged until sy_wait returns. On error *out is
 * NULL. With a device in the client, sy_wait reports ids out of range, and NaN if strict. */
SY_EXPORT sy_code sy_submit(sy_session* session, const sy_step_request* request, sy_step** out);
/* Sets *done to 1 when sy_wait would return at once, else to 0. */
SY_EXPORT sy_code sy_poll(sy_step* step, int* done);
/* Blocks until the step is complete or its deadline has passed, and ends the handle. */
SY_EXPORT sy_code sy_wait(sy_step* step);
/* sy_submit and sy_wait in one. After an error that another attempt can mend (SY_UNAVAILABLE,
 * SY_ABORTED or too many steps in flight, while the session lives: a worker was lost or late, or
 * its experts move), tries again until retry_ms have passed, with growing pauses; 0: one attempt.
 * A step reads its inputs, writes y and does nothing else. Blocks at most retry_ms + a deadline. */
SY_EXPORT sy_code sy_run(sy_session* session, const sy_step_request* request, uint32_t retry_ms);

/* The session as JSON, NUL-terminated and truncated to `size`: whether it supports graphs, epoch,
 * plan, configs with reasons, attachments, counts of traces, and the workers' counters ("error" for
 * one that does not answer). Takes at most 100 ms. Returns the text's size with NUL; 0 on error. */
SY_EXPORT size_t sy_session_status(sy_session* session, char* buffer, size_t size);

/* The last failure of any call on this client or its handles, as sy_session_status writes:
 * {"code","reason","message","metadata"}, or "{}" when no call has failed. */
SY_EXPORT size_t sy_last_error(const sy_client* client, char* buffer, size_t size);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */
