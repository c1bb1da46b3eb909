/* From attribute trees to attribute structs, by the field tables: see parse_int.h. */
#include <ctype.h>
#include <string.h>

#include "ir/parse_int.h"

#define FAIL(...) return text_fail(t, TTPU_INVALID_ARGUMENT, __VA_ARGS__)
#define TRY(call)              \
  do {                         \
    if (!(call)) return false; \
  } while (0)

static uint32_t count_leaves(const node *n) {
  if (n->kind != NODE_ARRAY) return 1;
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->count; ++i) count += count_leaves(&n->entries[i].value);
  return count;
}

static bool flatten(const node *n, int64_t *numbers, uint32_t *at) {
  if (n->kind != NODE_ARRAY) {
    numbers[(*at)++] = n->i;
    return n->kind == NODE_INT || n->kind == NODE_BOOL;
  }
  for (uint32_t i = 0; i < n->count; ++i)
    if (!flatten(&n->entries[i].value, numbers, at)) return false;
  return true;
}

bool text_list(text_reader *t, const char *name, const node *n, ir_i64s *out) {
  int64_t *numbers = NULL;
  if (n->kind == NODE_LIST) {
    *out = n->numbers;
    return true;
  }
  if (n->kind == NODE_ARRAY) { /* [[0, 1], [2, 3]] is read in order */
    uint32_t count = count_leaves(n), at = 0;
    numbers = text_room(t, count * sizeof *numbers);
    if (!numbers) return false;
    if (!flatten(n, numbers, &at)) FAIL("%s holds something that is no integer", name);
    *out = (ir_i64s){numbers, count};
    return true;
  }
  if (n->kind != NODE_DENSE || !base_dtype_is_integer((ttpu_dtype)n->type.dtype))
    FAIL("%s is no list of integers", name);
  int64_t count = ir_numel(n->type);
  size_t size = base_dtype_bytes((ttpu_dtype)n->type.dtype);
  if (count > (n->data.splat ? 1 << 12 : 1 << 24)) FAIL("%s has %lld entries", name, (long long)count);
  numbers = text_room(t, (size_t)count * sizeof *numbers);
  if (!numbers) return false;
  for (int64_t i = 0; i < count; ++i)
    numbers[i] = base_scalar_load((ttpu_dtype)n->type.dtype,
                                  (const uint8_t *)n->data.bytes + (n->data.splat ? 0 : (size_t)i * size))
                     .i;
  *out = (ir_i64s){numbers, (uint32_t)count};
  return true;
}

static bool to_flags(text_reader *t, const char *name, const node *n, ir_flags *out) {
  bool *flags;
  if (n->kind == NODE_ARRAY) { /* the pretty form's [true, false] */
    ir_i64s list;
    TRY(text_list(t, name, n, &list));
    flags = text_room(t, list.count * sizeof *flags);
    if (!flags) return false;
    for (uint32_t i = 0; i < list.count; ++i) flags[i] = list.data[i] != 0;
    *out = (ir_flags){flags, list.count};
    return true;
  }
  int64_t count = n->kind == NODE_LIST                                  ? n->numbers.count
                  : n->kind == NODE_DENSE && n->type.dtype == TTPU_BOOL ? ir_numel(n->type)
                                                                        : -1;
  if (count < 0 || count > 1 << 16) FAIL("%s is no list of booleans", name);
  flags = text_room(t, (size_t)count * sizeof *flags);
  if (!flags) return false;
  for (int64_t i = 0; i < count; ++i)
    flags[i] =
        n->kind == NODE_LIST ? n->numbers.data[i] != 0 : ((const uint8_t *)n->data.bytes)[n->data.splat ? 0 : i] != 0;
  *out = (ir_flags){flags, (uint32_t)count};
  return true;
}

static bool to_enum(text_reader *t, const ir_field *field, const node *n, unsigned *out) {
  text_slice name = n->kind == NODE_OTHER ? n->text : n->value; /* a bare word in the pretty form */
  if (n->kind == NODE_ENUM || n->kind == NODE_STRING || n->kind == NODE_OTHER)
    for (unsigned i = 0; i < field->name_count; ++i)
      if (text_is(name, field->names[i])) return *out = i, true;
  FAIL("%.*s is no %s", (int)(n->text.length > 60 ? 60 : n->text.length), n->text.data, field->name);
}

/* One value into its field. */
static bool to_field(text_reader *t, const ir_field *field, const char *name, const node *n, void *at) {
  switch ((ir_field_kind)field->kind) {
    case FIELD_DIMS:
    case FIELD_SIZES:
      if (strcmp(field->name, "padding") == 0 && n->kind == NODE_DENSE && (n->type.rank != 2 || n->type.dims[1] != 2))
        FAIL("padding is no list of pairs");
      return text_list(t, name, n, at);
    case FIELD_FLAGS: return to_flags(t, name, n, at);
    case FIELD_ENUM: return to_enum(t, field, n, at);
    case FIELD_I64:
    case FIELD_SIZE:
      if (n->kind != NODE_INT) FAIL("%s is no integer", name);
      *(int64_t *)at = n->i;
      return true;
    case FIELD_F64:
      if (n->kind != NODE_FLOAT && n->kind != NODE_INT) FAIL("%s is no number", name);
      *(double *)at = n->kind == NODE_FLOAT ? n->d : (double)n->i;
      return true;
    case FIELD_FLAG:
      if (n->kind != NODE_BOOL && n->kind != NODE_UNIT) FAIL("%s is no boolean", name);
      *(bool *)at = n->kind == NODE_UNIT || n->i;
      return true;
    case FIELD_DATA:
      if (n->kind != NODE_DENSE) FAIL("%s is not dense<...>", name);
      *(ir_data *)at = n->data;
      return true;
    case FIELD_TEXT: {
      bool name = n->kind == NODE_STRING || n->kind == NODE_SYMBOL;
      text_slice s = name ? n->value : n->text;
      if (!name && s.length == 0) FAIL("%s has no text", field->name); /* bytecode's numbers */
      char *copy = text_room(t, s.length + 1);
      if (!copy) return false;
      memcpy(copy, s.data, s.length);
      *(const char **)at = copy;
      return true;
    }
  }
  return true;
}

/* precision_config: the finest of the operands' precisions. A dot algorithm asks for what HIGHEST surely has. */
static bool to_precision(text_reader *t, const ir_field *field, const node *dict, unsigned *out) {
  const node *config = node_find(dict, "precision_config");
  if (config && config->kind == NODE_ARRAY && config->count > 2) FAIL("precision_config has %u entries", config->count);
  for (uint32_t i = 0; config && config->kind == NODE_ARRAY && i < config->count; ++i) {
    unsigned one = 0;
    TRY(to_enum(t, field, &config->entries[i].value, &one));
    if (one > *out) *out = one;
  }
  if (node_find(dict, "algorithm")) *out = IR_PRECISION_HIGHEST;
  return true;
}

/* [b, f, 0, 1]: which position each letter and number has. */
static bool read_conv_group(text_reader *t, const char **at, const char *end, char first_name, int64_t *first,
                            char second_name, int64_t *second, ir_i64s *spatial) {
  int64_t *positions = text_room(t, TTPU_MAX_RANK * sizeof *positions), position = 0, count = 0;
  if (!positions) return false;
  *first = *second = -1;
  for (int64_t i = 0; i < TTPU_MAX_RANK; ++i) positions[i] = -1;
  while (*at < end && *(*at)++ != '[') continue;
  while (*at < end && **at != ']') {
    char c = *(*at)++;
    if (c == ' ' || c == ',') continue;
    if (position >= TTPU_MAX_RANK) FAIL("more than %d dimensions", TTPU_MAX_RANK);
    if (c == first_name) {
      *first = position++;
    } else if (c == second_name) {
      *second = position++;
    } else {
      int64_t number = c - '0';
      while (*at < end && isdigit((unsigned char)**at) && number >= 0 && number < 100)
        number = number * 10 + *(*at)++ - '0';
      if (c < '0' || c > '9' || number >= TTPU_MAX_RANK) FAIL("'%c' in the convolution's dimension numbers", c);
      positions[number] = position++;
      ++count;
    }
  }
  *spatial = (ir_i64s){positions, (uint32_t)count};
  return true;
}

static bool to_conv_numbers(text_reader *t, const node *n, ir_convolution_attrs *a) {
  const char *at = n->value.data, *end = at + n->value.length;
  TRY(read_conv_group(t, &at, end, 'b', &a->input_batch_dimension, 'f', &a->input_feature_dimension,
                      &a->input_spatial_dimensions));
  TRY(read_conv_group(t, &at, end, 'i', &a->kernel_input_feature_dimension, 'o', &a->kernel_output_feature_dimension,
                      &a->kernel_spatial_dimensions));
  return read_conv_group(t, &at, end, 'b', &a->output_batch_dimension, 'f', &a->output_feature_dimension,
                         &a->output_spatial_dimensions);
}

