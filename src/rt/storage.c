/* Storages, values, and the addresses by which PyTorch tells storages apart. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "rt/rt_int.h"

/* ---- values ---- */

rt_value *rt_value_new(uint32_t device, ttpu_dtype dtype, uint32_t rank, const int64_t *dims) {
  rt_value *v = base_alloc(sizeof *v + rank * sizeof(int64_t));
  if (v == NULL) return NULL;
  *v = (rt_value){.state = RT_PENDING, .dtype = (uint8_t)dtype, .rank = (uint8_t)rank, .device = device};
  atomic_init(&v->refs, 1);
  v->numel = base_numel(rank, dims);
  if (rank > 0) memcpy(v->dims, dims, rank * sizeof(int64_t));
  return v;
}

rt_value *rt_value_share(rt_value *v) {
  atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
  return v;
}

void rt_value_free(rt_value *v) {
  if (v == NULL || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1) return;
  pjrt_buffer_free(v->buffer);
  pjrt_buffer_free(v->cut);
  rt_layout_free(v->layout);
  base_free(v->host);
  rt_error_free(v->error);
  base_free(v);
}

void rt_value_fail(rt_value *v, rt_error *e) {
  if (e != NULL) atomic_fetch_add(&e->refs, 1);
  v->error = e;
  v->state = RT_FAILED;
}

rt_error *rt_error_new(ttpu_status code, const char *message) {
  size_t length = strlen(message) + 1;
  rt_error *e = base_alloc(sizeof *e + length);
  if (e == NULL) return NULL;
  atomic_init(&e->refs, 1);
  e->code = code;
  memcpy(e->message, message, length);
  return e;
}

void rt_error_free(rt_error *e) {
  if (e != NULL && atomic_fetch_sub(&e->refs, 1) == 1) base_free(e);
}

/* ---- addresses ----
 * One reserved range without access; a storage owns a multiple of 512 bytes of it. Freed pieces are kept by size
 * class (a power of two of 512-byte units) and handed out again; a class's pieces all have the class's full size.
 * Used with the lock held. */

enum { ADDRESS_UNIT_BITS = 9, ADDRESS_CLASSES = 48 };
static const size_t address_reserve = (size_t)1 << 45;

static struct {
  uint8_t *base;
  size_t next;
  struct {
    void **items;
    uint32_t count, capacity;
  } free[ADDRESS_CLASSES];
} addresses;

static uint32_t address_class(size_t bytes) {
  size_t units = (bytes + ((size_t)1 << ADDRESS_UNIT_BITS) - 1) >> ADDRESS_UNIT_BITS;
  return units <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(units - 1);
}

static ttpu_status address_take(size_t bytes, void **out) {
  ttpu_status status = TTPU_OK;
  *out = NULL;
  if (bytes == 0) return TTPU_OK;
  uint32_t c = address_class(bytes);
  if (addresses.base == NULL) {
    void *p = mmap(NULL, address_reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) addresses.base = p;
  }
  if (addresses.free[c].count > 0) {
    *out = addresses.free[c].items[--addresses.free[c].count];
  } else {
    size_t size = (size_t)1 << (c + ADDRESS_UNIT_BITS);
    if (addresses.base == NULL || size > address_reserve - addresses.next) {
      status = base_fail(TTPU_RESOURCE_EXHAUSTED, "no address range left for a storage of %zu bytes", bytes);
    } else {
      *out = addresses.base + addresses.next;
      addresses.next += size;
    }
  }
  return status;
}

static void address_give(void *p, size_t bytes) {
  if (p == NULL) return;
  uint32_t c = address_class(bytes);
  if (BASE_GROW(addresses.free[c].items, addresses.free[c].count, addresses.free[c].capacity))
    addresses.free[c].items[addresses.free[c].count++] = p; /* else: lost from a range far larger than memory */
}

/* ---- storages ---- */

static ttpu_status account(rt_device *d, size_t bytes) {
  if (d->limit > 0 && !d->capturing && bytes > d->limit - (d->allocated < d->limit ? d->allocated : d->limit)) {
    ++d->oom_count;
    return base_fail(TTPU_RESOURCE_EXHAUSTED,
                     "TPU out of memory. Tried to allocate %.2f MiB on tpu:%u, which has %.2f MiB of memory, of which "
                     "%.2f MiB are held by live tensors.",
                     (double)bytes / 1048576.0, d->index, (double)d->limit / 1048576.0,
                     (double)d->allocated / 1048576.0);
  }
  d->allocated += bytes;
  d->allocated_total += bytes;
  ++d->allocations;
  if (bytes > 0 && ++d->active > d->active_peak) d->active_peak = d->active;
  if (d->allocated > d->peak) d->peak = d->allocated;
  return TTPU_OK;
}

static void unaccount(rt_device *d, size_t bytes) {
  d->allocated -= bytes;
  d->freed_total += bytes;
  ++d->frees;
  if (bytes > 0) --d->active;
}

rt_storage *rt_storage_newest;

static void link_live(rt_storage *s) {
  s->next = rt_storage_newest;
  if (rt_storage_newest != NULL) rt_storage_newest->previous = s;
  rt_storage_newest = s;
}

static void unlink_live(rt_storage *s) {
  if (s->previous != NULL) s->previous->next = s->next;
  else rt_storage_newest = s->next;
  if (s->next != NULL) s->next->previous = s->previous;
}

rt_storage *rt_storage_find(const void *address, size_t *begin) {
  rt_storage *found = NULL;
  *begin = 0;
  if (address == NULL) return NULL;
  rt_lock();
  for (rt_storage *s = rt_storage_newest; s != NULL; s = s->next) {
    size_t bytes = (size_t)((uintptr_t)address - (uintptr_t)s->address); /* wraps where the address is smaller */
    if (s->address == NULL || bytes > s->bytes) continue;
    found = s;
    *begin = bytes;
    if (bytes < s->bytes) break;
  }
  rt_unlock();
  return found;
}

void rt_storage_visit(uint32_t device, size_t least, void (*visit)(void *context, const void *address, size_t bytes),
                      void *context) {
  rt_lock();
  for (rt_storage *s = rt_storage_newest; s != NULL; s = s->next)
    if (s->device == device && s->bytes >= least && !s->is_absent) visit(context, s->address, s->bytes);
  rt_unlock();
}

ttpu_status rt_storage_new(uint32_t device, size_t bytes, rt_storage **out) {
  return rt_storage_make(device, bytes, false, out);
}

ttpu_status rt_storage_make(uint32_t device, size_t bytes, bool is_absent, rt_storage **out) {
  if (device >= rt_global.device_count)
    return base_fail(TTPU_INVALID_ARGUMENT, "tpu:%u does not exist; there are %u devices", device,
                     rt_global.device_count);
  rt_storage *s = base_alloc(sizeof *s); /* glibc's calloc passes its thread cache by */
  if (s == NULL) return base_no_memory(sizeof *s);
  *s = (rt_storage){.device = device, .bytes = bytes, .address_bytes = bytes, .is_absent = is_absent};
  rt_lock();
  ttpu_status status = address_take(bytes, &s->address);
  if (status == TTPU_OK && !is_absent) status = account(&rt_global.devices[device], bytes);
  if (status == TTPU_OK) link_live(s);
  else address_give(s->address, bytes);
  rt_unlock();
  if (status != TTPU_OK) {
    base_free(s);
    return status;
  }
  *out = s;
  return TTPU_OK;
}

void rt_storage_free(rt_storage *s) {
  if (s == NULL) return;
  rt_lock();
  unlink_live(s);
  if (!s->is_absent) unaccount(&rt_global.devices[s->device], s->bytes);
  rt_value *value = s->value, *before = s->before;
  address_give(s->address, s->address_bytes);
  rt_unlock();
  rt_value_free(value);
  rt_value_free(before);
  base_free(s);
}

void *rt_storage_address(const rt_storage *s) { return s->address; }
size_t rt_storage_bytes(const rt_storage *s) { return s->bytes; }
uint32_t rt_storage_device(const rt_storage *s) { return s->device; }

