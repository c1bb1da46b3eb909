/* Which plugin to use: the one that the user names, else libtpu where there are chips, else the software TPU.
 *
 * Whether there are chips is read from files, without starting anything: libtpu on a machine without chips may hang or end
 * the process, so it is never tried there. A chip shows on the PCI bus; that this process may use it shows as a file
 * under /dev, which a container may not have. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pjrt/pjrt_int.h"

enum { GOOGLE_VENDOR = 0x1ae0, PATH_BYTES = 4096 };

/* ---- chips ------------------------------------------------------------------------------------------------------------- */

/* The number in a file of sysfs, "0x1ae0\n"; -1: none. */
static long read_number(const char *folder, const char *name) {
  char path[PATH_BYTES], text[32];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return -1;
  FILE *file = fopen(path, "re");
  if (!file) return -1;
  long number = fgets(text, sizeof text, file) ? strtol(text, NULL, 16) : -1;
  fclose(file);
  return number;
}

static const char *generation_of(long device) {
  switch (device) {
#define CHIP(id, generation) \
  case id: return generation;
#include "pjrt/chips.def"
#undef CHIP
    default: return NULL;
  }
}

/* Is there an entry `prefix` + digits? */
static bool has_numbered(const char *folder, const char *prefix) {
  DIR *d = opendir(folder);
  bool found = false;
  if (!d) return false;
  for (struct dirent *e = readdir(d); e && !found; e = readdir(d))
    found = strncmp(e->d_name, prefix, strlen(prefix)) == 0 && isdigit((unsigned char)e->d_name[strlen(prefix)]);
  closedir(d);
  return found;
}

pjrt_chips pjrt_chips_find(const char *root) {
  pjrt_chips chips = {0};
  char folder[PATH_BYTES], device[PATH_BYTES];
  snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", root);
  DIR *d = opendir(folder);
  for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
    if (e->d_name[0] == '.' || snprintf(device, sizeof device, "%s/%s", folder, e->d_name) >= (int)sizeof device)
      continue;
    if (read_number(device, "vendor") != GOOGLE_VENDOR) continue;
    const char *generation = generation_of(read_number(device, "device"));
    if (!generation) continue;
    chips.generation = generation;
    ++chips.count;
  }
  if (d) closedir(d);
  snprintf(folder, sizeof folder, "%s/dev", root);
  snprintf(device, sizeof device, "%s/dev/vfio", root);
  chips.usable = chips.count > 0 && (has_numbered(folder, "accel") || has_numbered(device, ""));
  return chips;
}

/* ---- the choice ----------------------------------------------------------------------------------------------------------- */

static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

static bool choose(pjrt_choice *c, const char *path, const char *format, const char *what) {
  int a = snprintf(c->path, sizeof c->path, "%s", path), b = snprintf(c->reason, sizeof c->reason, format, what);
  return a >= 0 && (size_t)a < sizeof c->path && b >= 0;
}

/* Among the chips' plugins. False: none is to be had, and the reason says so. */
static bool choose_libtpu(pjrt_choice *c, pjrt_chips chips, const char *installed) {
  const char *named = setting("TPU_LIBRARY_PATH");
  if (!chips.usable) {
    base_log(LOG_WARN,
             "there are TPU chips (%s) on the PCI bus, but no /dev/accel* or /dev/vfio/*: using the software TPU",
             chips.generation);
    snprintf(c->reason, sizeof c->reason, "TPU chips (%s) that this process cannot open", chips.generation);
    return false;
  }
  if (named) return choose(c, named, "TPU_LIBRARY_PATH, on a machine with TPU chips (%s)", chips.generation);
  if (installed && *installed && access(installed, R_OK) == 0)
    return choose(c, installed, "the installed libtpu, on a machine with TPU chips (%s)", chips.generation);
  base_log(LOG_WARN, "there are TPU chips (%s) but no libtpu: using the software TPU; pip install libtpu to use them",
           chips.generation);
  snprintf(c->reason, sizeof c->reason, "TPU chips (%s) but no libtpu is installed", chips.generation);
  return false;
}

ttpu_status pjrt_choose(const char *root, const char *soft_path, const char *libtpu_path, pjrt_choice *c) {
  const char *named = setting("TTPU_PLUGIN");
  *c = (pjrt_choice){0};
  bool fits = true;
  if (named && strcmp(named, "soft") != 0) {
    fits = choose(c, named, "%s names it", "TTPU_PLUGIN");
  } else if (named) {
    fits = choose(c, soft_path, "%s asks for the software TPU", "TTPU_PLUGIN");
  } else {
    pjrt_chips chips = pjrt_chips_find(root);
    const char *none = setting("TPU_LIBRARY_PATH") ? "no TPU chips, so TPU_LIBRARY_PATH is not used" : "no TPU chips";
    if (chips.count == 0) fits = choose(c, soft_path, "%s", none);
    else if (!choose_libtpu(c, chips, libtpu_path)) snprintf(c->path, sizeof c->path, "%s", soft_path);
  }
  if (!fits || strlen(c->path) == 0)
    return base_fail(TTPU_INVALID_ARGUMENT, "the plugin's path is empty or longer than %zu bytes", sizeof c->path - 1);
  base_log(LOG_INFO, "plugin %s: %s", c->path, c->reason);
  return TTPU_OK;
}
