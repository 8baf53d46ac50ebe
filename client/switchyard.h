/* Switchyard's C interface: the routed experts of a model's MoE layers as a function call.
 *
 *   sy_client_open, sy_session_open, { sy_submit, sy_wait }*, sy_session_close, sy_client_close
 *
 * Structures begin with their size and the ABI version they were compiled for, so that a newer
 * library serves an older caller: set both with SY_INIT and zero the rest. Every function is
 * thread-safe. Functions return a sy_code (the gRPC status codes); sy_last_error tells the rest as
 * JSON. Nothing is read from the environment.
 *
 * Handles are opaque and belong to their client. A closed session and a step that was waited for
 * answer SY_FAILED_PRECONDITION for as long as the client is open (strictly: until 1,024 more of
 * their kind have ended). sy_client_close frees all of them; no thread may be in a call then.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SY_EXPORT __attribute__((visibility("default")))
#else
#define SY_EXPORT
#endif

/* C has no `using`, and C's names are the field's: sy_name, SY_NAME. */
/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming) */

#ifdef __cplusplus
extern "C" {
#endif

#define SY_ABI_VERSION 1u

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
/* In what mode an engine's steps travel: all in one, or each by its kind (sy_mode_of_step). */
typedef enum sy_mode_choice {
  SY_CHOICE_NORMAL = 1,
  SY_CHOICE_LOW_LATENCY = 2,
  SY_CHOICE_AUTO = 3
} sy_mode_choice;
/* What a step is to its engine, added up. */
typedef enum sy_step_flags {
  SY_STEP_EXTEND = 1,       /* any of its ranks extends a prompt */
  SY_STEP_DRAFT_EXTEND = 2, /* of a speculative draft: few tokens, so as decode */
  SY_STEP_GRAPH_CAPTURE = 4 /* recorded for replay: as decode */
} sy_step_flags;
typedef enum sy_dtype { SY_DTYPE_F32 = 0, SY_DTYPE_BF16 = 1 } sy_dtype;

typedef struct sy_client sy_client;
typedef struct sy_session sy_session;
typedef struct sy_step sy_step;

typedef struct sy_client_options {
  uint32_t size;
  uint32_t abi_version;
  const char* coordinator; /* "host:port"; NULL with gateway */
  const char* gateway;     /* "host:port" of a worker that serves steps over gRPC; NULL: p2p */
  uint32_t transport;      /* sy_transport, p2p only */
  uint32_t timeout_ms;     /* of opening, closing and status; 0: 10,000 */
  const char* net_devices; /* of UCX's tcp lanes, e.g. "lo"; NULL: all */
} sy_client_options;

typedef struct sy_session_options {
  uint32_t size;
  uint32_t abi_version;
  const char* deployment;    /* NULL: the only one that serves model */
  const char* model;         /* NULL: the deployment's */
  uint32_t phase;            /* sy_phase */
  uint32_t mode;             /* sy_mode */
  uint32_t y_dtype;          /* sy_dtype */
  uint32_t strict;           /* not 0: NaN in x is refused */
  int32_t max_tokens;        /* largest batch of one step; 0: the mode's default */
  uint32_t step_deadline_ms; /* 0: 1,000 in decode, 60,000 otherwise */
} sy_session_options;

/* One MoE layer for one batch. Strides count elements between rows; rows are dense. */
typedef struct sy_step_request {
  uint32_t size;
  uint32_t abi_version;
  int32_t layer;
  int32_t tokens;
  int32_t top_k;
  uint32_t deadline_ms; /* 0: the session's */
  const uint16_t* x;    /* BF16 [tokens, hidden] */
  int64_t x_stride;
  const int32_t* ids; /* [tokens, top_k]; -1: no expert */
  int64_t ids_stride;
  const float* weights; /* [tokens, top_k] */
  int64_t weights_stride;
  void* y; /* [tokens, hidden] in y_dtype */
  int64_t y_stride;
} sy_step_request;

/* "0.1.0" */
SY_EXPORT const char* sy_version(void);

/* The mode of a step with these sy_step_flags: a fixed choice is its own answer; auto is normal for
 * extends that are neither of a draft nor captured, low_latency for all else. SY_MODE_PLAN, which
 * is no answer, for a choice or flag that is not above. Pure. An engine in auto opens a session of
 * prefill in normal and one of decode in low_latency and submits each step to the session that has
 * its mode. A captured step needs a session with "supports_graphs" in its status: normal has none.
 */
SY_EXPORT sy_mode sy_mode_of_step(uint32_t choice, uint32_t flags);

/* *out is set on every return but SY_INVALID_ARGUMENT for a bad structure, so that sy_last_error
 * can be asked; close it in any case. Does not dial. */
SY_EXPORT sy_code sy_client_open(const sy_client_options* options, sy_client** out);
/* Closes its sessions as well. NULL is no error. */
SY_EXPORT void sy_client_close(sy_client* client);

/* Blocks until every worker is attached, at most timeout_ms. *out is NULL after an error. */
SY_EXPORT sy_code sy_session_open(sy_client* client, const sy_session_options* options,
                                  sy_session** out);
/* Steps of it that were not waited for fail: sy_wait says so. */
SY_EXPORT sy_code sy_session_close(sy_session* session);

/* Sends a step. Its memory stays yours and unchanged until sy_wait returns. *out is NULL after an
 * error. */
SY_EXPORT sy_code sy_submit(sy_session* session, const sy_step_request* request, sy_step** out);
/* *done becomes 1 when sy_wait would return at once, else 0. */
SY_EXPORT sy_code sy_poll(sy_step* step, int* done);
/* Waits for the step's end, bounded by its deadline, and ends the step. */
SY_EXPORT sy_code sy_wait(sy_step* step);

/* Session, whether its steps can be captured into graphs ("supports_graphs"; where not,
 * "no_graphs_because"), epoch, plan, configs with their reasons, attachments, and what the workers
 * counted: JSON, NUL-terminated, cut at `size`. Returns the bytes that the whole needs, NUL
 * included; 0 on error. */
SY_EXPORT size_t sy_session_status(sy_session* session, char* buffer, size_t size);

/* The last failure of any call on this client or what came of it:
 * {"code","reason","message","metadata"}. Return value as sy_session_status; "{}" when nothing has
 * failed. */
SY_EXPORT size_t sy_last_error(const sy_client* client, char* buffer, size_t size);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */
