/* Programs on disk: one file a program, named by its key.
 *
 *   "TTPUPGM1" | salt hash | payload hash | payload length | payload (what the plugin serialized)
 *
 * A file is written under a temporary name and renamed, so a reader never sees half of one and a killed process
 * leaves only a temporary file, which a later start removes. Whatever does not fit (magic, salt, length, hash) is
 * removed and counts as absent. The salt names all that a program depends on besides its key: our own build, the
 * plugin and its version, PyTorch.
 *
 * TTPU_CACHE=auto (the default) uses it for plugins that compile slowly; our own binds faster than a disk reads.
 * TTPU_CACHE=always and =off decide otherwise. TTPU_CACHE_DIR (default $XDG_CACHE_HOME/ttpu or ~/.cache/ttpu) says where;
 * TTPU_CACHE_LIMIT bounds it in bytes (default 2 GiB): the oldest files go first, at the start. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rt/rt_int.h"

typedef struct file_header {
  char magic[8];
  uint64_t salt, hash, length;
} file_header;
static const char file_magic[8] = {'T', 'T', 'P', 'U', 'P', 'G', 'M', '1'};

static struct {
  bool decided, enabled;
  char folder[3584];
  uint64_t salt;
  char salt_text[256]; /* from the user of rt: PyTorch's version */
} disk;

void rt_disk_set_salt(const char *text) { snprintf(disk.salt_text, sizeof disk.salt_text, "%s", text); }

/* ---- start ---- */

