/* model: saved models. Takes the folder that torch.tpu.export writes and gives a program on a device that runs on named
 * tensors. Its surface is the public C API, include/ttpu.h; this is what it is made of.
 *
 *   api.c          the runtime; what of ttpu.h is not elsewhere
 *   model.c        loading, describing, running
 *   manifest.c     manifest.json: what the program's arguments and results are
 *   safetensors.c  weights
 *   json.c         JSON
 *   npy.c          NumPy's files, for `ttpu run`
 *   run.c          the program ttpu-run, behind `ttpu run`
 *
 * The same code is in libttpu.so, for C, and in torch_tpu/_C, for Python, which lends it the client it has. */
#ifndef TTPU_MODEL_MODEL_H
#define TTPU_MODEL_MODEL_H

#include "base/base.h"
#include "pjrt/pjrt.h"
#include "ttpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A runtime over a client that stays the caller's. */
ttpu_status model_runtime_borrow(pjrt_client *client, ttpu_runtime **out);
pjrt_client *model_runtime_client(const ttpu_runtime *runtime);
pjrt_device *model_runtime_device(const ttpu_runtime *runtime, uint32_t index); /* NULL: it has none of that number */

/* By PyTorch's name; TTPU_NO_DTYPE: none that programs have. */
ttpu_dtype model_dtype(const char *name);
/* How many bytes a tensor's dims and dtype take; false where that is no size. */
bool model_tensor_bytes(const ttpu_tensor *t, size_t *bytes);
/* "float32[2, 3]", as messages say it. */
void model_put_type(base_text *text, const ttpu_tensor *t);
/* NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE by errno, for a file that does not open. */
ttpu_status model_open_code(int error);

#ifdef __cplusplus
}
#endif
#endif
