/* The layouts extension: how arrays lie in a device's memory. All are row-major, so that a layout is a rank. */
#include <stdio.h>

#include "soft/plugin_int.h"

struct PJRT_Layouts_MemoryLayout {
  size_t length;
  char text[4 * TTPU_MAX_RANK + 3]; /* as XLA writes it, minor to major: "{2,1,0}" */
};

static PJRT_Layouts_MemoryLayout layouts[TTPU_MAX_RANK + 1]; /* by rank; made once */

static void make_layouts(void) {
  for (int rank = 0; rank <= TTPU_MAX_RANK; ++rank) {
    PJRT_Layouts_MemoryLayout *l = &layouts[rank];
    l->text[l->length++] = '{';
    for (int d = rank; d-- > 0;)
      l->length += (size_t)snprintf(l->text + l->length, sizeof l->text - l->length, d ? "%d," : "%d", d);
    l->text[l->length++] = '}';
  }
}

PJRT_Layouts_MemoryLayout *plugin_layout(uint32_t rank) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_layouts);
  return &layouts[rank];
}

static PJRT_Error *destroy(PJRT_Layouts_MemoryLayout_Destroy_Args *args) {
  (void)args; /* they are never made, so never destroyed */
  return NULL;
}

static void forget(PJRT_Layouts_SerializedLayout *layout) { (void)layout; }

static PJRT_Error *serialize(PJRT_Layouts_MemoryLayout_Serialize_Args *args) {
  PLUGIN_ARGS(Layouts_MemoryLayout_Serialize, serialized_layout_deleter);
  args->serialized_bytes = args->layout->text;
  args->serialized_bytes_size = args->layout->length;
  args->serialized_layout = (PJRT_Layouts_SerializedLayout *)args->layout;
  args->serialized_layout_deleter = forget;
  return NULL;
}

static ttpu_status default_layout(size_t rank, PJRT_Layouts_MemoryLayout **out) {
  if (rank > TTPU_MAX_RANK)
    return base_fail(TTPU_UNIMPLEMENTED, "an array of rank %zu; the largest rank is %d", rank, (int)TTPU_MAX_RANK);
  *out = plugin_layout((uint32_t)rank);
  return TTPU_OK;
}

static PJRT_Error *client_default(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args) {
  PLUGIN_ARGS(Layouts_PJRT_Client_GetDefaultLayout, layout);
  return plugin_error(default_layout(args->num_dims, &args->layout));
}

static PJRT_Error *topology_default(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args) {
  PLUGIN_ARGS(Layouts_PJRT_Topology_GetDefaultLayout, layout);
  return plugin_error(default_layout(args->num_dims, &args->layout));
}

static PJRT_Error *of_buffer(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args) {
  PLUGIN_ARGS(Layouts_PJRT_Buffer_MemoryLayout, layout);
  args->layout = plugin_layout(args->buffer->rank);
  return NULL;
}

static PJRT_Error *of_outputs(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args) {
  PLUGIN_ARGS(Layouts_PJRT_Executable_GetOutputLayouts, layouts);
  args->num_outputs = args->executable->program->outputs;
  args->layouts = args->executable->program->layouts + args->executable->program->parameters;
  return NULL;
}

static PJRT_Error *of_parameters(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *args) {
  PLUGIN_ARGS(Layouts_PJRT_Executable_GetParameterLayouts, layouts);
  args->num_parameters = args->executable->program->parameters;
  args->layouts = args->executable->program->layouts;
  return NULL;
}

PJRT_Layouts_Extension plugin_layouts_extension = {
    .base = {sizeof plugin_layouts_extension, PJRT_Extension_Type_Layouts, NULL},
    .memory_layout_destroy = destroy,
    .memory_layout_serialize = serialize,
    .client_get_default_layout = client_default,
    .buffer_memory_layout = of_buffer,
    .topology_get_default_layout = topology_default,
    .executable_get_output_layouts = of_outputs,
    .executable_get_parameter_layouts = of_parameters,
};
