#include "soft/forms.h"

#include <pthread.h>

#include "soft/hbm.h"

enum { FORM_USES = 3, FORMS_PER_BLOCK = 8 };

struct soft_form {
  base_hash128 key;
  uint32_t uses; /* until it is made */
  uint32_t refs; /* the block's and each holder's */
  void *data;    /* NULL: not made yet */
  size_t bytes;
  soft_block *block;               /* NULL: dropped, kept by its holders alone */
  struct soft_form *next;          /* of the block */
  struct soft_form *newer, *older; /* made ones, in the order of use */
};

/* One lock for all: it is held for a few loads and stores, beside work of microseconds. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static soft_form *newest, *oldest;
static size_t total_bytes;

static size_t most_bytes(void) {
  static atomic_size_t most;
  size_t known = atomic_load_explicit(&most, memory_order_relaxed);
  if (known == 0) atomic_store_explicit(&most, known = soft_host_memory_total() / 8 + 1, memory_order_relaxed);
  return known;
}

/* ---- under the lock ------------------------------------------------------------------------------ */

static void leave_order(soft_form *form) {
  if (form->newer) form->newer->older = form->older;
  else if (newest == form) newest = form->older;
  if (form->older) form->older->newer = form->newer;
  else if (oldest == form) oldest = form->newer;
  form->newer = form->older = NULL;
}

static void become_newest(soft_form *form) {
  leave_order(form);
  form->older = newest;
  if (newest) newest->newer = form;
  else oldest = form;
  newest = form;
}

static void release(soft_form *form) {
  if (--form->refs > 0) return;
  total_bytes -= form->bytes;
  base_free(form->data);
  base_free(form);
}

/* Takes the form from its block. The block may be freed by another thread as soon as it has no form. */
static void drop(soft_form *form) {
  soft_block *b = form->block;
  soft_form *first = atomic_load(&b->forms), *at = first;
  leave_order(form);
  form->block = NULL;
  if (first == form) {
    atomic_store(&b->forms, form->next);
  } else {
    while (at->next != form) at = at->next;
    at->next = form->next;
  }
  release(form);
}

/* The form under this key; a new one, without data, in the place of a missing one. NULL: out of memory. */
static soft_form *find(soft_block *b, base_hash128 key) {
  uint32_t count = 0;
  soft_form *first = atomic_load(&b->forms), *last = NULL;
  for (soft_form *form = first; form; last = form, form = form->next, ++count)
    if (form->key.a == key.a && form->key.b == key.b) return form;
  if (count >= FORMS_PER_BLOCK) drop(last);
  soft_form *form = base_calloc(1, sizeof *form);
  if (!form) return NULL;
  *form = (soft_form){.key = key, .refs = 1, .block = b, .next = atomic_load(&b->forms)};
  atomic_store(&b->forms, form);
  return form;
}

static bool make_room(size_t bytes) {
  if (bytes > most_bytes()) return false;
  while (oldest && total_bytes + bytes > most_bytes()) drop(oldest);
  return total_bytes + bytes <= most_bytes();
}

/* ---- the interface ------------------------------------------------------------------------------- */

soft_form *soft_form_get(soft_block *b, base_hash128 key, size_t bytes, soft_form_fn make, void *context,
                         const void **data) {
  if (!b->hbm || bytes == 0) return NULL; /* memory that somebody else owns may change */
  pthread_mutex_lock(&lock);
  soft_form *form = find(b, key);
  bool ready = form && form->data;
  if (ready) become_newest(form);
  bool due = form && !ready && ++form->uses >= FORM_USES && make_room(bytes);
  if (ready || due) ++form->refs;
  pthread_mutex_unlock(&lock);
  if (!ready && !due) return NULL;
  if (due) {
    void *made = base_alloc_large(bytes);
    bool good = made && make(context, made) == TTPU_OK;
    pthread_mutex_lock(&lock);
    if (good && !form->data) { /* another thread may have been as quick */
      form->data = made, form->bytes = bytes, total_bytes += bytes;
      if (form->block) become_newest(form);
      made = NULL;
    }
    ready = form->data != NULL;
    if (!ready) release(form);
    pthread_mutex_unlock(&lock);
    base_free(made);
    if (!ready) return NULL;
  }
  *data = form->data;
  return form;
}

void soft_form_put(soft_form *form) {
  if (!form) return;
  pthread_mutex_lock(&lock);
  release(form);
  pthread_mutex_unlock(&lock);
}

void soft_block_forget(soft_block *b) {
  if (!atomic_load(&b->forms)) return;
  pthread_mutex_lock(&lock);
  for (soft_form *form; (form = atomic_load(&b->forms));) drop(form);
  pthread_mutex_unlock(&lock);
}

void soft_forms_trim(void) {
  pthread_mutex_lock(&lock);
  while (oldest) drop(oldest);
  pthread_mutex_unlock(&lock);
}

size_t soft_forms_bytes(void) {
  pthread_mutex_lock(&lock);
  size_t bytes = total_bytes;
  pthread_mutex_unlock(&lock);
  return bytes;
}
