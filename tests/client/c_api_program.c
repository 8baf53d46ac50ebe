/* libswitchyard.so from C: opens sessions on a running deployment of models/sqlite-moe-7m, runs
 * steps, and misuses every function. Prints "passed" and exits 0, or names the line that failed.
 *
 *   c_api_program COORDINATOR GATEWAY     both "host:port"
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/switchyard.h"

enum { HIDDEN = 256, TOKENS = 5, TOP_K = 4, EXPERTS = 16, LAYER = 2 };

static uint16_t x[TOKENS * HIDDEN];
static int32_t ids[TOKENS * TOP_K];
static float weights[TOKENS * TOP_K];
static float twice[TOKENS * TOP_K];
static float y[TOKENS * HIDDEN];
static float y_twice[TOKENS * HIDDEN];
static float y_gateway[TOKENS * HIDDEN];

static sy_client* current; /* whose last error a failure prints */

static void fail(int line, const char* what) {
  char error[1024] = "";
  if (current != NULL) sy_last_error(current, error, sizeof(error));
  fprintf(stderr, "line %d: %s; last error: %s\n", line, what, error);
  exit(1);
}
#define CHECK(condition)                          \
  do {                                            \
    if (!(condition)) fail(__LINE__, #condition); \
  } while (0)

/* A truncated BF16 is a BF16. */
static uint16_t bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)(bits >> 16);
}

static void fill_inputs(void) {
  uint32_t state = 12345;
  int i;
  for (i = 0; i < TOKENS * HIDDEN; ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = bf16((float)(state >> 8) / (float)(1 << 23) - 1.0f);
  }
  for (i = 0; i < TOKENS * TOP_K; ++i) {
    ids[i] = (int32_t)((i / TOP_K + (i % TOP_K) * 5) % EXPERTS);
    weights[i] = 0.1f + 0.05f * (float)i;
    twice[i] = 2.0f * weights[i];
  }
}

static void poison(float* out) {
  int i;
  for (i = 0; i < TOKENS * HIDDEN; ++i) out[i] = -1e30f;
}

static sy_step_request request_of(const float* w, float* out) {
  sy_step_request request;
  SY_INIT(request);
  request.layer = LAYER;
  request.tokens = TOKENS;
  request.top_k = TOP_K;
  request.x = x;
  request.x_stride = HIDDEN;
  request.ids = ids;
  request.ids_stride = TOP_K;
  request.weights = w;
  request.weights_stride = TOP_K;
  request.y = out;
  request.y_stride = HIDDEN;
  return request;
}

static int last_error_has(const char* text) {
  char error[1024];
  sy_last_error(current, error, sizeof(error));
  return strstr(error, text) != NULL;
}

static sy_session* open_session(const char* deployment, sy_code wanted) {
  sy_session_options options;
  sy_session* session = (sy_session*)1;
  SY_INIT(options);
  options.deployment = deployment;
  options.phase = SY_PHASE_DECODE;
  options.mode = SY_MODE_LOW_LATENCY;
  options.step_deadline_ms = 20000;
  CHECK(sy_session_open(current, &options, &session) == wanted);
  CHECK((session == NULL) == (wanted != SY_OK));
  return session;
}

static void run(sy_session* session, const float* w, float* out) {
  sy_step_request request = request_of(w, out);
  sy_step* step = NULL;
  int done = 0;
  poison(out);
  CHECK(sy_submit(session, &request, &step) == SY_OK);
  CHECK(step != NULL);
  while (!done) CHECK(sy_poll(step, &done) == SY_OK);
  CHECK(sy_wait(step) == SY_OK);
  CHECK(sy_wait(step) == SY_FAILED_PRECONDITION);
  CHECK(last_error_has("STAGE_ORDER"));
  CHECK(sy_poll(step, &done) == SY_FAILED_PRECONDITION && done == 0);
  poison(out);
  CHECK(sy_run(session, &request, 1000) == SY_OK);
  CHECK(out[0] == out[0]);
  request.layer = 99;
  CHECK(sy_run(session, &request, 60000) == SY_NOT_FOUND);
  CHECK(last_error_has("UNKNOWN_LAYER"));
}

