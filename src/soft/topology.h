/* topology: "v5e:2x2" -> chips at coordinates, devices with HBM.
 *
 * A name is a generation and the extent of its torus, v5e:AxB and v6e:AxB, v4:AxBxC, v5p:AxBxC, tpu7x:AxBxC;
 * missing extents are 1, so "v5e" is one chip. Devices are numbered chip by chip, the first coordinate fastest, the
 * cores of a chip one after another. generations.def has the numbers.
 */
#ifndef TTPU_SOFT_TOPOLOGY_H
#define TTPU_SOFT_TOPOLOGY_H

#include "base/base.h"

typedef struct soft_generation {
  const char *name, *aliases, *kind;
  size_t hbm_bytes; /* of a device */
  uint32_t devices_per_chip, cores_per_device, torus;
  double bf16_tflops, int8_tops; /* of a chip */
  double hbm_gbps;
  uint32_t vmem_mib, mxu_side;
  double ici_gbps;
} soft_generation;

typedef struct soft_topology {
  const soft_generation *generation;
  uint32_t dims[3];
  uint32_t devices;
  char name[48]; /* canonical: "v5e:2x2" */
} soft_topology;

/* INVALID_ARGUMENT, with the names there are, for a bad one. */
ttpu_status soft_topology_parse(const char *name, size_t length, soft_topology *out);
/* Where device `id` sits. */
void soft_topology_place(const soft_topology *t, uint32_t id, int64_t coords[3], int64_t *core_on_chip);

/* "17179869184", "16G", "512M", "64K" (powers of 1024). `what` names it in the message. */
ttpu_status soft_bytes_parse(const char *text, size_t length, const char *what, size_t *out);

#endif
