/* A small fuzzer for builds without libFuzzer: takes a target's right inputs, and gives it each of them and then mutated
 * ones until its time is over. The same numbers always: a failure comes again.
 *
 *   fuzz_ir_text                 five seconds (TTPU_FUZZ_SECONDS, TTPU_FUZZ_SEED)
 *   fuzz_ir_text FILE...         these files, to see a failure again
 *   fuzz_ir_text -corpus FOLDER  writes the right inputs into a folder, for libFuzzer
 *
 * The input of a crash is in ./crash.input. */
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

/* What the sanitizers' run-time libraries ask for: memory that is asked for without reason is a failure. */
#if defined(__SANITIZE_ADDRESS__)
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}
#endif

typedef struct input {
  uint8_t *bytes;
  size_t size;
} input;

enum { MOST_SEEDS = 4096, MOST_BYTES = 1 << 20, MOST_MEMORY = 1 << 20 /* kB */ };
static input seeds[MOST_SEEDS];
static uint32_t seed_count;
static uint8_t current[MOST_BYTES];
static size_t current_size;
static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t draw(uint32_t n) { /* splitmix64 */
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ z >> 31) >> 32) % n;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep_input(int signal_number) {
  FILE *file = fopen("crash.input", "wb");
  if (file) (void)!fwrite(current, 1, current_size, file), fclose(file);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static void run(void) {
  uint8_t *copy = malloc(current_size ? current_size : 1); /* exact, so that a sanitizer sees a step behind it */
  memcpy(copy, current, current_size);
  LLVMFuzzerTestOneInput(copy, current_size);
  free(copy);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  struct rusage use;
  if (getrusage(RUSAGE_SELF, &use) == 0 && use.ru_maxrss > MOST_MEMORY) {
    fprintf(stderr, "%zu bytes of input took %ld kB of memory\n", current_size, use.ru_maxrss);
    abort();
  }
#endif
}

/* ---- mutations ------------------------------------------------------------------------------ */

static void insert(size_t at, const uint8_t *bytes, size_t size) {
  if (current_size + size > MOST_BYTES) return;
  memmove(current + at + size, current + at, current_size - at);
  memmove(current + at, bytes, size);
  current_size += size;
}

static void remove_at(size_t at, size_t size) {
  memmove(current + at, current + at + size, current_size - at - size);
  current_size -= size;
}

static void splice(size_t at) { /* a piece of another right input */
  const input *other = &seeds[draw(seed_count)];
  if (other->size == 0) return;
  size_t from = draw((uint32_t)other->size), most = other->size - from,
         size = draw(most < 64 ? (uint32_t)most : 64) + 1;
  insert(at, other->bytes + from, size < most ? size : most);
}

static void replace_digits(size_t at) { /* numbers in texts */
  static const char *const numbers[] = {"0", "1", "-1", "4294967296", "9223372036854775807", "18446744073709551615",
                                        "17"};
  while (at < current_size && !(current[at] >= '0' && current[at] <= '9')) ++at;
  size_t end = at;
  while (end < current_size && current[end] >= '0' && current[end] <= '9') ++end;
  if (at == end) return;
  const char *number = numbers[draw(sizeof numbers / sizeof *numbers)];
  remove_at(at, end - at);
  insert(at, (const uint8_t *)number, strlen(number));
}

static void mutate(void) {
  static const uint8_t edges[] = {0, 1, 2, 0x7F, 0x80, 0xFF, 0xFE, 0x40};
  if (current_size == 0) return;
  size_t at = draw((uint32_t)current_size), left = current_size - at;
  uint32_t size = draw(left < 32 ? (uint32_t)left : 32) + 1;
  if (size > left) size = (uint32_t)left;
  switch (draw(9)) {
    case 0: current[at] ^= (uint8_t)(1 << draw(8)); break;
    case 1: current[at] = (uint8_t)draw(256); break;
    case 2: current[at] = edges[draw(sizeof edges)]; break;
    case 3: remove_at(at, size); break;
    case 4: insert(at, current + at, size); break; /* twice */
    case 5: splice(at); break;
    case 6: replace_digits(at); break;
    case 7: current[at] = (uint8_t)(current[at] + (draw(2) ? 2 : -2)); break; /* a varint's neighbour */
    default:
      if (draw(4) == 0) current_size = at;
      else memset(current + at, edges[draw(sizeof edges)], size);
  }
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void gather_seeds(void) {
  for (base_text text = {0}; seed_count < MOST_SEEDS && fuzz_seed(seed_count, &text); text = (base_text){0}) {
    seeds[seed_count].bytes = malloc(text.length + 1);
    seeds[seed_count].size = text.length < MOST_BYTES / 2 ? text.length : MOST_BYTES / 2;
    memcpy(seeds[seed_count].bytes, text.data ? text.data : "", seeds[seed_count].size);
    ++seed_count;
    base_text_free(&text);
  }
}

static int replay(int count, char **paths) {
  for (int i = 0; i < count; ++i) {
    FILE *file = fopen(paths[i], "rb");
    if (!file) return fprintf(stderr, "cannot open %s\n", paths[i]), 1;
    current_size = fread(current, 1, MOST_BYTES, file);
    fclose(file);
    run();
  }
  return 0;
}

static int write_corpus(const char *folder) {
  char path[4096];
  for (uint32_t i = 0; i < seed_count; ++i) {
    snprintf(path, sizeof path, "%s/%u", folder, i);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(seeds[i].bytes, 1, seeds[i].size, file) != seeds[i].size) return 1;
    fclose(file);
  }
  return 0;
}

static void fuzz(double seconds) {
  uint64_t runs = 0;
  double end = now() + seconds;
  for (uint32_t i = 0; i < seed_count; ++i, ++runs) {
    memcpy(current, seeds[i].bytes, current_size = seeds[i].size);
    run();
  }
  for (; now() < end; ++runs) {
    const input *from = &seeds[draw(seed_count)];
    memcpy(current, from->bytes, current_size = from->size);
    for (uint32_t n = draw(4) ? 1 + draw(3) : 1 + draw(16); n > 0; --n) mutate();
    run();
  }
  printf("%llu inputs from %u right ones\n", (unsigned long long)runs, seed_count);
}

int main(int count, char **arguments) {
  const int signals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) signal(signals[i], keep_input);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const struct rlimit limit = {(rlim_t)4 << 30, (rlim_t)4 << 30};
  setrlimit(RLIMIT_AS, &limit);
#endif
  const char *given = getenv("TTPU_FUZZ_SECONDS");
  const char *seed = getenv("TTPU_FUZZ_SEED");
  if (seed) state ^= strtoull(seed, NULL, 0);
  gather_seeds();
  if (seed_count == 0) return 1;
  if (count == 3 && strcmp(arguments[1], "-corpus") == 0) return write_corpus(arguments[2]);
  if (count > 1) return replay(count - 1, arguments + 1);
  fuzz(given ? atof(given) : 5);
  for (uint32_t i = 0; i < seed_count; ++i) free(seeds[i].bytes);
  return 0;
}