static void null_handles_are_errors(void) {
  sy_client* client = (sy_client*)1;
  sy_session* session = NULL;
  sy_step* step = NULL;
  sy_session_options options;
  sy_step_request request = request_of(weights, y);
  int done = 0;
  char text[8];
  SY_INIT(options);
  CHECK(sy_client_open(NULL, NULL) == SY_INVALID_ARGUMENT);
  CHECK(sy_client_open(NULL, &client) == SY_INVALID_ARGUMENT && client == NULL);
  CHECK(sy_session_open(NULL, &options, &session) == SY_INVALID_ARGUMENT);
  CHECK(sy_session_close(NULL) == SY_INVALID_ARGUMENT);
  CHECK(sy_submit(NULL, &request, &step) == SY_INVALID_ARGUMENT);
  CHECK(sy_run(NULL, &request, 0) == SY_INVALID_ARGUMENT);
  CHECK(sy_poll(NULL, &done) == SY_INVALID_ARGUMENT);
  CHECK(sy_wait(NULL) == SY_INVALID_ARGUMENT);
  CHECK(sy_session_status(NULL, text, sizeof(text)) == 0);
  CHECK(sy_last_error(NULL, text, sizeof(text)) == 0);
  sy_client_close(NULL);
}

static void modes_follow_the_kind_of_step(void) {
  CHECK(sy_mode_of_step(SY_CHOICE_AUTO, SY_STEP_EXTEND) == SY_MODE_NORMAL);
  CHECK(sy_mode_of_step(SY_CHOICE_AUTO, 0) == SY_MODE_LOW_LATENCY);
  CHECK(sy_mode_of_step(SY_CHOICE_AUTO, SY_STEP_EXTEND | SY_STEP_DRAFT_EXTEND) ==
        SY_MODE_LOW_LATENCY);
  CHECK(sy_mode_of_step(SY_CHOICE_NORMAL, SY_STEP_GRAPH_CAPTURE) == SY_MODE_NORMAL);
  CHECK(sy_mode_of_step(99, 0) == SY_MODE_PLAN);
}

/* Structures of another size or without a version, and values out of range. */
static void bad_structures_are_errors(const char* coordinator) {
  sy_client_options options;
  sy_client* client = (sy_client*)1;
  SY_INIT(options);
  options.coordinator = coordinator;
  options.size = (uint32_t)offsetof(sy_client_options, ring_dir) - 1;
  CHECK(sy_client_open(&options, &client) == SY_INVALID_ARGUMENT && client == NULL);
  /* What lies behind the structure of an older header is not read. */
  options.size += 1;
  options.ring_dir = (const char*)1;
  CHECK(sy_client_open(&options, &client) == SY_OK);
  sy_client_close(client);
  SY_INIT(options);
  options.coordinator = coordinator;
  options.ring_dir = "no/such/directory";
  CHECK(sy_client_open(&options, &client) == SY_INVALID_ARGUMENT && client != NULL);
  current = client;
  CHECK(last_error_has("no/such/directory"));
  sy_client_close(client);
  current = NULL;
  SY_INIT(options);
  options.abi_version = 0;
  CHECK(sy_client_open(&options, &client) == SY_INVALID_ARGUMENT && client == NULL);
  SY_INIT(options);
  CHECK(sy_client_open(&options, &client) == SY_INVALID_ARGUMENT && client != NULL);
  current = client;
  CHECK(last_error_has("BAD_REQUEST")); /* neither coordinator nor gateway */
  (void)open_session(NULL, SY_INVALID_ARGUMENT);
  sy_client_close(client);
  SY_INIT(options);
  options.coordinator = coordinator;
  options.busy_poll_us = 1000001;
  CHECK(sy_client_open(&options, &client) == SY_INVALID_ARGUMENT && client != NULL);
  current = client;
  CHECK(last_error_has("busy_poll_us"));
  sy_client_close(client);
  SY_INIT(options);
  options.coordinator = coordinator;
  options.transport = 99;
  CHECK(sy_client_open(&options, &client) == SY_INVALID_ARGUMENT && client != NULL);
  current = client;
  CHECK(last_error_has("\"field\":\"transport\""));
  sy_client_close(client);
  current = NULL;
}

/* Devices that nobody has; this machine may have a GPU or none, and the library CUDA or not. */
static void devices_are_named_or_refused(const char* coordinator) {
  sy_client_options options;
  sy_client* client = NULL;
  sy_code code;
  SY_INIT(options);
  options.coordinator = coordinator;
  options.device = "no-such-device:0";
  CHECK(sy_client_open(&options, &client) == SY_UNIMPLEMENTED && client != NULL);
  current = client;
  CHECK(last_error_has("no-such-device") && last_error_has("UNSUPPORTED"));
  (void)open_session(NULL, SY_INVALID_ARGUMENT);
  sy_client_close(client);
  options.device = "cuda:4000";
  CHECK(sy_client_open(&options, &client) == SY_FAILED_PRECONDITION && client != NULL);
  current = client;
  CHECK(last_error_has("UNSUPPORTED") && last_error_has("cuda"));
  sy_client_close(client);
  options.device = "cuda:first";
  code = sy_client_open(&options, &client);
  CHECK(code == SY_INVALID_ARGUMENT || code == SY_FAILED_PRECONDITION);
  current = client;
  CHECK(last_error_has("BAD_CONFIG") || last_error_has("UNSUPPORTED"));
  sy_client_close(client);
  current = NULL;
}

