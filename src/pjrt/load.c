/* Loading a plugin; its errors and events. */
#include <dlfcn.h>
#include <stdlib.h>

#include "pjrt/pjrt_int.h"

/* ---- errors and events ------------------------------------------------------------------------------------- */

ttpu_status pjrt_status(const PJRT_Api *api, PJRT_Error *error) {
  if (!error) return TTPU_OK;
  PJRT_Error_GetCode_Args code = ARGS(Error_GetCode, .error = error);
  PJRT_Error *second = api->Error_GetCode(&code);
  if (second) code.code = TTPU_UNKNOWN;
  if (code.code <= TTPU_OK || code.code > TTPU_UNAUTHENTICATED) code.code = TTPU_UNKNOWN;
  PJRT_Error_Message_Args message = ARGS(Error_Message, .error = error);
  api->Error_Message(&message);
  size_t length = message.message_size < 1900 ? message.message_size : 1900; /* base_fail cuts there as well */
  ttpu_status status = base_fail((ttpu_status)code.code, "%.*s", (int)length, message.message ? message.message : "");
  PJRT_Error *errors[2] = {error, second};
  for (int i = 0; i < 2; ++i) {
    PJRT_Error_Destroy_Args destroy = ARGS(Error_Destroy, .error = errors[i]);
    if (errors[i]) api->Error_Destroy(&destroy);
  }
  return status;
}

ttpu_status pjrt_missing(const pjrt_client *c, const char *function) {
  return base_fail(TTPU_UNIMPLEMENTED, "the plugin %s (PJRT %d.%d) has no PJRT_%s", c->path,
                   c->api->pjrt_api_version.major_version, c->api->pjrt_api_version.minor_version, function);
}

void pjrt_event_free(const pjrt_client *c, PJRT_Event *event) {
  if (!event) return;
  PJRT_Event_Destroy_Args destroy = ARGS(Event_Destroy, .event = event);
  PJRT_Error *error = c->api->Event_Destroy(&destroy);
  PJRT_Error_Destroy_Args destroy_error = ARGS(Error_Destroy, .error = error);
  if (error) c->api->Error_Destroy(&destroy_error); /* nothing follows from it */
}

ttpu_status pjrt_event_await(const pjrt_client *c, PJRT_Event *event) {
  if (!event) return TTPU_OK;
  PJRT_Event_Await_Args await = ARGS(Event_Await, .event = event);
  ttpu_status status = CALL(c, Event_Await, &await);
  pjrt_event_free(c, event);
  return status;
}

ttpu_status pjrt_event_on_ready(const pjrt_client *c, PJRT_Event *event, PJRT_Event_OnReadyCallback callback,
                                void *user_arg) {
  if (!PLUGIN_HAS(c, Event_OnReady)) return pjrt_missing(c, "Event_OnReady");
  PJRT_Event_OnReady_Args on_ready = ARGS(Event_OnReady, .event = event, .callback = callback, .user_arg = user_arg);
  return CALL(c, Event_OnReady, &on_ready);
}

bool pjrt_event_is_ready(const pjrt_client *c, PJRT_Event *event) {
  PJRT_Event_IsReady_Args ready = ARGS(Event_IsReady, .event = event);
  if (event && PLUGIN_HAS(c, Event_IsReady) && CALL(c, Event_IsReady, &ready) == TTPU_OK) return ready.is_ready;
  PJRT_Event_Await_Args await = ARGS(Event_Await, .event = event);
  if (event) (void)CALL(c, Event_Await, &await); /* what became of it is asked elsewhere */
  return true;
}

/* ---- loading ------------------------------------------------------------------------------------------------- */

enum { OLDEST_MINOR = 29 };

/* The library stays loaded: plugins have threads, and none supports being closed. */
ttpu_status pjrt_plugin_open(const char *path, const PJRT_Api **out) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return base_fail(TTPU_NOT_FOUND, "the PJRT plugin %s cannot be loaded: %s", path, dlerror());
  const PJRT_Api *(*get)(void);
  *(void **)&get = dlsym(library, "GetPjrtApi");
  if (!get) return base_fail(TTPU_FAILED_PRECONDITION, "%s is no PJRT plugin: it does not export GetPjrtApi", path);
  const PJRT_Api *api = get();
  if (!api || !PJRT_HAS(api, pjrt_api_version))
    return base_fail(TTPU_FAILED_PRECONDITION, "%s: GetPjrtApi gave no table of functions", path);
  *out = api;
  return TTPU_OK;
}

ttpu_status pjrt_plugin_check(const char *path, const PJRT_Api *api) {
  int major = api->pjrt_api_version.major_version, minor = api->pjrt_api_version.minor_version;
  if (major != PJRT_API_MAJOR || minor < OLDEST_MINOR)
    return base_fail(TTPU_FAILED_PRECONDITION, "%s speaks PJRT %d.%d; this build needs %d.%d or newer", path, major,
                     minor, PJRT_API_MAJOR, OLDEST_MINOR);
  base_text missing = {0};
#define REQUIRED(name) \
  if (!API_HAS(api, name)) base_text_printf(&missing, "%sPJRT_" #name, missing.length ? ", " : "");
#define WANTED(name, without)
#include "pjrt/needs.def"
#undef REQUIRED
#undef WANTED
  ttpu_status status = TTPU_OK;
  if (missing.failed) status = base_no_memory(missing.length);
  else if (missing.length > 0)
    status = base_fail(TTPU_FAILED_PRECONDITION, "%s (PJRT %d.%d) lacks %s", path, major, minor, missing.data);
  base_text_free(&missing);
  return status;
}

ttpu_status pjrt_plugin_initialize(const PJRT_Api *api) {
  PJRT_Plugin_Initialize_Args initialize = ARGS(Plugin_Initialize, .extension_start = NULL);
  return API_HAS(api, Plugin_Initialize) ? pjrt_status(api, api->Plugin_Initialize(&initialize)) : TTPU_OK;
}

/* TTPU_EXTENSION=off: the software TPU is spoken to as any plugin is, which is how that way is tested without another. */
const PJRT_Ttpu_Extension *pjrt_plugin_extension(const PJRT_Api *api) {
  const char *setting = getenv("TTPU_EXTENSION");
  if (setting && strcmp(setting, "off") == 0) return NULL;
  for (const PJRT_Extension_Base *e = api->extension_start; e; e = e->next) {
    if (e->type != PJRT_Extension_Type_Ttpu || e->struct_size < sizeof(PJRT_Ttpu_Extension)) continue;
    const PJRT_Ttpu_Extension *ours = (const PJRT_Ttpu_Extension *)e;
    if (ours->ir_layout == pjrt_ttpu_ir_layout()) return ours;
    base_log(LOG_WARN, "the software TPU is of another build than this library; programs go to it as text");
  }
  return NULL;
}
