/* Errors and events. */
#include "soft/plugin_int.h"

/* ---- errors ---------------------------------------------------------------------------------------- */

struct PJRT_Error {
  const PJRT_Error_FunctionTable *table; /* part of the ABI */
  PJRT_Error_Code code;
  size_t length;
  const char *message;
};

static void error_destroy(PJRT_Error *error);

static void error_message(const PJRT_Error *error, const char **message, size_t *length) {
  *message = error->message;
  *length = error->length;
}

static PJRT_Error_Code error_code(const PJRT_Error *error) { return error->code; }

static void error_payloads(const PJRT_Error *error, PJRT_Error_PayloadVisitor visitor, void *context) {
  (void)error, (void)visitor, (void)context; /* we attach none */
}

static const PJRT_Error_FunctionTable error_table = {
    sizeof error_table, sizeof(PJRT_Error), NULL, error_destroy, error_message, error_code, error_payloads};

static const char no_memory_text[] = "the host is out of memory";
static PJRT_Error no_memory = {&error_table, TTPU_RESOURCE_EXHAUSTED, sizeof no_memory_text - 1, no_memory_text};

static void error_destroy(PJRT_Error *error) {
  if (error != &no_memory) base_free(error);
}

PJRT_Error *plugin_error_new(ttpu_status status, const char *message, size_t length) {
  if (status == TTPU_OK) return NULL;
  PJRT_Error *e = base_alloc(sizeof *e + length + 1);
  if (!e) return &no_memory;
  char *text = (char *)(e + 1);
  if (length) memcpy(text, message, length);
  text[length] = 0;
  *e = (PJRT_Error){&error_table, status, length, text};
  return e;
}

PJRT_Error *plugin_error(ttpu_status status) {
  return status == TTPU_OK ? NULL : plugin_error_new(status, base_message(), strlen(base_message()));
}

ttpu_status plugin_check_size(const char *function, size_t given, size_t needed) {
  return base_fail(TTPU_INVALID_ARGUMENT,
                   "PJRT_%s: the argument struct has %zu bytes, at least %zu are needed; the caller was built for an "
                   "older PJRT",
                   function, given, needed);
}

void plugin_Error_Destroy(PJRT_Error_Destroy_Args *args) {
  if (args->error) error_destroy(args->error);
}

void plugin_Error_Message(PJRT_Error_Message_Args *args) {
  error_message(args->error, &args->message, &args->message_size);
}

PJRT_Error *plugin_Error_GetCode(PJRT_Error_GetCode_Args *args) {
  args->code = error_code(args->error);
  return NULL;
}

PJRT_Error *plugin_Error_ForEachPayload(PJRT_Error_ForEachPayload_Args *args) {
  (void)args;
  return NULL;
}

/* ---- events ---------------------------------------------------------------------------------------- */

struct PJRT_Event {
  soft_done *done;
};

PJRT_Event *plugin_event_new(soft_done *done) {
  PJRT_Event *e = base_alloc(sizeof *e);
  if (e) e->done = done;
  else soft_done_free(done);
  return e;
}

void plugin_event_free(PJRT_Event *e) {
  soft_done_free(e->done);
  base_free(e);
}

PJRT_Error *plugin_Event_Destroy(PJRT_Event_Destroy_Args *args) {
  PLUGIN_ARGS(Event_Destroy, event);
  if (args->event) plugin_event_free(args->event);
  return NULL;
}

PJRT_Error *plugin_Event_IsReady(PJRT_Event_IsReady_Args *args) {
  PLUGIN_ARGS(Event_IsReady, is_ready);
  args->is_ready = soft_done_is_ready(args->event->done);
  return NULL;
}

PJRT_Error *plugin_Event_Error(PJRT_Event_Error_Args *args) {
  PLUGIN_ARGS(Event_Error, event);
  soft_done *done = args->event->done;
  if (!soft_done_is_ready(done)) PLUGIN_FAIL(TTPU_FAILED_PRECONDITION, "PJRT_Event_Error: the event is not ready yet");
  return plugin_error(soft_done_status(done));
}

PJRT_Error *plugin_Event_Await(PJRT_Event_Await_Args *args) {
  PLUGIN_ARGS(Event_Await, event);
  soft_done *done = soft_done_share(args->event->done); /* a callback may destroy the event meanwhile */
  PJRT_Error *error = plugin_error(soft_done_await(done));
  soft_done_free(done);
  return error;
}

typedef struct on_ready {
  PJRT_Event_OnReadyCallback callback;
  void *user_arg;
} on_ready;

static void call_on_ready(void *context, soft_done *done) {
  on_ready r = *(on_ready *)context;
  base_free(context);
  r.callback(plugin_error(soft_done_status(done)), r.user_arg);
}

PJRT_Error *plugin_Event_OnReady(PJRT_Event_OnReady_Args *args) {
  PLUGIN_ARGS(Event_OnReady, user_arg);
  on_ready *r = base_alloc(sizeof *r);
  if (!r) return plugin_error(base_no_memory(sizeof *r));
  *r = (on_ready){args->callback, args->user_arg};
  soft_done *done = soft_done_share(args->event->done); /* the callback may destroy the event */
  ttpu_status status = soft_done_on_ready(done, call_on_ready, r);
  if (status != TTPU_OK) base_free(r);
  PJRT_Error *error = plugin_error(status);
  soft_done_free(done);
  return error;
}

PJRT_Error *plugin_Event_Create(PJRT_Event_Create_Args *args) {
  PLUGIN_ARGS(Event_Create, event);
  soft_done *done = soft_done_new(NULL);
  args->event = done ? plugin_event_new(done) : NULL;
  return args->event ? NULL : plugin_error(base_no_memory(sizeof *done));
}

PJRT_Error *plugin_Event_Set(PJRT_Event_Set_Args *args) {
  PLUGIN_ARGS(Event_Set, error_message_size);
  if (soft_done_is_ready(args->event->done))
    PLUGIN_FAIL(TTPU_FAILED_PRECONDITION, "PJRT_Event_Set: the event was set before");
  char text[2048];
  size_t length = args->error_message_size < sizeof text - 1 ? args->error_message_size : sizeof text - 1;
  if (length) memcpy(text, args->error_message, length);
  text[length] = 0;
  soft_done *done = soft_done_share(args->event->done);
  soft_done_set(done, (ttpu_status)args->error_code, text);
  soft_done_free(done);
  return NULL;
}