/* The value of a resized storage: operand 0 flat, cut or filled with zeros to result 0's size. */
static void lower_resize(aten_lowering *c) {
  ir_value v = aten_in(c, 0);
  if (c->b->status != TTPU_OK) return;
  int64_t have = ir_type_of(c->b->func, v).dims[0], want = c->outs[0].sizes[0], zero = 0;
  if (have > want) {
    v = ir_slice_dim(c->b, v, 0, 0, want, 1);
  } else if (have < want) {
    int64_t more = want - have;
    v = ir_pad(c->b, v, ir_scalar_i64(c->b, (ttpu_dtype)c->outs[0].dtype, 0), &zero, &more, &zero);
  }
  aten_out(c, 0, v);
}
static const aten_row resize_row = {.name = "ttpu::resize", .lower = lower_resize};
static const rt_op resize_op = {.row = &resize_row, .name = "resize_", .id = 0x7265736970ull};

/* With the lock held: accounts for the new size and finds it an address. */
static ttpu_status change_size(rt_storage *s, size_t bytes) {
  rt_device *d = &rt_global.devices[s->device];
  void *address = s->address;
  if (bytes > s->address_bytes) BASE_TRY(address_take(bytes, &address));
  if (!s->is_absent) unaccount(d, s->bytes);
  ttpu_status status = s->is_absent ? TTPU_OK : account(d, bytes);
  if (status != TTPU_OK) {
    (void)account(d, s->bytes);
    if (address != s->address) address_give(address, bytes);
    return status;
  }
  if (address != s->address) {
    address_give(s->address, s->address_bytes);
    s->address = address;
    s->address_bytes = bytes;
  }
  s->bytes = bytes;
  return TTPU_OK;
}

ttpu_status rt_storage_resize(rt_storage *s, size_t bytes) {
  int64_t have = (int64_t)s->bytes, want = (int64_t)bytes, one = 1;
  if (have == want) return TTPU_OK;
  rt_lock();
  ttpu_status status = change_size(s, bytes);
  rt_value *dropped = NULL;
  ttpu_dtype dtype = TTPU_U8; /* by bytes, where the old elements do not fit the new size */
  if (status == TTPU_OK && s->value != NULL) {
    if (s->value->numel == 0 || bytes == 0) { /* nothing to keep */
      dropped = s->value;
      s->value = NULL;
    } else if (bytes % base_dtype_bytes((ttpu_dtype)s->value->dtype) == 0) {
      dtype = (ttpu_dtype)s->value->dtype;
      have = s->value->numel;
      want = (int64_t)(bytes / base_dtype_bytes(dtype));
    }
  }
  bool written = s->value != NULL;
  rt_unlock();
  rt_value_free(dropped);
  if (status != TTPU_OK || !written) return status;
  aten_tensor from = {.dtype = (uint8_t)dtype, .rank = 1, .sizes = &have, .strides = &one};
  aten_arg arg = {.kind = ATEN_TENSOR};
  rt_call call = {.call = {.row = &resize_row, .arg_count = 1, .tensor_count = 1, .args = &arg, .tensors = &from},
                  .storages = &s};
  call.key = base_mix128(rt_meta_key(&resize_op, &call.call, 0), (uint64_t)want);
  rt_tensor result = {.storage = s, .meta = {.dtype = (uint8_t)dtype, .rank = 1, .sizes = &want, .strides = &one}};
  return rt_record(s->device, &resize_op, &call, 1, &result);
}

ttpu_status rt_storage_upload(rt_storage *s, ttpu_dtype dtype, uint32_t rank, const int64_t *dims, const void *data,
                              void (*release)(void *), void *context) {
  dtype = base_dtype_stored(dtype);
  rt_value *v = rt_value_new(s->device, dtype, rank, dims);
  if (v == NULL) return base_no_memory(sizeof *v);
  v->host = rt_bucket_host_copy(data, (size_t)v->numel * base_dtype_bytes(dtype));
  ttpu_status status =
      pjrt_buffer_from_host(rt_global.devices[s->device].pjrt, dtype, rank, dims, data, release, context, &v->buffer);
  if (status != TTPU_OK) {
    rt_value_free(v);
    return status;
  }
  v->state = RT_READY;
  rt_lock();
  status = rt_take_turn(&rt_global.devices[s->device]);
  rt_value *old = v;
  if (status == TTPU_OK) {
    ++rt_global.counters.uploads;
    old = s->value;
    s->value = v;
  }
  rt_unlock();
  rt_value_free(old);
  return status;
}

/* A value that cutting the trace does not compute. */
static ttpu_status still_pending(void) {
  return base_fail(
      TTPU_FAILED_PRECONDITION,
      "a value is needed while a program is captured for compiling ahead of time, and nothing runs then: the "
      "captured function must not read its tensors (item, print, nonzero, if) or move them to another device");
}

