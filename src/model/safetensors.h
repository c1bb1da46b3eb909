/* safetensors: files of named tensors (github.com/huggingface/safetensors, "Format").
 *
 *   header's length (u64, little endian) | header, JSON | data
 *
 * The header maps a name to {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, offsets from the data's begin,
 * and "__metadata__" to texts. */
#ifndef TTPU_MODEL_SAFETENSORS_H
#define TTPU_MODEL_SAFETENSORS_H

#include <stdio.h>

#include "base/base.h"
#include "ttpu.h"

typedef struct safetensors {
  base_arena arena;
  const uint8_t *mapped; /* the file; the tensors' data lie in it, at any alignment */
  size_t length;
  uint32_t count;
  ttpu_tensor *tensors; /* in the header's order */
} safetensors;

/* Maps a file and checks all of its header. Close it whatever the outcome. */
ttpu_status safetensors_open(const char *path, safetensors *out);
void safetensors_close(safetensors *s);
const ttpu_tensor *safetensors_find(const safetensors *s, const char *name); /* NULL: none has that name */
ttpu_status safetensors_write(const char *path, uint32_t count, const ttpu_tensor *tensors);

#endif
