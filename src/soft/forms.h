/* forms: what is derived from a block's value and kept with it, such as a weight in the panels of a product.
 *
 * Values never change, so a form is good until its block is freed, or given away to be written (soft_block_forget). Most
 * values are used once or twice and then replaced (activations, the weights of a training step), and for those a form costs
 * more than it saves: it is made at the third use under the same key.
 *
 * Forms are a cache in the host's memory, outside the chip's limit, which is about the program alone. All together they
 * take at most an eighth of the host's memory; the ones not used for longest go first, and all go when memory is short.
 *
 * Thread-safe. A form that is held (soft_form_get) lives until soft_form_put, whatever becomes of its block. */
#ifndef TTPU_SOFT_FORMS_H
#define TTPU_SOFT_FORMS_H

#include "soft/soft_int.h"

typedef struct soft_form soft_form;

/* Fills `data` (64-byte aligned) with the form; `context` is soft_form_get's. */
typedef ttpu_status (*soft_form_fn)(void *context, void *data);

/* The form of b's value under `key`, held, its data in *data; or NULL when there is none: the value has not been used often
 * enough, memory is short, or `make` failed. Then the caller goes on without. */
soft_form *soft_form_get(soft_block *b, base_hash128 key, size_t bytes, soft_form_fn make, void *context,
                         const void **data);
void soft_form_put(soft_form *form); /* NULL is fine */
void soft_forms_trim(void);          /* drops all that nobody holds */
size_t soft_forms_bytes(void);

#endif
