/* The ABI's layout, against the numbers of the public interface at version 0.114, and the plugin's table. */
#include <dlfcn.h>

#include "check.h"
#include "pjrt/abi.h"
#include "pjrt/extension.h"

#define SIZE(name, bytes) CHECK_EQ(sizeof(PJRT_##name), bytes)
#define AT(name, field, bytes) CHECK_EQ(offsetof(PJRT_##name, field), bytes)

TEST(table) {
  SIZE(Api, 1144);
  SIZE(Api_Version, 24);
  AT(Api, pjrt_api_version.major_version, 32);
  AT(Api, pjrt_api_version.minor_version, 36);
  AT(Api, Error_Destroy, 40);
  AT(Api, Client_Create, 120);
  AT(Api, Client_BufferFromHostBuffer, 216);
  AT(Api, Executable_Serialize, 432);
  AT(Api, LoadedExecutable_Execute, 480);
  AT(Api, Buffer_ToHostBuffer, 600);
  AT(Api, Compile, 752);
  AT(Api, Client_DmaMap, 920);
  AT(Api, Event_Set, 1056);
  AT(Api, Error_ForEachPayload, 1096);
  AT(Api, TopologyDescription_GetMemorySpaceKindIds, 1136);
}

TEST(structs) {
  SIZE(NamedValue, 56);
  SIZE(Program, 48);
  SIZE(Buffer_MemoryLayout, 80);
  SIZE(ExecuteOptions, 144);
  SIZE(ShapeSpec, 40);
  SIZE(ProcessInfo, 48);
  SIZE(KeyValueGetCallback_Args, 80);
  SIZE(KeyValueTryGetCallback_Args, 72);
  SIZE(KeyValuePutCallback_Args, 64);
  AT(NamedValue, value_size, 48);
  AT(Buffer_MemoryLayout, type, 72);
  AT(ExecuteOptions, non_donatable_input_indices, 56);
}

/* Of every argument struct, by name: C has no list of a struct's fields, so its size must do. */
TEST(argument_sizes) {
  static const struct {
    const char *name;
    size_t is, must_be;
  } sizes[] = {
#define ROW(name, bytes) {#name, sizeof(PJRT_##name##_Args), bytes},
#include "pjrt_sizes.inc"
#undef ROW
  };
  CHECK_EQ(sizeof sizes / sizeof sizes[0], 138);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i)
    if (sizes[i].is != sizes[i].must_be)
      check_fail(__FILE__, __LINE__, "PJRT_%s_Args has %zu bytes, not %zu", sizes[i].name, sizes[i].is,
                 sizes[i].must_be);
}

TEST(plugin_table_is_full) {
  void *library = dlopen(TTPU_SOFT_PATH, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  const PJRT_Api *(*get)(void);
  *(void **)&get = dlsym(library, "GetPjrtApi");
  REQUIRE(get);
  const PJRT_Api *api = get();
  CHECK_EQ(api->struct_size, sizeof *api);
  CHECK_EQ(api->pjrt_api_version.major_version, 0);
  CHECK_EQ(api->pjrt_api_version.minor_version, 114);
#define FUNCTION(name) CHECK(api->name != NULL);
#define VOID_FUNCTION(name) FUNCTION(name)
#include "pjrt/functions.def"
#undef FUNCTION
#undef VOID_FUNCTION
  const PJRT_Ttpu_Extension *extension = (const PJRT_Ttpu_Extension *)api->extension_start;
  REQUIRE(extension);
  CHECK_EQ(extension->base.type, PJRT_Extension_Type_Ttpu);
  CHECK_EQ(extension->ir_layout, pjrt_ttpu_ir_layout());
}
