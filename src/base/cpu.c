/* What the processor and the kernel offer, found once. Kernels ask here and never the compiler's macros. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/base.h"

static base_cpu_features features;
static pthread_once_t features_once = PTHREAD_ONCE_INIT;

/* ---- instruction sets ---- */

typedef enum { LEVEL_PORTABLE, LEVEL_AVX2, LEVEL_AVX512, LEVEL_AMX } cpu_level;

static cpu_level level_allowed(void) {
  static const char *const names[] = {"portable", "avx2", "avx512", "amx"};
  const char *wanted = getenv("TTPU_CPU");
  if (!wanted || !*wanted) return LEVEL_AMX;
  for (int i = LEVEL_PORTABLE; i <= LEVEL_AMX; ++i)
    if (strcmp(wanted, names[i]) == 0) return (cpu_level)i;
  base_log(LOG_WARN, "TTPU_CPU=%s is none of portable, avx2, avx512, amx: ignored", wanted);
  return LEVEL_AMX;
}

#if defined(__x86_64__)
static bool bit(uint32_t word, int n) { return word >> n & 1; }

/* The register states that the kernel saves on a switch: XCR0. */
static uint64_t states_enabled(void) {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* Tile registers need the kernel's permission, once a process (Documentation/arch/x86/xstate.rst); without it the first
 * tile instruction is SIGILL. Refused, for example, when a thread has too small an alternate signal stack. */
static bool amx_permitted(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0) return true;
  base_log(LOG_INFO, "the kernel refuses AMX (%s): AVX-512 is used instead", strerror(errno));
  return false;
}

static void find_instruction_sets(cpu_level allowed) {
  uint32_t a, b, c, d, leaf7_a = 0, leaf7_b, leaf7_c, leaf7_d;
  if (allowed == LEVEL_PORTABLE || !__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) return;
  bool fma = bit(c, 12), f16c = bit(c, 29);
  uint64_t states = states_enabled();
  if (!__get_cpuid_count(7, 0, &leaf7_a, &leaf7_b, &leaf7_c, &leaf7_d)) return;
  uint32_t sub1_a = 0;
  if (leaf7_a >= 1) __get_cpuid_count(7, 1, &sub1_a, &b, &c, &d);

  bool bmi = bit(leaf7_b, 3) && bit(leaf7_b, 8);
  features.avx2 = (states & 0x6) == 0x6 && fma && f16c && bmi && bit(leaf7_b, 5);
  if (!features.avx2 || allowed < LEVEL_AVX512) return;
  features.avx512 =
      (states & 0xe6) == 0xe6 && bit(leaf7_b, 16) && bit(leaf7_b, 17) && bit(leaf7_b, 30) && bit(leaf7_b, 31);
  if (!features.avx512) return;
  features.avx512_bf16 = bit(sub1_a, 5);
  features.avx512_vnni = bit(leaf7_c, 11);
  features.avx512_fp16 = bit(leaf7_d, 23);
  bool amx = (states & 0x60000) == 0x60000 && bit(leaf7_d, 22) && bit(leaf7_d, 24) && bit(leaf7_d, 25);
  features.amx = amx && allowed >= LEVEL_AMX && amx_permitted();
}
#else
static void find_instruction_sets(cpu_level allowed) { (void)allowed; }
#endif

/* ---- caches and cores ---- */

/* One number (or two) from a file; -1 for what is not there or not a number, such as "max". */
static void read_numbers(const char *path, long *first, long *second) {
  *first = *second = -1;
  FILE *file = fopen(path, "re");
  if (!file) return;
  if (fscanf(file, "%ld %ld", first, second) < 1) *first = -1;
  fclose(file);
}

/* A data or unified cache's size: the kernel's answer, else the C library's (which gives the sum over a whole package for
 * some level-3 caches), else the typical one, since virtual machines may hide theirs. */
static uint32_t cache_bytes(int level, int sysconf_name, uint32_t otherwise) {
  for (int index = 0; index < 8; ++index) {
    char path[96], kind[16] = "";
    long found, kilobytes, ignored;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
    read_numbers(path, &found, &ignored);
    if (found != level) continue;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
    FILE *file = fopen(path, "re");
    if (file) {
      if (fscanf(file, "%15s", kind) != 1) kind[0] = '\0';
      fclose(file);
    }
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    read_numbers(path, &kilobytes, &ignored); /* "32K", always in K */
    if (strcmp(kind, "Instruction") != 0 && kilobytes > 0 && kilobytes < 1l << 21) return (uint32_t)kilobytes << 10;
  }
  long bytes = sysconf(sysconf_name);
  return bytes > 0 && bytes < 1l << 31 ? (uint32_t)bytes : otherwise;
}

/* A container's share of the machine in whole cores, rounded up; 0 when there is no limit. */
static int cores_by_quota(void) {
  long quota, period, ignored;
  read_numbers("/sys/fs/cgroup/cpu.max", &quota, &period); /* cgroup v2 */
  if (quota <= 0) {
    read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota, &ignored);
    read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period, &ignored);
  }
  return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

/* The number of the first hardware thread on the core of `cpu`: the core's name here. */
static size_t core_of(size_t cpu) {
  char path[96];
  long first, ignored;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
  read_numbers(path, &first, &ignored);
  return first >= 0 && first < CPU_SETSIZE ? (size_t)first : cpu;
}

/* Cores that this process may use. Two hardware threads of a core count once: they share its multipliers and caches,
 * and the kernels keep both busy with one. */
static int count_cores(void) {
  cpu_set_t allowed, cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) { /* more than CPU_SETSIZE processors */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > BASE_POOL_MAX ? BASE_POOL_MAX : (int)online;
  }
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(core_of(cpu), &cores);
  int count = CPU_COUNT(&cores), quota = cores_by_quota();
  if (quota > 0 && quota < count) count = quota;
  return count < 1 ? 1 : count > BASE_POOL_MAX ? BASE_POOL_MAX : count;
}

static void find_features(void) {
  features.l1d_bytes = cache_bytes(1, _SC_LEVEL1_DCACHE_SIZE, 32u << 10);
  features.l2_bytes = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, 1u << 20);
  features.l3_bytes = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, 16u << 20);
  features.cores = count_cores();
  find_instruction_sets(level_allowed());
}

const base_cpu_features *base_cpu(void) {
  pthread_once(&features_once, find_features);
  return &features;
}

int base_local_processes(void) {
  const char *text = getenv("LOCAL_WORLD_SIZE");
  long count = text ? strtol(text, NULL, 10) : 0;
  return count < 1 || count > 4096 ? 1 : (int)count;
}
