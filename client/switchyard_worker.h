/* Switchyard's C interface for engines that hold experts themselves: a worker in the caller's
 * process, as the program switchyard-worker would be beside it.
 *
 *   sy_worker_open, { sy_worker_status }*, sy_worker_close
 *
 * It registers with the coordinator, loads the experts that it is assigned, and serves all sources;
 * a client of this process is one of them (switchyard.h). What it saves is the second process: the
 * kernels of two processes take turns on a GPU, those of one run beside each other. What it costs:
 * the worker ends with the engine.
 *
 * Expert parallelism with attention and experts on the same devices: each rank of the engine opens
 * a worker, a client with it (sy_client_options.worker) and collective sessions with `hosts`: by
 * source, with commas between, the id of the worker in its process, alike at all sources; nothing
 * for a source without one. Tokens and experts of a process are then one rank of the group, and its
 * part of a step runs on one stream. The client's device is that of the worker, "cuda:0" at both.
 * Without `hosts`, a lockstep session of the worker's own process is refused on GPUs
 * (SY_FAILED_PRECONDITION, UNSUPPORTED).
 *
 * Codes, SY_INIT and the rules of structures and handles are those of switchyard.h. Neither
 * environment, signal handlers, limits nor standard output are touched; its log goes to standard
 * error. Thread-safe, but for a handle whose close has begun. */
#pragma once

#include "client/switchyard.h"

/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C's own names, no `using`. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sy_worker sy_worker;
typedef struct sy_worker_options {
  uint32_t size;
  uint32_t abi_version;
  /* What the command line of switchyard-worker would be, without the program's name:
     "--coordinator", "10.0.0.7:7700", "--id", "rank-0", "--device", "cuda:0". docs/CONFIGURATION.md
     lists them; what prints and ends (--help) is SY_INVALID_ARGUMENT. */
  const char* const* arguments;
  uint32_t argument_count;
} sy_worker_options;

/* Takes as long as opening the device does; the coordinator may come later. On error, *out is NULL
 * and `error` gets what sy_last_error would write, NUL-terminated and truncated to error_size (NULL
 * and 0: not wanted): SY_INVALID_ARGUMENT for a wrong argument or address, SY_NOT_FOUND for a file
 * that an argument names, SY_FAILED_PRECONDITION without such a device, SY_UNIMPLEMENTED for a kind
 * of device that there is not, SY_UNAVAILABLE for a port that is taken. */
SY_EXPORT sy_code sy_worker_open(const sy_worker_options* options, sy_worker** out, char* error,
                                 size_t error_size);

/* {"endpoint","system_endpoint","state"} as JSON, NUL-terminated and truncated to `size`. "state"
 * is "running", or "ended" once the coordinator has refused or released the worker or its device
 * has failed: close it, which says why. "system_endpoint" is "" unless an argument names its port.
 * Returns the text's size with NUL; 0 for NULL. */
SY_EXPORT size_t sy_worker_status(const sy_worker* worker, char* buffer, size_t size);

/* Has the coordinator move the experts elsewhere, for at most what --leave-timeout says, ends
 * the worker, and frees the handle. SY_OK: it has left. Otherwise why it has ended, as JSON in
 * `error`. NULL is allowed. */
SY_EXPORT sy_code sy_worker_close(sy_worker* worker, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */
