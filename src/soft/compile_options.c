/* Reads the few fields of xla.CompileOptionsProto that matter to a software TPU, from protobuf's wire format:
 *
 *   CompileOptionsProto          3 executable_build_options
 *   ExecutableBuildOptionsProto  1 device_ordinal, 4 num_replicas, 5 num_partitions, 9 device_assignment
 *   DeviceAssignmentProto        1 replica_count, 2 computation_count, 3 repeated computation_devices
 *   ComputationDevice            1 repeated replica_device_ids, packed or not
 */
#include "soft/plugin_int.h"

typedef struct reader {
  const uint8_t *at, *end;
  bool bad;
} reader;

static uint64_t read_varint(reader *r) {
  uint64_t value = 0;
  for (uint32_t shift = 0; shift < 64 && r->at < r->end; shift += 7) {
    uint8_t byte = *r->at++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  r->bad = true;
  return 0;
}

/* The next field; false at the end. Numbers are in *value, nested bytes in *inside. */
static bool read_field(reader *r, uint32_t *field, uint64_t *value, reader *inside) {
  if (r->bad || r->at == r->end) return false;
  uint64_t key = read_varint(r);
  *field = (uint32_t)(key >> 3);
  *value = 0;
  *inside = (reader){r->end, r->end, false};
  size_t left = (size_t)(r->end - r->at), skip = 0;
  switch (key & 7) {
    case 0: *value = read_varint(r); break;
    case 1: skip = 8; break;
    case 5: skip = 4; break;
    case 2:
      *value = read_varint(r);
      left = (size_t)(r->end - r->at);
      if (*value <= left) *inside = (reader){r->at, r->at + *value, false};
      skip = *value <= left ? (size_t)*value : left + 1;
      break;
    default: r->bad = true;
  }
  if (skip > left) r->bad = true;
  if (r->bad) return false;
  r->at += skip;
  return true;
}

static void add_device(plugin_compile_options *o, uint64_t id, reader *r) {
  if (o->assigned == sizeof o->devices / sizeof o->devices[0]) r->bad = true;
  else o->devices[o->assigned++] = (int32_t)id;
}

static void read_assignment(reader r, plugin_compile_options *o, bool *bad) {
  uint32_t field;
  uint64_t value;
  reader inside, packed;
  while (read_field(&r, &field, &value, &inside)) {
    if (field != 3) continue;
    while (read_field(&inside, &field, &value, &packed)) {
      if (field != 1) continue;
      if (packed.at == packed.end) add_device(o, value, &inside);
      while (packed.at < packed.end && !packed.bad) add_device(o, read_varint(&packed), &inside);
      inside.bad |= packed.bad;
    }
    r.bad |= inside.bad;
  }
  *bad |= r.bad;
}

/* Together, so that their product is a number of programs too. */
enum { MOST_PROGRAMS = 65536 };

ttpu_status plugin_compile_options_parse(const void *bytes, size_t length, plugin_compile_options *out) {
  plugin_compile_options o = {.replicas = 1, .partitions = 1, .device_ordinal = -1};
  reader r = {bytes, (const uint8_t *)bytes + length, false}, inside, nested;
  uint32_t field;
  uint64_t value;
  while (length && read_field(&r, &field, &value, &inside)) {
    if (field != 3) continue;
    while (read_field(&inside, &field, &value, &nested)) {
      if (field == 1) o.device_ordinal = (int64_t)value;
      if (field == 4 && value) o.replicas = value < MOST_PROGRAMS ? (uint32_t)value : MOST_PROGRAMS;
      if (field == 5 && value) o.partitions = value < MOST_PROGRAMS ? (uint32_t)value : MOST_PROGRAMS;
      if (field == 9) read_assignment(nested, &o, &inside.bad);
    }
    r.bad |= inside.bad;
  }
  if (r.bad)
    return base_fail(TTPU_INVALID_ARGUMENT, "the compile options are no serialized CompileOptionsProto (%zu bytes)",
                     length);
  if ((uint64_t)o.replicas * o.partitions > MOST_PROGRAMS)
    return base_fail(TTPU_INVALID_ARGUMENT, "%u replicas of %u partitions: %d programs at most", o.replicas,
                     o.partitions, MOST_PROGRAMS);
  if (o.assigned && o.assigned != o.replicas * o.partitions)
    return base_fail(TTPU_INVALID_ARGUMENT, "the device assignment names %u devices for %u replicas of %u partitions",
                     o.assigned, o.replicas, o.partitions);
  *out = o;
  return TTPU_OK;
}