/* What an absent attribute means its default for. */
static bool may_be_absent(uint16_t attrs, const ir_field *field) {
  if (field->kind == FIELD_FLAG || field->kind == FIELD_FLAGS) return true;
  switch (attrs) {
    case IR_ATTRS_convolution: return true; /* the dimension numbers are checked as a whole */
    case IR_ATTRS_window: return strcmp(field->name, "window_dimensions") != 0;
    case IR_ATTRS_dot_general:
    case IR_ATTRS_gather:
    case IR_ATTRS_scatter: return strcmp(field->name, "slice_sizes") != 0; /* records leave out what is empty */
    case IR_ATTRS_custom_call: return strcmp(field->name, "backend_config") == 0;
    case IR_ATTRS_replica_groups: return strcmp(field->name, "channel_id") == 0;
    case IR_ATTRS_transfer:
    case IR_ATTRS_infeed:
    case IR_ATTRS_outfeed:
    case IR_ATTRS_sort: return true;
    default: return false;
  }
}

static bool collective_has(ir_kind kind, const char *field) {
  if (strcmp(field, "dimension") == 0)
    return kind == IR_ALL_GATHER || kind == IR_REDUCE_SCATTER || kind == IR_ALL_TO_ALL;
  if (strcmp(field, "concat_dimension") == 0 || strcmp(field, "split_count") == 0) return kind == IR_ALL_TO_ALL;
  if (strcmp(field, "has_dynamic_root") == 0) return kind == IR_COLLECTIVE_BROADCAST || kind == IR_COLLECTIVE_REDUCE;
  return strcmp(field, "group_count") != 0;
}

/* Groups are rows: group_count is how many, replica_groups their numbers. */
static void set_group_count(const node *dict, ir_kind kind, ir_replica_groups_attrs *a) {
  const node *n = node_find(dict, kind == IR_COLLECTIVE_PERMUTE ? "source_target_pairs" : "replica_groups");
  a->group_count = n && n->kind == NODE_DENSE && n->type.rank == 2 && a->replica_groups.count ? n->type.dims[0] : 0;
  const node *channel = node_find(dict, "channel_handle"), *handle = channel ? node_find(channel, "handle") : NULL;
  if (handle && handle->kind == NODE_INT) a->channel_id = handle->i;
}

static void set_channel(const node *dict, ir_transfer_attrs *a) {
  const node *channel = node_find(dict, "channel_handle");
  const node *handle = channel ? node_find(channel, "handle") : NULL,
             *type = channel ? node_find(channel, "type") : NULL;
  if (handle && handle->kind == NODE_INT) a->channel_id = handle->i;
  if (type && type->kind == NODE_INT) a->channel_type = type->i;
}

bool text_attrs(text_reader *t, ir_kind kind, const node *dict, const void **out) {
  uint16_t attrs = ir_ops[kind].attrs;
  const ir_attrs_info *info = &ir_attrs_infos[attrs];
  uint8_t *to = text_room(t, info->size);
  if (!to) return false;
  const node *conv = attrs == IR_ATTRS_convolution ? node_find(dict, "dimension_numbers") : NULL;
  if (attrs == IR_ATTRS_convolution) {
    ir_convolution_attrs *a = (ir_convolution_attrs *)to;
    a->feature_group_count = a->batch_group_count = 1;
    if (!conv || (conv->kind != NODE_CONV && conv->kind != NODE_DICT)) FAIL("no dimension_numbers");
    if (conv->kind == NODE_CONV) TRY(to_conv_numbers(t, conv, a));
  }
  if (attrs == IR_ATTRS_sort) ((ir_sort_attrs *)to)->dimension = -1;
  for (uint32_t i = 0; i < info->field_count; ++i) {
    const ir_field *field = &info->fields[i];
    const ir_record *record = ir_record_of(attrs, i);
    const char *name = ir_field_text_name(kind, field);
    if (attrs == IR_ATTRS_replica_groups && !collective_has(kind, field->name)) continue;
    if (field->tag && strcmp(field->tag, "precision") == 0) {
      TRY(to_precision(t, field, dict, (unsigned *)(to + field->offset)));
      continue;
    }
    const node *source = dict, *n;
    if (record) {
      source = node_find(dict, record->name);
      if (!source || source->kind != NODE_DICT) FAIL("no %s", record->name);
    }
    n = node_find(source, name);
    if (!n && conv && conv->kind == NODE_DICT) n = node_find(conv, name);
    if (!n && !may_be_absent(attrs, field)) FAIL("no attribute %s", name);
    if (n) TRY(to_field(t, field, name, n, to + field->offset));
  }
  if (attrs == IR_ATTRS_transfer) set_channel(dict, (ir_transfer_attrs *)to);
  if (attrs == IR_ATTRS_replica_groups) set_group_count(dict, kind, (ir_replica_groups_attrs *)to);
  *out = to;
  return true;
}