ttpu_status rt_storage_assign(rt_storage *dst, rt_storage *src) {
  rt_lock();
  ttpu_status status = rt_take_turn(&rt_global.devices[src->device]);
  if (status == TTPU_OK) status = rt_take_turn(&rt_global.devices[dst->device]);
  rt_value *v = status == TTPU_OK && src->value != NULL ? rt_value_share(src->value) : NULL;
  if (v != NULL && dst->device != src->device) {
    if (v->state == RT_PENDING) (void)rt_trace_cut(&rt_global.devices[src->device]);
    if (v->state == RT_PENDING) {
      rt_unlock();
      rt_value_free(v);
      return still_pending();
    }
    rt_value *moved = rt_value_new(dst->device, (ttpu_dtype)v->dtype, v->rank, v->dims);
    if (moved == NULL) {
      status = base_no_memory(sizeof *moved);
    } else if (v->state == RT_READY) {
      pjrt_buffer *exact = NULL;
      status = rt_value_exact(&rt_global.devices[src->device], v, &exact);
      if (status == TTPU_OK)
        status = pjrt_buffer_copy_to_device(exact, rt_global.devices[dst->device].pjrt, &moved->buffer);
      if (status == TTPU_OK) moved->state = RT_READY;
    } else {
      rt_value_fail(moved, v->error);
    }
    if (status != TTPU_OK) {
      rt_value_free(moved);
      moved = NULL;
    }
    rt_value_free(v);
    v = moved;
  }
  rt_value *old = NULL;
  if (status == TTPU_OK) {
    old = dst->value;
    dst->value = v;
  }
  rt_unlock();
  rt_value_free(old);
  return status;
}

static ttpu_status read_value(const rt_value *v, size_t offset, char *to, size_t bytes) {
  if (v->state == RT_FAILED)
    return base_fail(v->error != NULL ? v->error->code : TTPU_RESOURCE_EXHAUSTED, "%s",
                     v->error != NULL ? v->error->message : "out of host memory");
  /* a storage may have more or fewer bytes than were ever written */
  size_t have = (size_t)v->numel * base_dtype_bytes((ttpu_dtype)v->dtype), count = offset < have ? have - offset : 0;
  if (count > bytes) count = bytes;
  memset(to + count, 0, bytes - count);
  if (v->layout != NULL) return rt_layout_read(v, offset, to, count);
  return pjrt_buffer_part_to_host(v->buffer, offset < have ? offset : have, to, count);
}

ttpu_status rt_storage_read(rt_storage *s, size_t offset, void *to, size_t bytes) {
  rt_lock();
  ttpu_status status = rt_take_turn(&rt_global.devices[s->device]);
  if (status != TTPU_OK) {
    rt_unlock();
    return status;
  }
  ++rt_global.counters.host_reads;
  rt_value *v = s->value != NULL ? rt_value_share(s->value) : NULL;
  /* Cut even when v is ready: the host waits anyway, and a loop that reads is cut at the same place in every turn. */
  (void)rt_trace_cut(&rt_global.devices[s->device]);
  rt_unlock();
  if (v == NULL) {
    memset(to, 0, bytes);
    return TTPU_OK;
  }
  if (v->state == RT_PENDING) {
    rt_value_free(v);
    return still_pending();
  }
  status = read_value(v, offset, to, bytes);
  if (status != TTPU_OK) { /* raised here: the next synchronisation need not say it again */
    char message[1024];
    snprintf(message, sizeof message, "%s", base_message());
    rt_device *d = &rt_global.devices[s->device];
    rt_error *e = rt_device_take_error(d);
    if (e != NULL && e->code != status) rt_device_note_error(d, e->code, e->message);
    rt_error_free(e);
    status = base_fail(status, "%s", message);
  }
  rt_value_free(v);
  return status;
}

bool rt_storage_is_ready(rt_storage *s) {
  rt_lock();
  rt_value *v = s->value != NULL ? rt_value_share(s->value) : NULL;
  rt_unlock();
  if (v == NULL) return true;
  bool ready = v->state == RT_FAILED || (v->state == RT_READY && pjrt_buffer_is_ready(v->buffer));
  rt_value_free(v);
  return ready;
}
