/* The VHLO dialect as data: its operations (vhlo.def), enumerations and the codes of its types. */
#include <string.h>

#include "ir/bytecode_int.h"

#define VERSION(major, minor) ((major) * 100 + (minor))
enum { NOW = 0 };

static const vhlo_op vhlo_ops[] = {
#define VHLO(name, version, first, last, attributes) {name, version, first, last, attributes},
#include "ir/vhlo.def"
#undef VHLO
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

const vhlo_op *vhlo_op_find(text_slice name) {
  size_t length = name.length;
  unsigned version = 0, scale = 1;
  while (length && name.data[length - 1] >= '0' && name.data[length - 1] <= '9' && scale < 1000) {
    version += scale * (unsigned)(name.data[--length] - '0');
    scale *= 10;
  }
  if (length < 2 || memcmp(name.data + length - 2, "_v", 2) != 0) return NULL;
  length -= 2;
  for (size_t i = 0; i < COUNT(vhlo_ops); ++i)
    if (vhlo_ops[i].version == version && strlen(vhlo_ops[i].name) == length &&
        memcmp(vhlo_ops[i].name, name.data, length) == 0)
      return &vhlo_ops[i];
  return NULL;
}

const vhlo_op *vhlo_op_first(const char *name) {
  for (size_t i = 0; i < COUNT(vhlo_ops); ++i)
    if (strcmp(vhlo_ops[i].name, name) == 0) return &vhlo_ops[i];
  return NULL;
}

const vhlo_op *vhlo_op_at(const char *name, unsigned version) {
  const vhlo_op *form = vhlo_op_first(name);
  for (; form && form->last && form->last < version; ++form) continue; /* the last form of all has no end */
  return form && form->first <= version ? form : NULL;
}

unsigned vhlo_type_since(const char *name) {
  static const struct {
    const char *name;
    uint16_t first;
  } since[] = {{"i2", VERSION(1, 2)},       {"ui2", VERSION(1, 2)},      {"f8E4M3", VERSION(1, 7)},
               {"f8E3M4", VERSION(1, 7)},   {"f4E2M1FN", VERSION(1, 8)}, {"f6E2M3FN", VERSION(1, 8)},
               {"f6E3M2FN", VERSION(1, 8)}, {"f8E8M0FNU", VERSION(1, 8)}};
  for (size_t i = 0; i < COUNT(since); ++i)
    if (strcmp(since[i].name, name) == 0) return since[i].first;
  return VERSION(0, 9);
}

const char *vhlo_type_name(uint64_t code) {
  static const char *const names[] = {
      [0] = "i1",
      [2] = "bf16",
      [3] = "f16",
      [4] = "f32",
      [5] = "f64",
      [6] = "f8E4M3FN",
      [7] = "f8E5M2",
      [9] = "index",
      [10] = "i4",
      [11] = "i8",
      [12] = "i16",
      [13] = "i32",
      [14] = "i64",
      [15] = "ui4",
      [16] = "ui8",
      [17] = "ui16",
      [18] = "ui32",
      [19] = "ui64",
      [22] = "!stablehlo.token",
      [26] = "!shape.witness",
      [27] = "f8E4M3FNUZ",
      [28] = "f8E5M2FNUZ",
      [29] = "f8E4M3B11FNUZ",
      [31] = "i2",
      [32] = "ui2",
      [33] = "none",
      [34] = "tf32",
      [35] = "f8E4M3",
      [36] = "f8E3M4",
      [37] = "f4E2M1FN",
      [38] = "f6E2M3FN",
      [39] = "f6E3M2FN",
      [40] = "f8E8M0FNU",
  };
  return code < COUNT(names) ? names[code] : NULL;
}

const char *vhlo_enum_name(uint64_t attribute, uint64_t value) {
  enum { MOST = 6 };
  static const char *const names[][MOST] = {
      [VHLO_COMPARISON_DIRECTION] = {"EQ", "NE", "GE", "GT", "LE", "LT"},
      [VHLO_COMPARISON_TYPE] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"},
      [VHLO_FFT_TYPE] = {"FFT", "IFFT", "RFFT", "IRFFT"},
      [VHLO_PRECISION] = {"DEFAULT", "HIGH", "HIGHEST"},
      [VHLO_RNG_ALGORITHM] = {"DEFAULT", "THREE_FRY", "PHILOX"},
      [VHLO_RNG_DISTRIBUTION] = {NULL, "UNIFORM", "NORMAL"},
      [VHLO_TRANSPOSE] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"},
      [VHLO_RESULT_ACCURACY_MODE] = {"DEFAULT", "HIGHEST", "TOLERANCE"},
  };
  return attribute < COUNT(names) && value < MOST ? names[attribute][value] : NULL;
}