/* A GPU's memory looks like this to the host. Without a device in the client it is an error. */
static void memory_that_the_host_cannot_read_is_an_error(sy_session* session) {
  sy_step_request request = request_of(weights, y);
  sy_step* step = NULL;
  void* unreadable = mmap(NULL, sizeof(y), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(unreadable != MAP_FAILED);
  request.x = (const uint16_t*)unreadable;
  CHECK(sy_submit(session, &request, &step) == SY_INVALID_ARGUMENT && step == NULL);
  CHECK(last_error_has("\"field\":\"x\"") && last_error_has("name the device"));
  request = request_of(weights, y);
  request.y = unreadable;
  CHECK(sy_run(session, &request, 60000) == SY_INVALID_ARGUMENT);
  CHECK(last_error_has("\"field\":\"y\""));
  request = request_of(weights, y);
  request.stream = &request;
  CHECK(sy_submit(session, &request, &step) == SY_INVALID_ARGUMENT);
  CHECK(last_error_has("\"field\":\"stream\""));
  munmap(unreadable, sizeof(y));
}

/* A caller of ABI 1, whose structures end before the fields that later ones have added. */
static void older_structures_are_served(const char* coordinator) {
  sy_client_options options;
  sy_session* session;
  sy_client* client = NULL;
  sy_step_request request = request_of(weights, y);
  SY_INIT(options);
  options.size = offsetof(sy_client_options, ring_dir);
  options.abi_version = 1;
  options.coordinator = coordinator;
  options.net_devices = "lo";
  options.device = "behind the end";
  CHECK(sy_client_open(&options, &client) == SY_OK);
  current = client;
  session = open_session(NULL, SY_OK);
  request.size = offsetof(sy_step_request, stream);
  request.abi_version = 1;
  request.stream = &request;
  CHECK(sy_run(session, &request, 1000) == SY_OK);
  request.size += 1;
  CHECK(sy_run(session, &request, 1000) == SY_INVALID_ARGUMENT);
  CHECK(last_error_has("request.size"));
  request.size = offsetof(sy_step_request, y_on_stream);
  request.abi_version = 2;
  request.stream = NULL;
  request.y_on_stream = 1;
  CHECK(sy_run(session, &request, 1000) == SY_OK);
  request = request_of(weights, y);
  request.y_on_stream = 1;
  CHECK(sy_run(session, &request, 1000) == SY_INVALID_ARGUMENT);
  CHECK(last_error_has("y_on_stream"));
  sy_client_close(client);
  current = NULL;
}

static void bad_session_options_are_errors(void) {
  sy_session_options options;
  sy_session* session = NULL;
  SY_INIT(options);
  options.size = 4;
  CHECK(sy_session_open(current, &options, &session) == SY_INVALID_ARGUMENT);
  CHECK(sy_session_open(current, NULL, &session) == SY_INVALID_ARGUMENT);
  SY_INIT(options);
  CHECK(sy_session_open(current, &options, NULL) == SY_INVALID_ARGUMENT);
  options.phase = 3;
  CHECK(sy_session_open(current, &options, &session) == SY_INVALID_ARGUMENT);
  CHECK(last_error_has("\"field\":\"phase\""));
  SY_INIT(options);
  options.mode = 3;
  CHECK(sy_session_open(current, &options, &session) == SY_INVALID_ARGUMENT);
  SY_INIT(options);
  /* R63: x has no dtype to name, and y is FP32 or BF16; whatever FP16 might be, it is neither. */
  for (options.y_dtype = 2; options.y_dtype < 64; ++options.y_dtype) {
    CHECK(sy_session_open(current, &options, &session) == SY_INVALID_ARGUMENT);
    CHECK(last_error_has("\"field\":\"y_dtype\""));
  }
  SY_INIT(options);
  options.max_tokens = -1;
  CHECK(sy_session_open(current, &options, &session) == SY_INVALID_ARGUMENT);
  (void)open_session("no-such-deployment", SY_NOT_FOUND);
  CHECK(last_error_has("UNKNOWN_MODEL"));
}

static void bad_steps_are_errors(sy_session* session) {
  sy_step_request request = request_of(weights, y);
  sy_step* step = (sy_step*)1;
  CHECK(sy_submit(session, NULL, &step) == SY_INVALID_ARGUMENT && step == NULL);
  CHECK(sy_submit(session, &request, NULL) == SY_INVALID_ARGUMENT);
  request.size = 12;
  CHECK(sy_submit(session, &request, &step) == SY_INVALID_ARGUMENT && step == NULL);
  request = request_of(weights, y);
  request.layer = 77;
  CHECK(sy_submit(session, &request, &step) == SY_NOT_FOUND && step == NULL);
  CHECK(last_error_has("UNKNOWN_LAYER"));
  request = request_of(weights, y);
  request.top_k = 3;
  CHECK(sy_submit(session, &request, &step) == SY_INVALID_ARGUMENT);
  CHECK(last_error_has("BAD_TOP_K"));
}

static void status_is_json_and_cut_to_fit(sy_session* session) {
  char small[8];
  size_t needs = sy_session_status(session, NULL, 0);
  char* text = NULL;
  CHECK(needs > 100);
  /* Counters grow in digits between two calls. */
  needs += 1000;
  text = (char*)malloc(needs);
  CHECK(text != NULL && sy_session_status(session, text, needs) <= needs);
  CHECK(text[0] == '{' && text[strlen(text) - 1] == '}');
  CHECK(strstr(text, "\"epoch\":1") != NULL && strstr(text, "\"mode\":\"low_latency\"") != NULL);
  CHECK(strstr(text, "\"supports_graphs\":true") != NULL);
  free(text);
  memset(small, '#', sizeof(small));
  CHECK(sy_session_status(session, small, sizeof(small)) > sizeof(small));
  CHECK(strlen(small) == sizeof(small) - 1);
}

/* The closed session and all that is done with it. */
static void use_after_close_is_an_error(sy_session* session) {
  sy_step_request request = request_of(weights, y);
  sy_step* step = NULL;
  char text[8];
  CHECK(sy_submit(session, &request, &step) == SY_OK);
  CHECK(sy_session_close(session) == SY_OK);
  CHECK(sy_session_close(session) == SY_FAILED_PRECONDITION);
  CHECK(last_error_has("SESSION_CLOSED"));
  (void)sy_wait(step); /* It was done before the close, or fails with it. */
  CHECK(sy_wait(step) == SY_FAILED_PRECONDITION);
  CHECK(sy_submit(session, &request, &step) == SY_FAILED_PRECONDITION && step == NULL);
  CHECK(sy_session_status(session, text, sizeof(text)) == 0);
}

static void check_values(void) {
  int i, nonzero = 0;
  for (i = 0; i < TOKENS * HIDDEN; ++i) {
    CHECK(y[i] > -1e20f && y[i] < 1e20f);
    CHECK(y_twice[i] == 2.0f * y[i]); /* Exact: weights enter the sum in FP32. */
    CHECK(y_gateway[i] == y[i]);
    nonzero += y[i] != 0.0f;
  }
  CHECK(nonzero > TOKENS * HIDDEN / 2);
}

int main(int argc, char** argv) {
  sy_client_options options;
  sy_client *p2p = NULL, *gateway = NULL;
  sy_session* session;
  char text[4];
  if (argc != 3) return 2;
  fill_inputs();
  CHECK(strlen(sy_version()) >= 5);
  modes_follow_the_kind_of_step();
  null_handles_are_errors();
  bad_structures_are_errors(argv[1]);
  devices_are_named_or_refused(argv[1]);
  older_structures_are_served(argv[1]);

  SY_INIT(options);
  options.coordinator = argv[1];
  options.net_devices = "lo";
  options.device = "cpu"; /* as if it were not there */
  options.busy_poll_us = 1000;
  CHECK(sy_client_open(&options, &p2p) == SY_OK);
  current = p2p;
  CHECK(sy_last_error(p2p, text, sizeof(text)) == 3 && strcmp(text, "{}") == 0);
  session = open_session(NULL, SY_OK);
  bad_session_options_are_errors();
  run(session, weights, y);
  run(session, twice, y_twice);
  bad_steps_are_errors(session);
  memory_that_the_host_cannot_read_is_an_error(session);
  status_is_json_and_cut_to_fit(session);
  use_after_close_is_an_error(session);

  SY_INIT(options);
  options.gateway = argv[2];
  CHECK(sy_client_open(&options, &gateway) == SY_OK);
  current = gateway;
  session = open_session(NULL, SY_OK);
  run(session, weights, y_gateway);
  check_values();
  sy_client_close(gateway); /* with its session open */
  sy_client_close(p2p);
  printf("passed\n");
  return 0;
}