static bool make_folders(char *path) {
  for (char *slash = path + 1; *slash != '\0'; ++slash) {
    if (*slash != '/') continue;
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool choose_folder(void) {
  const char *given = getenv("TTPU_CACHE_DIR"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int n = -1;
  if (given != NULL && given[0] != '\0') n = snprintf(disk.folder, sizeof disk.folder, "%s", given);
  else if (cache != NULL && cache[0] == '/') n = snprintf(disk.folder, sizeof disk.folder, "%s/ttpu", cache);
  else if (home != NULL && home[0] == '/') n = snprintf(disk.folder, sizeof disk.folder, "%s/.cache/ttpu", home);
  return n > 0 && (size_t)n < sizeof disk.folder && make_folders(disk.folder);
}

/* A file stands for its build: code may change without a new version. */
static uint64_t file_identity(const char *path) {
  struct stat file;
  return stat(path, &file) == 0 ? base_mix((uint64_t)file.st_mtime, (uint64_t)file.st_size) : 0;
}

static uint64_t own_build(void) {
  Dl_info info;
  if (dladdr((void *)rt_disk_set_salt, &info) == 0 || info.dli_fname == NULL) return 0;
  return file_identity(info.dli_fname);
}

static uint64_t mix_text(uint64_t h, const char *text) { return base_hash(h, text, strlen(text)); }

typedef struct cached_file {
  char name[256];
  time_t used;
  int64_t bytes;
} cached_file;

static int by_age(const void *a, const void *b) {
  time_t x = ((const cached_file *)a)->used, y = ((const cached_file *)b)->used;
  return x < y ? -1 : x > y;
}

/* Removes temporary files of processes long gone, and the oldest programs beyond the limit. */
static void prune(void) {
  const char *given = getenv("TTPU_CACHE_LIMIT");
  int64_t limit = given != NULL ? strtoll(given, NULL, 10) : (int64_t)2 << 30, total = 0;
  DIR *folder = opendir(disk.folder);
  if (folder == NULL) return;
  cached_file *files = NULL;
  uint32_t count = 0, capacity = 0;
  char path[4096];
  for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
    struct stat file;
    if (entry->d_name[0] == '.' && strstr(entry->d_name, ".tmp") == NULL) continue;
    snprintf(path, sizeof path, "%s/%s", disk.folder, entry->d_name);
    if (stat(path, &file) != 0) continue;
    if (entry->d_name[0] == '.') {
      if (time(NULL) - file.st_mtime > 3600) (void)unlink(path);
      continue;
    }
    if (!BASE_GROW(files, count, capacity)) break;
    cached_file *f = &files[count++];
    snprintf(f->name, sizeof f->name, "%s", entry->d_name);
    f->used = file.st_mtime;
    f->bytes = file.st_size;
    total += file.st_size;
  }
  closedir(folder);
  if (total > limit) qsort(files, count, sizeof *files, by_age);
  for (uint32_t i = 0; i < count && total > limit; ++i) {
    snprintf(path, sizeof path, "%s/%s", disk.folder, files[i].name);
    if (unlink(path) == 0) total -= files[i].bytes;
  }
  base_free(files);
}

bool rt_disk_enabled(void) {
  if (disk.decided) return disk.enabled;
  disk.decided = true;
  const char *mode = getenv("TTPU_CACHE");
  bool off = mode != NULL && strcmp(mode, "off") == 0, always = mode != NULL && strcmp(mode, "always") == 0;
  if (off || (!always && pjrt_client_is_soft(rt_global.client)) || !choose_folder()) return false;
  uint64_t h = own_build();
  h = mix_text(h, disk.salt_text);
  h = mix_text(h, pjrt_client_platform(rt_global.client));
  h = mix_text(h, pjrt_client_platform_version(rt_global.client));
  h = mix_text(h, pjrt_client_plugin_path(rt_global.client));
  h = base_mix(h, file_identity(pjrt_client_plugin_path(rt_global.client)));
  const char *options = getenv("TTPU_PLUGIN_OPTIONS"), *flags = getenv("LIBTPU_INIT_ARGS");
  h = mix_text(h, options != NULL ? options : "");
  disk.salt = mix_text(h, flags != NULL ? flags : "");
  prune();
  return disk.enabled = true;
}

/* ---- files ---- */

static void file_path(base_hash128 key, char *path, size_t size) {
  snprintf(path, size, "%s/%016llx%016llx.program", disk.folder, (unsigned long long)key.a, (unsigned long long)key.b);
}

/* The payload of an open file when all of it is right; NULL otherwise. */
static void *read_payload(FILE *file, size_t *length) {
  file_header h;
  if (fread(&h, sizeof h, 1, file) != 1 || memcmp(h.magic, file_magic, sizeof file_magic) != 0 || h.salt != disk.salt)
    return NULL;
  struct stat info;
  if (fstat(fileno(file), &info) != 0 || (uint64_t)info.st_size != sizeof h + h.length) return NULL;
  void *payload = base_alloc(h.length + 1);
  if (payload == NULL) return NULL;
  if (fread(payload, 1, h.length, file) != h.length || base_hash(h.salt, payload, h.length) != h.hash) {
    base_free(payload);
    return NULL;
  }
  *length = h.length;
  return payload;
}

void *rt_disk_read(base_hash128 key, size_t *length) {
  char path[4096];
  file_path(key, path, sizeof path);
  FILE *file = fopen(path, "rbe");
  if (file == NULL) return NULL;
  void *payload = read_payload(file, length);
  fclose(file);
  if (payload == NULL) (void)unlink(path);
  return payload;
}

void rt_disk_remove(base_hash128 key) {
  char path[4096];
  file_path(key, path, sizeof path);
  (void)unlink(path);
}

void rt_disk_write(base_hash128 key, const void *payload, size_t length) {
  static atomic_uint serial;
  char path[4096], temporary[4096];
  file_path(key, path, sizeof path);
  snprintf(temporary, sizeof temporary, "%s/.%ld-%u.tmp", disk.folder, (long)getpid(), atomic_fetch_add(&serial, 1));
  FILE *file = fopen(temporary, "wbxe");
  if (file == NULL) return;
  file_header h = {.salt = disk.salt, .hash = base_hash(disk.salt, payload, length), .length = length};
  memcpy(h.magic, file_magic, sizeof file_magic);
  bool written = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(payload, 1, length, file) == length;
  written = fclose(file) == 0 && written;
  if (!written || rename(temporary, path) != 0) (void)unlink(temporary);
}
